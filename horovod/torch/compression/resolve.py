"""From what is passed as ``compression=`` to what works."""

from __future__ import annotations

from typing import Any

from horovod.torch.compression.casts import NoneCompressor
from horovod.torch.compression.configured import ConfiguredCompressor
from horovod.torch.compression.contract import COMBINES, CompressorLike

__all__ = ["around_autograd", "resolved"]


def resolved(compression: Any) -> Any:
    """The compressor that works for ``compression``: a configurable class' default instance, all else itself.

    Raises ValueError when it is no compressor.
    """
    if isinstance(compression, type) and issubclass(compression, ConfiguredCompressor):
        compression = compression.default()
    combine = getattr(compression, "combine", "sum")
    for method in ("rounds",) if combine == "rounds" else ("compress", "decompress"):
        if not callable(getattr(compression, method, None)):
            raise ValueError(
                f"compression={compression!r} is no compressor: it lacks {method}(). Pass one of "
                "hvd.Compression, or a class or object with compress(tensor) -> (compressed, ctx) and "
                "decompress(compressed, ctx) -> tensor."
            )
    if combine not in COMBINES:
        allowed = " or ".join(map(repr, COMBINES))
        raise ValueError(f"compression={compression!r} has combine={combine!r}; allowed is {allowed}.")
    return compression


def around_autograd(compression: CompressorLike) -> tuple[Any, Any]:
    """The compressor to run a reduction with, and the one to work around it, where autograd sees its
    steps.
    """
    compressor = resolved(compression)
    if getattr(compressor, "codec", None) is None and getattr(compressor, "combine", "sum") == "sum":
        return NoneCompressor, compressor
    return compressor, NoneCompressor
