"""Allreduce and reduce-scatter, of one tensor and of groups.

This module and submission.py choose the route by the compressor. The core applies a compressor with a native
codec. If a compressor's output may be added ("sum"), the route compresses, allreduces and decompresses. Any
other ("gather") takes the allgather route of gathered.py. mpi_ops.py, which exports these functions,
documents their arguments and errors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch

from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.torch import errors
from horovod.torch.autograd import Allreduce, HorovodGroupedReducescatter, OfItsJob
from horovod.torch.compiling import breaks_graphs
from horovod.torch.complex_numbers import as_rows_of_reals, check_added, differentiable_reals
from horovod.torch.compression import Compression, CompressorLike, around_autograd, codec_for, of_one_call
from horovod.torch.handles import synchronize
from horovod.torch.reduce_ops import Average, ReduceArguments, allreduce_arguments, reduce_arguments
from horovod.torch.requests import start_reducescatter
from horovod.torch.submission import start_allreduce

__all__ = [
    "allreduce", "allreduce_", "allreduce_async", "allreduce_async_", "grouped_allreduce",
    "grouped_allreduce_", "grouped_allreduce_async", "grouped_allreduce_async_", "grouped_reducescatter",
    "grouped_reducescatter_async", "reducescatter", "reducescatter_async",
]  # fmt: skip


def _start(
    tensors: Sequence[torch.Tensor],
    name: str | None,
    arguments: ReduceArguments,
    process_set: ProcessSet,
    compression: CompressorLike,
    *,
    in_place: bool = False,
    grouped: bool = False,
) -> int:
    into, compressor = tensors if in_place else None, of_one_call(compression)
    return start_allreduce(tensors, name, arguments, compressor, process_set, into=into, grouped=grouped)


def _around(
    function: type[OfItsJob], arguments: tuple[Any, ...], around: Any, reals: Sequence[torch.Tensor]
) -> list[torch.Tensor]:
    """Apply a function to tensors that are compressed before and decompressed after it by ``around``."""
    compressed, contexts = zip(*map(around.compress, reals), strict=True)
    return list(map(around.decompress, function.apply(*arguments, *compressed), contexts))


@breaks_graphs
def allreduce_async(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    *,
    compression: CompressorLike = Compression.none,
) -> int:
    """Start an allreduce into a new tensor, which ``synchronize`` of the returned handle returns.

    Not differentiable.
    """
    arguments = allreduce_arguments(average, op, prescale_factor, postscale_factor)
    return _start([tensor], name, arguments, process_set, compression)


@breaks_graphs
def allreduce(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    compression: CompressorLike = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Return the reduction of all ranks' tensors, with the same shape and dtype. Differentiable."""
    compressor, around = around_autograd(compression)
    arguments = allreduce_arguments(average, op, prescale_factor, postscale_factor)
    real = _reals(tensor, "allreduce", name, arguments.op)
    how = (name, arguments, compressor, process_set)
    return _given(_around(Allreduce, how, around, [real])[0], tensor)


@breaks_graphs
def allreduce_async_(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    *,
    compression: CompressorLike = Compression.none,
) -> int:
    """Start an allreduce in place. Do not use the tensor until ``synchronize`` has returned it."""
    arguments = allreduce_arguments(average, op, prescale_factor, postscale_factor)
    return _start([tensor], name, arguments, process_set, compression, in_place=True)


@breaks_graphs
def allreduce_(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    *,
    compression: CompressorLike = Compression.none,
) -> torch.Tensor:
    """Replace the tensor's values by the reduction over all ranks, and return it."""
    arguments = allreduce_arguments(average, op, prescale_factor, postscale_factor)
    handle = _start([tensor], name, arguments, process_set, compression, in_place=True)
    return cast(torch.Tensor, synchronize(handle))


@breaks_graphs
def grouped_allreduce_async(
    tensors: Sequence[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    *,
    compression: CompressorLike = Compression.none,
) -> int:
    """Start one allreduce of several tensors, all or nothing.

    ``synchronize`` returns a tuple of new tensors.
    """
    arguments = allreduce_arguments(average, op, prescale_factor, postscale_factor)
    return _start(tensors, name, arguments, process_set, compression, grouped=True)


@breaks_graphs
def grouped_allreduce(
    tensors: Sequence[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    compression: CompressorLike = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> list[torch.Tensor]:
    """Return the reductions of several tensors, reduced together, as new tensors. Differentiable."""
    if isinstance(tensors, torch.Tensor):
        raise errors.one_tensor()
    compressor, around = around_autograd(compression)
    arguments = allreduce_arguments(average, op, prescale_factor, postscale_factor)
    if not tensors:
        return []
    reals = [_reals(tensor, "allreduce", name, arguments.op) for tensor in tensors]
    how = (name, arguments, compressor, process_set)
    return list(map(_given, _around(Allreduce, how, around, reals), tensors))


@breaks_graphs
def grouped_allreduce_async_(
    tensors: Sequence[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    *,
    compression: CompressorLike = Compression.none,
) -> int:
    """Start one in-place allreduce of several tensors, all or nothing.

    ``synchronize`` returns a tuple of them.
    """
    arguments = allreduce_arguments(average, op, prescale_factor, postscale_factor)
    return _start(tensors, name, arguments, process_set, compression, in_place=True, grouped=True)


@breaks_graphs
def grouped_allreduce_(
    tensors: Sequence[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    *,
    compression: CompressorLike = Compression.none,
) -> tuple[torch.Tensor, ...]:
    """Replace several tensors' values by their reductions, reduced together; return them."""
    arguments = allreduce_arguments(average, op, prescale_factor, postscale_factor)
    handle = _start(tensors, name, arguments, process_set, compression, in_place=True, grouped=True)
    return cast(tuple[torch.Tensor, ...], synchronize(handle))


@breaks_graphs
def reducescatter_async(
    tensor: torch.Tensor,
    name: str | None = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> int:
    """Start a reduce-scatter. ``synchronize`` of the handle returns its output. Not differentiable."""
    arguments = reduce_arguments(op, prescale_factor, postscale_factor)
    return start_reducescatter([tensor], name, arguments, None, process_set, grouped=False)


@breaks_graphs
def reducescatter(
    tensor: torch.Tensor,
    name: str | None = None,
    compression: CompressorLike = Compression.none,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> torch.Tensor:
    """Return this rank's rows of the reduction (Average or Sum) of all ranks' tensors. Differentiable.

    Rows are split along dimension 0. The first ``rows % size`` ranks get one more than the others.
    """
    real = _reals(tensor, "reducescatter", name, op)
    codec, around = _codec_and_around(compression, [real])
    how = (name, op, process_set, prescale_factor, postscale_factor, codec)
    return _given(_around(HorovodGroupedReducescatter, how, around, [real])[0], tensor)


@breaks_graphs
def grouped_reducescatter_async(
    tensors: Sequence[torch.Tensor],
    name: str | None = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> int:
    """Start reduce-scatters of several tensors, all or nothing. ``synchronize`` returns a tuple."""
    arguments = reduce_arguments(op, prescale_factor, postscale_factor)
    return start_reducescatter(tensors, name, arguments, None, process_set, grouped=True)


@breaks_graphs
def grouped_reducescatter(
    tensors: Sequence[torch.Tensor],
    name: str | None = None,
    compression: CompressorLike = Compression.none,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[torch.Tensor]:
    """``reducescatter`` of several tensors, reduced together, all or nothing. Differentiable."""
    if not tensors:
        return []
    reals = [_reals(tensor, "reducescatter", name, op) for tensor in tensors]
    codec, around = _codec_and_around(compression, reals)
    how = (name, op, process_set, prescale_factor, postscale_factor, codec)
    return list(map(_given, _around(HorovodGroupedReducescatter, how, around, reals), tensors))


def _reals(tensor: torch.Tensor, what: str, name: str | None, op: int) -> torch.Tensor:
    """Return the real tensor to compress and send, as compressors accept no complex numbers."""
    label = f"{what}.{name or 'noname'}"
    if what == "reducescatter":
        as_rows_of_reals(tensor, label)  # raises for tensors without rows
    else:
        check_added(tensor, label, op)
    return differentiable_reals(tensor)


def _given(reduced: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
    """Return the result, complex if ``tensor`` is."""
    is_complex = isinstance(tensor, torch.Tensor) and tensor.is_complex()
    return torch.view_as_complex(reduced.contiguous()) if is_complex else reduced


def _codec_and_around(compression: CompressorLike, tensors: Sequence[torch.Tensor]) -> tuple[Any, Any]:
    """Return the core's codec, if any, and the compressor to apply around the operation.

    The core casts all tensors of a group or none. ValueError if a compressor's output may not be added and
    the core does not know it.
    """
    compressor, around = around_autograd(compression)
    codec = getattr(compressor, "codec", None)
    if codec is not None and not all(codec_for(compressor, tensor) for tensor in tensors):
        return None, compressor
    if codec is None and compressor is not Compression.none:
        raise errors.scattered_by_python(compressor=repr(compressor))
    return codec, around
