"""Rules for compressing parameters: one compressor for all, or rules by name.

    {"*.bias": Compression.none, "fc.*": "int4:rotation=hadamard", "*": Compression.bit8}

Patterns are those of a shell (``*``, ``?``, ``[...]``, case-sensitive). The first that matches a parameter's
name counts. A parameter that none matches travels uncompressed.

The environment counts if the script passes no compressor, or none, as most scripts for Horovod do. Another
compressor of the script takes precedence, unless HOROVOD_COMPRESSION_FORCE is on.
"""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from horovod.common.compressors import COMPRESSION as VARIABLE
from horovod.common.compressors import COMPRESSION_FORCE as FORCE
from horovod.common.options import BY_VARIABLE
from horovod.torch.compression import errors
from horovod.torch.compression.casts import NoneCompressor
from horovod.torch.compression.configured import compressor_name, short_name
from horovod.torch.compression.registry import compressor_of_text
from horovod.torch.compression.resolve import resolved


class _Unset(NoneCompressor):
    """The default of ``compression=``, with which the environment decides."""

    def __repr__(self) -> str:
        return "none"


UNSET = _Unset()


class _Said(NamedTuple):
    """The rules of one source: the name of the source, and the compressors by pattern."""

    where: str
    rules: list[tuple[str, Any]]
    is_mapping: bool = False

    @property
    def is_none(self) -> bool:
        compressors = [compressor for _, compressor in self.rules]
        return not self.is_mapping and (
            compressors == [NoneCompressor] or type(compressors[0]) is NoneCompressor
        )

    def means(self, other: _Said) -> bool:
        own, others = ([(p, compressor_name(c)) for p, c in each.rules] for each in (self, other))
        return own == others


class Rules:
    """The compressors of a DistributedOptimizer, from the argument ``compression=``.

    The argument is a compressor, its text (see Compression.from_text), a mapping from patterns to these, or
    UNSET. It is weighed against the first of ``variables`` that is set, as described above.

    A ValueError names the error and, if it is in a variable, the variable.

    Attributes:
        said: the argument or variable that counts, for messages.
        has_patterns: parameters' names matter, as a mapping was passed.
        compressors: all compressors, in the order of the rules.
        compresses: any of them is not none.
        notice: a message for the user if the script and the environment differ, or "".
    """

    def __init__(self, compression: Any, variables: Sequence[str] = (VARIABLE,)) -> None:
        script = _of_script(NoneCompressor if compression is UNSET else compression)
        environment = next(filter(None, map(_of_variable, variables)), None)
        counts, self.notice = _weighed(script, compression is UNSET, environment)
        self.said, self._rules, self.has_patterns = counts
        self.compressors = [compressor for _, compressor in self._rules]
        self.compresses = any(each is not NoneCompressor for each in self.compressors)
        self._chosen: dict[str, Any] = {}

    def __str__(self) -> str:
        """Return "bit8", or "fc.*: int4, *: bit8"."""
        named = [f"{pattern}: {short_name(compressor)}" for pattern, compressor in self._rules]
        return ", ".join(named) if self.has_patterns else short_name(self._rules[0][1])

    def check_names(self, names: Iterable[str]) -> None:
        """Raise ValueError if a rule, probably misspelt, matches none of the parameters' names."""
        names = list(names)
        for pattern, _ in self._rules if self.has_patterns else []:
            if not any(fnmatch.fnmatchcase(name, pattern) for name in names):
                some = names[:5] + ["..."] * (len(names) > 5)
                raise errors.rule_matches_nothing(pattern=pattern, names=some)

    def compressor_for(self, name: str) -> Any:
        """Return the compressor of the first rule that matches a parameter's name."""
        if name not in self._chosen:
            matching = (each for pattern, each in self._rules if fnmatch.fnmatchcase(name, pattern))
            self._chosen[name] = next(matching, NoneCompressor)
        return self._chosen[name]

    def gradient_compressor(self, name: str, parameter: torch.Tensor) -> Any:
        """Return the compressor of a parameter's gradient: none for vectors and small tensors.

        Norms and biases are a fraction of a percent of the bytes, and suffer most from quantisation.
        """
        compressor = self.compressor_for(name)
        smallest = getattr(compressor, "min_elements", None)
        elements = parameter.numel() * (2 if parameter.is_complex() else 1)
        if smallest is not None and (parameter.dim() < 2 or elements < smallest):
            return NoneCompressor
        return compressor


def _of_script(compression: Any) -> _Said:
    if not isinstance(compression, Mapping):
        said = f"compression={compression!r}"
        return _Said(said, [("*", _compressor(compression, said))])
    rules = []
    for pattern, each in compression.items():
        said = f"compression={{{pattern!r}: {each!r}}}"
        if not isinstance(pattern, str):
            raise errors.no_pattern(said=said, got=repr(pattern))
        rules.append((pattern, _compressor(each, said)))
    return _Said(f"compression={compression!r}", rules, is_mapping=True)


def _of_variable(name: str) -> _Said | None:
    text = os.environ.get(name, "").strip()
    said = f"{name}={text}"
    return _Said(said, [("*", compressor_of_text(text, said))]) if text else None


def _compressor(compression: Any, said: str) -> Any:
    is_text = isinstance(compression, str)
    return compressor_of_text(compression, said) if is_text else resolved(compression, said)


def _weighed(script: _Said, is_silent: bool, environment: _Said | None) -> tuple[_Said, str]:
    """Return the rules that count, the script's or the environment's, and a notice if they differ, or ""."""
    if environment is None:
        return script, ""
    if is_silent or environment.means(script):
        return environment, ""
    flag = f"{environment.where} (--compression)"
    if script.is_none:
        return environment, f"{flag} counts, and not {script.where} of the script."
    if BY_VARIABLE[FORCE].read(os.environ):
        return environment, f"{flag} counts, and not {script.where} of the script, as {FORCE} is on."
    how = f"--compression-force, or {FORCE}=1, would have the former count."
    return script, f"{flag} does not count, as the script says {script.where}; {how}"
