"""Meeting places of ranks: horovodrun's store, a store of torch, MPI, or the script's own store.

Ranks of horovodrun's agents meet in the store of its driver. Ranks of torchrun, and all ranks with RANK,
WORLD_SIZE, MASTER_ADDR and MASTER_PORT, meet in torch's store, which `horovod.torch` makes, because this
package imports no framework. torchrun's agent has a store already; otherwise rank 0 opens it, and shares it
with stores that the script opens there. If the launcher names its hosts, as srun does, ranks use such a store
on the first host. Ranks of an mpirun that communicate over TCP meet by MPI.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from horovod import _native as native
from horovod.common import communicators, errors, nodelists
from horovod.common.agent_channel import VARIABLE, AgentChannel, Removed, agent_channel
from horovod.common.build_info import build_info
from horovod.common.launched import AGENT, FIRST_HOST, FOLDER, STORE, Launch
from horovod.common.mpi_here import mpi_here
from horovod.common.process_sets import as_ranks
from horovod.common.rendezvous.folder import by_folder
from horovod.common.rendezvous.meeting import OpenWorld, open_over_tcp
from horovod.common.rendezvous.store import Store, StoreRendezvous, assignment_of, start_timeout
from horovod.common.sentences import facts_of

__all__ = ["MpiRendezvous", "host_of", "make_stores_with", "opening", "rendezvous_of"]

# Host, port, whether this process opens the store or connects to it, timeout in seconds.
MakeStore: TypeAlias = Callable[[str, int, bool, float], Store]
_OF_THE_AGENT = "TORCHELASTIC_USE_AGENT_STORE"
_make: MakeStore | None = None
_LOWEST_PORT, _PORTS = 10_000, 20_000  # below the ports that systems give to connections
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
        return nodelists.node_names(environment[name])[0]
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


def opening(comm: Any, store: Any, rank: Any, size: Any) -> OpenWorld | None:
    """The function that opens the world of hvd.init(store=, rank=, size=); None if all three are None.

    ValueError: an argument is wrong.
    """
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
    if communicators.is_communicator(comm):
        raise errors.store_and_communicator()
    return _opening(store, number, count)


def _opening(store: Store, rank: int, size: int) -> OpenWorld:
    def open_world(settings: native.Settings, ranks: list[int]) -> native.World:
        assignment = assignment_of(rank, size, ranks)
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
