"""A job's settings. The command line takes precedence over the config file, and both over the environment.

The config file is YAML, with the keys of the table of options.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from typing import Any

from horovod.common.compressors import COMPRESSION, DDP_COMPRESSION
from horovod.common.exceptions import WrongSetting
from horovod.common.options import CORE, LAUNCHER, OPTIONS, PYTHON, UNSERVED
from horovod.common.sentences import did_you_mean, facts_of, type_name
from horovod.common.variables import refuse_what_is_no_text
from horovod.runner import errors
from horovod.runner.elastic.settings import without_restart_of_others

MOST_BYTES = 1 << 20  # of a config file: room for all keys a hundred times
COMPRESSIONS = (COMPRESSION, DDP_COMPRESSION)


def merged(
    given: Mapping[str, Any], file: Mapping[str, Any], environment: Mapping[str, str]
) -> dict[str, Any]:
    """Return option name -> value: of the command line, else the file, else (launcher's options) the variable
    or default.

    HOROVOD_ELASTIC_RESTART counts only in jobs that other options make elastic.
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
            if option.part == LAUNCHER:  # ranks read the others, and refuse wrong values themselves
                values[option.name] = value
    told = {**environment, **rank_environment(values)}
    try:
        refuse_what_is_no_text(told)
    except WrongSetting as error:  # as every rank would report
        raise errors.no_text(**facts_of(error)) from None
    if values.get("compression_force") and not any(told.get(name) for name in COMPRESSIONS):
        about = "lets --compression count wherever gradients are compressed"
        raise errors.alone(option="--compression-force", about=about, other="--compression")
    return without_restart_of_others(values, {**file, **given})


def rank_environment(values: Mapping[str, Any]) -> dict[str, str]:
    """Return the variables that flags and file set for ranks."""
    found = {
        option.variable: option.variable_text(values[option.name])
        for option in OPTIONS
        if option.part in (CORE, PYTHON) and option.name in values
    }
    if values.get("ddp") and COMPRESSION in found:  # then it is for DistributedDataParallel's gradients
        found[DDP_COMPRESSION] = found.pop(COMPRESSION)
    return found


def environment_warnings(environment: Mapping[str, str]) -> list[str]:
    """Return a sentence for each of Horovod's variables that is set and not supported."""
    return [
        f"{option.variable}={environment[option.variable]} is not served: {option.unserved}"
        for option in OPTIONS
        if option.part == UNSERVED
        and option.variable in environment
        and asks_for_something(environment[option.variable])
    ]


def load(path: str) -> tuple[dict[str, Any], list[str]]:
    """Return (option name -> converted value, warnings of unknown keys). LaunchError names file and key."""
    try:
        text = _bytes_of(path).decode()
    except OSError as error:
        raise errors.config_unreadable(path=path, why=error.strerror) from None
    except UnicodeDecodeError as error:
        raise errors.config_no_yaml(path=path, why=str(error)) from None
    import yaml  # here, as few jobs have such a file

    try:
        content = yaml.safe_load(text)
    except Exception as error:  # PyYAML raises other errors for 2001-99-99, `!!float x` and [[[[..
        raise errors.config_no_yaml(path=path, why=str(error) or type(error).__name__) from None
    if content is None:
        return {}, []
    if not isinstance(content, dict):
        raise errors.config_no_mapping(path=path, got=type_name(content))
    return _convert(path, content)


def _bytes_of(path: str) -> bytes:
    """Return the content of a regular file, also by a symbolic link. LaunchError otherwise: a device may be
    endless, and opening a pipe would wait for a writer.
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
    """Yield the keys of a section as section.key."""
    for key, value in content.items():
        if isinstance(value, dict):
            yield from ((f"{_text(key)}.{_text(inner)}", of_inner) for inner, of_inner in value.items())
        else:
            yield _text(key), value


def _is_scalar(value: Any) -> bool:
    """Whether the value is short as text: YAML's aliases make terabytes of a few bytes."""
    is_huge = isinstance(value, int) and abs(value) >= 2**64
    return not is_huge and not isinstance(value, list | dict | tuple | set)


def _text(key: Any) -> str:
    return str(key) if _is_scalar(key) else f"({type(key).__name__})"


def _section_is_on(content: dict[Any, Any], key: str) -> bool:
    """False for `enabled: false`: Horovod's sample files keep the settings of an inactive section."""
    section = content.get(key.partition(".")[0])
    return not (isinstance(section, dict) and section.get("enabled") is False)


def asks_for_something(value: Any) -> bool:
    """False if the value switches an option off, which is allowed for an option that is not served."""
    return str(value).lower() not in ("none", "", "0", "false", "no", "off")
