"""Elastic jobs of this folder: workers of test/failures on hosts that are names of this machine."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import busy
from failing_rank import __file__ as program_path
from failure_programs import Event, Moment, Program
from launching import fresh_mark, processes_of, start
from survival.notes import Notes

__all__ = ["LONG", "Job", "Worker", "at_step"]

LONG = sys.maxsize  # epochs of a job that trains until it is stopped


def at_step(kind: str, rank: int, step: int, point: str = "step") -> Event:
    """Return an event for the worker that begins with this rank."""
    return Event(kind, rank, moment=Moment(point, step=step))


@dataclass(frozen=True)
class Worker:
    """A worker's state at its last step."""

    pid: int
    rank: int
    size: int
    step: int


class Job:
    """A program in its folder, the notes of its ranks, and its job."""

    def __init__(self, folder: Path, *events: Event, **more: Any) -> None:
        folder.mkdir(exist_ok=True)
        self.folder = folder
        record = Program("elastic", 0, (1,), events, **more).as_record()
        (folder / "program.json").write_text(json.dumps(record))
        self.command = [sys.executable, str(program_path), str(folder)]
        self.hosts(1, 2)
        self.out = self.err = ""
        self._notes = Notes(folder)

    def hosts(self, *numbers: int) -> None:
        """Set the hosts that discovery finds from now on: 127.0.0.N. It never reads a half-written list."""
        new = self.folder / "hosts.new"
        new.write_text("".join(f"127.0.0.{number}:1\n" for number in numbers))
        new.rename(self.folder / "hosts")

    @contextmanager
    def started(
        self, *words: str, finds_hosts: bool = True, stdin: int = subprocess.DEVNULL, **variables: str
    ) -> Iterator[Job]:
        """Run the job in the block. ``finds_hosts`` False: only the hosts at the start are known."""
        there = ["--host-discovery-script", f"cat {self.folder}/hosts"]
        there = there if finds_hosts else ["-H", "127.0.0.1,127.0.0.2"]
        self.mark = fresh_mark()
        self.process = start([*there, *words, *self.command], self.mark, stdin, **variables)
        try:
            yield self
        finally:
            if self.process.poll() is None:
                self.process.terminate()
                self.end()
            assert not processes_of(self.mark), self.err

    def notes(self, what: str) -> list[dict[str, Any]]:
        self._notes.read()
        return [note for note in self._notes.all() if note["what"] == what]

    def workers(self) -> dict[str, Worker]:
        """Return by host the last worker there that finished a step, also if it has ended."""
        return {
            note["host"]: Worker(note["pid"], note["rank"], note["size"], note["step"])
            for note in self.notes("step")
        }

    def wait(self, is_so: Callable[[list[Worker]], bool], seconds: float = 40) -> None:
        def has_come() -> bool:
            assert self.process.poll() is None, self.end()
            return is_so(list(self.workers().values()))

        busy.until(has_come, seconds)

    def wait_for_size(self, size: int) -> None:
        self.wait(lambda workers: len([one for one in workers if one.size == size]) >= size)

    def end(self) -> int:
        self.out, self.err = self.process.communicate(timeout=30)
        return self.process.returncode

    def stop(self) -> int:
        """Stop the job at the end of an epoch; return its exit code."""
        (self.folder / "stop").touch()
        return self.end()
