"""A process's membership from init() to shutdown(): its place in the job, the engine, and process sets.

The core knows process sets by number; a membership knows the ProcessSet objects of each number.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import json
import logging
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from horovod import _native as native
from horovod.common import errors, launched, software, traffic, variables, waiting
from horovod.common.agent_channel import agent_channel
from horovod.common.agent_messages import Place
from horovod.common.build_info import build_info
from horovod.common.errors import OF_HVD, Wording
from horovod.common.exceptions import HorovodInternalError
from horovod.common.mpi_here import mpi_here
from horovod.common.options import BY_VARIABLE
from horovod.common.process_sets import (
    ProcessSet,
    checked_ranks,
    global_process_set,
    is_communicator,
    launched_ranks,
    ranks_within,
)
from horovod.common.rendezvous.meeting import OpenWorld, open_over_tcp
from horovod.common.rendezvous.places import MpiRendezvous, rendezvous_of
from horovod.common.sentences import facts_of

_log = logging.getLogger("horovod")
_BYTES = 0  # the core's number for uint8
_NAMES_BETWEEN_JOINS = 10**9


def as_launched(settings: native.Settings, ranks: list[int]) -> native.World:
    """The world that this process was started in; ``ranks`` of it, or all. ValueError if out of reach."""
    launch = launched.detect(os.environ)
    _log.debug("horovod: started %s.", f"as {launch.evidence} says" if launch.evidence else "alone")
    if launch.meets in (launched.MPI, launched.NOWHERE):
        world = _by_mpi(settings, launch, ranks)
    else:
        if launch.meets == launched.AGENT and launch.size > 1 and "mpi4py.MPI" in sys.modules:
            raise errors.mpi4py_alone(evidence=launch.evidence)  # its communicators hold one rank each
        world = open_over_tcp(settings, rendezvous_of(launch, os.environ, ranks))
    if launch.size != 1 or launch.meets == launched.AGENT:
        launched.leave_mark(os.environ)
    return world


def _by_mpi(settings: native.Settings, launch: launched.Launch, ranks: list[int]) -> native.World:
    """The world that MPI connects, or a world of one if no launcher has started this process."""
    if settings.asks_for_connections and launch.size != 1:
        return open_over_tcp(settings, MpiRendezvous(settings, launch, ranks))
    libmpi = mpi_here(build_info().mpi).library_path()
    return native.open_world(settings, libmpi, launch.size, launch.evidence, ranks)


def _place_of(world: native.World) -> Place | None:
    """The place that the agents' driver has given this process, or None.

    In an elastic job the driver knows the GPUs of older processes. None without a driver, or if it takes
    names of one machine for several hosts.
    """
    channel = agent_channel(os.environ)
    place = None if channel is None else channel.place
    if place is None or (place.rank, place.size) != (world.rank, world.size):
        return None
    return place if place.local_size == world.local_size else None


class Membership:
    """One membership of this process in a job. ``is_dynamic``: process sets may be added and removed."""

    def __init__(
        self, world: native.World, engine: native.Engine, settings: native.Settings, is_dynamic: bool = False
    ) -> None:
        self.world = world
        self.engine = engine
        self.settings = settings  # at its beginning
        self.is_dynamic = is_dynamic
        self.place = _place_of(world)
        self.tuning = variables.tuning_of_this_rank(os.environ)
        self._sets: dict[int, list[ProcessSet]] = {0: [global_process_set]}
        self._unnamed: dict[int, Iterator[int]] = {}
        self._ranks_of: dict[int, list[int]] = {}  # by number, of the sets added after init()
        self._rebuilt: set[int] = set()  # numbers of sets that replace sets of the membership before
        self.joins = 0  # completed joins
        self._began = time.monotonic()
        self.before_leaving: list[Callable[[], None]] = []  # called once

    @classmethod
    def begin(
        cls,
        open_world: OpenWorld,
        comm: Any = None,
        process_sets: Sequence[ProcessSet] = (),
        settings: native.Settings | None = None,
        in_order: bool = False,
        wording: Wording = OF_HVD,
    ) -> Membership:
        """Join a job. If this fails on one rank, it fails on all.

        Args:
            comm, process_sets: as for ``hvd.init``, with the same errors.
            settings: None: read from the environment.
            in_order: all ranks promise to start operations in one order; a violation is an error on all.
        """
        ranks = launched_ranks(comm)
        settings = settings or native.Settings.from_environment()
        is_dynamic = _is_on("HOROVOD_DYNAMIC_PROCESS_SETS")
        if _is_on("HOROVOD_AUTOTUNE") and _is_on("HOROVOD_DETERMINISTIC"):
            raise errors.autotune_not_deterministic()
        world = open_world(settings, ranks)
        try:
            engine = native.Engine(world, settings, in_order=in_order)
        except BaseException:
            world.abandon()
            raise
        member = cls(world, engine, settings, is_dynamic)
        try:
            member._enter(comm, process_sets, wording.forming)
        except HorovodInternalError as error:
            member.leave()
            raise errors.forming_failed(**facts_of(error, forming=wording.forming)) from error
        except BaseException:
            member.leave()
            raise
        return member

    def _enter(self, comm: Any, process_sets: Sequence[ProcessSet], forming: str) -> None:
        """Register the global set, and the sets given to the call ``forming``, such as hvd.init().

        ValueError, the same on all ranks: a set is wrong, or ranks were given different ones.
        NotImplementedError: a set is a communicator, and init() was given none.
        """
        world = self.world
        global_process_set._assign(0, world.rank, list(range(world.size)))
        global_process_set.mpi_comm = comm if is_communicator(comm) else None
        wanted = _described(comm, process_sets) | {
            "is_dynamic": self.is_dynamic,
            "tuning": self.tuning,
            "host": socket.gethostname(),
            "software": software.loaded(),
        }
        if wanted["error"] is None and (wrong := variables.wrong_tuning(os.environ, world.rank)):
            wanted["error"] = ["ValueError", wrong]
        texts = self.allgathered("init", json.dumps(wanted).encode())
        by_rank = [_read(rank, text, wanted, forming) for rank, text in enumerate(texts)]
        _check_software(by_rank, world.rank)
        _check_dynamic([each["is_dynamic"] for each in by_rank])
        variables.check_tuned_alike([each["tuning"] for each in by_rank])
        for ranks in _agreed(by_rank, world.size):
            process_set_id = self._completed(self.engine.add_process_set(ranks))[0]
            self._sets[process_set_id] = []
        numbers = {tuple(members): number for number, members in self.engine.process_sets().items()}
        for process_set, description in zip(process_sets, wanted["sets"], strict=True):
            self._register(process_set, numbers[tuple(description["ranks"])])

    def allgathered(self, name: str, data: bytes) -> list[bytes]:
        """Every rank's bytes, by rank. Collective, under one name."""
        source = ctypes.create_string_buffer(data, len(data))
        tensor = native.Tensor(ctypes.addressof(source), 0, [len(data)], _BYTES)
        result = self.engine.wait(self.engine.allgather(name, [tensor]))
        everything = np.from_dlpack(result.buffer()).tobytes()
        ends = list(itertools.accumulate(result.sizes, initial=0))
        return [everything[begin:end] for begin, end in itertools.pairwise(ends)]

    def _completed(self, handle: int) -> list[int]:
        return waiting.wait(self.engine, handle).sizes

    def _register(self, process_set: ProcessSet, process_set_id: int) -> None:
        ranks = self.engine.process_sets()[process_set_id]
        process_set._assign(process_set_id, self.world.rank, ranks)
        self._sets.setdefault(process_set_id, []).append(process_set)

    def add_process_set(self, process_set: ProcessSet) -> ProcessSet:
        """Register a set of ranks. Collective over the job. See ``hvd.add_process_set``."""
        self._require_dynamic("add_process_set")
        if process_set.ranks is None:
            raise errors.added_by_communicator()
        try:
            sets = self.engine.process_sets()
            same = [each for each in self._rebuilt if sets[each] == sorted(process_set.ranks)]
            if same:  # a function of elastic training that begins again adds a set that exists
                self._register(process_set, same[0])
                self._rebuilt.discard(same[0])
                return process_set
            ranks = checked_ranks(process_set.ranks, self.world.size, list(sets.values()))
        except ValueError:
            # Request an empty set, which no rank wants: ranks with valid sets then fail instead of waiting.
            with contextlib.suppress(HorovodInternalError):
                self._completed(self.engine.add_process_set([]))
            raise
        number = self._completed(self.engine.add_process_set(ranks))[0]
        self._register(process_set, number)
        self._ranks_of[number] = ranks
        return process_set

    def remove_process_set(self, process_set: ProcessSet) -> bool:
        """End a set. Collective over the job. See ``hvd.remove_process_set``."""
        process_set_id = process_set.process_set_id
        if process_set_id is None or process_set_id == 0:
            return False
        self._require_dynamic("remove_process_set")
        self._completed(self.engine.remove_process_set(process_set_id))
        self._unnamed.pop(process_set_id, None)
        self._ranks_of.pop(process_set_id, None)
        self._rebuilt.discard(process_set_id)
        for registered in {process_set, *self._sets.pop(process_set_id, [])}:
            registered._forget()
        return True

    def added_process_sets(self) -> list[tuple[list[int], list[ProcessSet]]]:
        """The sets that scripts have added after init(): ranks, and their ProcessSet objects."""
        return [(list(self._ranks_of[number]), list(self._sets[number])) for number in sorted(self._ranks_of)]

    def rebuild_process_set(self, ranks: Sequence[int], stand_for_it: Sequence[ProcessSet]) -> None:
        """Make a set of the previous membership again; collective. A script that adds it again finds it."""
        number = self._completed(self.engine.add_process_set(list(ranks)))[0]
        self._ranks_of[number] = list(ranks)
        self._rebuilt.add(number)
        self._sets.setdefault(number, [])
        for process_set in stand_for_it:
            self._register(process_set, number)

    def _require_dynamic(self, function: str) -> None:
        if not self.is_dynamic:
            raise errors.not_dynamic(function=function)

    def id_of(self, process_set: ProcessSet) -> int:
        """The core's number of a set. ValueError unless it is registered."""
        process_set_id = getattr(process_set, "process_set_id", None)
        if process_set_id is None:
            raise errors.not_registered(process_set=str(process_set), ranks=[self.world.rank])
        return int(process_set_id)

    def id_of_communicator(self, comm: Any) -> int:
        """The number of the set that was made from an mpi4py communicator. ValueError if none was."""
        for number, process_sets in self._sets.items():
            if any(each.mpi_comm is not None and each.mpi_comm == comm for each in process_sets):
                return number
        raise errors.not_of_a_communicator(got=repr(comm))

    def next_unnamed(self, process_set: ProcessSet) -> int:
        """The number of the next operation without a name in a set."""
        process_set_id = self.id_of(process_set)
        counter = self._unnamed.get(process_set_id)
        if counter is None:
            counter = self._unnamed.setdefault(process_set_id, itertools.count())
        return next(counter)

    def join(self) -> int:
        """See ``hvd.join``. Ranks that made different numbers of unnamed operations count alike again."""
        waiting.finish_all()  # a rank that has joined makes no more requests
        last = self._completed(self.engine.join())[0]
        self.joins += 1
        self._unnamed[0] = itertools.count(self.joins * _NAMES_BETWEEN_JOINS)
        return last

    def metrics(self, process_set: ProcessSet) -> dict[str, int]:
        """The core's counters of a set, and the counters of all sets. See ``hvd.metrics``."""
        of_all_sets = {
            "engine_cpu_microseconds": self.engine.cpu_microseconds(),
            "blocked_microseconds": waiting.blocked_microseconds(),
        }
        return self.engine.counters(self.id_of(process_set)) | of_all_sets

    def leave(self) -> None:
        """End the membership, and unregister its process sets."""
        while self.before_leaving:
            self.before_leaving.pop()()
        traffic.tell(time.monotonic() - self._began)
        for process_set in itertools.chain.from_iterable(self._sets.values()):
            process_set._forget()
        global_process_set._assign(0, None, None)
        global_process_set.mpi_comm = None
        self.engine.shutdown()


def _described(comm: Any, process_sets: Sequence[ProcessSet]) -> dict[str, Any]:
    """This rank's arguments of init(), to compare with the others'; or its error, for all ranks to raise."""
    described = []
    try:
        for process_set in process_sets:
            if not isinstance(process_set, ProcessSet):
                raise errors.no_process_set(got=repr(process_set))
            from_comm = process_set.mpi_comm is not None
            ranks = process_set.ranks or []
            if from_comm:
                ranks = ranks_within(process_set.mpi_comm, comm)
            described.append({"ranks": sorted(ranks), "from_comm": from_comm})
    except (ValueError, NotImplementedError) as error:
        kind = NotImplementedError if isinstance(error, NotImplementedError) else ValueError
        return {"sets": [], "error": [kind.__name__, str(error)]}
    return {"sets": described, "error": None}


def _check_software(by_rank: list[dict[str, Any]], rank: int) -> None:
    """Raise the same ValueError on all ranks for versions that cannot work together; rank 0 may warn."""
    facts = {f"rank {number} ({each['host']})": each["software"] for number, each in enumerate(by_rank)}
    if different := software.refusal(facts):
        raise errors.builds_differ(differences=different)
    if rank == 0 and (unwise := software.warning(facts)):
        _log.warning("horovod: %s.", unwise)


def _check_dynamic(by_rank: list[bool]) -> None:
    """Raise the same ValueError on all ranks if only some of them could add process sets."""
    dynamic = [rank for rank, is_dynamic in enumerate(by_rank) if is_dynamic]
    if dynamic and len(dynamic) < len(by_rank):
        raise errors.dynamic_on_some(ranks=dynamic, size=len(by_rank))


def _is_on(variable: str) -> bool:
    return bool(BY_VARIABLE[variable].read(os.environ))


def _read(rank: int, text: bytes, own: dict[str, Any], forming: str) -> dict[str, Any]:
    """Parse a rank's arguments, in the form of ``own``. ValueError about ``forming`` for another form."""
    try:
        wanted: dict[str, Any] = json.loads(text)
        error = wanted["error"]
        is_right = wanted.keys() == own.keys()
        is_right &= type(wanted["is_dynamic"]) is bool and type(wanted["host"]) is str
        is_right &= wanted["tuning"].keys() == own["tuning"].keys()
        is_right &= all(type(text) is str for text in wanted["tuning"].values())
        software.checked(wanted["software"])
        is_right &= error is None or [type(word) for word in error] == [str, str]
        for each in wanted["sets"]:
            is_right &= isinstance(each["ranks"], list) and "from_comm" in each
            is_right &= all(type(member) is int for member in each["ranks"])
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        is_right = False
    if not is_right:
        raise errors.not_understood(ranks=[rank], got=text[:80], forming=forming)
    return wanted


def _agreed(by_rank: list[dict[str, Any]], size: int) -> list[list[int]]:
    """The sets to register, from the arguments of all ranks. Raises the same error on all ranks."""
    for rank, wanted in enumerate(by_rank):
        if wanted["error"] is not None:
            kind, message = wanted["error"]
            if kind == "NotImplementedError":
                raise errors.not_served_on_a_rank(ranks=[rank], why=message)
            raise errors.of_a_rank(ranks=[rank], why=message)
    counts = [len(wanted["sets"]) for wanted in by_rank]
    if len(set(counts)) > 1:
        raise errors.numbers_of_sets_differ(counts=counts)
    agreed: list[list[int]] = []
    for position in range(counts[0]):
        entries = [wanted["sets"][position] for wanted in by_rank]
        choices = [entry["ranks"] for entry in entries]
        different = [ranks for i, ranks in enumerate(choices) if ranks not in choices[:i]]
        if len(different) > 1 and not all(entry["from_comm"] for entry in entries):
            raise errors.sets_differ(position=position, members=choices)
        # A communicator differs between ranks that it does not hold: register the sets of all of them.
        for ranks in sorted(different):
            agreed.append(checked_ranks(ranks, size, [list(range(size)), *agreed]))
    return agreed
