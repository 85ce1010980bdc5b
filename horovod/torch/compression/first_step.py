"""Rank 0's line after the first step: the number of compressed gradients, and the bytes saved."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from horovod.common import belongings
from horovod.torch.compression.casts import NoneCompressor
from horovod.torch.compression.configured import short_name
from horovod.torch.compression.resolve import codec_for
from horovod.torch.compression.rules import Rules

EXACT_GRADIENTS = "vectors, and what has fewer elements than the compressor's min_elements"
# called with a tensor's bytes after compression in Python
NoteSent = Callable[[int], None]


def nobody_asks(sent: int) -> None:
    """The NoteSent of tensors that are not noted."""


class _Told(set[str]):
    """The lines that a job has printed, so that none is repeated for the next model."""


def tell_once(text: str) -> None:
    """Print a line to stderr, unless this job has printed it before."""
    told = belongings.own(_Told)
    if text not in told:
        told.add(text)
        print(f"horovod: {text}", file=sys.stderr, flush=True)


@dataclass
class _Noted:
    """A tensor as it was reduced: its bytes, and the bytes that a rank sends for it."""

    shape: torch.Size
    compressor: Any
    plain: int
    sent: int

    @property
    def is_smaller(self) -> bool:
        return self.sent < self.plain


class FirstStep:
    """Records how a model's gradients travel when they are first reduced.

    Args:
        rules: the rules by which they are compressed.
        things: a noun for the reduced tensors, for the line.
        exact: a description of uncompressed tensors, for the warning if all are.
    """

    def __init__(self, rules: Rules, things: str = "tensors", exact: str = EXACT_GRADIENTS) -> None:
        self.is_over = False
        self._rules = rules
        self._things, self._exact = things, exact
        self._noted: dict[str, _Noted] = {}

    def note(self, name: str, tensor: torch.Tensor, compressor: Any) -> NoteSent:
        """Note a tensor that is about to be reduced. A compressor in Python calls the returned function."""
        if self.is_over:
            return nobody_asks
        codec = codec_for(compressor, tensor) if tensor.is_floating_point() else None
        sent = tensor.nbytes if codec is None else codec.encoded_bytes(tensor.numel())
        noted = self._noted[name] = _Noted(tensor.shape, compressor, tensor.nbytes, sent)

        def note_sent(sent: int) -> None:
            noted.sent = sent

        return note_sent

    def end(self, rank: int, ranks: int) -> None:
        """End the first step. The first of ``ranks`` ranks reports it. Idempotent."""
        if self.is_over or not (self._noted or ranks == 1):
            return
        self.is_over = True
        if rank != 0:
            return
        if self._rules.notice:
            tell_once(self._rules.notice)
        if not self._asked():
            return
        if ranks == 1:
            tell_once(f"{self._asked()}: there is one rank, so nothing travels, and nothing is compressed")
        elif any(noted.is_smaller for noted in self._noted.values()):
            tell_once(self.line())
        elif self._noted:
            warnings.warn(self._why_nothing(), stacklevel=2)

    def line(self) -> str:
        """Return "bit8: 60 of 62 tensors, 99.7 % of bytes, 3.9x fewer"; "" before the first step."""
        plain = sum(noted.plain for noted in self._noted.values())
        if not plain:
            return ""
        smaller = [noted for noted in self._noted.values() if noted.is_smaller]
        names = ", ".join(dict.fromkeys(short_name(noted.compressor) for noted in smaller)) or self._asked()
        share = 100 * sum(noted.plain for noted in smaller) / plain
        fewer = plain / max(1, sum(noted.sent for noted in self._noted.values()))
        return (
            f"{names}: {len(smaller)} of {len(self._noted)} {self._things}, {share:.1f} % of bytes, "
            f"{fewer:.1f}x fewer"
        )

    def _asked(self) -> str:
        """Return the names of the compressors in the rules, except none."""
        compressors = [each for each in self._rules.compressors if each is not NoneCompressor]
        return ", ".join(dict.fromkeys(map(short_name, compressors)))

    def _why_nothing(self) -> str:
        begin = f"{self._asked()} compresses none of {len(self._noted)} {self._things}"
        if any(noted.compressor is not NoneCompressor for noted in self._noted.values()):
            return f"{begin}: it makes none of them smaller."
        name, largest = max(self._noted.items(), key=lambda each: (len(each[1].shape) > 1, each[1].plain))
        return (
            f"{begin}: exactly travel {self._exact}. The largest here is {name!r}, of shape "
            f"{list(largest.shape)}."
        )
