"""All functions that ``horovod.torch`` exports about the job and its collectives, as in Horovod.

reductions.py and movements.py implement the collectives.

Common arguments of the collectives:
    name: the same on all ranks for the same operation. Without one, operations must start in the same order
        on all ranks of the process set.
    op: Average (the default), Sum, Adasum, Min, Max or Product. ``average`` is its deprecated predecessor.
    prescale_factor, postscale_factor: multiply the tensor before, and the result after the reduction.
    process_set: the ranks that take part; each of them makes the call.
Common errors:
    ValueError: a wrong argument, an unsupported dtype or device, a name in flight on this rank, or a process
        set that is not registered or does not contain this rank.
    HorovodInternalError: ranks disagree about the operation, or the job is shut down or broken.
"""

from __future__ import annotations

import torch

from horovod.common.basics import basics as _basics
from horovod.common.exceptions import HorovodInternalError as HorovodInternalError
from horovod.common.process_sets import ProcessSet as ProcessSet
from horovod.common.process_sets import global_process_set as global_process_set
from horovod.torch.autograd import (
    HorovodAllgather,
    HorovodAllreduce,
    HorovodAlltoall,
    HorovodBroadcast,
    HorovodGroupedAllgather,
    HorovodGroupedAllreduce,
    HorovodGroupedReducescatter,
    HorovodReducescatter,
)
from horovod.torch.compression import Compression as Compression
from horovod.torch.handles import poll, synchronize
from horovod.torch.movements import (
    allgather,
    allgather_async,
    alltoall,
    alltoall_async,
    barrier,
    broadcast,
    broadcast_,
    broadcast_async,
    broadcast_async_,
    grouped_allgather,
    grouped_allgather_async,
    join,
    sparse_allreduce_async,
)
from horovod.torch.reduce_ops import (
    Adasum,
    Average,
    Max,
    Min,
    Product,
    Sum,
    handle_average_backwards_compatibility,
)
from horovod.torch.reductions import (
    allreduce,
    allreduce_,
    allreduce_async,
    allreduce_async_,
    grouped_allreduce,
    grouped_allreduce_,
    grouped_allreduce_async,
    grouped_allreduce_async_,
    grouped_reducescatter,
    grouped_reducescatter_async,
    reducescatter,
    reducescatter_async,
)

__all__ = [
    "Adasum", "Average", "HorovodAllgather", "HorovodAllreduce", "HorovodAlltoall", "HorovodBroadcast",
    "HorovodGroupedAllgather", "HorovodGroupedAllreduce", "HorovodGroupedReducescatter",
    "HorovodReducescatter",
    "Max", "Min", "Product", "Sum", "add_process_set", "allgather", "allgather_async", "allreduce",
    "allreduce_",
    "allreduce_async", "allreduce_async_", "alltoall", "alltoall_async", "barrier", "broadcast", "broadcast_",
    "broadcast_async", "broadcast_async_", "ccl_built", "cross_rank", "cross_size", "cuda_built", "ddl_built",
    "gloo_built", "gloo_enabled", "grouped_allgather", "grouped_allgather_async", "grouped_allreduce",
    "grouped_allreduce_", "grouped_allreduce_async", "grouped_allreduce_async_", "grouped_reducescatter",
    "grouped_reducescatter_async", "handle_average_backwards_compatibility", "init", "is_homogeneous",
    "is_initialized", "join", "local_rank", "local_size", "metrics", "mpi_built", "mpi_enabled",
    "mpi_threads_supported", "nccl_built", "poll", "rank", "reducescatter", "reducescatter_async",
    "remove_process_set", "rocm_built", "shutdown", "size", "sparse_allreduce_async", "start_timeline",
    "stop_timeline", "synchronize",
]

_MPI_LIB_AVAILABLE = True

init = _basics.init
shutdown = _basics.shutdown
is_initialized = _basics.is_initialized
add_process_set = _basics.add_process_set
remove_process_set = _basics.remove_process_set
start_timeline = _basics.start_timeline
stop_timeline = _basics.stop_timeline
metrics = _basics.metrics
rank = _basics.rank
size = _basics.size
local_rank = _basics.local_rank
local_size = _basics.local_size
cross_rank = _basics.cross_rank
cross_size = _basics.cross_size
is_homogeneous = _basics.is_homogeneous
mpi_threads_supported = _basics.mpi_threads_supported
mpi_enabled = _basics.mpi_enabled
mpi_built = _basics.mpi_built
gloo_enabled = _basics.gloo_enabled
gloo_built = _basics.gloo_built
nccl_built = _basics.nccl_built
ddl_built = _basics.ddl_built
ccl_built = _basics.ccl_built
cuda_built = _basics.cuda_built
rocm_built = _basics.rocm_built


def _check_has_gpu() -> bool:
    return torch.cuda.is_available()
