"""``import horovod.torch as hvd``: data-parallel training whose gradients travel compressed."""

from __future__ import annotations

from typing import Any

from horovod.common.exceptions import HorovodInternalError
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.torch.compression import Compression
from horovod.torch.functions import (
    allgather_object,
    broadcast_object,
    broadcast_optimizer_state,
    broadcast_parameters,
)
from horovod.torch.mpi_ops import _MPI_LIB_AVAILABLE as _MPI_LIB_AVAILABLE
from horovod.torch.mpi_ops import (
    Adasum,
    Average,
    Max,
    Min,
    Product,
    Sum,
    allgather,
    allgather_async,
    allreduce,
    allreduce_,
    allreduce_async,
    allreduce_async_,
    barrier,
    broadcast,
    broadcast_,
    broadcast_async,
    broadcast_async_,
    ccl_built,
    cross_rank,
    cross_size,
    cuda_built,
    ddl_built,
    gloo_built,
    gloo_enabled,
    grouped_allreduce,
    grouped_allreduce_,
    grouped_allreduce_async,
    grouped_allreduce_async_,
    init,
    is_homogeneous,
    is_initialized,
    local_rank,
    local_size,
    mpi_built,
    mpi_enabled,
    mpi_threads_supported,
    nccl_built,
    poll,
    rank,
    rocm_built,
    shutdown,
    size,
    sparse_allreduce_async,
    synchronize,
)
from horovod.torch.mpi_ops import _check_has_gpu as _check_has_gpu
from horovod.torch.optimizer import DistributedOptimizer
from horovod.torch.sync_batch_norm import SyncBatchNorm

__all__ = [
    "Adasum", "Average", "Compression", "DistributedOptimizer", "HorovodInternalError",
    "Max", "Min", "ProcessSet", "Product", "Sum", "SyncBatchNorm", "allgather", "allgather_async",
    "allgather_object", "allreduce", "allreduce_", "allreduce_async", "allreduce_async_", "barrier",
    "broadcast", "broadcast_", "broadcast_async", "broadcast_async_", "broadcast_object",
    "broadcast_optimizer_state", "broadcast_parameters", "ccl_built", "cross_rank", "cross_size",
    "cuda_built", "ddl_built", "global_process_set", "gloo_built", "gloo_enabled", "grouped_allreduce",
    "grouped_allreduce_", "grouped_allreduce_async", "grouped_allreduce_async_", "init", "is_homogeneous",
    "is_initialized", "local_rank", "local_size", "mpi_built", "mpi_enabled", "mpi_threads_supported",
    "nccl_built", "poll", "rank", "rocm_built", "shutdown", "size", "sparse_allreduce_async", "synchronize",
]

_COMES_WITH = {
    "add_process_set": "process sets",
    "alltoall": "alltoall",
    "alltoall_async": "alltoall",
    "elastic": "elastic training",
    "grouped_allgather": "grouped allgather",
    "grouped_allgather_async": "grouped allgather",
    "grouped_reducescatter": "reduce-scatter",
    "grouped_reducescatter_async": "reduce-scatter",
    "join": "join",
    "reducescatter": "reduce-scatter",
    "reducescatter_async": "reduce-scatter",
    "remove_process_set": "process sets",
    "start_timeline": "timelines that start at run time",
    "stop_timeline": "timelines that start at run time",
}


def __getattr__(name: str) -> Any:
    if name in _COMES_WITH:
        raise AttributeError(f"hvd.{name} comes with {_COMES_WITH[name]}, in a later release.")
    raise AttributeError(f"module 'horovod.torch' has no attribute {name!r}")
