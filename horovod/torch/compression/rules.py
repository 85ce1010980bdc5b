"""Which parameter is compressed how: one compressor for all, or rules by name.

    {"*.bias": Compression.none, "fc.*": "int4:rotation=hadamard", "*": Compression.bit8}

A rule's pattern is one of the shell's (``*``, ``?``, ``[...]``, upper and lower case differ); the first that
matches a parameter's name counts, and what none matches travels exactly.
"""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Iterable, Mapping
from typing import Any

import torch

from horovod.torch.compression.casts import NoneCompressor
from horovod.torch.compression.registry import Compression
from horovod.torch.compression.resolve import resolved

__all__ = ["UNSAID", "VARIABLE", "Rules"]

VARIABLE = "HOROVOD_COMPRESSION"


class _Unsaid(NoneCompressor):
    """The default of ``compression=`` where a script that says nothing may be told by the environment."""

    def __repr__(self) -> str:
        return "none"


UNSAID = _Unsaid()


class Rules:
    """The compressors of a DistributedOptimizer, from what was passed as ``compression=``.

    That is a compressor, its text (see Compression.from_text), a mapping from patterns to these, or UNSAID:
    what the variable HOROVOD_COMPRESSION says, or none.

    ValueError names what is wrong, and the variable where it came from there.
    """

    def __init__(self, compression: Any) -> None:
        self.said = f"compression={compression!r}"
        if compression is UNSAID:
            compression = os.environ.get(VARIABLE, "").strip() or NoneCompressor
            self.said = f"{VARIABLE}={compression}"
        is_mapping = isinstance(compression, Mapping)
        rules = compression if is_mapping else {"*": compression}
        self._rules = [(self._checked(pattern), self._compressor(rules[pattern])) for pattern in rules]
        self._must_match = is_mapping
        self._chosen: dict[str, Any] = {}

    def _checked(self, pattern: Any) -> str:
        if not isinstance(pattern, str):
            raise ValueError(f"{self.said}: a rule is for a pattern of names, as '*.bias', not {pattern!r}.")
        return pattern

    def _compressor(self, compression: Any) -> Any:
        try:
            if isinstance(compression, str):
                return Compression.from_text(compression)
            return resolved(compression)
        except ValueError as error:
            raise ValueError(f"{self.said}: {error}") from error

    @property
    def compressors(self) -> list[Any]:
        """All that are used, in the order of the rules."""
        return [compressor for _, compressor in self._rules]

    @property
    def has_patterns(self) -> bool:
        """Whether parameters' names matter: a mapping was passed."""
        return self._must_match

    def check_names(self, names: Iterable[str]) -> None:
        """ValueError when a rule matches none of the parameters' names: it is probably misspelt."""
        names = list(names)
        for pattern, _ in self._rules if self._must_match else []:
            if not any(fnmatch.fnmatchcase(name, pattern) for name in names):
                some = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
                raise ValueError(
                    f"compression: the rule {pattern!r} matches no parameter; their names are: {some}"
                )

    def compressor_for(self, name: str) -> Any:
        """The compressor of the first rule that matches a parameter's name."""
        if name not in self._chosen:
            matching = (each for pattern, each in self._rules if fnmatch.fnmatchcase(name, pattern))
            self._chosen[name] = next(matching, NoneCompressor)
        return self._chosen[name]

    def gradient_compressor(self, name: str, parameter: torch.Tensor) -> Any:
        """Compression of a parameter's gradient: none for vectors and for what is too small to be worth it.

        Norms and biases are a fraction of a percent of the bytes, and most of the damage quantisation does.
        """
        compressor = self.compressor_for(name)
        smallest = getattr(compressor, "min_elements", None)
        if smallest is not None and (parameter.dim() < 2 or parameter.numel() < smallest):
            return NoneCompressor
        return compressor
