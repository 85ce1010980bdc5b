"""Wire names: what an operation is called between ranks, which is how ranks find each other's requests."""

from __future__ import annotations

from horovod.common.basics import basics
from horovod.common.process_sets import ProcessSet

__all__ = ["wire_name"]


def wire_name(operation: str, name: str | None, process_set: ProcessSet) -> str:
    """``<operation>.<name>``, or ``<operation>.noname.<n>``.

    n counts this process' unnamed operations in the process set, which must therefore be started in the same
    order on each of its ranks; named ones need not.
    """
    if name is None:
        return f"{operation}.noname.{basics.member().next_unnamed(process_set)}"
    return f"{operation}.{name}"
