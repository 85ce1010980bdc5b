"""What errors about a job say in the words of whoever formed it: hvd.init(), unless somebody else did."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["OF_HVD", "Wording"]


class Wording(NamedTuple):
    """Parts of such errors.

    Attributes:
        forming: what forms the job, as "hvd.init()".
        if_absent: where a rank did not come, what may be wrong and what to do.
        not_running: all of the error for an operation outside of a job.
        in_child: what still works in a process that a rank has forked, and what to do instead.
    """

    forming: str
    if_absent: str
    not_running: str
    in_child: str


OF_HVD = Wording(
    forming="hvd.init()",
    if_absent="do these processes run, on hosts that reach it, and does each call hvd.init(), with the same "
    "comm= if any? Have all been told the same number of ranks, and each another rank? Where they are slow "
    "to start, raise HOROVOD_START_TIMEOUT",
    not_running="Horovod is not running: call hvd.init() first, and no operation after hvd.shutdown().",
    in_child="only rank(), size() and the like work in it. Leave hvd.init(), operations and waiting for them "
    "to the process that has called hvd.init(); a process that shall call it too must be forked before that.",
)
