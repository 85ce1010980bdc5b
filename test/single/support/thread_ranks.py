"""Ranks of ``horovod.torch`` as threads of one process, over memory: a job without a launcher.

    run_ranks(2, work) -> [work() of rank 0, work() of rank 1]

Each thread has its own ``Job``, in which hvd.init() has been called. Threads share the state of torch and of
the process: the default random generator, os.environ, warnings. Tests of such state need processes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from ranks import in_threads

import horovod.torch as hvd
from horovod import _native as native
from horovod.common import jobs

__all__ = ["run_ranks"]

T = TypeVar("T")


def run_ranks(size: int, work: Callable[[], T], hosts: list[int] | None = None) -> list[T]:
    """Call ``work`` in every rank of a job, and return its results by rank.

    Raises the first error. An error ends the job, so that ranks waiting for the failed one get an error, too.

    hosts: the number of each rank's host, in the order of their first ranks; None: all are on one.
    """
    worlds = native.local_worlds(size, hosts=hosts or [])

    def in_job(rank: int) -> T:
        with jobs.Job(lambda settings, ranks: worlds[rank]).entered():
            try:
                hvd.init()
                return work()
            finally:
                hvd.shutdown()

    return in_threads(size, in_job)
