"""Carried reductions in NumPy, from docs/wire_format.md and the readable codecs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from itertools import pairwise
from typing import Any

import numpy as np
import oracle
from carried_ranks import ALIGN, Bytes, Outcome, Part
from feedback_twin import draw_key, mixed
from numpy.typing import NDArray
from ranks import AVERAGE

from horovod.common import numpy_codec

Array = NDArray[Any]
RUN = 4096
SENT, RESULT = 0, 1


def slices_of(count: int, granule: int, size: int) -> list[tuple[int, int]]:
    """Where each rank's slice of a tensor begins and ends: at multiples of the granule."""
    ends = [count * k // size // granule * granule for k in range(size)] + [count]
    return list(pairwise(ends))


class Encoder:
    """Writes runs of a codec, and keeps what they lose where there is a residual."""

    def __init__(self, codec: str, key: int, residual: Array | None) -> None:
        self._codec = numpy_codec.named_codec(codec)
        self._key, self._residual = key, residual

    def message(self, x: Array, begin: int, prescale: float = 1.0) -> bytes:
        """Elements that begin at ``begin`` of the tensor, as runs."""
        everything = b""
        for at in range(0, x.size, RUN):
            values, first = x[at : at + RUN].astype(np.float32), begin + at
            if self._residual is None:
                run = self._codec.encode(values, prescale, self._key, first)
            else:
                run = self._compensated(values * np.float32(prescale), first)
            everything += np.asarray(run, np.uint8).tobytes()
        return everything

    def _compensated(self, values: Array, first: int) -> Bytes:
        assert self._residual is not None
        kept = self._residual[first : first + values.size]
        wanted = values + kept
        run = self._codec.encode(wanted, 1.0, self._key, first)
        with np.errstate(invalid="ignore"):
            lost = wanted - self._codec.decode(run, values.size)
        kept[:] = np.where(np.isfinite(lost), lost, np.float32(0))
        return run


def decoded(codec: str, message: Bytes, count: int) -> Array:
    named = numpy_codec.named_codec(codec)
    values, at = [], 0
    for begin in range(0, count, RUN):
        n = min(RUN, count - begin)
        run_bytes = np.asarray(named.encode(np.zeros(n, np.float32))).size
        values.append(named.decode(message[at : at + run_bytes], n))
        at += run_bytes
    assert at == message.size
    return np.concatenate(values) if values else np.zeros(0, np.float32)


class Twin:
    """All ranks of an allreduce that is repeated."""

    def __init__(self, size: int, is_scattered: bool) -> None:
        self.size, self.slices = size, size if is_scattered else 1
        self.uses: dict[str, int] = {}
        self._totals: dict[str, Array] = {}  # of the step under way: what everybody ends with
        # Of names with feedback: by rank what was sent, and what the owners of the slices have lost.
        self.residuals: dict[str, tuple[list[Array], Array]] = {}

    def keep_residuals(self, parts: Sequence[Part]) -> None:
        for part in parts:
            for name, xs in part.tensors.items():
                sent = [np.zeros(x.size, np.float32) for x in xs]
                self.residuals[name] = (sent, np.zeros(xs[0].size, np.float32))

    def allreduce(self, parts: Sequence[Part]) -> Outcome:
        contributions = [self._contributions(part) for part in parts]  # by part, rank, slice
        results = [self._results(part) for part in parts]  # by part, slice
        outcome = Outcome()
        outcome.messages = [
            joined([[of_part[rank][s] for of_part in contributions] for s in range(self.slices)])
            for rank in range(self.size)
        ]
        if self.slices > 1:
            outcome.results = joined([[of_part[s] for of_part in results] for s in range(self.slices)])
        values = [x for part in parts for x in self._values(part)]
        outcome.values = [values] * self.size
        for part in parts:
            for name in part.tensors:
                self.uses[name] = self.uses.get(name, 0) + 1
        return outcome

    def _key(self, name: str, stage: int, rank: int = 0) -> int:
        key = draw_key(name, self.uses.get(name, 0))
        if name not in self.residuals:
            key = mixed(key, 0)  # how often all names were forgotten
        key = mixed(mixed(key, 0), stage)  # tensor 0 of its operation
        return mixed(key, rank) if stage == SENT else key

    def _cuts(self, part: Part, x: Array) -> list[tuple[int, int]]:
        granule = numpy_codec.named_codec(part.codec).block_size if part.codec else 64 // x.itemsize
        return slices_of(x.size, granule, self.slices)

    def _contributions(self, part: Part) -> list[list[bytes]]:
        """By rank and slice."""
        messages = [[b""] * self.slices for _ in range(self.size)]
        for name, xs in part.tensors.items():
            terms = []
            for rank, x in enumerate(xs):
                kept = self.residuals[name][0][rank] if name in self.residuals else None
                encoder = Encoder(part.codec, self._key(name, SENT, rank), kept) if part.codec else None
                pieces = []
                for s, (begin, end) in enumerate(self._cuts(part, x)):
                    piece = x[begin:end].tobytes()
                    if encoder:
                        piece = encoder.message(x[begin:end], begin, part.prescale)
                        pieces.append(decoded(part.codec, np.frombuffer(piece, np.uint8), end - begin))
                    messages[rank][s] += piece
                terms.append(np.concatenate(pieces) if part.codec else x)
            self._totals[name] = self._total(part, terms, xs[0].dtype)
        return messages

    def _total(self, part: Part, terms: list[Array], dtype: Any) -> Array:
        if not part.codec:
            return oracle.allreduce(terms, part.op, part.prescale, part.postscale)
        wide = np.float64 if dtype == np.float64 else np.float32
        with np.errstate(invalid="ignore", over="ignore"):
            total = reduce(np.add, (term.astype(wide) for term in terms))
            return oracle.scaled(total, part.postscale, self.size if part.op == AVERAGE else 1.0)

    def _results(self, part: Part) -> list[bytes]:
        """By slice. Where results travel, totals become what everybody decodes of them."""
        messages = [b""] * self.slices
        if self.slices == 1:
            return messages
        for name, xs in part.tensors.items():
            total, pieces = self._totals[name], []
            kept = self.residuals[name][1] if name in self.residuals else None
            encoder = Encoder(part.codec, self._key(name, RESULT), kept) if part.codec else None
            for s, (begin, end) in enumerate(self._cuts(part, xs[0])):
                piece = total[begin:end].tobytes()
                if encoder:
                    piece = encoder.message(total[begin:end], begin)
                    pieces.append(decoded(part.codec, np.frombuffer(piece, np.uint8), end - begin))
                messages[s] += piece
            if part.codec:
                self._totals[name] = np.concatenate(pieces)
        return messages

    def _values(self, part: Part) -> list[Array]:
        with np.errstate(over="ignore"):
            return [
                self._totals[name].astype(xs[0].dtype).reshape(xs[0].shape)
                for name, xs in part.tensors.items()
            ]


def joined(slices: list[list[bytes]]) -> list[Bytes]:
    """The messages of slices, given the bytes of their parts: each at a multiple of 16, all of one length."""
    messages = []
    for parts in slices:
        message = b"".join(part + bytes(-len(part) % ALIGN) for part in parts)
        messages.append(message)
    longest = max(len(message) for message in messages)
    return [np.frombuffer(message + bytes(longest - len(message)), np.uint8) for message in messages]
