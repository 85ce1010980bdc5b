"""The memory of tensors as torch keeps it: whether there is any, and what becomes of it during an operation.

A program may resize or replace a tensor's storage at any moment, and the memory the core was given is then
somebody else's. Torch's record of a storage holds the address of its memory: the core looks at that word
before it touches any part, and is told here where it is. It is found by trial; where it is not found, only
the end of an operation shows what has happened.
"""

from __future__ import annotations

import ctypes
import warnings
from collections.abc import Callable, Sequence

import torch

from horovod.common.basics import basics
from horovod.common.exceptions import WrongArgument
from horovod.torch import errors

__all__ = ["check_memory", "mark_written", "require_unchanged", "witness_of"]

_ORDINARY = torch.Tensor.__torch_dispatch__  # of tensors that are not made of others
_RECORD_WORDS = 8  # of torch's record of a storage: it has more, and the address is among the first


def _offset_of_address() -> int | None:
    """The offset of the memory's address in torch's record of a storage, in bytes."""
    storage = torch.UntypedStorage(64)  # type: ignore[no-untyped-call]
    record = (ctypes.c_size_t * _RECORD_WORDS).from_address(storage._cdata)
    words = set(range(_RECORD_WORDS))
    for nbytes in (64, 4096, 0, 256):
        storage.resize_(nbytes)
        words = {word for word in words if record[word] == storage.data_ptr()}
    return min(words) * ctypes.sizeof(ctypes.c_size_t) if words else None


_OFFSET = _offset_of_address()


def witness_of(tensor: torch.Tensor) -> int:
    """The address of a word that is the same as long as the tensor's memory is; 0 where none is known."""
    return 0 if _OFFSET is None else tensor.untyped_storage()._cdata + _OFFSET


def check_memory(tensor: torch.Tensor, operation: str) -> None:
    """ValueError for a tensor that has no memory, or less than it needs."""
    if torch._C._len_torch_dispatch_stack() and _is_recorded():
        raise errors.recorded(tensor=operation)
    if type(tensor).__torch_dispatch__ is _ORDINARY:
        _check_ordinary(tensor, operation)
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a FakeTensor warns of what is said here
        try:
            _check_ordinary(tensor, operation)
        except WrongArgument:
            raise errors.no_memory(tensor=operation, got=type(tensor).__name__) from None


def _is_recorded() -> bool:
    return torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.PROXY) is not None


def _check_ordinary(tensor: torch.Tensor, operation: str) -> None:
    try:
        address = tensor.data_ptr()
    except RuntimeError:
        address = 0
    if address != 0 and tensor.is_contiguous():
        storage = tensor.untyped_storage()
        if address + tensor.nbytes <= storage.data_ptr() + storage.nbytes():
            return
    count = tensor.numel()
    if count == 0:
        return
    if address == 0 and torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        raise errors.transformed(tensor=operation)
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    last = tensor.storage_offset() + sum((extent - 1) * stride for extent, stride in steps)
    needed = (last + 1) * tensor.itemsize
    there = tensor.untyped_storage().nbytes() if address else 0
    if there < needed:
        raise errors.storage_too_small(tensor=operation, bytes=there, needed=needed)


def mark_written(tensors: Sequence[torch.Tensor]) -> None:
    """Tell autograd, which may have saved them, that the tensors' values are not what they were."""
    try:
        _increment(tensors)
    except RuntimeError:  # those of inference_mode have no version, and nobody saves them
        _increment([tensor for tensor in tensors if not tensor.is_inference()])


def _increment_each(tensors: Sequence[torch.Tensor]) -> None:
    for tensor in tensors:
        torch.autograd.graph.increment_version(tensor)


def _incrementing() -> Callable[[Sequence[torch.Tensor]], None]:
    """torch's function where it takes several tensors, as it did not always: 2.4 raises RuntimeError."""
    try:
        torch.autograd.graph.increment_version([torch.empty(0)])
    except (AttributeError, TypeError, RuntimeError):
        return _increment_each
    return torch.autograd.graph.increment_version


_increment = _incrementing()


def require_unchanged(label: str, lent: Sequence[tuple[torch.Tensor, int]]) -> None:
    """Raise HorovodInternalError if the memory of a tensor that was at an address is another now."""
    for tensor, address in lent:
        if tensor.data_ptr() != address:
            raise errors.memory_replaced(tensor=label, shape=tuple(tensor.shape), ranks=[basics.rank()])
