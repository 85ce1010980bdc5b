"""The API of ``import horovod.torch as hvd``: data-parallel training with compressed gradients."""

from __future__ import annotations

from typing import Any

from horovod.common import tracebacks as _tracebacks
from horovod.common.absent import attribute_error
from horovod.common.exceptions import HorovodInternalError
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.common.rendezvous.places import make_stores_with as _make_stores_with
from horovod.torch import elastic, job, movements, reductions
from horovod.torch.autotune import tuning
from horovod.torch.compression import Compression
from horovod.torch.elastic.process_group import make_store as _make_store
from horovod.torch.functions import (
    allgather_object,
    broadcast_object,
    broadcast_optimizer_state,
    broadcast_parameters,
)
from horovod.torch.handles import poll, synchronize
from horovod.torch.job import *  # noqa: F403
from horovod.torch.movements import *  # noqa: F403
from horovod.torch.mpi_ops import _MPI_LIB_AVAILABLE as _MPI_LIB_AVAILABLE
from horovod.torch.mpi_ops import _check_has_gpu as _check_has_gpu
from horovod.torch.optimizer import DistributedOptimizer
from horovod.torch.reduce_ops import Adasum, Average, Max, Min, Product, Sum
from horovod.torch.reductions import *  # noqa: F403
from horovod.torch.sync_batch_norm import SyncBatchNorm

__all__ = [
    "Adasum", "Average", "Compression", "DistributedOptimizer", "HorovodInternalError", "Max", "Min",
    "ProcessSet", "Product", "Sum", "SyncBatchNorm", "allgather_object", "broadcast_object",
    "broadcast_optimizer_state", "broadcast_parameters", "elastic", "global_process_set", "poll",
    "synchronize", "tuning",
]  # fmt: skip
__all__ += job.__all__
__all__ += movements.__all__
__all__ += reductions.__all__


_tracebacks.install()
_make_stores_with(_make_store)


def __getattr__(name: str) -> Any:
    raise attribute_error(__name__, name)
