"""Linux processes, for horovodrun and its ranks: children end with their parent, and orphans are adopted.

Standard library only and few imports: every rank's wrapper imports it (see `agents.wrapper`).
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from horovod.common import time_limits
from horovod.common.notes import status_of

if TYPE_CHECKING:
    from subprocess import Popen
    from types import FrameType

ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)  # signals that ask a program to end
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


def process_control(option: int, value: int) -> None:
    """Call prctl(2). Without it (not on Linux), processes may outlive their parent."""
    import ctypes

    if sys.platform == "linux" and ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option}, {value}) failed")


def adopt_orphans() -> None:
    """Make descendants whose parent ends children of this process from now on."""
    process_control(_PR_SET_CHILD_SUBREAPER, 1)


def end_with_parent(signal_number: int) -> None:
    """Have the kernel send this signal to this process when its parent ends."""
    process_control(_PR_SET_PDEATHSIG, signal_number)


def children() -> list[int]:
    """Return the process ids of this process' running children."""
    mine, found = os.getpid(), []
    for name in os.listdir("/proc"):
        if name.isdigit():
            with suppress(OSError):  # it ended meanwhile
                state, parent = status_of(int(name))[:2]
                if int(parent) == mine and state != "Z":
                    found.append(int(name))
    return found


def end_descendants(patience: float = time_limits.ORPHANS_END) -> None:
    """Wait for the children's end, then send SIGTERM, then SIGKILL. Requires adopt_orphans().

    Children adopted meanwhile get the signal too: a killed child leaves its own children to this process.
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
    """Send a signal; return False if the process has already ended."""
    try:
        os.kill(pid, signal_number)
    except ProcessLookupError:
        return False
    return True


def end_child(child: Popen[Any], seconds: float) -> None:
    """Send SIGTERM, and SIGKILL after so many seconds; wait for the end."""
    from subprocess import TimeoutExpired  # here, as wrappers need few imports

    child.terminate()
    try:
        child.wait(seconds)
    except TimeoutExpired:
        child.kill()
        child.wait()


@contextmanager
def heeding(handler: Callable[[int, FrameType | None], object]) -> Iterator[None]:
    """Handle the signals that ask this program to end, while the context lasts."""
    before = {number: signal.signal(number, handler) for number in ENDING}
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)


def processor_time(pid: int) -> int:
    """Return the clock ticks (SC_CLK_TCK) that a process and its ended children used; 0 if it has ended."""
    with suppress(OSError):  # it has ended
        return sum(map(int, status_of(pid)[11:15]))
    return 0


def ended_children() -> list[tuple[int, int]]:
    """Return process id and wait status of children that have ended, adopted ones included."""
    found = []
    with suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            found.append(ended)
    return found
