"""Variables that say which compression counts, for whoever reads them, `import torch` among these."""

from __future__ import annotations

__all__ = ["COMPRESSION", "COMPRESSION_FORCE", "DDP_COMPRESSION"]

COMPRESSION = "HOROVOD_COMPRESSION"
DDP_COMPRESSION = "HOROVOD_DDP_COMPRESSION"
COMPRESSION_FORCE = "HOROVOD_COMPRESSION_FORCE"
