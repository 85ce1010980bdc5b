"""``Compression``: the available compressors, including registered ones, and their texts.

text   := name [":" option {"," option}]
option := name "=" value
"""

from __future__ import annotations

import inspect
import keyword
import re
from typing import Any

from horovod.common.compressors import name_meant
from horovod.common.sentences import closest, did_you_mean, facts_of
from horovod.torch.compression import errors
from horovod.torch.compression.casts import BF16Compressor, FP16Compressor, NoneCompressor
from horovod.torch.compression.codecs import (
    Bit8Compressor,
    Bit16Compressor,
    Int4Compressor,
    Int8Compressor,
)
from horovod.torch.compression.powersgd import PowerSGDCompressor
from horovod.torch.compression.resolve import resolved
from horovod.torch.compression.topk import TopKCompressor

_TEXT = re.compile(r"\w+(:\w+=[^,=]*(,\w+=[^,=]*)*)?")
_BOOLEANS = {"1": True, "true": True, "0": False, "false": False}


class Compression:
    """The available compressors. Each is also a class of this module that may be subclassed."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
    bit16 = Bit16Compressor
    bit8 = Bit8Compressor
    int8 = Int8Compressor
    int4 = Int4Compressor
    topk = TopKCompressor
    powersgd = PowerSGDCompressor

    @classmethod
    def register(cls, name: str, compressor: Any) -> None:
        """Register your own compressor as ``Compression.<name>``, for rules and text too.

        Call it on every rank, before the first use. It replaces your earlier one of that name. For options in
        text, ``compressor`` must be a class that takes them as keyword arguments.

        Raises:
            ValueError: the name is not a Python name, begins with an underscore or is taken by this class, or
                ``compressor`` is not a compressor.
        """
        if not isinstance(name, str) or not name.isidentifier() or keyword.iskeyword(name):
            raise errors.no_python_name(name=name)
        if name.startswith("_") or name in _BUILT_IN:
            raise errors.name_taken(name=name)
        resolved(compressor)
        setattr(cls, name, compressor)
        _REGISTERED.add(name)

    @classmethod
    def from_text(cls, text: str) -> Any:
        """Return the compressor of a text: a name, optionally a colon and options separated by commas.

        For instance ``"bit8"`` or ``"int4:rotation=hadamard,levels=lloyd,error_feedback=1"``. Booleans are
        written 1, 0, true or false; ``none`` stands for None if an option takes numbers.

        ValueError if the text cannot be parsed, the name is unknown, or an option is wrong.
        """
        return compressor_of_text(text, f"compression={text!r}")


_BUILT_IN = {name for name in vars(Compression) if not name.startswith("_")}
_COMPRESSORS = _BUILT_IN - {"register", "from_text"}
_REGISTERED: set[str] = set()
for _name in _COMPRESSORS:
    vars(Compression)[_name].known_as = _name


def compressor_of_text(text: str, said: str) -> Any:
    """Like Compression.from_text. Errors begin with ``said``."""
    try:
        name, options = _parsed(text)
        known = sorted(_COMPRESSORS | _REGISTERED)
        if name not in known:
            name, written = name.lower(), name
        if name not in known:
            meant = name_meant(written) or closest(written, known)
            hint = f"; did you mean {meant}?" if meant else ""
            raise errors.unknown_compressor(name=written, known=known, hint=hint)
        compressor = _configured(getattr(Compression, name), options)
    except ValueError as error:
        raise errors.wrong_text(said=said, **facts_of(error)) from error
    return resolved(compressor, said)


def _parsed(text: str) -> tuple[str, dict[str, str]]:
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


def _configured(compressor: Any, options: dict[str, str]) -> Any:
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
