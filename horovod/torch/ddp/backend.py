"""The c10d backend "horovod": a process group of gloo and NCCL that compresses large sums.

    init_process_group("horovod")  ->  gloo for CPU tensors, NCCL for CUDA tensors (gloo without NCCL)
    all_reduce, SUM or AVG         ->  large tensors by GroupReducer, compressed by HOROVOD_COMPRESSION

torch's own code carries out all other collectives by gloo or NCCL, which are registered here as in any group.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist

from horovod.torch.compression import NoneCompressor
from horovod.torch.ddp import errors
from horovod.torch.ddp.future_work import CallbackThread, FutureWork
from horovod.torch.ddp.large_sums import FirstSums, LargeSums, agree
from horovod.torch.ddp.reducer import GroupReducer
from horovod.torch.reduce_ops import Average, Sum
from horovod.torch.reduction import Gradient, Reduction

c10d: Any = dist  # torch's stubs are incomplete
MOST_AT_A_TIME = 64  # sums under way

# Methods that torch's C++ looks for in Python first. If it finds none, it waits for gloo's queue with the
# interpreter locked, while gloo's threads may wait for the interpreter to free a tensor. So all are defined.
LOOKED_FOR = (
    *("allgather", "all_gather_single_coalesced", "allgather_into_tensor_coalesced"),
    *("all_to_all_single", "alltoall_base", "barrier", "broadcast", "reduce_scatter"),
    *("reduce_scatter_single_coalesced", "reduce_scatter_tensor_coalesced", "send", "recv"),
)


class HorovodProcessGroup(dist.ProcessGroup):
    """The process group of ``init_process_group("horovod")`` and ``new_group(backend="horovod")``.

    Collective for the group's ranks, which connect and compare their settings. ValueError on all of them if
    these differ or are not supported.

    Args:
        options: torch's, of the group: store, ranks, timeout.
        nccl_options: the caller's ``pg_options`` for NCCL, or None.
    """

    def __init__(self, options: Any, nccl_options: Any = None) -> None:
        rank, size = options.group_rank, options.group_size
        super().__init__(rank, size)  # type: ignore[call-arg]  # torch's stubs know the form with a store only
        self._plain: Any = dist.ProcessGroup(rank, size)  # type: ignore[call-arg]  # same gloo, same NCCL
        self._store = options.store
        self._reducer: GroupReducer | None = None  # made for the first sum that is compressed
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._callbacks = CallbackThread()
        self._is_coalescing = False
        agree(options.store, rank, size)
        self._sums = LargeSums()
        self._first_sums = FirstSums(self._sums, rank, size)
        _register_gloo_and_nccl([self, self._plain], options, nccl_options)

    # Sums. Arguments are those of torch's overloads: C++ passes tensors and options.

    def allreduce(self, tensors: Any, *args: Any, **kwargs: Any) -> Any:  # type: ignore[override]
        """Reduce a tensor in place over the ranks, compressed if it is one of the large sums."""
        return self._reduce(self._plain.allreduce, tensors, *args, **kwargs)

    def allreduce_coalesced(self, tensors: Sequence[torch.Tensor], *args: Any, **kwargs: Any) -> Any:
        """Reduce tensors in place over the ranks, all compressed if each is one of the large sums."""
        return self._reduce(self._plain.allreduce_coalesced, tensors, *args, **kwargs)

    def _reduce(self, exactly: Callable[..., Any], given: Any, *args: Any, **kwargs: Any) -> Any:
        tensors, op = [given] if isinstance(given, torch.Tensor) else list(given), _op(*args, **kwargs)
        if tensors and self._compresses(op, tensors):
            return self._start(tensors, op)
        for tensor in tensors if _is_sum(op) and self._sums.rules.compresses else ():
            self._first_sums.note("", tensor, NoneCompressor)
        return exactly(given, *args, **kwargs)

    def _compresses(self, op: Any, tensors: Sequence[torch.Tensor]) -> bool:
        return (
            self.size() > 1
            and not self._is_coalescing
            and _is_sum(op)
            and all(self._sums.include(tensor) for tensor in tensors)
        )

    def _start(self, tensors: Sequence[torch.Tensor], op: Any) -> dist.Work:
        with self._lock:  # a script's threads may start the first sums together
            if self._reducer is None:
                self._reducer = GroupReducer(Reduction(self._sums.rules, first_step=self._first_sums), self)
            how = Average if op == dist.ReduceOp.AVG else Sum
            future = self._reducer.start(self._gradients(tensors), how)
        elements = sum(tensor.numel() for tensor in tensors)
        what = f"rank {self.rank()}: compressed allreduce of {elements} elements"
        return FutureWork(future, tensors, what, self._callbacks)

    def _gradients(self, tensors: Sequence[torch.Tensor]) -> list[Gradient]:
        """Return gradients for the reducer, which waits for a name that is still in use.

        Ranks match requests by names. Names repeat after MOST_AT_A_TIME sums.
        """
        number = next(self._numbers) % MOST_AT_A_TIME
        return [
            Gradient(f"sum.{number}.{i}", tensor, self._sums.compressor) for i, tensor in enumerate(tensors)
        ]

    # Methods that a subclass in Python must define.

    def getBackendName(self) -> str:
        return "horovod"

    def get_group_store(self) -> Any:
        return self._store

    def split_group(self, *args: Any, **kwargs: Any) -> Any:
        """Raise RuntimeError; use ``torch.distributed.new_group``."""
        raise errors.splits_no_group()

    def merge_remote_group(self, *args: Any, **kwargs: Any) -> Any:
        """Raise RuntimeError; use ``torch.distributed.new_group``."""
        raise errors.merges_no_groups()

    def _start_coalescing(self, device: torch.device) -> None:
        self._plain._start_coalescing(device)
        # NCCL's Work would not wait for a GroupReducer
        self._is_coalescing = True

    def _end_coalescing(self, device: torch.device) -> Any:
        self._is_coalescing = False
        return self._plain._end_coalescing(device)

    def shutdown(self) -> None:
        """Close the connections, after the operations under way."""
        self._first_sums.close()
        if self._reducer is not None:
            self._reducer.close()
        self._callbacks.close()
        super().shutdown()


def _register_gloo_and_nccl(groups: Sequence[dist.ProcessGroup], options: Any, nccl_options: Any) -> None:
    """Register in ``groups`` one gloo for CPU tensors, and one NCCL for CUDA tensors.

    Without NCCL or GPU, gloo serves CUDA tensors too. Collective for the group's ranks, which connect.
    ``options`` are torch's, of the group: store, ranks, timeout. ``nccl_options`` may be None.
    """
    types = c10d.ProcessGroup.BackendType
    cpu = cuda = (types.GLOO, _gloo(options))
    if c10d.is_nccl_available() and torch.cuda.is_available():
        cuda = (types.NCCL, _nccl(options, nccl_options))
    for group in groups:
        group._set_default_backend(cuda[0])  # as torch does with "cpu:gloo,cuda:nccl"
        group._register_backend(torch.device("cpu"), *cpu)
        group._register_backend(torch.device("cuda"), *cuda)


def _gloo(options: Any) -> Any:
    store = c10d.PrefixStore("gloo", options.store)
    gloo = c10d.ProcessGroupGloo(store, options.group_rank, options.group_size, timeout=options.timeout)
    gloo.options.global_ranks_in_group = options.global_ranks_in_group
    gloo.options.group_name = options.group_id
    gloo._set_sequence_number_for_group()
    return gloo


def _nccl(options: Any, nccl_options: Any) -> Any:
    settings = nccl_options or c10d.ProcessGroupNCCL.Options()
    settings._timeout = options.timeout
    settings.global_ranks_in_group = options.global_ranks_in_group
    settings.group_name = options.group_id
    store = c10d.PrefixStore("nccl", options.store)
    nccl = c10d.ProcessGroupNCCL(store, options.group_rank, options.group_size, settings)
    nccl._set_sequence_number_for_group()
    return nccl


def _is_sum(op: Any) -> bool:
    return bool(op == dist.ReduceOp.SUM or op == dist.ReduceOp.AVG)


def _op(first: Any = dist.ReduceOp.SUM, *others: Any, opts: Any = None, op: Any = None, **kwargs: Any) -> Any:
    """The reduce operation among an overload's arguments: options, or the operation itself."""
    given = next(each for each in (opts, op, first) if each is not None)
    return getattr(given, "reduceOp", given)


def _forwarding(name: str) -> Callable[..., Any]:
    def forward(self: HorovodProcessGroup, *args: Any, **kwargs: Any) -> Any:
        return getattr(self._plain, name)(*args, **kwargs)

    forward.__name__ = name
    return forward


for _name in LOOKED_FOR:
    if hasattr(dist.ProcessGroup, _name):  # depends on the release of torch
        setattr(HorovodProcessGroup, _name, _forwarding(_name))
