"""torch.distributed's store, in which the ranks of hvd.init() may meet (`horovod.common.rendezvous`)."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any

from horovod.common.rendezvous.store import Store

__all__ = ["make_store"]

# Rank 0 keeps its store until the process ends: other ranks may be reading, or may be in
# init_process_group(), for which torch uses the same store if the port is the same.
_kept: dict[tuple[str, int], Store] = {}


def make_store(host: str, port: int, is_host: bool, seconds: float) -> Store:
    """Return the store at that port, at which this process listens or to which it connects.

    Raises torch's errors, such as after ``seconds`` without connection.
    """
    import torch.distributed as dist  # here, as torch may be built without it

    if (host, port) in _kept:
        return _kept[host, port]
    store: Any = dist.TCPStore(  # type: ignore[attr-defined]
        host,
        port,
        is_master=is_host,
        timeout=timedelta(seconds=seconds),
        wait_for_workers=False,  # the meeting waits for ranks, and can report which are missing
        multi_tenant=True,
        use_libuv=os.environ.get("USE_LIBUV", "1") == "1",  # as in init_process_group()
    )
    made: Store = store  # whose stub has the type str for values
    if is_host:
        _kept[host, port] = made
    return made
