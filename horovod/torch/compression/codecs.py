"""The compressors that the native core implements: blocks of 4, 8 or 16 bits per element.

docs/compression_explained.md explains the formats, docs/wire_format.md specifies their bytes.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from horovod import _native as native
from horovod.torch.compression import errors
from horovod.torch.compression.configured import (
    MIN_ELEMENTS,
    ConfiguredCompressor,
    method_on_class_too,
    property_on_class_too,
)
from horovod.torch.tensors import NATIVE_DTYPES, addressable, check_served

BLOCK_SIZES = (32, 64, 128, 256, 512, 1024)
BIT8_FORMATS = ("e4m3", "e5m2", "e3m4")
ROUNDINGS = ("nearest", "stochastic")


class CodecCompressor(ConfiguredCompressor):
    """A compressor with a native codec: the core encodes, sums and decodes in one operation.

    In calls by hand, stochastic rounding draws other numbers each time, the same in every run.
    """

    combine = "gather"

    def __init__(self, *, error_feedback: bool = False, min_elements: int | None = MIN_ELEMENTS) -> None:
        super().__init__(error_feedback=error_feedback, min_elements=min_elements)
        self._draws = 0  # calls of compress() that used random numbers

    def native_codec(self) -> native.Codec:
        """Return the codec with this compressor's options."""
        raise errors.names_no_codec(compressor=type(self).__name__)

    @property_on_class_too
    def codec(self) -> native.Codec:
        """The native codec. The core uses it unless a subclass overrides ``compress`` or ``decompress``."""
        return self.native_codec()

    @method_on_class_too
    def compress(self, tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:  # type: ignore[override]
        """Encode a floating-point tensor of any shape to a 1-D uint8 tensor. Others stay unchanged.

        This method copies a GPU tensor to host memory, and its codes back. An allreduce encodes on the GPU.
        """
        if not tensor.is_floating_point():
            return tensor, None
        check_served(tensor, f"{type(self).__name__}.compress")
        values = addressable(tensor).cpu()
        codec = self.native_codec()
        encoded = torch.empty(codec.encoded_bytes(values.numel()), dtype=torch.uint8)
        dtype, count = NATIVE_DTYPES[values.dtype], values.numel()
        codec.encode(values.data_ptr(), dtype, count, encoded.data_ptr(), key=self._draws)
        self._draws += codec.is_stochastic
        return encoded.to(tensor.device), (tensor.dtype, tensor.shape)

    @method_on_class_too
    def decompress(self, tensor: torch.Tensor, ctx: Any) -> torch.Tensor:  # type: ignore[override]
        """Decode what ``compress`` returned, into a tensor of the original dtype and shape."""
        if ctx is None:
            return tensor
        dtype, shape = ctx
        codec = self.native_codec()
        expected = codec.encoded_bytes(shape.numel())
        if tensor.dtype != torch.uint8 or tensor.numel() != expected:
            raise errors.no_codes(
                compressor=type(self).__name__,
                elements=tensor.numel(),
                dtype=str(tensor.dtype),
                codec=codec.name,
                of=shape.numel(),
                expected=expected,
            )
        encoded = addressable(tensor).cpu()
        values = torch.empty(shape, dtype=dtype)
        codec.decode(encoded.data_ptr(), values.numel(), values.data_ptr(), NATIVE_DTYPES[dtype])
        return values.to(tensor.device)


class Bit16Compressor(CodecCompressor):
    """Sends float16 and sums in float32. Finite values beyond 65504 saturate; Inf and NaN are kept."""

    def native_codec(self) -> native.Codec:
        return _codec("bit16", 0)


class _BlockCompressor(CodecCompressor):
    """The base of formats with a scale per block: block size, rounding, and seed of random numbers.

    The seed matters only if numbers are random. All ranks need the same options.
    """

    def __init__(
        self,
        *,
        block_size: int = 128,
        rounding: str = "nearest",
        seed: int = 0,
        error_feedback: bool = False,
        min_elements: int | None = MIN_ELEMENTS,
    ) -> None:
        super().__init__(error_feedback=error_feedback, min_elements=min_elements)
        self.require("block_size", block_size, BLOCK_SIZES)
        self.require("rounding", rounding, ROUNDINGS)
        self.require_integer("seed", seed, 0)
        self.block_size, self.rounding, self.seed = block_size, rounding, seed

    def codec_of(self, format: str, *, is_random: bool = False, **options: Any) -> native.Codec:
        """Return the codec of a native format and options. is_random: it uses the seed even for "nearest"."""
        seed = self.seed if is_random or self.rounding == "stochastic" else 0
        return _codec(format, self.block_size, rounding=self.rounding, seed=seed, **options)


class Bit8Compressor(_BlockCompressor):
    """Sends 8-bit floats and a power-of-two scale per block, 8.06 bits per element; sums in float32.

    Args:
        format: "e4m3" (OCP float8, 3 bits of mantissa), "e5m2" (2 bits, more range) or "e3m4" (4 bits, less).
        block_size: elements that share a scale, a power of two from 32 to 1024.
        rounding: "nearest", or "stochastic", which has no bias and twice the error.
        seed: of stochastic rounding.
        error_feedback: see Compressor.
        min_elements: see Compressor.

    Raises:
        ValueError: an option has a value that is not allowed.
    """

    def __init__(
        self,
        *,
        format: str = "e4m3",
        block_size: int = 128,
        rounding: str = "nearest",
        seed: int = 0,
        error_feedback: bool = False,
        min_elements: int | None = MIN_ELEMENTS,
    ) -> None:
        super().__init__(
            block_size=block_size,
            rounding=rounding,
            seed=seed,
            error_feedback=error_feedback,
            min_elements=min_elements,
        )
        self.require("format", format, BIT8_FORMATS)
        self.format = format

    def native_codec(self) -> native.Codec:
        return self.codec_of("bit8", variant=self.format)


class Int8Compressor(_BlockCompressor):
    """Sends integers from -127 to 127 and a float32 scale per block, 8.25 bits per element; sums in float32.

    Args and errors as in Bit8Compressor.
    """

    def native_codec(self) -> native.Codec:
        return self.codec_of("int8")


class Int4Compressor(_BlockCompressor):
    """Sends integers from -7 to 7, two in a byte, and a float32 scale per block, 4.25 bits per element.

    Args:
        rotation: "hadamard" multiplies each block by a randomized Walsh-Hadamard matrix first, which spreads
            outliers over the block; "none" does not.
        levels: "uniform", or "lloyd": the 16 values with the least error for normal numbers, which the
            rotation produces. It requires rotation="hadamard" and rounding="nearest".
        seed: of the rotation's signs, and of stochastic rounding.

    Other args and errors as in Bit8Compressor.
    """

    def __init__(
        self,
        *,
        block_size: int = 128,
        rounding: str = "nearest",
        rotation: str = "none",
        levels: str = "uniform",
        seed: int = 0,
        error_feedback: bool = False,
        min_elements: int | None = MIN_ELEMENTS,
    ) -> None:
        super().__init__(
            block_size=block_size,
            rounding=rounding,
            seed=seed,
            error_feedback=error_feedback,
            min_elements=min_elements,
        )
        self.require("rotation", rotation, ("none", "hadamard"))
        self.require("levels", levels, ("uniform", "lloyd"))
        if levels == "lloyd" and rotation != "hadamard":
            raise errors.lloyd_unrotated()
        if levels == "lloyd" and rounding != "nearest":
            raise errors.lloyd_rounding()
        self.rotation, self.levels = rotation, levels

    def native_codec(self) -> native.Codec:
        is_random = self.rotation != "none"
        return self.codec_of("int4", is_random=is_random, rotation=self.rotation, levels=self.levels)


@functools.lru_cache(maxsize=256)
def _codec(format: str, block_size: int, **options: Any) -> native.Codec:
    return native.get_codec(format, block_size, **options)
