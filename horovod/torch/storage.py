"""The memory of torch's tensors: whether there is any, and whether it changes during an operation.

A program may resize or replace a tensor's storage at any moment, and the core's address then belongs to
another owner. Torch's record of a storage holds the address of its memory, in a word that the core checks
before it touches any part. This module finds the word's offset by trial. If it cannot, a change is detected
only at the end of an operation.
"""

from __future__ import annotations

import ctypes
import warnings
from collections.abc import Callable, Sequence

import torch

from horovod.common.basics import basics
from horovod.common.exceptions import WrongArgument
from horovod.torch import errors

_ORDINARY = torch.Tensor.__torch_dispatch__  # of ordinary tensors, which are not made of others
_RECORD_WORDS = 8  # leading words of torch's record of a storage to search for the address


def _offset_of_address() -> int | None:
    """Return the offset in bytes of the memory's address in torch's record of a storage, if found."""
    storage = torch.UntypedStorage(64)  # type: ignore[no-untyped-call]
    record = (ctypes.c_size_t * _RECORD_WORDS).from_address(storage._cdata)
    words = set(range(_RECORD_WORDS))
    for nbytes in (64, 4096, 0, 256):
        storage.resize_(nbytes)
        words = {word for word in words if record[word] == storage.data_ptr()}
    return min(words) * ctypes.sizeof(ctypes.c_size_t) if words else None


_OFFSET = _offset_of_address()


def witness_of(tensor: torch.Tensor) -> int:
    """Return the address of a word that changes with the tensor's memory; 0 if none is known."""
    return 0 if _OFFSET is None else tensor.untyped_storage()._cdata + _OFFSET


def check_memory(tensor: torch.Tensor, operation: str) -> None:
    """Raise ValueError if a tensor has no memory, or less than it needs."""
    proxy = torch._C._TorchDispatchModeKey.PROXY
    if torch._C._len_torch_dispatch_stack() and torch._C._get_dispatch_mode(proxy) is not None:
        raise errors.recorded(tensor=operation)
    if type(tensor).__torch_dispatch__ is _ORDINARY:
        _check_ordinary(tensor, operation)
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a FakeTensor warns of the error raised here
        try:
            _check_ordinary(tensor, operation)
        except WrongArgument:
            raise errors.no_memory(tensor=operation, got=type(tensor).__name__) from None


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
    """Raise the tensors' versions, so that autograd notices that saved values are out of date."""
    try:
        _increment(tensors)
    except RuntimeError:  # inference_mode: no version, and autograd does not save such tensors
        _increment([tensor for tensor in tensors if not tensor.is_inference()])


def _increment_each(tensors: Sequence[torch.Tensor]) -> None:
    for tensor in tensors:
        torch.autograd.graph.increment_version(tensor)


def _incrementing() -> Callable[[Sequence[torch.Tensor]], None]:
    """Return torch's function if it accepts several tensors. In 2.4 it raises RuntimeError."""
    try:
        torch.autograd.graph.increment_version([torch.empty(0)])
    except (AttributeError, TypeError, RuntimeError):
        return _increment_each
    return torch.autograd.graph.increment_version


_increment = _incrementing()


def require_unchanged(label: str, lent: Sequence[tuple[torch.Tensor, int]]) -> None:
    """Raise HorovodInternalError if the memory of a tensor is no longer at its old address."""
    for tensor, address in lent:
        if tensor.data_ptr() != address:
            raise errors.memory_replaced(tensor=label, shape=tuple(tensor.shape), ranks=[basics.rank()])
