"""Ranks that meet in a store: an object with ``set`` and a ``get`` that waits, as torch.distributed's stores.

A store may contain keys of dead processes, or of an earlier init(). So each rank first writes a random number
as its hello, and continues when rank 0 has welcomed that very number. The welcome contains the session's
name, new each time, with which all later keys begin. Rank 0 gathers values, and publishes all of them, or its
error: so n ranks need about n requests, and all raise the same error.

If the store can only wait for ever, ranks do not check whether keys are old: they count their meetings, which
must be equally many on all of them, and JOB/RANKS contains that number too.

    horovod/JOB/RANKS/roll, .../called        the session of the rank 0 that calls, and its process
    horovod/JOB/RANKS/hello/RANK              the number
    horovod/JOB/RANKS/welcome/RANK            the number, the session
    horovod/JOB/RANKS/SESSION/TOPIC/RANK      a rank's value
    horovod/JOB/RANKS/SESSION/TOPIC/all/PART  all of them, see `packed`; or "E" and the error
"""

from __future__ import annotations

import collections
import contextlib
import hashlib
import itertools
import os
import re
import secrets
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from typing import Any, NamedTuple, Protocol

from horovod.common import errors, time_limits
from horovod.common.errors import OF_HVD, Wording
from horovod.common.exceptions import CannotStart
from horovod.common.options import BY_VARIABLE
from horovod.common.rendezvous.card import MOST_BYTES, own_name

_PART = 1 << 20  # bytes of one value: stores have limits
_SLICE = 1.0  # seconds of one request, so that Ctrl-C works
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.001, 0.1  # between polls
_SHORTEST_WAIT = 0.01  # 0 means for ever to some stores
_NUMBER = 16  # random bytes
_OBJECTION = 0.5  # seconds in which another live rank 0 can object
_meetings: dict[tuple[str, int], Iterator[int]] = collections.defaultdict(itertools.count)
_WELCOME = re.compile(rb"[0-9a-f]{%d}" % (4 * _NUMBER))


class Store(Protocol):
    """Like torch.distributed.Store. ``check``, or else ``wait``, and ``delete_key`` are used if present."""

    def set(self, key: str, value: Any, /) -> Any: ...
    def get(self, key: str, /) -> Any:
        """Wait until the key is set."""


class Assignment(NamedTuple):
    """A process' rank among the launched ones, and the launched ranks that form the job, in its order."""

    rank: int
    members: tuple[int, ...]


def assignment_of(rank: int, size: int, ranks: Sequence[int]) -> Assignment:
    """The assignment of a rank of `size` after init(comm=ranks); no ranks means all. May raise ValueError."""
    if any(not 0 <= one < size for one in ranks) or len(set(ranks)) < len(ranks):
        raise errors.comm_twice_or_none(members=list(ranks), size=size, last=size - 1)
    if ranks and rank not in ranks:
        raise errors.rank_outside_comm(members=list(ranks), rank=rank)
    return Assignment(rank, tuple(ranks or range(size)))


def start_timeout() -> float:
    """Seconds within which all ranks must come."""
    return float(BY_VARIABLE["HOROVOD_START_TIMEOUT"].read(os.environ))


class StoreRendezvous:
    """A meeting in a store, for one job. `job`: texts that distinguish it from other jobs in the store.

    Not thread-safe. At the end ranks delete what is left, if the store can delete: each its hello, as only it
    knows when it writes the next one, and rank 0 all else.
    """

    def __init__(
        self,
        store: Store,
        assignment: Assignment,
        name: str,
        host: str = "",
        job: Iterable[str] = (),
        seconds: float | None = None,
        wording: Wording = OF_HVD,
    ) -> None:
        self.name = name
        self.host = host
        self.rank = assignment.members.index(assignment.rank)
        self.size = len(assignment.members)
        self._members = assignment.members
        self._seconds = start_timeout() if seconds is None else seconds
        self._store = store
        self._wording = wording
        self.prefix = f"horovod/{_digest(job)}/{_digest(map(str, assignment.members))}"
        if not (hasattr(store, "wait") or hasattr(store, "check")):
            self.prefix += f"/{next(_meetings[self.prefix, self.rank])}"
        self._session = ""
        self._seen: dict[str, None] = {}  # keys, in the order in which they were found or set

    def allgather(self, topic: str, value: bytes) -> list[bytes]:
        """Every rank's value, by rank. Collective. ValueError as in `meeting.Rendezvous`."""
        if not self._session:
            self._session = self._call_roll() if self.rank == 0 else self._answer_roll()
        if self.rank != 0:
            self._set(f"{self._session}/{topic}/{self.rank}", value)
            return self._published(topic)
        deadline = time.monotonic() + self._seconds
        others = [self._await(f"{self._session}/{topic}/{rank}", deadline) for rank in range(1, self.size)]
        values = [value, *(said for said in others if said is not None)]
        if len(values) < self.size:
            silent = [rank for rank, said in enumerate(others, 1) if said is None]
            self._fail(topic, errors.fell_silent(**self._facts(silent)))
        if large := [rank for rank, said in enumerate(values) if len(said) > MOST_BYTES]:
            self._fail(topic, errors.too_long(**self._facts(large), most=MOST_BYTES))
        self._keep_roll(topic)
        self._publish(topic, b"V" + packed(values))
        return values

    def done(self) -> None:
        """Delete this rank's keys from the store. A key that cannot be deleted stays."""
        forget: Callable[[str], Any] | None = getattr(self._store, "delete_key", None)
        hello = f"{self.prefix}/hello/"
        own = [f"{hello}{self.rank}"]
        if self.rank == 0:
            own = [key for key in self._seen if not key.startswith(hello)]
        if forget is not None:
            with contextlib.suppress(Exception):  # the job has begun, and needs the store no more
                for key in own:
                    forget(key)

    def _call_roll(self) -> str:
        """Rank 0: welcome all other ranks, and name the session."""
        self._session = session = secrets.token_hex(_NUMBER)
        deadline = time.monotonic() + self._seconds
        settled = time.monotonic() + (_OBJECTION if self._claim_roll() else 0.0)
        asking: dict[int, list[bytes]] = collections.defaultdict(list)
        here: dict[int, bytes] = {0: b""}
        absent, pause = list(range(1, self.size)), _SHORTEST_PAUSE
        while absent or time.monotonic() < settled:
            if any([self._welcome(rank, asking[rank]) for rank in absent]):  # a list: poll each rank
                pause = _SHORTEST_PAUSE
            self._keep_roll("roll")
            here |= self._arrived(rank for rank in absent if asking[rank])
            absent = [rank for rank in absent if rank not in here]
            if absent and time.monotonic() > deadline:
                self._fail("roll", self._absence(absent))
            time.sleep(pause if absent or time.monotonic() < settled else 0.0)
            pause = min(1.5 * pause, _LONGEST_PAUSE)
        self._publish("roll", b"V" + packed(here[rank] for rank in range(self.size)))
        return session

    def _arrived(self, ranks: Iterable[int]) -> dict[int, bytes]:
        """Rank 0: the ranks that have read their welcome, each with the number that it was welcomed by."""
        found = {rank: self._find(f"{self._session}/here/{rank}", 0.0) for rank in ranks}
        return {rank: number for rank, number in found.items() if number is not None}

    def _welcome(self, rank: int, before: list[bytes]) -> bool:
        """Rank 0: answer a rank that has written a new number. Returns whether it had.

        If a number in `before` comes again after another process' number, both processes are alive.
        """
        number = self._find(f"hello/{rank}", 0.0)
        if number is None or number in before[-1:]:
            return False
        if number in before:
            self._fail("roll", errors.two_processes(**self._facts([rank])))
        before.append(number)
        self._set(f"welcome/{rank}", number[: 2 * _NUMBER] + self._session.encode())
        return True

    def _claim_roll(self) -> bool:
        """Rank 0: write its claim. Returns whether another process, alive or dead, has written one.

        Of two at the same time, each writes one key, then reads the other: one of them finds the other's.
        """
        self._set("roll", self._claim())
        can_look = hasattr(self._store, "check") or hasattr(self._store, "wait")
        is_left = can_look and self._find("called", 0.0) is not None
        self._set("called", self._claim())
        self._keep_roll("roll")
        return is_left

    def _claim(self, refused: bytes = b"") -> bytes:
        """The value of a claim. `refused`: the session of a later claim, whose rank 0 reads it."""
        return b" ".join([self._session.encode(), refused or b"-", own_name().encode(errors="replace")])

    def _keep_roll(self, topic: str) -> None:
        """Rank 0: check that no other process claims. One that has is alive, and may have some of our ranks.

        ValueError on the ranks of both jobs, as a rank may have joined either.
        """
        found = self._find("roll", 0.0)
        if found is None:  # a job that is done has deleted the keys
            self._set("roll", self._claim())
            return
        session, _, rest = found.partition(b" ")
        refused, _, name = rest.partition(b" ")
        own = self._session.encode()
        if session == own:
            return
        if refused != own:
            self._set("roll", self._claim(session))
        who = _printable(name[:MOST_BYTES])
        self._fail(topic, errors.two_first_ranks(process=who, place=self.name))

    def _answer_roll(self) -> str:
        """Other ranks: wait for the welcome. Returns the session when all ranks have theirs."""
        number = secrets.token_hex(_NUMBER).encode()
        deadline, pause = time.monotonic() + self._seconds, _SHORTEST_PAUSE
        while True:
            self._set(f"hello/{self.rank}", number)  # again, as the store may have been emptied
            welcome = self._find(f"welcome/{self.rank}", min(_SLICE, deadline - time.monotonic()))
            if welcome is not None and welcome.startswith(number) and _WELCOME.fullmatch(welcome):
                break
            if time.monotonic() > deadline:
                raise self._absence([0])
            time.sleep(0.0 if welcome is None else pause)
            pause = min(1.5 * pause, _LONGEST_PAUSE)
        self._session = welcome[len(number) :].decode()
        self._set(f"{self._session}/here/{self.rank}", number)
        if self._published("roll")[self.rank] != number:
            raise errors.two_processes(**self._facts([self.rank]))
        return self._session

    def _publish(self, topic: str, data: bytes) -> None:
        whole = struct.pack(">I", len(data)) + data
        for part, begin in enumerate(range(0, len(whole), _PART)):
            self._set(f"{self._session}/{topic}/all/{part}", whole[begin : begin + _PART])

    def _fail(self, topic: str, error: CannotStart) -> None:
        """Rank 0: make all ranks raise the same error."""
        self._publish(topic, b"E" + str(error).encode())
        raise error

    def _published(self, topic: str) -> list[bytes]:
        """Other ranks: the values that rank 0 has published. ValueError with its reason if it has none."""
        deadline = time.monotonic() + self._seconds + time_limits.RENDEZVOUS_GRACE
        whole, part = b"", 0
        length = 5
        while len(whole) < length:
            data = self._await(f"{self._session}/{topic}/all/{part}", deadline)
            if not data:
                raise errors.fell_silent(**self._facts([0]))
            whole, part = whole + data, part + 1
            if part == 1 and len(whole) >= 4:
                length = 4 + min(struct.unpack(">I", whole[:4])[0], self.size * (MOST_BYTES + 4) + 1)
        kind, data = whole[4:5], whole[5:length]
        if kind != b"V":
            raise self._reason(data[:MOST_BYTES])
        return unpacked(data, self.size, self.name)

    def _reason(self, data: bytes) -> CannotStart:
        """Rank 0's reason for publishing no values, made printable: other programs may write there too."""
        shown = _printable(data)
        if data and len(shown.split()) > 1:
            return errors.as_rank_0_says(why=shown)
        return errors.no_reason(**self._facts([self.rank]), got=shown[:80])

    def _await(self, key: str, deadline: float) -> bytes | None:
        """A value, or None if it is missing at the deadline; an existing one counts even after it."""
        while True:
            left = deadline - time.monotonic()
            value = self._find(key, min(_SLICE, left))
            if value is not None or left <= 0:
                return value

    def _find(self, key: str, seconds: float) -> bytes | None:
        """A value, or None if it is missing after so many seconds. ValueError: the store is broken."""
        key = f"{self.prefix}/{key}"
        begin = time.monotonic()
        try:
            value = self._store.get(key) if self._has(key, seconds) else None
        except Exception as error:  # of any class of the store
            waited = time.monotonic() - begin > 0.5 * max(seconds, _SHORTEST_WAIT)
            if waited and not hasattr(self._store, "check"):
                return None
            raise self._broken(error) from error
        if value is None:
            time.sleep(_SHORTEST_PAUSE)  # for stores that do not wait
            return None
        if not isinstance(value, str | bytes | bytearray | memoryview):
            raise self._broken(f"get() returned {value!r:.80}, which is neither bytes nor text")
        self._seen[key] = None
        return value.encode(errors="replace") if isinstance(value, str) else bytes(value)

    def _has(self, key: str, seconds: float) -> bool:
        """Whether the key appears within so many seconds. The store may raise an exception if not.

        Polls if it can: torch writes warnings when a wait ends without success.
        """
        check: Callable[..., bool] | None = getattr(self._store, "check", None)
        wait: Callable[..., Any] | None = getattr(self._store, "wait", None)
        if check is None:
            if wait is not None:
                wait([key], timedelta(seconds=max(seconds, _SHORTEST_WAIT)))
            return True
        deadline, pause = time.monotonic() + seconds, _SHORTEST_PAUSE
        while not check([key]):
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            time.sleep(min(pause, left))
            pause = min(1.5 * pause, _LONGEST_PAUSE)
        return True

    def _set(self, key: str, value: bytes) -> None:
        key = f"{self.prefix}/{key}"
        self._seen[key] = None
        try:
            self._store.set(key, value)
        except Exception as error:
            raise self._broken(error) from error

    def _broken(self, error: object) -> CannotStart:
        why = str(error).partition("\n")[0]  # without the store's traceback
        return errors.store_broken(**self._facts([self.rank]), why=why)

    def _absence(self, absent: Sequence[int]) -> CannotStart:
        return errors.did_not_come(**self._facts(absent), check=self._wording.if_absent)

    def _facts(self, ranks: Sequence[int]) -> dict[str, Any]:
        """Facts for errors about these ranks, which are numbered as launched in them."""
        launched = [self._members[rank] for rank in ranks]
        return {"ranks": launched, "size": self.size, "place": self.name, "seconds": self._seconds}


def packed(values: Iterable[bytes]) -> bytes:
    """The values, each after its length: 4 bytes, big-endian."""
    return b"".join(struct.pack(">I", len(value)) + value for value in values)


def unpacked(data: bytes, count: int, name: str) -> list[bytes]:
    """The `count` values in packed data. ValueError for anything else; `name`: the source, for the error."""
    values: list[bytes] = []
    at = 0
    while at + 4 <= len(data) and len(values) < count:
        end = at + 4 + struct.unpack_from(">I", data, at)[0]
        if end > min(len(data), at + 4 + MOST_BYTES):
            break
        values.append(data[at + 4 : end])
        at = end
    if len(values) < count or at < len(data):
        raise errors.not_published(got=data[:80], bytes=len(data), place=name, size=count)
    return values


def _printable(data: bytes) -> str:
    return "".join(each if each.isprintable() else " " for each in data.decode(errors="replace"))


def _digest(words: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(words).encode(errors="surrogateescape")).hexdigest()[:16]
