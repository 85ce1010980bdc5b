"""How the operating system divides a core between training and what carries its gradients.

Where a host has one core for both, every packet that arrives would wake a thread of gloo, which Linux lets
run at once in the place of the one that trains: some 2000 times in a step of VGG-16 at 1 Gbit/s. Threads of
SCHED_BATCH wait for the end of the running one's turn instead, a few milliseconds, and then take all that
has arrived. Messages lie in the sockets' buffers meanwhile, and several are on their way, so the wire stays
busy. A core that nobody uses runs them at once, as ever.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

__all__ = ["behind_training"]


@contextmanager
def behind_training() -> Iterator[None]:
    """Threads that are started within it, by C++ too, do not interrupt others when something arrives.

    Nothing changes where the calling thread is not scheduled as usual (SCHED_OTHER), on systems other than
    Linux, and where the system refuses, as containers may.
    """
    is_changed = False
    try:
        if sys.platform == "linux":
            with suppress(OSError):
                as_it_was = os.sched_getparam(0)
                if os.sched_getscheduler(0) == os.SCHED_OTHER:
                    os.sched_setscheduler(0, os.SCHED_BATCH, as_it_was)
                    is_changed = True
        yield
    finally:
        if is_changed:
            os.sched_setscheduler(0, os.SCHED_OTHER, as_it_was)
