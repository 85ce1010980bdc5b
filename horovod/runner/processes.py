"""Processes of Linux as horovodrun and its ranks need them: children end with us, and orphans are adopted.

Standard library only and few imports: every rank's wrapper needs it (see `agents.wrapper`).
"""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import suppress

from horovod.common import time_limits

ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)  # what asks a program to end
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


def process_control(option: int, value: int) -> None:
    """prctl(2). Where it is missing (not Linux) processes that outlive their parent are not ended for us."""
    import ctypes

    if sys.platform == "linux" and ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option}, {value}) failed")


def adopt_orphans() -> None:
    """From now on, descendants whose parent ends become children of this process."""
    process_control(_PR_SET_CHILD_SUBREAPER, 1)


def end_with_parent(signal_number: int) -> None:
    """Have the kernel send this signal to this process when its parent ends."""
    process_control(_PR_SET_PDEATHSIG, signal_number)


def children() -> list[int]:
    """Process ids of this process' children that still run."""
    mine, found = os.getpid(), []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    state, parent = file.read().rpartition(b")")[2].split()[:2]
            except OSError:
                continue  # it ended while we looked
            if int(parent) == mine and state != b"Z":
                found.append(int(name))
    return found


def end_descendants(patience: float = time_limits.ORPHANS_END) -> None:
    """Wait for our children's end, then SIGTERM, then SIGKILL. Needs adopt_orphans().

    Whom we adopt meanwhile gets the signal too: a child that is killed leaves us its own.
    """
    for signal_number in (None, signal.SIGTERM, signal.SIGKILL):
        deadline, told = time.monotonic() + patience, set[int]()
        while left := set(children()):
            for pid in left - told:
                if signal_number is not None:
                    send(pid, signal_number)
            told |= left
            if time.monotonic() >= deadline:
                break
            ended_children()
            time.sleep(0.01)
        else:
            return


def send(pid: int, signal_number: int) -> bool:
    """Send a signal; False when the process has ended already."""
    try:
        os.kill(pid, signal_number)
    except ProcessLookupError:
        return False
    return True


def processor_time(pid: int) -> int:
    """Ticks (sysconf's SC_CLK_TCK) that a process, and children that have ended, have used; 0 for none."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return sum(map(int, file.read().rpartition(b")")[2].split()[11:15]))
    except OSError:  # it has ended
        return 0


def ended_children() -> list[tuple[int, int]]:
    """Process id and wait status of children that have ended, adopted ones too."""
    found = []
    with suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            found.append(ended)
    return found
