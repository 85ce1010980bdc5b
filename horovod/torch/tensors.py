"""The core's view of a torch tensor: address, shape, dtype; and which tensors it can serve."""

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

__all__ = [
    "NATIVE_DTYPES", "addressable", "check_averaged", "check_served", "described", "from_core",
    "grouped_from_core", "is_addressable", "new_result",
]

ALIGNMENT = 16  # bytes: where the core begins each tensor that it lays out after another

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
    """Raise ValueError unless the core can work on ``tensor``; ``operation`` is its wire name."""
    if not isinstance(tensor, torch.Tensor):
        raise errors.not_a_tensor(tensor=operation, got=type_name(tensor))
    if tensor.layout != torch.strided:
        raise errors.wrong_layout(tensor=operation, got=str(tensor.type()), layout=str(tensor.layout))
    if tensor.dtype not in NATIVE_DTYPES:
        raise errors.wrong_dtype(tensor=operation, got=_type_name(tensor))
    devices.check_reached(tensor, operation)
    storage.check_memory(tensor, operation)


def check_averaged(tensor: torch.Tensor, operation: str, op: int) -> None:
    """Raise ValueError for the Average of truth values, which is none."""
    if op == Average and isinstance(tensor, torch.Tensor) and tensor.dtype == torch.bool:
        raise errors.average_of_bool(tensor=operation, shape=tuple(tensor.shape), ranks=[basics.rank()])


def _type_name(tensor: torch.Tensor) -> str:
    return tensor.type() if tensor.device.type in ("cpu", "cuda") else str(tensor.dtype)


def is_addressable(tensor: torch.Tensor) -> bool:
    """Whether the tensor's values lie at its address one after the other, as the core reads and writes
    them.
    """
    return tensor.is_contiguous() and not tensor.is_neg()


def addressable(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor's values without autograd history, one after the other: itself when they are, a copy when
    not.
    """
    return tensor.detach().resolve_neg().contiguous()


def described(
    source: torch.Tensor,
    destination: torch.Tensor | None = None,
    feedback: native.Feedback | None = None,
) -> native.Tensor:
    """A request's view of an addressable tensor; without a destination the core allocates the output.

    On a GPU the core reads it after what is on the current stream by now.
    """
    device = devices.device_of(source)
    address = 0 if destination is None else destination.data_ptr()
    dtype = NATIVE_DTYPES[source.dtype]
    stream = devices.current_stream(device)
    witness = storage.witness_of(source)
    return native.Tensor(
        source.data_ptr(), address, list(source.shape), dtype, feedback, device, stream, witness
    )


def from_core(result: native.Result, like: torch.Tensor) -> torch.Tensor:
    """The core's result as one tensor, with the dtype and trailing dimensions of ``like``."""
    return grouped_from_core(result, [like])[0]


def grouped_from_core(result: native.Result, likes: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The core's results for several tensors: as many rows from each rank for each of them.

    In host memory the outputs are the core's own memory, as those of ``new_result`` are. On a GPU they are
    torch's, and this copies.
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
            outputs.append(_laid_out(received, start, shape, like))
        start += -(-length // ALIGNMENT) * ALIGNMENT
    return outputs


def new_result(engine: native.Engine, like: torch.Tensor, shape: torch.Size | None = None) -> torch.Tensor:
    """An uninitialised tensor for a result: contiguous, of the device, dtype and type of ``like``, and by
    default its shape.

    Large ones in host memory have memory of the core's, which is used again once nothing refers to it any
    more: no tensor, storage or array. As with ``torch.from_numpy``, such a storage cannot be resized.
    """
    nbytes = like.nbytes if shape is None else shape.numel() * like.itemsize
    is_plain = type(like) is torch.Tensor and devices.device_of(like) == devices.CPU
    memory = engine.memory(nbytes) if is_plain else None
    if memory is not None:
        return _laid_out(_storage_of(memory), 0, like.shape if shape is None else shape, like)
    return torch.empty_like(like) if shape is None else like.new_empty(shape)


def _storage_of(memory: Any) -> torch.UntypedStorage:
    return torch.utils.dlpack.from_dlpack(memory).untyped_storage()


def _laid_out(
    storage: torch.UntypedStorage, start: int, shape: torch.Size, like: torch.Tensor
) -> torch.Tensor:
    """A tensor that begins at a byte of a storage, and is no view: those autograd lets nobody change."""
    result = torch.empty(0, dtype=like.dtype, device=like.device)
    # torch's stub lacks the default of the strides
    result.set_(storage, start // like.dtype.itemsize, shape)  # type: ignore[call-overload]
    return result
