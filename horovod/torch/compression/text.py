"""Compressors as text, for variables and command lines.

text   := name [":" option {"," option}]
option := name "=" value
"""

from __future__ import annotations

import inspect
import re
from typing import Any

from horovod.common.sentences import did_you_mean, facts_of
from horovod.torch.compression import errors

__all__ = ["configured", "parsed"]

_TEXT = re.compile(r"\w+(:\w+=[^,=]*(,\w+=[^,=]*)*)?")
_BOOLEANS = {"1": True, "true": True, "0": False, "false": False}


def parsed(text: str) -> tuple[str, dict[str, str]]:
    """Return the name and the options of a text. ValueError if it has another form, or an option twice."""
    compact = "".join(text.split())
    if not _TEXT.fullmatch(compact):
        raise errors.not_a_text()
    name, _, rest = compact.partition(":")
    pairs = [pair.split("=") for pair in rest.split(",")] if rest else []
    options = dict(pairs)
    if len(options) < len(pairs):
        raise errors.option_twice()
    return name, options


def configured(compressor: Any, options: dict[str, str]) -> Any:
    """Return ``compressor`` itself without options, else call it with them."""
    if not options:
        return compressor
    if not isinstance(compressor, type):
        raise errors.takes_no_options(compressor=repr(compressor))
    parameters = {
        name: parameter
        for name, parameter in inspect.signature(compressor).parameters.items()
        if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY)
    }
    values = {}
    for name, value in options.items():
        if name not in parameters:
            has = list(parameters) or ["none"]
            hint = did_you_mean(name, parameters)
            raise errors.unknown_option(option=name, known=has, hint=hint)
        values[name] = _converted(name, value, parameters[name].default)
    try:
        return compressor(**values)
    except TypeError as error:
        raise errors.wrong_call(**facts_of(error)) from error


def _converted(option: str, value: str, default: Any) -> Any:
    """Return the value in the type of the option's default; if that is None, as a number if possible."""
    if isinstance(default, bool):
        if value.lower() not in _BOOLEANS:
            raise errors.not_a_boolean(option=option, value=value)
        return _BOOLEANS[value.lower()]
    if isinstance(default, int | float) or default is None:
        if value.lower() == "none":
            return None
        for number in (int, float):
            try:
                return number(value)
            except ValueError:
                continue
        if default is not None:
            raise errors.not_a_number(option=option, value=value)
    return value
