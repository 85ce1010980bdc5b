"""An elastic job in one process: workers are threads, and a launcher chooses the workers of the next world.

A lost worker leaves its job; to the others this looks like a rank that ends. test/parallel/
test_elastic_kills.py tests the detection of killed processes.
"""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable, Sequence
from typing import Any

from tcp_worlds import tcp_worlds

import horovod.torch as hvd
from horovod import _native as native
from horovod.common import jobs

PATIENCE = 40.0  # seconds for any wait


class Lost(BaseException):
    """Ends a worker, as a signal would; it is never caught."""


class Launcher:
    """Publishes a world when all present workers have requested the next one.

    Survivors come first, in their old order. Attributes: worlds: (workers by rank) of each generation.
    """

    def __init__(self, over: str = "local") -> None:
        self._make = tcp_worlds if over == "tcp" else native.local_worlds
        self._changed = threading.Condition()
        self._alive: list[str] = []
        self._asking: set[str] = set()
        self._given: dict[str, native.World] = {}
        self._threads: list[threading.Thread] = []
        self.worlds: list[list[str]] = []
        self.results: dict[str, Any] = {}
        self.errors: dict[str, BaseException] = {}

    def start(self, names: list[str], work: Callable[[str], Any]) -> None:
        """Start workers, each a thread that calls ``work(its name)`` in its own job."""
        with self._changed:
            self._alive += names
            self._publish_if_all_ask()
        for name in names:
            thread = threading.Thread(target=self._run, args=(name, work), name=name, daemon=True)
            self._threads.append(thread)
            thread.start()

    def _run(self, name: str, work: Callable[[str], Any]) -> None:
        job = jobs.Job(lambda settings, ranks: self._assign(name))
        with job.entered():
            try:
                hvd.init()
                self.results[name] = work(name)
            except Lost:
                pass
            except BaseException as error:
                traceback.print_exc()
                self.errors[name] = error
            self.lose(name)
            hvd.shutdown()
            job.belongings.forget()

    def lose(self, name: str) -> None:
        """Remove a worker: no other worker waits for it any more."""
        with self._changed:
            if name in self._alive:
                self._alive.remove(name)
            self._asking.discard(name)
            self._publish_if_all_ask()

    def _assign(self, name: str) -> native.World:
        with self._changed:
            self._asking.add(name)
            self._publish_if_all_ask()
            if not self._changed.wait_for(lambda: name in self._given, PATIENCE):
                raise ValueError(f"no world for {name}: {self._asking} of {self._alive} ask for one")
            return self._given.pop(name)

    def _publish_if_all_ask(self) -> None:
        if not self._alive or not self._asking >= set(self._alive):
            return
        before = self.worlds[-1] if self.worlds else []
        stay = [name for name in before if name in self._alive]
        order = stay + [name for name in self._alive if name not in stay]
        self._asking.clear()
        self.worlds.append(order)
        made = self._make(len(order))
        self._given.update(zip(order, made, strict=True))
        self._changed.notify_all()

    def wait(self) -> dict[str, Any]:
        """Wait for all workers; return their results by name. Raises the first error."""
        for thread in self._threads:
            thread.join(PATIENCE)
        stuck = [thread.name for thread in self._threads if thread.is_alive()]
        assert not stuck, f"{stuck} did not end; errors: {self.errors}"
        for error in self.errors.values():
            raise error
        return self.results


def together(names: Sequence[str], work: Callable[[str], Any]) -> dict[str, Any]:
    """The results of workers of these names, each in its own job."""
    launcher = Launcher()
    launcher.start(list(names), work)
    return launcher.wait()
