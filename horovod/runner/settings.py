"""What holds for this job: command line, config file and environment, in this order of weight."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from horovod.common.exceptions import WrongSetting
from horovod.common.options import CORE, LAUNCHER, OPTIONS, PYTHON, UNSERVED
from horovod.common.sentences import facts_of
from horovod.common.variable_names import COMPRESSION, DDP_COMPRESSION
from horovod.common.variables import refuse_what_is_no_text
from horovod.runner import errors
from horovod.runner.config_file import asks_for_something
from horovod.runner.elastic.settings import without_restart_of_others

COMPRESSIONS = (COMPRESSION, DDP_COMPRESSION)


def merged(
    given: Mapping[str, Any], file: Mapping[str, Any], environment: Mapping[str, str]
) -> dict[str, Any]:
    """Option name -> value: the command line's, else the file's, else (launcher) variable or default. The
    variable HOROVOD_ELASTIC_RESTART counts only in jobs that are elastic without it.
    """
    values = {**file, **given}
    for option in OPTIONS:
        if option.part == UNSERVED or option.name in values or option.variable in COMPRESSIONS:
            continue
        text = environment.get(option.variable, "").rstrip() or option.default
        if text:
            try:
                value = option.convert(text)
            except ValueError as error:
                raise errors.wrong_variable(**facts_of(error, variable=option.variable)) from None
            if option.part == LAUNCHER:  # the others are read by ranks, and would be refused there
                values[option.name] = value
    try:
        refuse_what_is_no_text({**environment, **rank_environment(values)})
    except WrongSetting as error:  # as every rank would say
        raise errors.no_text(**facts_of(error)) from None
    _refuse_force_alone(values, environment)
    return without_restart_of_others(values, {**file, **given})


def _refuse_force_alone(values: Mapping[str, Any], environment: Mapping[str, str]) -> None:
    told = {**environment, **rank_environment(values)}
    if values.get("compression_force") and not any(told.get(name) for name in (COMPRESSION, DDP_COMPRESSION)):
        about = "lets --compression count wherever gradients are compressed"
        raise errors.alone(option="--compression-force", about=about, other="--compression")


def rank_environment(values: Mapping[str, Any]) -> dict[str, str]:
    """The variables that flags and file set for ranks; one that is set already stays otherwise."""
    found = {
        option.variable: option.variable_text(values[option.name])
        for option in OPTIONS
        if option.part in (CORE, PYTHON) and option.name in values
    }
    if values.get("ddp") and COMPRESSION in found:  # of DistributedDataParallel's gradients then
        found[DDP_COMPRESSION] = found.pop(COMPRESSION)
    return found


def environment_warnings(environment: Mapping[str, str]) -> list[str]:
    """A sentence for each of Horovod's variables that is set and cannot be honoured."""
    return [
        f"{option.variable}={environment[option.variable]} is not served: {option.unserved}"
        for option in OPTIONS
        if option.part == UNSERVED
        and option.variable in environment
        and asks_for_something(environment[option.variable])
    ]
