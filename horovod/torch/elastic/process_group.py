"""torch.distributed inside of ``hvd.elastic.run``: makes and leaves a process group for each world.

A process group does not survive a lost rank: it is left, and a new one made. gloo detects a process that has
ended, as its connections close. The engine may detect other losses earlier, or alone. So a thread closes the
group's connections when the engine has ended.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import socket
import threading
import time
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from horovod.common import jobs, networks
from horovod.common.basics import basics
from horovod.common.exceptions import HorovodInternalError, follows_others
from horovod.common.networks import Description
from horovod.common.options import BY_VARIABLE
from horovod.common.rendezvous.store import Store
from horovod.gloo_threads import wait_for_gloo
from horovod.torch import errors
from horovod.torch.functions import broadcast_object

_LOOKS_EVERY = 0.1  # seconds
# seconds for the engine to detect a lost rank, in addition to the limit for silent ones
_MORE_PATIENCE = 5.0
_CONNECT_SECONDS = 3.0
_log = logging.getLogger("horovod")
_watch: _Watch | None = None  # for the group of this world that init_process_group() has made


def init_process_group(backend: str | None = None, **options: Any) -> None:
    """Make the default process group of torch.distributed from this world's ranks. Collective.

    Call it inside of the function that ``hvd.elastic.run`` calls again, then make objects that belong to a
    group, such as a DistributedDataParallel. A reset leaves the group, whichever rank is lost.

    Args:
        backend: as in ``torch.distributed.init_process_group``.
        options: its other options: timeout, pg_options, device_id. The rendezvous is given.

    Raises:
        ValueError: before hvd.init(), if there is a group already, or if an option names a rendezvous.
        RuntimeError: torch could not make the group.
    """
    global _watch
    if wrong := sorted({"init_method", "store", "rank", "world_size"} & options.keys()):
        raise errors.said_by_itself(options=wrong)
    if dist.is_initialized():
        raise errors.group_is_there()
    rank, size = basics.rank(), basics.size()
    before = _connections()
    store = _store(rank, size)
    _watch = _Watch(before)
    dist.init_process_group(backend, store=store, rank=rank, world_size=size, **options)
    _watch.has_begun()


class Groups:
    """The process groups of one call of ``hvd.elastic.run``, from world to world."""

    def __init__(self) -> None:
        self._outer: Any = None  # an earlier default group, which stays
        self._outer_jobs: list[jobs.Job] = []  # of the groups at that time

    def begin(self) -> None:
        """Note the groups that exist when ``hvd.elastic.run`` is called."""
        self._outer = _default_group()
        self._outer_jobs = _jobs_of_groups()

    def loss_behind(self, error: Exception) -> HorovodInternalError | None:
        """Return why this world is broken if that has caused an error of torch.distributed, else None.

        Waits until the engine has detected it too, for at most the limit for a silent host.
        """
        member = jobs.current().member
        is_torchs = isinstance(error, RuntimeError) and _default_group() is not self._outer
        if member is None or not is_torchs:
            return None
        was_cut = _watch is not None and _watch.has_cut
        if not was_cut and not follows_others(error):
            return None
        deadline = time.monotonic() + _most_seconds()
        while not member.engine.has_ended and time.monotonic() < deadline:
            time.sleep(0.01)
        if not member.engine.has_ended:
            return None
        try:
            member.allgathered("elastic.why", b"")
        except HorovodInternalError as why:
            return why
        return None

    def leave(self) -> None:
        """Leave the group that was made since ``begin``. Waits for no other rank. Idempotent."""
        global _watch
        watch, _watch = _watch, None
        if watch is not None:
            watch.cut()
        if _default_group() is self._outer:
            return
        from horovod.torch.ddp import group_job

        for job in _jobs_of_groups():
            if job not in self._outer_jobs:
                group_job.leave(job)
        wait_for_gloo()  # its operations fail now, and must have ended before its threads end
        # NCCL would wait for lost ranks; other backends have no abort
        with contextlib.suppress(RuntimeError):
            dist.group.WORLD.abort()  # type: ignore[union-attr]
        dist.destroy_process_group()
        gc.collect()  # frees any DistributedDataParallel that still listens to the parameters


class _Watch:
    """Watches this world's engine, and closes a group's connections when the engine ends.

    Args:
        before: the sockets of this process before the group was made.
    """

    def __init__(self, before: dict[int, str]) -> None:
        self.has_cut = False
        self._before = before
        self._own: dict[int, str] | None = None  # once the group is complete
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._member = basics.running()
        threading.Thread(target=self._look, name="horovod process group", daemon=True).start()

    def has_begun(self) -> None:
        """Note the connections of the complete group."""
        self._own = self._new()

    def cut(self) -> None:
        """Close the connections, so that operations of the group fail. Idempotent."""
        self._over.set()
        with self._lock:
            if self.has_cut:
                return
            self.has_cut = True
            now = _connections()
            for descriptor, name in (self._own or self._new()).items():
                if now.get(descriptor) == name:  # otherwise it is closed, and the number may be reused
                    _shut(descriptor)

    def _new(self) -> dict[int, str]:
        return {each: name for each, name in _connections().items() if self._before.get(each) != name}

    def _look(self) -> None:
        while not self._over.wait(_LOOKS_EVERY):
            if self._member.engine.has_ended:
                self.cut()


def _default_group() -> Any:
    return dist.group.WORLD if dist.is_available() and dist.is_initialized() else None


def _jobs_of_groups() -> list[jobs.Job]:
    """Return the jobs of this process' process groups (horovod.torch.ddp)."""
    if not dist.is_available():
        return []
    from horovod.torch.ddp import group_job

    return group_job.begun()


def _most_seconds() -> float:
    return float(BY_VARIABLE["HOROVOD_TCP_TIMEOUT_SECONDS"].read(os.environ)) + _MORE_PATIENCE


# ---- rendezvous ----


# Rank 0 keeps its store until the process ends: other ranks may be reading, or may be in
# init_process_group(), for which torch uses the same store if the port is the same.
_kept: dict[tuple[str, int], Store] = {}


def make_store(host: str, port: int, is_host: bool, seconds: float) -> Store:
    """Return the store at that port, at which this process listens or to which it connects.

    Raises torch's errors, such as after ``seconds`` without connection.
    """
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


def _store(rank: int, size: int) -> Any:
    """Return a store that rank 0 hosts for this world. Collective."""
    tcp_store: Any = dist.TCPStore  # type: ignore[attr-defined]
    store, told = None, None
    if rank == 0:
        addresses = ["127.0.0.1"] if basics.local_size() == size else _own_addresses()
        store = tcp_store(addresses[0], 0, world_size=size, is_master=True, wait_for_workers=False)
        told = (addresses, store.port)
    addresses, port = broadcast_object(told)
    if store is None:
        store = tcp_store(_reached(addresses, port), port, world_size=size, is_master=False)
    return store


def _own_addresses() -> list[str]:
    """Return this host's addresses for others: of HOROVOD_TCP_INTERFACES, or all except internal ones."""
    description = Description(tuple((name, at) for name, at, _ in networks.addresses()))
    wanted = BY_VARIABLE["HOROVOD_TCP_INTERFACES"].read(os.environ)
    if wanted:
        return [address for _, address in description.along(wanted)]
    return [str(address) for found in description.networks().values() for address in found]


def _reached(addresses: list[str], port: int) -> str:
    """Return the first of rank 0's addresses at which its store answers. ValueError if none does."""
    for address in addresses:
        with contextlib.suppress(OSError), socket.create_connection((address, port), _CONNECT_SECONDS):
            return address
    raise errors.store_unreached(ranks=[basics.rank()], addresses=addresses, port=port)


# ---- connections ----


def _connections() -> dict[int, str]:
    """Return, by descriptor, the kernel's names of this process' open sockets."""
    found = {}
    for descriptor in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # closed meanwhile, as the descriptor of this listing is
            name = os.readlink(f"/proc/self/fd/{descriptor}")
            if name.startswith("socket:"):
                found[int(descriptor)] = name
    return found


def _shut(descriptor: int) -> None:
    """Close a TCP connection for both ends, for all users. Listening and other sockets stay open."""
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as end:
        is_tcp = end.family in (socket.AF_INET, socket.AF_INET6) and end.type == socket.SOCK_STREAM
        if is_tcp and not end.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            end.shutdown(socket.SHUT_RDWR)
