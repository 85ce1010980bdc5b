"""Names of the variables that choose the compression; `import torch` reads them too."""

from __future__ import annotations

__all__ = ["COMPRESSION", "COMPRESSION_FORCE", "DDP_COMPRESSION"]

COMPRESSION = "HOROVOD_COMPRESSION"
DDP_COMPRESSION = "HOROVOD_DDP_COMPRESSION"
COMPRESSION_FORCE = "HOROVOD_COMPRESSION_FORCE"
