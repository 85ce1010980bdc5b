"""All functions that ``horovod.torch`` exports about the job and its collectives, as in Horovod.

job.py, reductions.py and movements.py have the functions.

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

from horovod.common.basics import basics as _basics  # noqa: F401  # for scripts that read it
from horovod.common.exceptions import HorovodInternalError as HorovodInternalError
from horovod.common.process_sets import ProcessSet as ProcessSet
from horovod.common.process_sets import global_process_set as global_process_set
from horovod.torch import autograd, job, movements, reductions
from horovod.torch.autograd import *  # noqa: F403
from horovod.torch.compression import Compression as Compression
from horovod.torch.handles import poll, synchronize
from horovod.torch.job import *  # noqa: F403
from horovod.torch.movements import *  # noqa: F403
from horovod.torch.reduce_ops import (
    Adasum,
    Average,
    Max,
    Min,
    Product,
    Sum,
    handle_average_backwards_compatibility,
)
from horovod.torch.reductions import *  # noqa: F403

__all__ = [
    "Adasum", "Average", "Max", "Min", "Product", "Sum", "handle_average_backwards_compatibility", "poll",
    "synchronize",
]  # fmt: skip
__all__ += autograd.__all__
__all__ += job.__all__
__all__ += movements.__all__
__all__ += reductions.__all__

_MPI_LIB_AVAILABLE = True


def _check_has_gpu() -> bool:
    return torch.cuda.is_available()
