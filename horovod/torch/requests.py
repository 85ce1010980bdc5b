"""Submission of operations other than allreduce to the engine, and construction of their outputs.

Every ``start_*`` function returns a handle. A non-contiguous tensor travels as a copy, which an in-place
operation copies back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from horovod import _native as native
from horovod.common import traffic
from horovod.common.basics import basics
from horovod.common.process_sets import ProcessSet
from horovod.torch import devices, errors, handles
from horovod.torch.complex_numbers import (
    as_given,
    as_reals,
    as_rows_of_reals,
    given_back,
    real_target,
)
from horovod.torch.handles import Operation, Output
from horovod.torch.reduce_ops import OP_NAMES, Average, ReduceArguments, Sum
from horovod.torch.submission import put_in_place, reduction_of, sent_bytes, wire_name
from horovod.torch.tensors import (
    addressable,
    check_averaged,
    check_served,
    described,
    grouped_from_core,
    is_addressable,
    new_result,
)


def _registered(operation: Operation, label: str, read: Sequence[torch.Tensor] | None = None) -> int:
    """Register an operation that reads tensors of the caller: ``read``, or all of its own."""
    operation.lend(label, operation.tensors if read is None else read)
    return handles.register(operation)


def start_allgather(
    tensors: Sequence[torch.Tensor],
    name: str | None,
    process_set: ProcessSet,
    sizes: Sequence[list[int]] | None = None,
    *,
    grouped: bool = False,
) -> int:
    """Allgather of one tensor or a group along dimension 0, all or nothing.

    At completion each tensor's list in ``sizes``, if given, is filled with all ranks' first dimensions.
    """
    member = basics.member()
    process_set_id = member.id_of(process_set)
    label = f"allgather.{name or 'noname'}"
    reals = [as_rows_of_reals(tensor, label) for tensor in tensors]
    for tensor in reals:
        check_served(tensor, label)
    origin = devices.Origin.here(devices.common_device(reals, label))
    sources = [addressable(tensor) for tensor in reals]
    wire = wire_name("allgather", name, process_set)
    requested = [described(source) for source in sources]
    request = member.engine.allgather(wire, requested, process_set_id)

    def finish(results: list[native.Result]) -> Output:
        outputs = list(map(as_given, grouped_from_core(results[0], sources), tensors))
        if sizes is not None:
            ranks = len(results[0].sizes) // len(sources)
            for i, own in enumerate(sizes):
                own[:] = results[0].sizes[i * ranks : (i + 1) * ranks]
        return tuple(outputs) if grouped else outputs[0]

    return _registered(Operation(member.engine, [request], sources, finish=finish, origin=origin), label)


def start_broadcast(
    tensor: torch.Tensor, root_rank: int, name: str | None, process_set: ProcessSet, *, in_place: bool
) -> int:
    """Broadcast root's tensor, into the tensor itself or into a new one."""
    member = basics.member()
    process_set_id = member.id_of(process_set)
    label = f"broadcast.{name or 'noname'}"
    given, tensor = tensor, as_reals(tensor)
    check_served(tensor, label)
    origin = devices.Origin.here(devices.device_of(tensor))
    source = addressable(tensor)
    direct = in_place and is_addressable(tensor)
    output = source if in_place or not is_addressable(tensor) else new_result(member.engine, source)
    wire = wire_name("broadcast", name, process_set)
    request = member.engine.broadcast(wire, described(source, output), root_rank, process_set_id)

    def finish(results: list[native.Result]) -> Output:
        target = real_target(given, tensor, given if in_place else None)
        placed = put_in_place(tensor if direct else output, target)
        return given_back(placed, given, given if in_place else None)

    operation = Operation(member.engine, [request], [tensor, source, output], finish=finish, origin=origin)
    operation.lend(label, [] if direct else [source], [tensor] if direct else [])
    return handles.register(operation)


def start_alltoall(
    tensor: torch.Tensor,
    splits: torch.Tensor | Sequence[int] | None,
    name: str | None,
    process_set: ProcessSet,
    sizes: list[int] | None = None,
) -> int:
    """Alltoall of rows. The output is (received rows, number of rows from each rank as int32).

    The numbers are on the device of ``splits``. ``sizes``, if given, is filled with them.
    """
    member = basics.member()
    process_set_id = member.id_of(process_set)
    label = f"alltoall.{name or 'noname'}"
    given, tensor = tensor, as_rows_of_reals(tensor, label)
    check_served(tensor, label)
    origin = devices.Origin.here(devices.device_of(tensor))
    rows = _checked_splits(splits, name)
    source = addressable(tensor)
    wire = wire_name("alltoall", name, process_set)
    request = member.engine.alltoall(wire, described(source), rows, process_set_id)

    def finish(results: list[native.Result]) -> Output:
        received = torch.tensor(results[0].sizes, dtype=torch.int32)
        if isinstance(splits, torch.Tensor):
            received = received.to(splits.device)
        if sizes is not None:
            sizes[:] = results[0].sizes
        return as_given(grouped_from_core(results[0], [source])[0], given), received

    return _registered(Operation(member.engine, [request], [source], finish=finish, origin=origin), label)


def _checked_splits(splits: Any, name: str | None) -> list[int]:
    """Return the numbers of rows as a list; empty for an even split.

    The core checks them against tensor and ranks.
    """
    if splits is None:
        return []
    if not isinstance(splits, torch.Tensor):
        splits = torch.tensor(splits, dtype=torch.int32)
    if splits.dtype != torch.int32 or splits.dim() != 1 or splits.numel() == 0:
        raise errors.wrong_splits(
            tensor=f"alltoall.{name or 'noname'}", dtype=str(splits.dtype), shape=tuple(splits.shape)
        )
    return [int(rows) for rows in splits.tolist()]


def start_reducescatter(
    tensors: Sequence[torch.Tensor],
    name: str | None,
    arguments: ReduceArguments,
    codec: native.Codec | None,
    process_set: ProcessSet,
    *,
    grouped: bool,
    into: Sequence[torch.Tensor] | None = None,
) -> int:
    """Reduce-scatter of one tensor or a group; returns this rank's rows of the reduction.

    ``codec`` applies to floats only. ``into`` receives the rows: contiguous tensors with as many rows.
    """
    member = basics.member()
    process_set_id = member.id_of(process_set)
    label = f"reducescatter.{name or 'noname'}"
    if arguments.op not in (Average, Sum):
        raise errors.scattered_op(tensor=label, op=OP_NAMES[arguments.op])
    given, tensors = tensors, [as_rows_of_reals(tensor, label) for tensor in tensors]
    into = into and [as_reals(target) for target in into]
    for tensor in tensors:
        check_served(tensor, label)
        check_averaged(tensor, label, arguments.op)
        if tensor.dim() == 0:
            raise errors.no_rows(tensor=label)
    origin = devices.Origin.here(devices.common_device(tensors, label))
    sources = [addressable(tensor) for tensor in tensors]
    outputs = into or [
        new_result(member.engine, source, _own_shape(source.shape, process_set)) for source in sources
    ]
    wire = wire_name("reducescatter", name, process_set)
    requested = [described(source, output) for source, output in zip(sources, outputs, strict=True)]
    floats = any(source.is_floating_point() for source in sources)
    reduction = reduction_of(arguments, codec if floats else None)
    request = member.engine.reducescatter(wire, requested, reduction, process_set_id)
    counted = traffic.of_this_job(process_set.size())
    counted.give(sent_bytes(sources), origin.device != devices.CPU)
    counted.send(sent_bytes(sources, codec))
    operation = Operation(member.engine, [request], [*sources, *outputs], origin=origin)
    results_given = list(map(as_given, outputs, given))
    operation.finish = lambda results: tuple(results_given) if grouped else results_given[0]
    return _registered(operation, label, sources)


def _own_shape(shape: torch.Size, process_set: ProcessSet) -> torch.Size:
    """Return the shape of this rank's rows: the first ``rows % size`` ranks have one more.

    Ranks outside the set, which the core refuses, have none.
    """
    size, rank = process_set.size(), process_set.rank()
    own = 0 if size is None or rank is None else shape[0] // size + (rank < shape[0] % size)
    return torch.Size((own, *shape[1:]))


def start_barrier(process_set: ProcessSet) -> int:
    member = basics.member()
    return handles.register(
        Operation(member.engine, [member.engine.barrier("barrier.noname", member.id_of(process_set))])
    )
