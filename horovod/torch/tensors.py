"""The core's view of a torch tensor (address, shape, dtype), and checks that the core can use it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.utils.dlpack

from horovod import _native as native
from horovod.common.basics import basics
from horovod.common.sentences import type_name
from horovod.torch import devices, errors, storage
from horovod.torch.reduce_ops import Average

ALIGNMENT = 16  # bytes of the largest element (complex128), to which each tensor in a buffer is aligned

NATIVE_DTYPES: dict[torch.dtype, int] = {
    torch.uint8: 0,
    torch.int8: 1,
    torch.int16: 2,
    torch.int32: 3,
    torch.int64: 4,
    torch.float16: 5,
    torch.float32: 6,
    torch.float64: 7,
    torch.bool: 8,
    torch.bfloat16: 9,
}


def check_served(tensor: torch.Tensor, operation: str) -> None:
    """Raise ValueError unless the core supports ``tensor``. ``operation`` is its wire name."""
    if not isinstance(tensor, torch.Tensor):
        raise errors.not_a_tensor(tensor=operation, got=type_name(tensor))
    if tensor.layout != torch.strided:
        raise errors.wrong_layout(tensor=operation, got=str(tensor.type()), layout=str(tensor.layout))
    if tensor.dtype not in NATIVE_DTYPES:
        got = tensor.type() if tensor.device.type in ("cpu", "cuda") else str(tensor.dtype)
        raise errors.wrong_dtype(tensor=operation, got=got)
    devices.check_reached(tensor, operation)
    storage.check_memory(tensor, operation)


def check_averaged(tensor: torch.Tensor, operation: str, op: int) -> None:
    """Raise ValueError for the Average of booleans, which is undefined."""
    if op == Average and isinstance(tensor, torch.Tensor) and tensor.dtype == torch.bool:
        raise errors.average_of_bool(tensor=operation, shape=tuple(tensor.shape), ranks=[basics.rank()])


def is_addressable(tensor: torch.Tensor) -> bool:
    """Return whether the values lie contiguously at the tensor's address, as the core accesses them."""
    return tensor.is_contiguous() and not tensor.is_neg()


def addressable(tensor: torch.Tensor) -> torch.Tensor:
    """Return the values contiguously, without autograd history: the tensor itself, or a copy if needed."""
    return tensor.detach().resolve_neg().contiguous()


def described(
    source: torch.Tensor,
    destination: torch.Tensor | None = None,
    feedback: native.Feedback | None = None,
) -> native.Tensor:
    """Return a request's view of an addressable tensor. Without destination the core allocates the output.

    On a GPU the core reads the tensor after the work that is on the current stream now.
    """
    device = devices.device_of(source)
    address = 0 if destination is None else destination.data_ptr()
    dtype = NATIVE_DTYPES[source.dtype]
    stream = devices.current_stream(device)
    witness = storage.witness_of(source)
    return native.Tensor(
        source.data_ptr(), address, list(source.shape), dtype, feedback, device, stream, witness
    )


def grouped_from_core(result: native.Result, likes: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Return the core's results for several tensors, each with rows of all ranks.

    In host memory the outputs lie in the core's memory, as with ``new_result``. On a GPU they are torch's,
    and copied.
    """
    ranks = len(result.sizes) // len(likes)
    on_gpu = any(devices.device_of(like) != devices.CPU for like in likes)
    received = None if on_gpu or not result.nbytes else _storage_of(result.buffer())
    outputs, start = [], 0
    for i, like in enumerate(likes):
        shape = torch.Size((sum(result.sizes[i * ranks : (i + 1) * ranks]), *like.shape[1:]))
        length = shape.numel() * like.dtype.itemsize
        if received is None or length == 0:
            outputs.append(torch.empty(shape, dtype=like.dtype, device=like.device))
            if length:
                devices.copy_out(result, start, outputs[-1])
        else:
            outputs.append(laid_out(received, start, shape, like))
        start += aligned(length)
    return outputs


def new_result(engine: native.Engine, like: torch.Tensor, shape: torch.Size | None = None) -> torch.Tensor:
    """Return an uninitialized contiguous tensor with device, dtype, type and by default shape of ``like``.

    A large one in host memory lies in the core's memory, which is reused when no tensor, storage or array
    refers to it. As with ``torch.from_numpy``, its storage cannot be resized.
    """
    nbytes = like.nbytes if shape is None else shape.numel() * like.itemsize
    is_plain = type(like) is torch.Tensor and devices.device_of(like) == devices.CPU
    memory = engine.memory(nbytes) if is_plain else None
    if memory is not None:
        return laid_out(_storage_of(memory), 0, like.shape if shape is None else shape, like)
    return torch.empty_like(like) if shape is None else like.new_empty(shape)


def _storage_of(memory: Any) -> torch.UntypedStorage:
    return torch.utils.dlpack.from_dlpack(memory).untyped_storage()


def aligned(nbytes: int) -> int:
    """Return the bytes that so many bytes take in a buffer."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def laid_out(
    storage: torch.UntypedStorage, start: int, shape: torch.Size, like: torch.Tensor
) -> torch.Tensor:
    """Return a tensor from byte ``start`` of a storage on.

    It is not a view, because autograd forbids changes of views that its functions return.
    """
    result = torch.empty(0, dtype=like.dtype, device=like.device)
    # torch's stub requires the strides
    result.set_(storage, start // like.dtype.itemsize, shape)  # type: ignore[call-overload]
    return result
