"""Ranks of a rendezvous as threads, with a store in memory and a substitute for the core's TCP."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from ranks import in_threads

from horovod import _native as native
from horovod.common.exceptions import CannotStart
from horovod.common.rendezvous import meeting
from horovod.common.rendezvous.meeting import Rendezvous, open_over_tcp
from horovod.common.rendezvous.store import Store, StoreRendezvous, assignment_of

__all__ = [
    "PLACE", "MemoryStore", "Opened", "PlainStore", "WaitingStore", "error_of", "errors_of", "fake_native",
    "joining", "meet", "meet_in",
]  # fmt: skip
PLACE = "the test's store"


class PlainStore:
    """A store with ``set``, and a ``get`` that waits for `seconds`."""

    def __init__(self, seconds: float = 20.0) -> None:
        self.values: dict[str, Any] = {}
        self.seconds = seconds
        self.changed = threading.Condition()

    def set(self, key: str, value: Any) -> None:
        with self.changed:
            self.values[key] = value
            self.changed.notify_all()

    def get(self, key: str) -> Any:
        self._wait([key], self.seconds)
        return self.values[key]

    def _wait(self, keys: Sequence[str], seconds: float) -> None:
        with self.changed:
            if not self.changed.wait_for(lambda: self.values.keys() >= set(keys), seconds):
                raise RuntimeError(f"wait timeout after {seconds} s, keys: {keys}")


class WaitingStore(PlainStore):
    """A store that can also wait for a shorter time."""

    def wait(self, keys: Sequence[str], timeout: timedelta) -> None:
        self._wait(keys, timeout.total_seconds())


class MemoryStore(WaitingStore):
    """A store like torch.distributed.HashStore."""

    def check(self, keys: Sequence[str]) -> bool:
        return self.values.keys() >= set(keys)

    def delete_key(self, key: str) -> bool:
        with self.changed:
            return self.values.pop(key, None) is not None


@dataclass
class Opened:
    """The core's arguments for a world."""

    rank: int
    hosts: list[str]
    names: list[str]
    endpoints: list[list[str]]
    secret: bytes
    size: int = field(init=False)
    mpi_library = ""

    def __post_init__(self) -> None:
        self.size = len(self.hosts)


def fake_native(monkeypatch: pytest.MonkeyPatch, refused: str = "-") -> None:
    """Replaces the core; listening fails at addresses with this prefix."""
    ports = itertools.count(4000)
    barriers: dict[bytes, threading.Barrier] = {}

    class TcpListener:
        def __init__(self, addresses: list[str], first_port: int, last_port: int) -> None:
            if any(address.startswith(refused) for address in addresses):
                raise ValueError(f"cannot listen at {addresses[0]}: Address already in use")
            self.endpoints = [
                f"[{address}]:{next(ports)}" if ":" in address else f"{address}:{first_port or next(ports)}"
                for address in addresses
            ]

    def open_world_over_tcp(settings: object, listener: TcpListener, rank: int, *told: Any) -> Opened:
        opened = Opened(rank, *told)
        assert opened.endpoints[rank] == listener.endpoints
        # Uses the job's key. It is collective: all ranks have the exchanged data when it ends.
        barriers.setdefault(opened.secret, threading.Barrier(opened.size)).wait(10)
        return opened

    def open_world(*told: Any) -> SimpleNamespace:
        return SimpleNamespace(rank=0, size=1, told=told)

    core = SimpleNamespace(
        TcpListener=TcpListener, open_world_over_tcp=open_world_over_tcp, open_world=open_world
    )
    monkeypatch.setattr(meeting, "native", core)


def settings_of(transport: str = "auto") -> native.Settings:
    settings = native.Settings()
    settings.transport = transport
    return settings


def meet(
    rendezvous: Sequence[Rendezvous], environments: Sequence[Mapping[str, str]] = (), transport: str = "auto"
) -> list[Any]:
    """The worlds of all ranks, or the error of each that fails."""
    settings = settings_of(transport)

    def rank(number: int) -> Any:
        try:
            return open_over_tcp(settings, rendezvous[number], environments[number] if environments else {})
        except ValueError as error:
            return error

    return in_threads(len(rendezvous), rank)


def meet_in(
    store: Store,
    size: int,
    environments: Sequence[Mapping[str, str]] = (),
    seconds: float = 10.0,
    **more: Any,
) -> list[Any]:
    return meet([joining(store, rank, size, seconds) for rank in range(size)], environments, **more)


def joining(store: Store, rank: int, size: int = 2, seconds: float = 5.0) -> StoreRendezvous:
    return StoreRendezvous(store, assignment_of(rank, size, []), PLACE, seconds=seconds)


def errors_of(worlds: Sequence[Any]) -> set[str]:
    """The errors of all ranks."""
    assert all(isinstance(world, CannotStart) for world in worlds), worlds
    return set(map(str, worlds))


def error_of(worlds: Sequence[Any]) -> CannotStart:
    """The first rank's error, whose text all ranks have; others may have received it as a report."""
    assert len(errors_of(worlds)) == 1
    error: CannotStart = worlds[0]
    return error
