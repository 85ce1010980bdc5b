"""``horovodrun --tune-launch``: tries what only a fresh process can change, with the user's own script.

Each candidate is a job of its own, which is ended when rank 0 has said what a step takes. Jobs of the same
options without a candidate's stand between, so that what the machine does meanwhile falls on both.
"""

from __future__ import annotations

import ctypes.util
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from threading import Timer
from typing import NamedTuple

from horovod.runner.errors import LaunchError
from horovod.runner.streams import say
from horovod.tune.paired import Gain, gain_of

__all__ = ["Candidate", "candidates", "main", "seconds_in", "tune", "without_own"]

STEPS_VARIABLE = "HOROVOD_TUNE_LAUNCH_STEPS"
_SAID = re.compile(r"horovod: a step takes ([\d.e+-]+) s, the median of \d+")  # by horovod.torch.autotune
STEPS = 30
_PAIRS = 3  # of each candidate, before it may win
_LONGEST_JOB = 600.0  # seconds
_WORTH = 1.01  # a gain below that is none
KEEP_BLOCKS = "glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=18446744073709551615"
HUGE_PAGES = "glibc.malloc.hugetlb=1"

Measure = Callable[[Mapping[str, str]], float]


class Candidate(NamedTuple):
    """A name for the table, and the variables that make it."""

    name: str
    variables: Mapping[str, str]


def candidates(environment: Mapping[str, str], jemalloc: str | None) -> list[Candidate]:
    """What is tried: none that the user has decided. ``jemalloc``: its file, if there is one."""
    found = []
    if environment.get("HOROVOD_BIND", "none") == "none":
        found.append(Candidate("--bind auto", {"HOROVOD_BIND": "auto"}))
    if "GLIBC_TUNABLES" not in environment:
        found.append(Candidate("malloc keeps large blocks", {"GLIBC_TUNABLES": KEEP_BLOCKS}))
        found.append(Candidate("malloc uses huge pages", {"GLIBC_TUNABLES": HUGE_PAGES}))
    if jemalloc and "LD_PRELOAD" not in environment:
        found.append(Candidate("jemalloc", {"LD_PRELOAD": jemalloc}))
    return found


def tune(tried: Sequence[Candidate], measure: Measure, pairs: int = _PAIRS) -> tuple[dict[str, str], str]:
    """The variables that made steps faster, and a table.

    One after the other, in pairs of jobs without and with it; what has won is kept for the next ones, unless
    both set the same variable.
    """
    kept: dict[str, str] = {}
    rows = [("tried", "seconds a step", "gain (95 %)", "")]
    for candidate in tried:
        measured = [(measure(kept), measure({**kept, **candidate.variables})) for _ in range(pairs)]
        gain = gain_of(measured)
        is_better = gain.low > 1 and gain.ratio > _WORTH
        if is_better:
            kept |= candidate.variables
        rows.append((candidate.name, _between(measured), _shown(gain), "kept" if is_better else "-"))
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    table = [
        "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
    return kept, "\n".join(table)


def _between(measured: Sequence[tuple[float, float]]) -> str:
    without, with_it = (sum(pair[side] for pair in measured) / len(measured) for side in (0, 1))
    return f"{without:.4f} -> {with_it:.4f}"


def _shown(gain: Gain) -> str:
    return str(gain) if gain.pairs > 1 else f"{gain.ratio:.2f}x"


def seconds_in(line: str) -> float | None:
    """What rank 0 says that a step takes; None for another line."""
    said = _SAID.search(line)
    return float(said[1]) if said else None


def without_own(words: Sequence[str], command_length: int) -> list[str]:
    """The words of a command line, whose last ones are the command, without those of this module."""
    options, command = list(words[: len(words) - command_length]), words[len(words) - command_length :]
    while "--tune-launch" in options:
        options.remove("--tune-launch")
    while "--tune-launch-steps" in options:
        at = options.index("--tune-launch-steps")
        del options[at : at + 2]
    return [*(word for word in options if not word.startswith("--tune-launch-steps=")), *command]


def main(words: Sequence[str], command_length: int, steps: int | None) -> int:
    """``words``: horovodrun's command line, at whose end the command has so many; ``steps``: of each job."""
    arguments, steps = without_own(words, command_length), steps or STEPS
    tried = candidates(os.environ, ctypes.util.find_library("jemalloc"))
    if not tried:
        raise LaunchError(
            "--tune-launch has nothing to try: HOROVOD_BIND, GLIBC_TUNABLES and LD_PRELOAD are set"
        )
    jobs = 2 * _PAIRS * len(tried)
    say(f"--tune-launch runs {jobs} jobs of {steps} steps each, in turns without and with what it tries")

    def measure(variables: Mapping[str, str]) -> float:
        return _measured(arguments, variables, steps)

    kept, table = tune(tried, measure)
    print(table)
    if kept:
        print("run it so:", " ".join([*(f"{n}={shlex.quote(t)}" for n, t in kept.items()), "horovodrun ..."]))
    else:
        print("nothing of this is faster here")
    return 0


def _measured(arguments: Sequence[str], variables: Mapping[str, str], steps: int) -> float:
    """A job, until it has said what a step takes."""
    environment = {**os.environ, **variables, STEPS_VARIABLE: str(steps)}
    words = [sys.executable, "-m", "horovod.runner", *arguments]
    job = subprocess.Popen(
        words,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
    )
    said: list[str] = []
    assert job.stdout is not None
    limit = Timer(_LONGEST_JOB, job.terminate)
    limit.start()
    try:
        for line in job.stdout:
            said.append(line)
            if (seconds := seconds_in(line)) is not None:
                return seconds
    finally:
        limit.cancel()
        job.terminate()
        job.stdout.close()
        job.wait()
    raise LaunchError(
        f"--tune-launch: the job has not made {steps} steps with a DistributedOptimizer or ddp.compress; its "
        f"last words:\n{''.join(said[-15:])}"
    )
