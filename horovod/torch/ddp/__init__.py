"""Compressed gradients for ``torch.nn.parallel.DistributedDataParallel``, over its own process group.

    from horovod.torch import Compression, ddp
    model = DistributedDataParallel(model)
    ddp.compress(model, Compression.bit8)

``hvd.init()`` is not needed. Any launcher for torch.distributed can start the ranks; see docs/ddp.md.
"""

from __future__ import annotations

from horovod.torch.ddp.choice import Choice
from horovod.torch.ddp.fsdp import compress_fsdp
from horovod.torch.ddp.hook import compress, compression_hook
from horovod.torch.ddp.state import CompressionState

__all__ = ["Choice", "CompressionState", "compress", "compress_fsdp", "compression_hook"]
