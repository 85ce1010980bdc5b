"""Wire names: the names of operations, by which rank 0 matches the requests of different ranks."""

from __future__ import annotations

from horovod.common.basics import basics
from horovod.common.process_sets import ProcessSet

__all__ = ["wire_name"]


def wire_name(operation: str, name: str | None, process_set: ProcessSet) -> str:
    """Return ``<operation>.<name>``, or ``<operation>.noname.<n>``.

    n counts this process' unnamed operations in the process set, so all its ranks must start these in the
    same order.
    """
    if name is None:
        return f"{operation}.noname.{basics.member().next_unnamed(process_set)}"
    return f"{operation}.{name}"
