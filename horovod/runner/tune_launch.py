"""``horovodrun --tune-launch``: tries settings that only a new process can have, with the user's own script.

Each candidate runs as a job, which ends when rank 0 has reported the duration of a step. Jobs without the
candidate alternate with it, so that other load on the machine affects both.
"""

from __future__ import annotations

import ctypes.util
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from statistics import mean
from threading import Timer
from typing import Any, NamedTuple

from horovod.common import time_limits
from horovod.runner import errors, processes
from horovod.runner.agents.outcome import signal_name
from horovod.runner.agents.places import BIND as BIND_VARIABLE
from horovod.runner.errors import JobFailed
from horovod.runner.job_hosts import job_hosts_of
from horovod.runner.streams import say
from horovod.tune.paired import gain_of

STEPS_VARIABLE = "HOROVOD_TUNE_LAUNCH_STEPS"
_SAID = re.compile(r"horovod: a step takes ([\d.e+-]+) s, the median of \d+")  # of horovod.torch.autotune
STEPS = 30
NOT_COUNTED = 11  # warm-up steps of a job, as in horovod.torch.autotune
_PAIRS = 3  # of jobs for each candidate
_LAST_WORDS = 15  # lines
_WORTH = 1.01  # a smaller gain does not count
KEEP_BLOCKS = "glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=18446744073709551615"
HUGE_PAGES = "glibc.malloc.hugetlb=1"

Measure = Callable[[Mapping[str, str]], float]


class Candidate(NamedTuple):
    """A name for the table, and the variables to set."""

    name: str
    variables: Mapping[str, str]


class _Stopped(Exception):
    """A signal asks this process to end."""


def candidates(
    said: Mapping[str, Any], environment: Mapping[str, str], jemalloc: str | None
) -> list[Candidate]:
    """Return the candidates, except those that the user has decided: the candidate's variable would have no
    effect or contradict the user.

    ``said``: options of the command line and the config file. ``jemalloc``: its file, if there is one.
    """
    found = []
    binds_by_mpirun = bool(said.get("binding_args")) or "bind-to" in (said.get("mpi_args") or "")
    if not ("bind" in said or environment.get(BIND_VARIABLE, "").strip() or binds_by_mpirun):
        found.append(Candidate("--bind auto", {BIND_VARIABLE: "auto"}))
    if "GLIBC_TUNABLES" not in environment:
        found.append(Candidate("malloc keeps large blocks", {"GLIBC_TUNABLES": KEEP_BLOCKS}))
        found.append(Candidate("malloc uses huge pages", {"GLIBC_TUNABLES": HUGE_PAGES}))
    if jemalloc and "LD_PRELOAD" not in environment:
        found.append(Candidate("jemalloc", {"LD_PRELOAD": jemalloc}))
    return found


def tune(tried: Sequence[Candidate], measure: Measure) -> tuple[dict[str, str], str]:
    """Return the variables that made steps faster, and a table.

    Each candidate is measured in pairs of jobs, without and with it. Winners stay for the next candidates,
    unless both set the same variable. A candidate with a failed job is out. JobFailed if the very first job
    fails, which has no candidate.
    """
    kept: dict[str, str] = {}
    rows = [("tried", "seconds a step", "gain (95 %)", "")]
    failures: list[str] = []
    without: float | None = None
    for candidate in tried:
        measured: list[tuple[float, float]] = []
        try:
            while len(measured) < _PAIRS:
                without = measure(kept)
                measured.append((without, measure({**kept, **candidate.variables})))
        except JobFailed as error:
            if without is None:
                raise
            rows.append((candidate.name, "-", "-", "failed"))
            failures.append(f"{candidate.name}: {error}")
            continue
        gain = gain_of(measured)
        is_better = gain.low > 1 and gain.ratio > _WORTH
        if is_better:
            kept |= candidate.variables
        seconds = " -> ".join(f"{mean(side):.4f}" for side in zip(*measured, strict=True))
        rows.append((candidate.name, seconds, str(gain), "kept" if is_better else "-"))
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    table = [
        "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
    return kept, "\n".join([*table, *failures])


def seconds_in(line: str) -> float | None:
    """Return a step's time in a line of rank 0; None for another line."""
    said = _SAID.search(line)
    return float(said[1]) if said else None


def without_own(words: Sequence[str], command_length: int) -> list[str]:
    """Return the words of a command line without this module's options. Its last words are the command."""
    options, command = list(words[: len(words) - command_length]), words[len(words) - command_length :]
    while "--tune-launch" in options:
        options.remove("--tune-launch")
    while "--tune-launch-steps" in options:
        at = options.index("--tune-launch-steps")
        del options[at : at + 2]
    return [*(word for word in options if not word.startswith("--tune-launch-steps=")), *command]


def main(
    words: Sequence[str], command_length: int, said: Mapping[str, Any], values: Mapping[str, Any]
) -> int:
    """Run --tune-launch, and return the exit code.

    ``words``: horovodrun's command line, which ends with the ``command_length`` words of the command.
    ``said``: the options in it and in the config file; ``values``: these and the variables' values.
    """
    ranks = values.get("np") or job_hosts_of(values, os.environ).ranks
    if ranks < 2:
        raise errors.tune_one_rank()
    tried = candidates(said, os.environ, ctypes.util.find_library("jemalloc"))
    if not tried:
        raise errors.tune_nothing()
    jobs = _Jobs(without_own(words, command_length), values.get("tune_launch_steps") or STEPS)
    count, steps = 2 * _PAIRS * len(tried), NOT_COUNTED + jobs.steps
    say(f"--tune-launch runs {count} jobs of {steps} steps each, in turns without and with what it tries")
    try:
        with processes.heeding(jobs.stop):
            kept, table = tune(tried, jobs.seconds)
    except _Stopped:
        say(f"stopped by {signal_name(jobs.stopped_by)}, all ranks were ended")
        return 128 + jobs.stopped_by
    print(table)
    if kept:
        print("run it so:", " ".join([*(f"{n}={shlex.quote(t)}" for n, t in kept.items()), "horovodrun ..."]))
    else:
        print("nothing of this is faster here")
    return 0


class _Jobs:
    """Runs jobs of one command line, one at a time. A signal ends the running job and the series."""

    def __init__(self, arguments: Sequence[str], steps: int) -> None:
        self._words = [sys.executable, "-m", "horovod.runner", *arguments]
        self.steps = steps
        self.stopped_by = 0  # the number of a signal
        self._running: subprocess.Popen[str] | None = None
        self._is_late = False

    def stop(self, number: int, _: object) -> None:
        self.stopped_by = self.stopped_by or number
        self._tell_to_end()

    def _end_late_one(self) -> None:
        self._is_late = True
        self._tell_to_end()

    def _tell_to_end(self) -> None:
        if (job := self._running) is not None:
            job.terminate()

    def seconds(self, variables: Mapping[str, str]) -> float:
        """Run a job until it reports a step's time, and return that. Raises JobFailed, _Stopped."""
        self._refuse_when_stopped()
        self._is_late = False
        job = subprocess.Popen(
            self._words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env={**os.environ, **variables, STEPS_VARIABLE: str(self.steps)},
            preexec_fn=lambda: processes.end_with_parent(signal.SIGTERM),
        )
        self._running = job
        said: list[str] = []
        limit = Timer(time_limits.TUNE_JOB, self._end_late_one)
        limit.start()
        assert job.stdout is not None
        try:
            self._refuse_when_stopped()  # the signal may have come before there was a job to end
            for line in job.stdout:
                said.append(line)
                if (seconds := seconds_in(line)) is not None:
                    return seconds
        finally:
            limit.cancel()
            job.stdout.close()
            processes.end_child(job, time_limits.TUNE_JOB_END)  # its ranks end before the next ones start
            self._running = None
        self._refuse_when_stopped()
        raise self._complaint(variables, said[-_LAST_WORDS:])

    def _refuse_when_stopped(self) -> None:
        if self.stopped_by:
            raise _Stopped

    def _complaint(self, variables: Mapping[str, str], words: Sequence[str]) -> JobFailed:
        how = "".join(f" {name}={shlex.quote(text)}" for name, text in variables.items())
        ended = f"was ended after {time_limits.TUNE_JOB:g} s" if self._is_late else "has ended"
        none = "it has said nothing, and what a step takes is read from rank 0's standard output"
        return errors.tune_job_failed(
            how=f"{' with' * bool(how)}{how}",
            ended=ended,
            is_late=self._is_late,
            steps=NOT_COUNTED + self.steps,
            counted=self.steps,
            said=f"its last words:\n{''.join(words).rstrip()}" if words else none,
        )
