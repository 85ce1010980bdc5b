"""The only table of options: flag, HOROVOD_ variable, YAML key, type, default, allowed values, help.

`horovodrun` makes its command line, its config file and the environment of ranks from it. The build makes the
core's settings from it (`build_support/generated_headers.py`), and docs/configuration.md prints it. It
imports the standard library only, so any code can read a name or a default, also before a core is built.

A row with `unserved` is an option of Horovod that this package cannot honour. Setting it is an error with
that sentence; switching it off is allowed.
"""

from __future__ import annotations

from horovod.common.options.launcher import LAUNCHER_OPTIONS
from horovod.common.options.not_served import NOT_SERVED
from horovod.common.options.option import (
    CORE,
    FIRST_RANK,
    GROUPS,
    JOB,
    LAUNCHER,
    PYTHON,
    RANK,
    UNSERVED,
    Option,
)
from horovod.common.options.ranks import RANK_OPTIONS

__all__ = [
    "BY_VARIABLE", "CORE", "FIRST_RANK", "GROUPS", "JOB", "LAUNCHER", "OPTIONS", "PYTHON", "RANK", "UNSERVED",
    "Option",
]  # fmt: skip

OPTIONS: tuple[Option, ...] = (*LAUNCHER_OPTIONS, *RANK_OPTIONS, *NOT_SERVED)
BY_VARIABLE = {option.variable: option for option in OPTIONS if option.variable}
