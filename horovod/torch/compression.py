"""Gradient compression: the contract of a compressor, and the compressors that come with the package.

A compressor has ``compress(tensor) -> (compressed, ctx)`` and ``decompress(compressed, ctx) -> tensor``,
static or not; a class or an instance is passed as ``compression=``. It also says how its output may be
combined across ranks, and may name a native codec, with which the core compresses, sums and decompresses in
one go. docs/compression.md has the formats.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import MethodType
from typing import Any, ClassVar, Protocol

import torch

from horovod import _native as native
from horovod.torch.tensors import NATIVE_DTYPES, addressable, check_served

__all__ = [
    "BF16Compressor", "Bit8Compressor", "Bit16Compressor", "CodecCompressor", "Compression", "Compressor",
    "CompressorLike", "FP16Compressor", "NoneCompressor", "around_autograd", "resolved",
]

CODEC_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
BLOCK_SIZES = (32, 64, 128, 256, 512, 1024)
MIN_ELEMENTS = 1024


class CompressorLike(Protocol):
    """What is accepted as ``compression=``. Missing attributes have the values that Compressor gives them."""

    def compress(self, tensor: torch.Tensor, /) -> tuple[torch.Tensor, Any]: ...

    def decompress(self, tensor: torch.Tensor, ctx: Any, /) -> torch.Tensor: ...


class Compressor:
    """Base of all compressors.

    Attributes:
        combine: how the outputs of ``compress`` on different ranks may be combined.
            ``"sum"``: they are tensors of one shape and dtype on all ranks, and may be added as they are.
            ``"gather"``: codes that may not be added. Every rank's are gathered, decompressed and added in
            float32 (float64 for float64 gradients) in rank order; their size may differ by rank. All are
            decompressed with the caller's own ``ctx``, so whatever differs by rank (a scale, indices) belongs
            into the codes. Integer tensors are not given to such a compressor, they travel as they are.
        codec: the native codec that does the same inside the core, or None. Overriding ``compress`` or
            ``decompress`` in a subclass gives up the codec that was inherited.
        min_elements: in DistributedOptimizer, parameters with fewer elements, and all with fewer than two
            dimensions, travel uncompressed; None compresses all.
    """

    combine: ClassVar[str] = "sum"
    codec: Any = None
    min_elements: Any = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "codec" not in vars(cls) and not vars(cls).keys().isdisjoint(("compress", "decompress")):
            cls.codec = None

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        """The tensor to send, and whatever ``decompress`` needs besides it."""
        raise NotImplementedError("a compressor needs compress(tensor) -> (compressed, ctx)")

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        """The tensor that ``tensor`` stands for, in the shape and dtype that ``compress`` was given."""
        raise NotImplementedError("a compressor needs decompress(compressed, ctx) -> tensor")


class NoneCompressor(Compressor):
    """Sends gradients as they are."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        return tensor, None

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        return tensor


class _CastCompressor(Compressor):
    """What the compressors that only change the dtype share: the way back."""

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        return tensor.to(ctx)


class FP16Compressor(_CastCompressor):
    """Sends and sums floating-point tensors as float16; values beyond 65504 become infinite.

    Others are untouched.
    """

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        return (tensor.to(torch.float16) if tensor.is_floating_point() else tensor), tensor.dtype


class BF16Compressor(_CastCompressor):
    """Sends and sums floating-point tensors as bfloat16: float32's range, 8 significant bits.

    Others are untouched.
    """

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        return (tensor.to(torch.bfloat16) if tensor.is_floating_point() else tensor), tensor.dtype


class _OnClassToo:
    """A method that the class has too, working on its default instance: ``Compression.bit8.compress(t)``."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        functools.update_wrapper(self, function)  # type: ignore[arg-type]

    def __get__(self, instance: CodecCompressor | None, owner: type[CodecCompressor]) -> Callable[..., Any]:
        return MethodType(self._function, owner.default() if instance is None else instance)


class _PropertyOnClassToo:
    """A read-only property that the class has too, with the value of its default instance."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self._function = function
        self.__doc__ = function.__doc__

    def __get__(self, instance: CodecCompressor | None, owner: type[CodecCompressor]) -> Any:
        return self._function(owner.default() if instance is None else instance)


class CodecCompressor(Compressor):
    """A compressor whose work the native core does; usable as a class and as a configured instance."""

    combine = "gather"
    min_elements = MIN_ELEMENTS

    def __init__(self, *, min_elements: int = MIN_ELEMENTS) -> None:
        if isinstance(min_elements, bool) or not isinstance(min_elements, int) or min_elements < 0:
            raise ValueError(f"min_elements={min_elements!r}: allowed is an integer of 0 or more.")
        self.min_elements = min_elements

    @classmethod
    def default(cls) -> CodecCompressor:
        """The instance that stands for the class itself."""
        instance: CodecCompressor | None = vars(cls).get("_default")
        if instance is None:
            instance = cls()
            cls._default = instance  # type: ignore[attr-defined]
        return instance

    def native_codec(self) -> native.Codec:
        """The codec with this compressor's options."""
        raise NotImplementedError(f"{type(self).__name__} names no codec")

    @_PropertyOnClassToo
    def codec(self) -> native.Codec:
        """The native codec; the core works with it where both methods are the inherited ones."""
        return self.native_codec()

    @_OnClassToo
    def compress(self, tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:  # type: ignore[override]
        """Encode a floating-point CPU tensor of any shape to a 1-D uint8 tensor. Others stay as they are."""
        if not tensor.is_floating_point():
            return tensor, None
        check_served(tensor, f"{type(self).__name__}.compress")
        values = addressable(tensor)
        codec = self.native_codec()
        encoded = torch.empty(codec.encoded_bytes(values.numel()), dtype=torch.uint8)
        codec.encode(values.data_ptr(), NATIVE_DTYPES[values.dtype], values.numel(), encoded.data_ptr())
        return encoded, (tensor.dtype, tensor.shape)

    @_OnClassToo
    def decompress(self, tensor: torch.Tensor, ctx: Any) -> torch.Tensor:  # type: ignore[override]
        """Decode what ``compress`` returned, into a tensor of the original dtype and shape."""
        if ctx is None:
            return tensor
        dtype, shape = ctx
        codec = self.native_codec()
        expected = codec.encoded_bytes(shape.numel())
        if tensor.dtype != torch.uint8 or tensor.numel() != expected:
            raise ValueError(
                f"{type(self).__name__}.decompress: {tensor.numel()} elements of {tensor.dtype} are no "
                f"{codec.name} run of {shape.numel()} values, which takes {expected} bytes (torch.uint8)."
            )
        encoded = addressable(tensor)
        values = torch.empty(shape, dtype=dtype)
        codec.decode(encoded.data_ptr(), values.numel(), values.data_ptr(), NATIVE_DTYPES[dtype])
        return values


class Bit16Compressor(CodecCompressor):
    """Sends float16 and sums in float32; finite values beyond 65504 saturate, Inf and NaN travel as such.

    Usable as it is, or configured: ``Compression.bit16(min_elements=0)``.
    """

    def native_codec(self) -> native.Codec:
        return _codec("bit16", 0)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(min_elements={self.min_elements})"


class Bit8Compressor(CodecCompressor):
    """Sends OCP float8 E4M3 codes and a power-of-two scale per block, 8.06 bits per element; sums in float32.

    Usable as it is, or configured: ``Compression.bit8(block_size=32, min_elements=0)``.

    Raises:
        ValueError: an option is outside of what is allowed, or not served yet.
    """

    def __init__(
        self,
        *,
        format: str = "e4m3",
        block_size: int = 128,
        rounding: str = "nearest",
        error_feedback: bool = False,
        min_elements: int = MIN_ELEMENTS,
    ) -> None:
        super().__init__(min_elements=min_elements)
        _require("format", format, ("e4m3",))
        _require("block_size", block_size, BLOCK_SIZES)
        _require("rounding", rounding, ("nearest",))
        _require("error_feedback", error_feedback, (False,))
        self.block_size = block_size

    def native_codec(self) -> native.Codec:
        return _codec("bit8", self.block_size)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(block_size={self.block_size}, min_elements={self.min_elements})"


def _require(option: str, value: object, allowed: tuple[object, ...]) -> None:
    if value not in allowed:
        choices = " or ".join(repr(choice) for choice in allowed)
        raise ValueError(
            f"Compression.bit8({option}={value!r}) is not served by this release; allowed is {choices}."
        )


@functools.lru_cache(maxsize=64)
def _codec(name: str, block_size: int) -> native.Codec:
    return native.get_codec(name, block_size)


class Compression:
    """The compressors to choose from; each is also a class of this module that may be subclassed."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
    bit16 = Bit16Compressor
    bit8 = Bit8Compressor


def around_autograd(compression: CompressorLike) -> tuple[Any, Any]:
    """The compressor to run a reduction with, and the one to work around it, where autograd sees its
    steps.
    """
    compressor = resolved(compression)
    if getattr(compressor, "codec", None) is None and getattr(compressor, "combine", "sum") == "sum":
        return Compression.none, compressor
    return compressor, Compression.none


def resolved(compression: Any) -> Any:
    """The compressor that works for ``compression``: a codec class' default instance, all else itself.

    Raises ValueError when it is no compressor.
    """
    if isinstance(compression, type) and issubclass(compression, CodecCompressor):
        compression = compression.default()
    for method in ("compress", "decompress"):
        if not callable(getattr(compression, method, None)):
            raise ValueError(
                f"compression={compression!r} is no compressor: it lacks {method}(). Pass one of "
                "hvd.Compression, or a class or object with compress(tensor) -> (compressed, ctx) and "
                "decompress(compressed, ctx) -> tensor."
            )
    combine = getattr(compression, "combine", "sum")
    if combine not in ("sum", "gather"):
        raise ValueError(
            f"compression={compression!r} has combine={combine!r}; allowed is 'sum' or 'gather'."
        )
    return compression
