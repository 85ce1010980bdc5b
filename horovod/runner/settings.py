"""A job's settings: from the command line, the config file and the environment, in this order of weight.

The config file is YAML, with the keys of the table of options.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from typing import Any

from horovod.common.exceptions import WrongSetting
from horovod.common.names import did_you_mean
from horovod.common.options import CORE, LAUNCHER, OPTIONS, PYTHON, UNSERVED
from horovod.common.sentences import facts_of, type_name
from horovod.common.variable_names import COMPRESSION, DDP_COMPRESSION
from horovod.common.variables import refuse_what_is_no_text
from horovod.runner import errors
from horovod.runner.elastic.settings import without_restart_of_others

MOST_BYTES = 1 << 20  # of a config file: this says all keys a hundred times
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
    told = {**environment, **rank_environment(values)}
    try:
        refuse_what_is_no_text(told)
    except WrongSetting as error:  # as every rank would say
        raise errors.no_text(**facts_of(error)) from None
    if values.get("compression_force") and not any(told.get(name) for name in COMPRESSIONS):
        about = "lets --compression count wherever gradients are compressed"
        raise errors.alone(option="--compression-force", about=about, other="--compression")
    return without_restart_of_others(values, {**file, **given})


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


def load(path: str) -> tuple[dict[str, Any], list[str]]:
    """(option name -> converted value, warnings about unknown keys). LaunchError names file and key."""
    try:
        text = _bytes_of(path).decode()
    except OSError as error:
        raise errors.config_unreadable(path=path, why=error.strerror) from None
    except UnicodeDecodeError as error:
        raise errors.config_no_yaml(path=path, why=str(error)) from None
    import yaml  # here, as few jobs have such a file

    try:
        content = yaml.safe_load(text)
    except Exception as error:  # for 2001-99-99, `!!float x` or [[[[.. it is not PyYAML's own
        raise errors.config_no_yaml(path=path, why=str(error) or type(error).__name__) from None
    if content is None:
        return {}, []
    if not isinstance(content, dict):
        raise errors.config_no_mapping(path=path, got=type_name(content))
    return _convert(path, content)


def _bytes_of(path: str) -> bytes:
    """All of a regular file, or of what a symbolic link leads to. LaunchError for anything else: a device may
    have no end, and a pipe would be opened when somebody writes to it.
    """
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise errors.config_no_file(path=path)
        content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise errors.config_too_long(path=path, most=MOST_BYTES)
    return content


def _convert(path: str, content: dict[Any, Any]) -> tuple[dict[str, Any], list[str]]:
    by_key = {option.key: option for option in OPTIONS if option.key}
    values: dict[str, Any] = {}
    warnings = []
    for key, value in _flat(content):
        option = by_key.get(key)
        if option is not None and not all(map(_is_scalar, value if isinstance(value, list) else [value])):
            raise errors.config_value(path=path, key=key, why="the value is no text, number or list of these")
        if option is None:
            hint = did_you_mean(key, by_key)
            warnings.append(f"the config file {path} has an unknown key {key}, which does nothing{hint}")
        elif option.part == UNSERVED:
            if asks_for_something(value) and _section_is_on(content, key):
                raise errors.config_unserved(path=path, key=key, value=value, why=option.unserved)
        elif value is not None:
            try:
                values[option.name] = option.convert(value)
            except ValueError as error:
                raise errors.config_value(**facts_of(error, path=path, key=key)) from None
    return values, warnings


def _flat(content: dict[Any, Any]) -> Iterator[tuple[str, Any]]:
    """Keys of a section as section.key."""
    for key, value in content.items():
        if isinstance(value, dict):
            yield from ((f"{_text(key)}.{_text(inner)}", of_inner) for inner, of_inner in value.items())
        else:
            yield _text(key), value


def _is_scalar(value: Any) -> bool:
    """Whether it is short as a text: by aliases, a list or mapping of few bytes can be one of terabytes."""
    is_huge = isinstance(value, int) and abs(value) >= 2**64
    return not is_huge and not isinstance(value, list | dict | tuple | set)


def _text(key: Any) -> str:
    return str(key) if _is_scalar(key) else f"({type(key).__name__})"


def _section_is_on(content: dict[Any, Any], key: str) -> bool:
    """Horovod's sample files keep the settings of a section that they switch off with `enabled: false`."""
    section = content.get(key.partition(".")[0])
    return not (isinstance(section, dict) and section.get("enabled") is False)


def asks_for_something(value: Any) -> bool:
    """False for what switches an option off: this is honoured where there is nothing to switch on."""
    return str(value).lower() not in ("none", "", "0", "false", "no", "off")
