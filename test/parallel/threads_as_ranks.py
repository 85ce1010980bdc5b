"""The files of ranks/ with threads as ranks: one process, which imports torch once, and no launcher.

    run_thread_test_files(np, files)      pytest files, in one job of `np` threads over memory

In such a process pytest runs once. Every rank's thread calls each test and its fixtures, all of which are
made again for each test, whatever their scope. Threads share torch's random generator, warnings, os.environ
and the process itself: tests of these need processes, and test_torch_ranks.py lists them.

By hand: HOROVOD_TEST_THREADS=2 python -m pytest test/parallel/ranks/test_contract.py
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from rank_jobs import TIME_LIMIT, run_job

sys.path.insert(0, str(Path(__file__).parents[1] / "single" / "support"))
from tcp_worlds import tcp_worlds

import horovod.torch as hvd
from horovod import _native as native
from horovod.common import jobs
from horovod.common.rendezvous.meeting import OpenWorld

VARIABLE = "HOROVOD_TEST_THREADS"
OVER = "HOROVOD_TEST_OVER"  # their transport: "tcp", over the loopback device; otherwise memory
COUNT = int(os.environ.get(VARIABLE, "0"))  # ranks in this process; 0: it is a single rank, or none
OF_PYTEST = ("request", "monkeypatch", "tmp_path", "tmp_path_factory", "capfd", "capsys", "caplog", "recwarn")


def run_thread_test_files(
    np: int, files: Sequence[Path], without: Sequence[str] = (), timeout: float = TIME_LIMIT, over: str = ""
) -> None:
    """Fail unless all tests of these files, without some, pass with ``np`` threads as ranks."""
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--color=no", "--tb=short"]
    argv += ["-o", f"faulthandler_timeout={max(timeout - 30, 20)}", *map(str, files)]
    argv += [word for test in without for word in ("--deselect", test)]
    job = run_job(argv, timeout, {VARIABLE: str(np), OVER: over})
    if job.returncode != 0:
        pytest.fail(f"{np} threads as ranks: pytest ended with {job.returncode}\n{job.stdout}", pytrace=False)


class ThreadRanks:
    """Threads that are the ranks of one job while tests pass; after a failure, of a new one."""

    def __init__(self, size: int) -> None:
        self.size = size
        if size:  # these import each other: threads that need them at once would wait for each other
            importlib.import_module("torch._dynamo.config")
        self._jobs: list[jobs.Job] = []
        self._worlds: list[native.World] = []
        self._meeting = threading.Barrier(max(size, 1), self._make_worlds, timeout=20)

    def _make_worlds(self) -> None:
        if os.environ.get(OVER) == "tcp":
            self._worlds = tcp_worlds(self.size)
        else:
            self._worlds = native.local_worlds(self.size)

    def _opening(self, rank: int) -> OpenWorld:
        def open_world(settings: native.Settings, ranks: list[int]) -> native.World:
            self._meeting.wait()  # all call init(), each time
            return self._worlds[rank]

        return open_world

    def run(self, work: Callable[[], None]) -> None:
        """Call ``work`` in every rank. Raises the first error, after which the job has ended."""
        if not self._jobs:
            self._meeting.reset()
            self._jobs = [jobs.Job(self._opening(rank)) for rank in range(self.size)]
            self._in_all(hvd.init)
        self._in_all(work)

    def _in_all(self, work: Callable[[], None]) -> None:
        errors: list[BaseException] = []

        def rank(job: jobs.Job) -> None:
            with job.entered():
                try:
                    work()
                except BaseException as error:
                    errors.append(error)
                    hvd.shutdown()  # the others may wait for this rank

        threads = [threading.Thread(target=rank, args=(job,), daemon=True) for job in self._jobs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            self.end()
            causes = [error for error in errors if not isinstance(error, hvd.HorovodInternalError)]
            raise (causes or errors)[0]

    def end(self) -> None:
        """End the job; the next call of ``run`` makes a new one."""
        ended, self._jobs = self._jobs, []
        for job in ended:
            job.run(hvd.shutdown)


def call_in_rank(item: pytest.Function) -> None:
    """Call a test in this thread, with fixtures made here."""
    parameters = item.callspec.params if hasattr(item, "callspec") else {}
    definitions = item._fixtureinfo.name2fixturedefs
    values: dict[str, Any] = {}

    with contextlib.ExitStack() as stack:

        def value_of(name: str) -> Any:
            if name in parameters:
                return parameters[name]
            if name in OF_PYTEST:
                return item.funcargs[name]
            if name not in values:
                definition = definitions[name][-1]
                made = definition.func(**{each: value_of(each) for each in definition.argnames})
                values[name] = stack.enter_context(_finished(made)) if inspect.isgenerator(made) else made
            return values[name]

        for name in item._fixtureinfo.names_closure:
            value_of(name)
        item.obj(**{name: value_of(name) for name in item._fixtureinfo.argnames})


@contextlib.contextmanager
def _finished(fixture: Iterator[Any]) -> Iterator[Any]:
    yield next(fixture)
    next(fixture, None)
