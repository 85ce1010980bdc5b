"""The settings of the autotuner, checked when ranks meet.

An error that one rank would find later, while the others train, is raised on all at once.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from horovod.common import errors
from horovod.common.options import BY_VARIABLE, OPTIONS, PYTHON

__all__ = ["VARIABLES", "check_alike", "of_this_rank", "wrong"]

# Read in Python, while the job runs, by all ranks alike.
VARIABLES = (
    "HOROVOD_AUTOTUNE",
    "HOROVOD_AUTOTUNE_COMPRESSION",
    *(option.variable for option in OPTIONS if option.part == PYTHON and option.tries),
)
# Read by rank 0, in its first steps.
_OF_THE_SEARCH = (
    "HOROVOD_AUTOTUNE_MODE",
    "HOROVOD_AUTOTUNE_REUSE",
    "HOROVOD_AUTOTUNE_MAX_STEPS",
    "HOROVOD_AUTOTUNE_WARMUP_SAMPLES",
    "HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE",
)
LOG = "HOROVOD_AUTOTUNE_LOG"


def of_this_rank(environment: Mapping[str, str]) -> dict[str, str]:
    """By variable, the values that must be the same on all ranks; a wrong value as its text."""
    found = {}
    for name in VARIABLES:
        try:
            found[name] = f"{BY_VARIABLE[name].read(environment):g}"
        except ValueError:
            found[name] = environment[name]
    return found


def wrong(environment: Mapping[str, str], rank: int) -> str:
    """The error in this rank's settings; else "".

    The log file is rank 0's. Elastic jobs continue without it, as the next rank 0 may be on a host that lacks
    its folder.
    """
    try:
        for name in VARIABLES:
            BY_VARIABLE[name].read(environment)
        if not BY_VARIABLE["HOROVOD_AUTOTUNE"].read(environment):
            return ""
        for name in _OF_THE_SEARCH:
            BY_VARIABLE[name].read(environment)
        is_elastic = BY_VARIABLE["HOROVOD_ELASTIC"].read(environment)
    except ValueError as error:
        return str(error)
    path = environment.get(LOG, "").strip()
    return "" if rank != 0 or is_elastic or not path else _why_not_written(path)


def _why_not_written(path: str) -> str:
    """The reason why a file cannot be written, or "".

    Keeps its content, which tuning may still need. Never waits for a pipe's reader.
    """
    try:
        is_new = not os.path.exists(path)
        os.close(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK, 0o666))
        if is_new:  # a job that ends during the search leaves none
            os.unlink(path)
    except OSError as error:
        return f"{LOG}: {error}"
    return ""


def check_alike(by_rank: list[dict[str, str]]) -> None:
    """Raise the same ValueError on all ranks if they would change settings differently."""
    for name in VARIABLES:
        texts = [each[name] for each in by_rank]
        if len(set(texts)) > 1:
            raise errors.settings_differ(setting=name, values=dict(enumerate(texts)))
