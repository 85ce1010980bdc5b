"""torch.distributed's store, for ranks of hvd.init() that meet in one (`horovod.common.rendezvous`)."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any

from horovod.common.rendezvous.store import Store

__all__ = ["make_store"]

# Where rank 0 has the store it stays there until the process ends: other ranks may be reading, or may be in
# init_process_group(), for which torch takes the same store if the port is the same.
_kept: dict[tuple[str, int], Store] = {}


def make_store(host: str, port: int, is_host: bool, seconds: float) -> Store:
    """At that port, which this process listens at or connects to within so many seconds. torch's errors."""
    import torch.distributed as dist  # here: a torch may lack it

    if (host, port) in _kept:
        return _kept[host, port]
    store: Any = dist.TCPStore(  # type: ignore[attr-defined]
        host,
        port,
        is_master=is_host,
        timeout=timedelta(seconds=seconds),
        wait_for_workers=False,  # of others we hear when we meet, and can say who is missing
        multi_tenant=True,
        use_libuv=os.environ.get("USE_LIBUV", "1") == "1",  # as init_process_group()
    )
    made: Store = store  # whose stub says that values are texts
    if is_host:
        _kept[host, port] = made
    return made
