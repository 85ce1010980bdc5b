"""Meeting places of ranks: horovodrun's store, a store of torch, a folder, MPI, or the script's own store.

Ranks of horovodrun's agents meet in the store of its driver. Ranks of torchrun, and all ranks with RANK,
WORLD_SIZE, MASTER_ADDR and MASTER_PORT, meet in torch's store, which `horovod.torch` makes, because this
package imports no framework. torchrun's agent has a store already; otherwise rank 0 opens it, and shares it
with stores that the script opens there. If the launcher names its hosts, as srun does, ranks use such a store
on the first host. Ranks of an mpirun that communicate over TCP meet by MPI.

If nothing else connects them, ranks meet in a folder that all of them see. Files appear whole, by renaming. A
rank that waits for a file lists the whole folder repeatedly: this makes a network file system notice files of
other hosts. The folder is private to the user, because its files contain addresses and secrets.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import logging
import os
import secrets
import stat
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import quote

from horovod import _native as native
from horovod.common import errors
from horovod.common.agent_channel import AgentChannel, agent_channel
from horovod.common.agent_messages import VARIABLE
from horovod.common.build_info import build_info
from horovod.common.errors import Removed
from horovod.common.launched import AGENT, FIRST_HOST, FOLDER, STORE, Launch, node_names
from horovod.common.mpi_here import mpi_here
from horovod.common.options import BY_VARIABLE
from horovod.common.process_sets import as_ranks, is_communicator
from horovod.common.rendezvous.meeting import OpenWorld, open_over_tcp
from horovod.common.rendezvous.store import Store, StoreRendezvous, assignment_of, start_timeout
from horovod.common.sentences import facts_of

# Host, port, whether this process opens the store or connects to it, timeout in seconds.
MakeStore: TypeAlias = Callable[[str, int, bool, float], Store]
_OF_THE_AGENT = "TORCHELASTIC_USE_AGENT_STORE"
_make: MakeStore | None = None
_LOWEST_PORT, _PORTS = 10_000, 20_000  # below the ports that systems give to connections
_IN_THE_MAKING = "."  # beginning of a file's name until it is whole
_MOST_BYTES = 2 << 20  # of a file
_FRESH = 0.01  # seconds for which one listing serves all callers
_log = logging.getLogger("horovod")


def rendezvous_of(launch: Launch, environment: Mapping[str, str], ranks: Sequence[int]) -> StoreRendezvous:
    """The meeting place of this launch's ranks, or of the subset `ranks` unless empty. ValueError if none."""
    ways = {AGENT: by_agent, STORE: by_environment, FIRST_HOST: on_first_host, FOLDER: by_folder}
    return ways[launch.meets](launch, environment, ranks)


def by_agent(launch: Launch, environment: Mapping[str, str], ranks: Sequence[int]) -> StoreRendezvous:
    """ValueError if this process has not inherited the channel, or the channel is broken."""
    channel = agent_channel(environment)
    if channel is None:
        value = environment.get(VARIABLE, "")
        raise errors.not_inherited(evidence=launch.evidence, setting=VARIABLE, value=value)
    return in_drivers_store(channel, ranks)


def in_drivers_store(channel: AgentChannel, ranks: Sequence[int]) -> StoreRendezvous:
    """The driver's store. A worker removed from the job exits here, with code 0: nothing has failed."""
    try:
        place = channel.assign()
    except Removed as out:
        _log.warning("horovod: this process is no part of the job any more, and ends: %s.", out)
        raise SystemExit(0) from None
    assignment = assignment_of(place.rank, place.size, ranks)
    return StoreRendezvous(channel, assignment, "horovodrun's agents", job=[str(place.generation)])


def make_stores_with(make: MakeStore) -> None:
    """Register the factory of stores of a framework's face."""
    global _make
    _make = make


def by_environment(launch: Launch, environment: Mapping[str, str], ranks: Sequence[int]) -> StoreRendezvous:
    """The store at MASTER_ADDR and MASTER_PORT. ValueError if there is none."""
    is_host = launch.rank == 0 and environment.get(_OF_THE_AGENT) != "True"
    end = (environment["MASTER_ADDR"], int(environment["MASTER_PORT"]))
    return _in_torchs_store(launch, environment, ranks, end, is_host)


def on_first_host(launch: Launch, environment: Mapping[str, str], ranks: Sequence[int]) -> StoreRendezvous:
    """A store on the first host, at a port made of the job's identity; MASTER_ADDR, MASTER_PORT override.

    ValueError: the launcher does not name the hosts, or rank 0 is not on the first.
    """
    told, node = environment.get("MASTER_ADDR"), environment.get(launch.launcher.host, "0")
    host = told or first_host(launch, environment)
    if launch.rank == 0 and node != "0" and not told:
        raise errors.first_task_elsewhere(setting=launch.launcher.rank, node=node)
    port = environment.get("MASTER_PORT") or str(port_of(launch.job(environment)))
    if not (port.isascii() and port.isdecimal() and 0 < int(port[:6]) < 65536):
        raise errors.wrong_master_port(value=port)
    return _in_torchs_store(launch, environment, ranks, (host, int(port)), launch.rank == 0)


def first_host(launch: Launch, environment: Mapping[str, str]) -> str:
    """The first host of the first list that is set. ValueError if the launcher sets none."""
    launcher = launch.launcher
    name = next((name for name in launcher.hosts if environment.get(name)), "")
    if not name:
        raise errors.hosts_not_said(launcher=launcher.name, settings=" and ".join(launcher.hosts))
    try:
        return node_names(environment[name])[0]
    except (ValueError, IndexError) as error:
        raise errors.hosts_not_read(**facts_of(error, setting=name, value=environment[name])) from None


def port_of(job: Sequence[str]) -> int:
    """A port: the same for all ranks of a job, and probably different for other jobs."""
    drawn = int.from_bytes(hashlib.sha256(".".join(job).encode(errors="surrogateescape")).digest()[:4], "big")
    return _LOWEST_PORT + drawn % _PORTS


def _in_torchs_store(
    launch: Launch, environment: Mapping[str, str], ranks: Sequence[int], end: tuple[str, int], is_host: bool
) -> StoreRendezvous:
    """The meeting in the store at `end`, (host, port). ValueError if it cannot be opened."""
    host, port = end
    assignment = assignment_of(launch.rank, launch.size, ranks)
    if _make is None:
        raise errors.without_torch(evidence=launch.evidence)
    try:
        store = _make(host, port, is_host, start_timeout())
    except Exception as error:  # of torch's own classes
        done = "cannot open" if is_host else "does not reach"
        why = str(error).partition("\n")[0].rstrip(".")  # without torch's traceback
        who = {"ranks": [launch.rank], "size": launch.size, "evidence": launch.evidence}
        raise errors.no_use_of_store(**who, done=done, host=host, port=port, why=why) from error
    name = f"torch's store at {host}:{port}"
    return StoreRendezvous(store, assignment, name, host, launch.job(environment))


class FolderStore:
    """A store whose keys are files. ValueError for a folder that is missing, or that others may write in."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)
        self._listed: set[str] = set()
        self._listed_at = 0.0
        if not self.folder.is_absolute():
            raise errors.relative_folder(path=folder)
        try:
            with contextlib.suppress(FileExistsError):
                self.folder.mkdir(mode=0o700)
            status = self.folder.stat()
        except OSError as error:
            raise errors.unusable_folder(path=folder, why=str(error)) from None
        if not stat.S_ISDIR(status.st_mode):
            raise errors.no_folder(path=folder)
        if status.st_uid not in (os.geteuid(), 0) or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise errors.open_folder(path=folder)

    def set(self, key: str, value: bytes) -> None:
        path = self._path(key)
        making = path.with_name(f"{_IN_THE_MAKING}{secrets.token_hex(8)}")
        with open(os.open(making, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(value)
        making.rename(path)

    def get(self, key: str) -> bytes | None:
        """The value; None if it is missing, or removed."""
        try:
            with open(self._path(key), "rb") as file:
                return file.read(_MOST_BYTES)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ESTALE):  # on NFS: the name has another file now
                raise
            return None

    def check(self, keys: Sequence[str]) -> bool:
        """Whether all keys exist, or did a moment ago."""
        names = {self._path(key).name for key in keys}
        if not names <= self._listed and time.monotonic() - self._listed_at > _FRESH:
            self._listed, self._listed_at = set(os.listdir(self.folder)), time.monotonic()
        return names <= self._listed

    def forget(self, prefix: str) -> None:
        """Remove all keys with a prefix, also those left by earlier jobs."""
        for name in os.listdir(self.folder):
            if name.startswith(quote(prefix, safe="")):
                with contextlib.suppress(FileNotFoundError):
                    (self.folder / name).unlink()

    def _path(self, key: str) -> Path:
        return self.folder / quote(key, safe="")


class FolderRendezvous(StoreRendezvous):
    """A meeting in a folder; at the end rank 0 removes its files."""

    def done(self) -> None:
        store = self._store
        if self.rank == 0 and isinstance(store, FolderStore):
            with contextlib.suppress(OSError):  # the job has begun, and needs them no more
                store.forget(self.prefix)


def by_folder(launch: Launch, environment: Mapping[str, str], ranks: Sequence[int]) -> FolderRendezvous:
    """The meeting in HOROVOD_RENDEZVOUS_FOLDER. ValueError as FolderStore."""
    option = BY_VARIABLE["HOROVOD_RENDEZVOUS_FOLDER"]
    folder: str = option.read(environment)
    try:
        store = FolderStore(folder)
    except ValueError as error:
        raise errors.in_no_folder(**facts_of(error, setting=option.variable, path=folder)) from None
    assignment = assignment_of(launch.rank, launch.size, ranks)
    return FolderRendezvous(store, assignment, f"the folder {folder}", job=launch.job(environment))


def opening(comm: Any, store: Any, rank: Any, size: Any) -> OpenWorld | None:
    """The function that opens the world of hvd.init(store=, rank=, size=); None if all three are None."""
    given = {"store": store, "rank": rank, "size": size}
    missing = [name for name, value in given.items() if value is None]
    if len(missing) == len(given):
        return None
    if missing:
        raise errors.store_lacks(missing=" and ".join(missing))
    if not all(callable(getattr(store, method, None)) for method in ("set", "get")):
        raise errors.not_a_store(got=repr(store)[:80])
    number, count = as_ranks([rank, size])
    if not 0 <= number < count:
        raise errors.no_such_rank(rank=number, size=count)
    if is_communicator(comm):
        raise errors.store_and_communicator()

    def open_world(settings: native.Settings, ranks: list[int]) -> native.World:
        assignment = assignment_of(number, count, ranks)
        return open_over_tcp(
            settings, StoreRendezvous(store, assignment, "the store given to hvd.init()", host_of(store))
        )

    return open_world


def host_of(store: Any) -> str:
    """The address of torch's TCPStore, below its wrappers; "" for another store."""
    while (below := getattr(store, "underlying_store", None)) is not None:
        store = below
    host = getattr(store, "host", "")
    return host if isinstance(host, str) else ""


class MpiRendezvous:
    """A meeting by MPI, which it joins. ValueError if that fails."""

    name = "MPI"
    host = ""

    def __init__(self, settings: native.Settings, launch: Launch, ranks: Sequence[int]) -> None:
        libmpi = mpi_here(build_info().mpi).library_path()
        self._meeting = native.MpiMeeting(settings, libmpi, launch.size, launch.evidence, list(ranks))
        self.rank = self._meeting.rank
        self.size = self._meeting.size

    def allgather(self, topic: str, value: bytes) -> list[bytes]:
        return self._meeting.gather(value)

    def done(self) -> None:
        """Do nothing: MPI keeps no values."""
