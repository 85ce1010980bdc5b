"""Waits for the gloo threads that torch leaves running, before the interpreter or their tensors end."""

from __future__ import annotations

import atexit
import functools
import time
from pathlib import Path
from typing import Any

GLOO_THREAD = "pt_gloo_runloop"  # torch's name for threads that execute a process group's collectives


@atexit.register
def wait_for_gloo(most_seconds: float = 2.0) -> None:
    """Return when gloo's threads are idle, or after ``most_seconds``; at once if there are none.

    A gloo thread releases a collective after it has ended. If ``backward()`` started it, that frees a Python
    object (torch 2.13), which requires the interpreter's lock. If the interpreter has ended by then, the
    process aborts with "terminate called without an active exception", after successful training.
    """
    deadline = time.monotonic() + most_seconds
    looks_at_rest = 0
    # One look is not enough: a thread that waits for the lock sleeps too, until this thread sleeps.
    while looks_at_rest < 3 and time.monotonic() < deadline:
        states = _states_of_threads(GLOO_THREAD)
        if not states:
            return
        looks_at_rest = looks_at_rest + 1 if states == {"S"} else 0
        time.sleep(0.001)


def wait_for_gloo_in_destroy_process_group() -> None:
    """Make ``destroy_process_group()`` wait for gloo's threads. Idempotent.

    Otherwise the destructor of the last DistributedDataParallel waits for them, with the interpreter locked
    (torch 2.13). If a thread still holds a Python tensor, it waits for that lock: a deadlock at exit, in one
    job of ten on busy cores.
    """
    import torch.distributed.distributed_c10d as c10d

    # The last call inside destroy_process_group(). Scripts may have imported that function itself by name.
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
    """Return the states (S: sleeping, R: running or ready) of this process' threads of a name, on Linux."""
    states = set()
    for file in Path("/proc/self/task").glob("*/stat"):
        try:
            _, _, rest = file.read_bytes().partition(f"({name}) ".encode())
        except OSError:
            continue  # the thread has ended meanwhile
        if rest:
            states.add(chr(rest[0]))
    return states
