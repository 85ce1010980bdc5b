"""FSDP2 (torch.distributed.fsdp.fully_shard): gradients are reduce-scattered as codes.

    for block in model.layers:
        fully_shard(block)
    fully_shard(model)
    compress_fsdp(model, Compression.bit8)

FSDP reduces the gradients of a unit, which is all that one call of fully_shard() manages, out of one buffer:

    buffer := chunk*    one for each rank
    chunk  := shard*    that rank's shard of each parameter, padded, in the order in which FSDP manages them

Each rank sends every other the codes of its chunk, and decodes and adds the codes that it receives. Gradients
are quantised once and summed in float32 in rank order, as in hvd.reducescatter. Parameters are gathered
uncompressed.
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from horovod import _native as native
from horovod.common.basics import basics
from horovod.common.process_sets import global_process_set
from horovod.torch.complex_numbers import as_reals
from horovod.torch.compression import UNSET, Compression, Rules, compressor_name
from horovod.torch.ddp import alone, errors, group_job
from horovod.torch.ddp.agreement import check_agreement
from horovod.torch.ddp.state import VARIABLES
from horovod.torch.handles import complete_all, together
from horovod.torch.reduce_ops import Average, ReduceArguments, Sum
from horovod.torch.reduction import Reduction
from horovod.torch.requests import start_reducescatter
from horovod.torch.tensors import check_served


def compress_fsdp(model: torch.nn.Module, compression: Any = UNSET) -> None:
    """Compress the reduce-scatter of gradients of a model to which fully_shard() was applied.

    Call it on all ranks, after fully_shard() and before the first backward pass.

    Args:
        model: with fully_shard() applied to it, to parts of it, or both.
        compression: as in DistributedOptimizer: a compressor with a native codec (fp16, bf16, bit16, bit8,
            int8, int4) or none, its text, or rules by the parameter's name in ``model``, weighed against
            HOROVOD_DDP_COMPRESSION, or else HOROVOD_COMPRESSION. Vectors and small parameters travel
            uncompressed.

    Raises:
        ValueError: nothing in ``model`` is sharded (a single process logs a line instead); the compressor
            works in Python or uses error feedback, for which each rank would keep a residual of every
            gradient, not of its shard; a rule matches no parameter; or ranks disagree, on every rank.
        RuntimeError: FSDP's reduce-scatter cannot be replaced in this torch.
    """
    reduction = Reduction(Rules(compression, VARIABLES))
    names = dict(model.named_parameters())
    reduction.rules.check_names(names)
    _check_compressors(reduction.rules)
    units = _units(model, reduction)
    if not units:
        if not alone.is_alone():
            raise errors.nothing_sharded(**alone.who_else())
        alone.tell_alone("compress_fsdp()")
        return
    _agree(units)
    compressed = [unit for unit in units if any(_codec(shard.compressor) for shard in unit.shards)]
    first_step = _FirstStep(reduction, units, compressed)
    # In the units' order, the same on every rank, as all ranks of a job begin it together.
    engines = {group: _OwnEngine(group) for group in dict.fromkeys(unit.group for unit in compressed)}
    for unit in compressed:
        reduce_scatter = CompressedReduceScatter(unit.shards, engines[unit.group], first_step)
        unit.module.set_custom_reduce_scatter(reduce_scatter)


class _Shard(NamedTuple):
    """A parameter of a unit."""

    name: str
    parameter: torch.nn.Parameter
    compressor: Any
    elements: int  # in its part of a chunk, with padding; the same on all ranks


class _Unit(NamedTuple):
    """The unit of one call of fully_shard(): a module, its parameters, and the group that shares them."""

    module: Any
    shards: list[_Shard]
    group: dist.ProcessGroup


class _FirstStep:
    """Reports how a model's gradients travel, when each compressed unit was reduced once.

    Without compressed units it reports at once.
    """

    def __init__(self, reduction: Reduction, units: Sequence[_Unit], compressed: Sequence[_Unit]) -> None:
        self._first_step = reduction.first_step
        self._ranks = max(dist.get_world_size(unit.group) for unit in units)
        # units without trained parameters are never reduced
        self._left = {
            id(unit.shards)
            for unit in compressed
            if any(shard.parameter.requires_grad for shard in unit.shards)
        }
        for unit in units:
            self._note(unit.shards)
        self._end_if_complete()

    def note(self, shards: Sequence[_Shard], dtype: torch.dtype) -> None:
        """Note that a unit was reduced, in a dtype."""
        if id(shards) not in self._left:
            return
        self._left.discard(id(shards))
        self._note(shards, dtype)
        self._end_if_complete()

    def _note(self, shards: Sequence[_Shard], dtype: torch.dtype | None = None) -> None:
        for shard in (shard for shard in shards if shard.parameter.requires_grad):
            like = torch.empty(shard.parameter.shape, dtype=dtype or shard.parameter.dtype, device="meta")
            self._first_step.note(shard.name, as_reals(like), shard.compressor)

    def _end_if_complete(self) -> None:
        if not self._left:
            self._first_step.end(dist.get_rank(), self._ranks)


class _Group(NamedTuple):
    """The part of each chunk for one compressor: ranges (begin, end) of elements."""

    name: str
    codec: native.Codec | None
    stretches: list[tuple[int, int]]

    @property
    def elements(self) -> int:
        return sum(end - begin for begin, end in self.stretches)


class _OwnEngine:
    """The job of a group's ranks for one model. It is left when the model's last unit is freed."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        self.job = group_job.begin(group)
        weakref.finalize(self, group_job.leave_soon, self.job).atexit = False  # group_job leaves jobs at exit


class CompressedReduceScatter:
    """FSDP's reduce-scatter of one unit, for FSDPModule.set_custom_reduce_scatter()."""

    def __init__(self, shards: Sequence[_Shard], own: _OwnEngine, first_step: _FirstStep) -> None:
        self._shards = shards
        self._own = own
        self._first_step = first_step
        self._has_warned = False

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        """Return memory for the buffers that are passed in."""
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        group: dist.ProcessGroup,
        op: Any,
        async_op: bool = False,
    ) -> None:
        """Write the sum of all ranks' chunks for this one, with op's factor, to ``output_tensor``.

        ``output_tensor`` has shape (k,), ``input_tensor`` shape (ranks * k,). On a GPU the current stream
        executes it.
        """
        if async_op:
            raise errors.fsdp_async()
        check_served(as_reals(input_tensor), "reduce-scatter of FSDP")
        arguments = ReduceArguments(*_arguments(op))
        chunks = input_tensor.view(dist.get_world_size(group), -1)
        parts = self._groups(chunks.shape[1])
        is_whole = len(parts) == 1
        results = [output_tensor if is_whole else output_tensor.new_empty(part.elements) for part in parts]
        with self._own.job.entered():
            with together(basics.member().engine):
                started = [
                    start_reducescatter(
                        [(chunks if is_whole else _taken(chunks, part)).reshape(-1)],
                        f"fsdp.{part.name}",
                        arguments,
                        part.codec,
                        global_process_set,
                        grouped=False,
                        into=[result],
                    )
                    for part, result in zip(parts, results, strict=True)
                ]
            complete_all(started)
        if not is_whole:
            for part, result in zip(parts, results, strict=True):
                _put(output_tensor, part, result)
        self._first_step.note(self._shards, input_tensor.dtype)

    def _groups(self, elements: int) -> list[_Group]:
        """Divide a chunk of ``elements`` among compressors.

        FSDP omits shards of parameters without gradient, and does not report which. Then the largest shard's
        compressor is used for all.
        """
        shards = [shard for shard in self._shards if shard.parameter.requires_grad]
        sizes = [shard.elements for shard in shards]
        if sum(sizes) != elements:
            if not self._has_warned:
                self._has_warned = True
                warnings.warn(
                    f"FSDP reduces {elements} elements per rank of the unit with {self._shards[0].name!r}, "
                    f"whose parameters have {sum(sizes)}: all are compressed alike, vectors too. Does "
                    "every parameter take part in the loss?",
                    stacklevel=2,
                )
            largest = max(zip(sizes, shards, strict=True), key=lambda each: each[0])[1]
            return [_Group(self._shards[0].name, _codec(largest.compressor), [(0, elements)])]
        groups: dict[int, _Group] = {}
        end = 0
        for shard, size in zip(shards, sizes, strict=True):
            begin, end = end, end + size
            new = _Group(shard.name, _codec(shard.compressor), [])
            groups.setdefault(id(shard.compressor), new).stretches.append((begin, end))
        return list(groups.values())


def _taken(chunks: torch.Tensor, part: _Group) -> torch.Tensor:
    return torch.cat([chunks[:, begin:end] for begin, end in part.stretches], 1)


def _put(output: torch.Tensor, part: _Group, result: torch.Tensor) -> None:
    at = 0
    for begin, end in part.stretches:
        output[begin:end] = result[at : at + end - begin]
        at += end - begin


def _arguments(op: Any) -> tuple[int, float, float]:
    """Return op, prescale and postscale of native.Reduction for an op of FSDP."""
    if op == dist.ReduceOp.AVG:
        return Average, 1.0, 1.0
    if op == dist.ReduceOp.SUM:
        return Sum, 1.0, 1.0
    if op == dist.ReduceOp.PREMUL_SUM:
        return Sum, float(op.__getstate__()[1]), 1.0
    raise errors.fsdp_op(value=str(op))


def _codec(compressor: Any) -> native.Codec | None:
    codec: native.Codec | None = getattr(compressor, "codec", None)
    return codec


def _agree(units: Sequence[_Unit]) -> None:
    """Collective. RanksDisagree, a ValueError, on every rank unless all compress parameters alike."""
    by_group: dict[dist.ProcessGroup, dict[str, str]] = {}
    for unit in units:
        by_group.setdefault(unit.group, {}).update(
            (shard.name, f"{list(shard.parameter.shape)} {compressor_name(shard.compressor)}")
            for shard in unit.shards
        )
    for group, terms in by_group.items():
        everybodys: list[Mapping[str, str]] = [{}] * dist.get_world_size(group)
        dist.all_gather_object(everybodys, terms, group=group)
        check_agreement(everybodys)


def _check_compressors(rules: Rules) -> None:
    for compressor in rules.compressors:
        if compressor is not Compression.none and _codec(compressor) is None:
            raise errors.fsdp_compressor(said=rules.said)
        if getattr(compressor, "error_feedback", False):
            raise errors.fsdp_feedback(said=rules.said)


def _fsdp_module() -> Any:
    """Return FSDPModule, if its reduce-scatter can be replaced."""
    import torch.distributed.fsdp  # not needed by scripts that shard nothing

    cls = getattr(torch.distributed.fsdp, "FSDPModule", None)
    if not hasattr(cls, "set_custom_reduce_scatter"):
        raise errors.old_torch(version=str(torch.__version__))
    return cls


def _units(model: torch.nn.Module, reduction: Reduction) -> list[_Unit]:
    """Return the units that have parameters, from private attributes of FSDP.

    torch has no public interface for a unit's parameters and their order.
    """
    cls = _fsdp_module()
    name_of = {id(parameter): name for name, parameter in model.named_parameters()}
    units: dict[int, _Unit] = {}
    try:
        for module in (module for module in model.modules() if isinstance(module, cls)):
            for managed in module._get_fsdp_state()._fsdp_param_groups:  # one for all modules of a unit
                if not hasattr(managed.mesh_info, "shard_process_group"):
                    continue  # replicated, and not sharded
                shards = []
                for each in managed.fsdp_params:
                    name = name_of.get(id(each.sharded_param))
                    if name is None:
                        raise errors.unit_outside()
                    how = reduction.compressor_of(name, each.sharded_param)
                    elements = each.padded_sharded_param_size.numel()
                    shards.append(_Shard(name, each.sharded_param, how, elements))
                units[id(managed)] = _Unit(module, shards, managed.mesh_info.shard_process_group)
    except AttributeError as error:
        raise errors.unknown_torch(version=str(torch.__version__), why=str(error)) from error
    return list(units.values())
