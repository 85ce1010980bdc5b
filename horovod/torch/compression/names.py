"""Names of compressors: between ranks, and in text."""

from __future__ import annotations

from typing import Any

from horovod.torch.compression.configured import ConfiguredCompressor
from horovod.torch.compression.contract import CompressorType

__all__ = ["compressor_name", "short_name"]


def compressor_name(compressor: Any) -> str:
    """Return the name by which ranks compare compressors: the class, with options if it has any."""
    if isinstance(compressor, ConfiguredCompressor):
        return repr(compressor)
    cls = compressor if isinstance(compressor, type) else type(compressor)
    return f"{cls.__module__}.{cls.__qualname__}"


def short_name(compressor: Any) -> str:
    """Return a name for readers. Compression.from_text parses it if the compressor is the package's."""
    cls = compressor if isinstance(compressor, type) else type(compressor)
    name = cls.short_name if isinstance(cls, CompressorType) else cls.__name__
    options = compressor.options() if isinstance(compressor, ConfiguredCompressor) else {}
    written = ",".join(f"{option}={_written(value)}" for option, value in options.items())
    return f"{name}:{written}" if written else name


def _written(value: Any) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value).lower() if value is None else str(value)
