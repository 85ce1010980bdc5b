"""Threads of gloo that torch leaves running: they end badly if Python, or a tensor of theirs, ends before."""

from __future__ import annotations

import atexit
import functools
import time
from pathlib import Path
from typing import Any

__all__ = ["wait_for_gloo", "wait_for_gloo_in_destroy_process_group"]

GLOO_THREAD = "pt_gloo_runloop"  # torch names those so that execute a process group's collectives


@atexit.register
def wait_for_gloo(most_seconds: float = 2.0) -> None:
    """Return when gloo's threads are at rest, or after ``most_seconds``; at once where there are none.

    Such a thread lets go of a collective after the collective has ended. If that was started in
    ``backward()``, an object of Python goes with it (torch 2.13 keeps the context there), which takes the
    interpreter's lock. A thread that comes to it when the interpreter has ended aborts the process:
    "terminate called without an active exception", after a training that went well.
    """
    deadline = time.monotonic() + most_seconds
    looks_at_rest = 0
    # One look is not enough: who waits for the lock sleeps as well, and has it only while this thread sleeps.
    while looks_at_rest < 3 and time.monotonic() < deadline:
        states = _states_of_threads(GLOO_THREAD)
        if not states:
            return
        looks_at_rest = looks_at_rest + 1 if states == {"S"} else 0
        time.sleep(0.001)


def wait_for_gloo_in_destroy_process_group() -> None:
    """Have ``destroy_process_group()`` wait for gloo's threads; nothing when it does already.

    What it has let go of is freed with the last DistributedDataParallel: by a destructor that waits for the
    threads, with the interpreter locked (torch 2.13). A thread that still has a tensor of Python in its hands
    waits for that lock, and the process hangs after its last line. On busy cores one job of ten did.
    """
    import torch.distributed.distributed_c10d as c10d

    # The last of what destroy_process_group() does; scripts may have imported that itself by its name.
    name = "_unregister_all_process_groups"
    forget: Any = getattr(c10d, name, None)
    if forget is None or getattr(forget, "waits_for_gloo", False):
        return

    @functools.wraps(forget)
    def wait_and_forget() -> None:
        wait_for_gloo()
        forget()

    wait_and_forget.waits_for_gloo = True  # type: ignore[attr-defined]
    setattr(c10d, name, wait_and_forget)


def _states_of_threads(name: str) -> set[str]:
    """The states (S: sleeping, R: running or ready to) of this process' threads of a name, on Linux."""
    states = set()
    for file in Path("/proc/self/task").glob("*/stat"):
        try:
            _, _, rest = file.read_bytes().partition(f"({name}) ".encode())
        except OSError:
            continue  # it has ended meanwhile
        if rest:
            states.add(chr(rest[0]))
    return states
