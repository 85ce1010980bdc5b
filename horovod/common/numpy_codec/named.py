"""Codecs by the names that ranks compare: ``bit16``, ``bit8/128``, ``int4/128/stochastic/hadamard/seed7``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

import horovod.common.numpy_codec.bit_runs as bit_runs
import horovod.common.numpy_codec.integer_runs as integer_runs
from horovod.common import errors
from horovod.common.compressors import COMPRESSORS
from horovod.common.numpy_codec.minifloat import Float32s
from horovod.common.numpy_codec.runs import Bytes, Layout, check_block_size, check_count, random_numbers


@dataclass(frozen=True)
class NamedCodec:
    """A format with its options. Encodes and decodes like the native codec of that name."""

    format: str
    block_size: int = 1
    variant: str = "e4m3"
    stochastic: bool = False
    rotated: bool = False
    lloyd: bool = False
    seed: int = 0

    def encode(self, x: ArrayLike, prescale: float = 1.0, key: int = 0, first: int = 0) -> Bytes:
        """The run of ``x * prescale``. A stochastic codec rounds element i by random number first + i."""
        options = self._options()
        if self.stochastic:
            options["random"] = random_numbers(self.seed, key, first, np.size(x))
        return self._format().encode(x, prescale=prescale, **options)

    def decode(self, run: Bytes, count: int) -> Float32s:
        """The ``count`` values of a run."""
        return self._format().decode(run, count, **self._options())

    def _format(self) -> _Format:
        return _ROTATED if self.rotated else FORMATS[self.format]

    def _options(self) -> dict[str, Any]:
        """The arguments that encoding and decoding share."""
        options: dict[str, Any] = {"block_size": self.block_size} if self._format().layout.scale_bytes else {}
        if self.format == "bit8":
            options["fmt"] = bit_runs.VARIANTS[self.variant]
        if self.rotated:
            options |= {"seed": self.seed, "lloyd": self.lloyd}
        return options


class _Format(NamedTuple):
    layout: Layout
    encode: Callable[..., Bytes]
    decode: Callable[..., Float32s]


# The formats of horovod/native/codec/format_list.h, in its order.
FORMATS = {
    "bit16": _Format(bit_runs.SIXTEEN_BITS, bit_runs.bit16_encode, bit_runs.bit16_decode),
    "fp16": _Format(bit_runs.SIXTEEN_BITS, bit_runs.fp16_encode, bit_runs.bit16_decode),
    "bf16": _Format(bit_runs.SIXTEEN_BITS, bit_runs.bf16_encode, bit_runs.bf16_decode),
    "bit8": _Format(bit_runs.BIT8, bit_runs.bit8_encode, bit_runs.bit8_decode),
    "int8": _Format(integer_runs.INT8, integer_runs.int8_encode, integer_runs.int8_decode),
    "float6": _Format(bit_runs.FLOAT6, bit_runs.float6_encode, bit_runs.float6_decode),
    "int4": _Format(integer_runs.INT4, integer_runs.int4_encode, integer_runs.int4_decode),
}
_ROTATED = _Format(integer_runs.INT4, integer_runs.rotated_encode, integer_runs.rotated_decode)


def encoded_bytes(name: str, count: int, block_size: int = 128) -> int:
    """Bytes of a run of ``count`` elements: scales of ceil(count / block_size) blocks, then codes."""
    check_count(count)
    if name not in FORMATS:
        raise errors.no_codec(codec=name, choices=list(FORMATS))
    layout = FORMATS[name].layout
    if layout.scale_bytes:
        check_block_size(block_size)
    return layout.run_bytes(count, block_size)


def named_codec(name: str) -> NamedCodec:
    """The codec that a native codec's ``name`` describes. ValueError if it describes none."""
    fmt, *options = name.split("/")
    if fmt not in FORMATS or (FORMATS[fmt].layout.scale_bytes == 0) == bool(options):
        raise errors.no_codec_name(codec=name)
    if not options:
        return NamedCodec(fmt)
    block, words = int(options[0]), options[1:]
    seeds = [word for word in words if word.startswith("seed")]
    variants = [word for word in words if word in bit_runs.VARIANTS]
    unknown = set(words) - {"stochastic", "hadamard", "lloyd", *seeds, *variants}
    if unknown:
        raise errors.no_codec_options(codec=name, options=sorted(unknown))
    return NamedCodec(
        fmt,
        block,
        variant=variants[0] if variants else "e4m3",
        stochastic="stochastic" in words,
        rotated="hadamard" in words,
        lloyd="lloyd" in words,
        seed=int(seeds[0].removeprefix("seed")) if seeds else 0,
    )


def codec_of_text(text: str) -> NamedCodec | None:
    """The codec of a compression in the form of HOROVOD_COMPRESSION; None if it is not a codec, as a cast.

    Ignores options that do not change the error of one encoding, such as error feedback.
    """
    fmt, _, rest = text.partition(":")
    if fmt not in FORMATS or not COMPRESSORS.get(fmt):
        return None
    options = dict(pair.strip().split("=", 1) for pair in rest.split(",") if "=" in pair)
    return NamedCodec(
        fmt,
        int(options.get("block_size", 128)) if FORMATS[fmt].layout.scale_bytes else 1,
        variant=options.get("format", "e4m3"),
        stochastic=options.get("rounding") == "stochastic",
        rotated=options.get("rotation") == "hadamard",
        lloyd=options.get("levels") == "lloyd",
        seed=int(options.get("seed", 0)),
    )
