"""Submission of allreduces to the engine, and construction of their outputs.

``start_allreduce`` returns a handle. A non-contiguous tensor travels as a copy, which an in-place operation
copies back.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from horovod import _native as native
from horovod.common import belongings, traffic, waiting
from horovod.common.basics import basics
from horovod.common.process_sets import GLOBAL_ID, ProcessSet
from horovod.common.traffic import Traffic
from horovod.common.util import num_rank_is_power_2
from horovod.torch import devices, errors, gathered, handles
from horovod.torch.complex_numbers import as_reals, check_added, given_back, real_target
from horovod.torch.compression import NoneCompressor, State, codec_for, compressor_name
from horovod.torch.compression.first_step import NoteSent, nobody_asks
from horovod.torch.compression.memory import Memory
from horovod.torch.handles import Operation, Output
from horovod.torch.reduce_ops import OP_NAMES, Adasum, Average, ReduceArguments, Sum
from horovod.torch.residuals import compressed_with
from horovod.torch.rounds import RoundsOperation
from horovod.torch.tensors import (
    NATIVE_DTYPES,
    addressable,
    check_averaged,
    check_served,
    described,
    grouped_from_core,
    is_addressable,
    new_result,
)

Finish = Callable[[list[native.Result]], list[torch.Tensor]]

_ADDED = frozenset(NATIVE_DTYPES) - {torch.bool}  # dtypes with every op that adds


class Kept(NamedTuple):
    """The state of a tensor from one allreduce to the next."""

    state: State  # of its compressor
    feedback: Any = None  # a Feedback that suits the compressor, or None without error feedback
    note_sent: NoteSent = nobody_asks


class _Request(NamedTuple):
    """One started allreduce, shared by the routes of its tensors."""

    wire: str
    arguments: ReduceArguments
    compressor: Any
    operation: Operation
    process_set_id: int
    kept: Sequence[Kept]  # of each tensor
    into: Sequence[torch.Tensor | None]  # the target of each result, None for a new tensor
    ranks: int  # that take part
    traffic: Traffic


def start_allreduce(
    tensors: Sequence[torch.Tensor],
    name: str | None,
    arguments: ReduceArguments,
    compressor: Any,
    process_set: ProcessSet,
    *,
    into: Sequence[torch.Tensor | None] | None = None,
    grouped: bool = False,
    kept: Sequence[Kept] | None = None,
) -> int:
    """Start an allreduce of one tensor or a group over a process set, and return its handle.

    Args:
        compressor: resolved.
        into: the targets of results: the tensors themselves, or contiguous ones of their shapes and dtypes.
            None makes new tensors.
        grouped: the output is a tuple.
        kept: the state of each tensor (of a complex one's reals). Default: state by the operation's name.
    """
    given, given_targets = tensors, into or [None] * len(tensors)
    label = f"allreduce.{name or 'noname'}"
    tensors = _checked_reals(given, label, arguments.op)
    targets = list(map(real_target, given, tensors, given_targets))
    member = basics.member()
    process_set_id = member.id_of(process_set)
    if arguments.op == Adasum:
        _check_adasum(member.world, process_set_id)
    ranks = process_set.size() or 1
    # One request for all tensors with one route. Integers need another only if codes are gathered.
    members_of: dict[_Route, list[int]] = {}
    for i, tensor in enumerate(tensors):
        members_of.setdefault(_route(tensor, compressor, arguments, label, ranks), []).append(i)
    device = devices.common_device(tensors, label)
    operation = Operation(member.engine, origin=devices.Origin.here(device))
    wire = wire_name("allreduce", name, process_set)
    if kept is None:
        is_kept = name is not None and getattr(compressor, "combine", "sum") == "rounds"
        kept = _kept_by_job(f"{process_set_id}/{wire}", compressor if is_kept else None, len(tensors))
    counted = traffic.of_this_job(ranks)
    counted.give(sent_bytes(tensors), device != devices.CPU)
    waiting.advance_all()
    finishes: list[tuple[list[int], slice, Finish]] = []
    try:
        for number, (route, members) in enumerate(members_of.items()):
            begin = len(operation.waits)
            request = _Request(
                wire if number == 0 else f"{wire}.{number}", arguments, compressor, operation, process_set_id,
                [kept[i] for i in members], [targets[i] for i in members], ranks, counted,
            )  # fmt: skip
            finish = route(request, [tensors[i] for i in members])
            finishes.append((members, slice(begin, len(operation.waits)), finish))
    except BaseException:
        handles.abandon(operation)
        raise

    def finish_all(results: list[native.Result]) -> Output:
        outputs = list(tensors)
        for members, own_results, finish in finishes:
            for i, reduced in zip(members, finish(results[own_results]), strict=True):
                placed = put_in_place(reduced, targets[i])
                outputs[i] = given_back(placed, given[i], given_targets[i])
        return tuple(outputs) if grouped else outputs[0]

    operation.finish = finish_all
    return handles.register(operation)


def _checked_reals(given: Sequence[torch.Tensor], label: str, op: int) -> list[torch.Tensor]:
    if all([isinstance(tensor, torch.Tensor) and tensor.dtype in _ADDED for tensor in given]):
        return list(given)
    for tensor in given:
        check_averaged(tensor, label, op)
        check_added(tensor, label, op)
    return list(map(as_reals, given))


def _check_adasum(world: native.World, process_set_id: int) -> None:
    if process_set_id != GLOBAL_ID:
        raise errors.adasum_over_set()
    if not num_rank_is_power_2(world.size):
        raise errors.adasum_size(size=world.size)
    if not world.homogeneous:
        raise errors.adasum_hosts()


def _kept_by_job(key: str, compressor: Any, count: int) -> list[Kept]:
    """Return states that the job keeps by name, for allreduces without their own."""
    memory = belongings.own(Memory)
    return [Kept(memory.of(f"{key}/{i}", compressor) if compressor else {}) for i in range(count)]


def wire_name(operation: str, name: str | None, process_set: ProcessSet) -> str:
    """Return ``<operation>.<name>``, or ``<operation>.noname.<n>``.

    n counts this process' unnamed operations in the process set, so all its ranks must start these in the
    same order.
    """
    if name is None:
        return f"{operation}.noname.{basics.member().next_unnamed(process_set)}"
    return f"{operation}.{name}"


def put_in_place(result: torch.Tensor, target: torch.Tensor | None) -> torch.Tensor:
    """Return the caller's tensor: ``target``, which gets the result, or the result."""
    if target is None:
        return result
    if result is not target:
        with torch.no_grad():
            target.copy_(result)
    return target


_Route = Callable[[_Request, list[torch.Tensor]], Finish]


def _route(
    tensor: torch.Tensor, compressor: Any, arguments: ReduceArguments, label: str, ranks: int
) -> _Route:
    """Return a tensor's route, from dtype and arguments, so that all ranks choose the same."""
    if compressor is NoneCompressor:
        check_served(tensor, label)
        return _start_exact
    codec = codec_for(compressor, tensor)
    combine = getattr(compressor, "combine", "sum")
    if combine == "sum" and (codec is None or arguments.op not in (Average, Sum)):
        return _start_summed
    check_served(tensor, label)
    if not tensor.is_floating_point():
        return _start_exact if codec is None else _start_coded
    if arguments.op not in (Average, Sum):
        raise errors.compressed_op(
            tensor=label, op=OP_NAMES[arguments.op], compressor=compressor_name(compressor)
        )
    if codec is not None:
        return _start_coded
    if ranks == 1:
        return _start_exact  # nothing is sent; with a codec, the core finds that itself
    return _start_in_rounds if combine == "rounds" else _start_gathered


def sent_bytes(tensors: Sequence[torch.Tensor], codec: native.Codec | None = None) -> int:
    """Return the number of bytes sent: tensors unchanged, or floats as a codec's codes."""
    if codec is None:
        return sum([tensor.nbytes for tensor in tensors])
    return sum(
        [
            codec.encoded_bytes(tensor.numel()) if tensor.is_floating_point() else tensor.nbytes
            for tensor in tensors
        ]
    )


@functools.lru_cache(maxsize=256)
def reduction_of(arguments: ReduceArguments, codec: native.Codec | None) -> native.Reduction:
    return native.Reduction(arguments.op, arguments.prescale, arguments.postscale, codec)


def _start_native(request: _Request, tensors: list[torch.Tensor], codec: native.Codec | None) -> Finish:
    operation = request.operation
    request.traffic.send(sent_bytes(tensors, codec))
    members, outputs = [], []
    read, written = [], []  # of the caller's tensors
    for tensor, kept, target in zip(tensors, request.kept, request.into, strict=True):
        # detached unless in place: a tensor that is only read may get other memory meanwhile
        source = tensor if target is tensor and is_addressable(tensor) else addressable(tensor)
        if target is not None and is_addressable(target):
            output = source if target is tensor else target
            written.append(target)
            outputs.append(target)
        else:  # `source` may be overwritten only if it is a copy
            output = new_result(operation.engine, source) if is_addressable(tensor) else source
            outputs.append(output)
        if outputs[-1] is not tensor:
            read.append(source)
        members.append(described(source, output, kept.feedback if codec else None))
        operation.tensors += [tensor, source, output]
    operation.waits.append(
        operation.engine.allreduce(
            request.wire, members, reduction_of(request.arguments, codec), request.process_set_id
        )
    )
    operation.lend(request.wire, read, written)
    return lambda results: outputs


_start_exact = functools.partial(_start_native, codec=None)


def _start_coded(request: _Request, tensors: list[torch.Tensor]) -> Finish:
    """Integers of a group travel unchanged with the codes."""
    floats = any(tensor.is_floating_point() for tensor in tensors)
    return _start_native(request, tensors, request.compressor.codec if floats else None)


def _start_summed(request: _Request, tensors: list[torch.Tensor]) -> Finish:
    """Add compressed tensors, and decompress the sum: Horovod's own route."""
    compressor = request.compressor
    compressed, contexts = [], []
    with torch.no_grad():
        for tensor, kept, target in zip(tensors, request.kept, request.into, strict=True):
            small, ctx = compressed_with(compressor, tensor.detach(), kept.feedback)
            check_served(small, request.wire)
            kept.note_sent(small.nbytes)
            keep = (
                target is not tensor
                and small.untyped_storage().data_ptr() == tensor.untyped_storage().data_ptr()
            )
            compressed.append(small.clone() if keep else small)
            contexts.append(ctx)
    finish = _start_exact(request._replace(into=compressed), compressed)

    def decompress(results: list[native.Result]) -> list[torch.Tensor]:
        with torch.no_grad():
            sums = [
                put_in_place(sum_, small) for sum_, small in zip(finish(results), compressed, strict=True)
            ]
            return [compressor.decompress(sum_, ctx) for sum_, ctx in zip(sums, contexts, strict=True)]

    return decompress


def _start_gathered(request: _Request, tensors: list[torch.Tensor]) -> Finish:
    """Gather codes, then decompress and add them in Python.

    The route of compressors that the core does not know.
    """
    with torch.no_grad():
        contributions = [
            gathered.contribution(request.wire, tensor, request.arguments, request.compressor, kept.feedback)
            for tensor, kept in zip(tensors, request.kept, strict=True)
        ]
    payloads = [own.payload for own in contributions]
    for payload, kept in zip(payloads, request.kept, strict=True):
        kept.note_sent(payload.nbytes)
        request.traffic.send(payload.nbytes)
    operation = request.operation
    operation.tensors += payloads
    requested = [described(payload) for payload in payloads]
    operation.waits.append(operation.engine.allgather(request.wire, requested, request.process_set_id))

    def add(results: list[native.Result]) -> list[torch.Tensor]:
        sizes = results[0].sizes
        ranks = len(sizes) // len(payloads)
        with torch.no_grad():
            return [
                gathered.reduced(own, codes, sizes[i * ranks : (i + 1) * ranks])
                for i, (own, codes) in enumerate(
                    zip(contributions, grouped_from_core(results[0], payloads), strict=True)
                )
            ]

    return add


def _start_in_rounds(request: _Request, tensors: list[torch.Tensor]) -> Finish:
    """Let the compressor compute the sum from sums that it requests, the first of them here."""
    prescale = request.arguments.prescale
    values = [tensor.detach() if prescale == 1.0 else tensor.detach() * prescale for tensor in tensors]
    values = [
        value if kept.feedback is None else kept.feedback.added_to(value)
        for value, kept in zip(values, request.kept, strict=True)
    ]
    rounds = [
        request.compressor.rounds(value, kept.state) for value, kept in zip(values, request.kept, strict=True)
    ]
    running = RoundsOperation(
        request.operation.engine,
        request.wire,
        request.process_set_id,
        rounds,
        [tensor.shape for tensor in tensors],
        request.operation.origin,
    )
    request.operation.steppers.append(running)
    # The operation refers to finish(), which must not refer to it: a cycle would keep tensors until the
    # garbage collector runs, which is seldom.
    all_kept, ranks, counted = request.kept, request.ranks, request.traffic
    scale = request.arguments.postscale / (ranks if request.arguments.op == Average else 1)

    @torch.no_grad()
    def finish(results: list[native.Result]) -> list[torch.Tensor]:
        sums = running.results()
        for sum_, value, kept, sent in zip(sums, values, all_kept, running.sent_bytes, strict=True):
            kept.note_sent(sent)
            counted.send(sent)
            if kept.feedback is not None:
                # Each rank keeps an equal share of what the sum lacks. Together that is the loss of all
                # ranks.
                kept.feedback.keep(value, sum_ / ranks)
        return [(sum_ * scale).to(tensor.dtype) for sum_, tensor in zip(sums, tensors, strict=True)]

    return finish
