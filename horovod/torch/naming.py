"""Wire names: what an operation is called between ranks, which is how ranks find each other's requests."""

from __future__ import annotations

from horovod.common.basics import basics

__all__ = ["wire_name"]


def wire_name(operation: str, name: str | None) -> str:
    """``<operation>.<name>``, or ``<operation>.noname.<n>`` with n counting this process' unnamed operations.

    Unnamed operations must therefore be started in the same order on every rank; named ones need not.
    """
    if name is None:
        return f"{operation}.noname.{next(basics.member().unnamed)}"
    return f"{operation}.{name}"
