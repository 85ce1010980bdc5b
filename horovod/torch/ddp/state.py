"""The state of one model's communication hook between steps, and its checkpoint."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from horovod import _native as native
from horovod.common.compressors import COMPRESSION, DDP_COMPRESSION
from horovod.torch import autotune
from horovod.torch.checkpoint import Peers
from horovod.torch.compression import UNSET, NoneCompressor, Rules, compressor_name
from horovod.torch.ddp import errors
from horovod.torch.ddp.choice import Choice, Trial
from horovod.torch.ddp.division import Division, gradients_in, ranks_with_input
from horovod.torch.ddp.originals import Originals
from horovod.torch.ddp.reducer import GroupReducer
from horovod.torch.reduction import Gradient, Reduction

VARIABLES = (DDP_COMPRESSION, COMPRESSION)  # the first that is set counts


class CompressionState:
    """The state of ``compression_hook``: one for each model, the same on every rank.

    It can be made before the process group: nothing is sent before the first bucket is reduced.

    Args:
        compression: as ``compression=`` of hvd.DistributedOptimizer: one of hvd.Compression, your own
            compressor, its text, or rules by parameters' names. It is weighed against
            HOROVOD_DDP_COMPRESSION, or else HOROVOD_COMPRESSION. Vectors, and tensors with fewer elements
            than ``min_elements``, travel uncompressed.
        model: the model, wrapped or not. It gives parameters their names, for rules and checkpoints. Without
            it parameters are numbered.
        process_group: the model's group. Default: that of ``model``, or the default group.
        algorithm: "gather" or "scatter" forces how codes travel. By default HOROVOD_ALLREDUCE_ALGORITHM or
            the number of ranks decides.
        may_turn_off: measure in the first steps whether compression pays, and turn it off if not.

    Raises:
        ValueError: ``compression`` is invalid, a rule matches no parameter, or there are rules but no model.

    Attributes:
        rules: the compressor of each parameter.
        first_step: collects, for rank 0's report, how gradients travel.
        divisor: the number of ranks by which the gradients of this step are divided.
        choice: with ``may_turn_off``, the choice and the times that decided, or None before.
    """

    def __init__(
        self,
        compression: Any = UNSET,
        model: torch.nn.Module | None = None,
        *,
        process_group: dist.ProcessGroup | None = None,
        algorithm: str | None = None,
        may_turn_off: bool = False,
    ) -> None:
        self.rules = Rules(compression, VARIABLES)
        self.process_group = process_group
        self.algorithm = algorithm
        self.may_turn_off = may_turn_off
        self._begin_reduction()
        self.division = Division()
        self._originals = Originals()
        self._names = ParameterNames(model)
        if self._names.is_numbering and self.rules.has_patterns:
            raise errors.unknown_names(said=self.rules.said)
        if not self._names.is_numbering:
            self.rules.check_names([name for name, _ in self._names.parameters()])
        self._model: Callable[[], DistributedDataParallel | None] = _no_model
        if isinstance(model, DistributedDataParallel):
            self._model = weakref.ref(model)
            self.process_group = process_group or model.process_group
        self._reducer: GroupReducer | None = None
        self._trial: Trial | None = None
        self._agreed: set[str] = set()  # names for which ranks have compared compressor, shape and dtype
        self.divisor = 1

    def _begin_reduction(self) -> None:
        self._reduction = Reduction(self.rules, may_turn_off=self.may_turn_off)
        self.first_step = self._reduction.first_step

    @property
    def choice(self) -> Choice | None:
        return self._trial.choice if self._trial is not None else None

    # ---- while training ----

    def begin(self) -> GroupReducer:
        """Return the reducer of gradients. Collective the first time: ranks form it, and compare arguments.

        Raises:
            ValueError: ranks have different arguments; on every rank.
        """
        if self._reducer is None:
            group = self.process_group = self.process_group or dist.group.WORLD
            assert group is not None  # DistributedDataParallel needs one too
            reducer = GroupReducer(self._reduction, group, algorithm=self.algorithm)
            try:
                reducer.agree(
                    {
                        "compression": ", ".join(map(compressor_name, self.rules.compressors)),
                        "algorithm": self.algorithm or native.Settings.from_environment().allreduce_algorithm,
                        "may_turn_off": str(self.may_turn_off),
                        **self._terms(self._names.parameters()),
                    }
                )
            except BaseException:
                reducer.close()
                raise
            self._reduction.checkpoint.meet(_peers_in(group), self._known_names())
            self._reduction.is_compressed = self.rules.compresses
            if not self.rules.compresses:
                if not self._names.is_numbering:
                    reducer.close()  # ranks agree on everything, and it would send nothing
            elif self.may_turn_off and reducer.size > 1 and not reducer.is_tuned:
                self._trial = Trial(group)
            self._reducer = reducer
        return self._reducer

    def begin_step(self, device: torch.device) -> None:
        """Begin a step, before the first bucket of a backward pass is reduced, from ``device``."""
        reducer = self.begin()
        assert self.process_group is not None
        reducer.let_go()  # of a backward pass that has failed
        reducer.note_step(self._trained)
        if self._trial is not None and self._trial.choice is None:
            self._reduction.is_compressed = self._trial.begin_step(device)
            if self._trial.choice is not None and not self._reduction.is_compressed:
                self._reduction.checkpoint.load_state_dict(None)  # residuals will never be added
                reducer.close()
                self._originals.stop()
        self.divisor = ranks_with_input(self._model(), self.process_group, device)

    def _trained(self) -> tuple[str, Sequence[torch.Tensor]]:
        model = self._model()
        return ("a model", []) if model is None else (type(model.module).__name__, list(model.parameters()))

    def gradients(self, bucket: dist.GradBucket) -> list[Gradient]:  # type: ignore[name-defined]
        """Return the gradients of a bucket for a GroupReducer, in order; empty to let DDP reduce them.

        If any parameter of the model is compressed, the others are also summed in rank order. With three or
        more ranks DDP's own sums would depend on its buckets, which change when training is resumed.
        """
        parameters = bucket.parameters()
        names = [self._names.of(parameter) for parameter in parameters]
        new = [(n, p) for n, p in zip(names, parameters, strict=True) if n not in self._agreed]
        if new:
            self.begin().agree(self._terms(new))
        if bucket.buffer().is_sparse:
            self.first_step.note(names[0], bucket.buffer()._values(), NoneCompressor)
            return []
        if not self._reduction.is_compressed and self.first_step.is_over:
            return []
        compressors = [
            self.rules.gradient_compressor(name, parameter)
            for name, parameter in zip(names, parameters, strict=True)
        ]
        gradients = gradients_in(bucket)
        if not self._reduction.is_compressed:
            for each in zip(names, gradients, compressors, strict=True):
                self.first_step.note(*each)
            return []
        sources = self._originals.take(bucket) if self._may_keep_originals() else [None] * len(names)
        return list(map(Gradient, names, gradients, compressors, sources))

    def _may_keep_originals(self) -> bool:
        """Return False if the hook multiplies the whole bucket, or the model's graph is unknown."""
        model = self._model()
        is_known = model is not None and not model.static_graph
        return is_known and self.divisor == self.begin().size

    def _terms(self, parameters: Sequence[tuple[str, torch.Tensor]]) -> dict[str, str]:
        """Return the facts of parameters that ranks compare."""
        self._agreed.update(name for name, _ in parameters)
        return {
            name: f"{str(parameter.dtype).removeprefix('torch.')} {list(parameter.shape)} "
            f"{compressor_name(self.rules.gradient_compressor(name, parameter))}"
            for name, parameter in parameters
        }

    def _known_names(self) -> list[str] | None:
        return None if self._names.is_numbering else [name for name, _ in self._names.parameters()]

    def set_loss_scale(self, scale: Any) -> None:
        """Set the factor of the loss before backward: a number, or the GradScaler that has it.

        Error feedback is rescaled with it. ValueError unless it is finite and above 0. With a scaler on a GPU
        the host waits for the scale in every step, as in scaler.step().
        """
        self._reduction.residuals.follow(scale)

    def end_step(self) -> None:
        """Note that the last bucket of a backward pass has been reduced."""
        group = self.process_group
        assert group is not None
        self.first_step.end(group.rank(), group.size())

    def __repr__(self) -> str:
        return f"<CompressionState of {self.first_step.line() or self.rules}>"

    def close(self) -> None:
        """End the threads and groups of this rank. No gradient may be reduced afterwards."""
        self._originals.stop()
        if self._reducer is not None:
            self._reducer.close()

    def __getstate__(self) -> dict[str, Any]:
        """Return the content of a copy or a pickle: arguments and residuals, but no ranks.

        The copy takes the default process group when its first bucket is reduced.
        """
        return {
            **vars(self),
            "process_group": None,
            "division": Division(),
            "first_step": None,
            "_reduction": (self._reduction.residuals.source, self.state_dict()),
            "_originals": Originals(),
            "_model": _no_model,
            "_reducer": None,
            "_trial": None,
            "_agreed": set(),
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        loss_scale, saved = state["_reduction"]
        self._begin_reduction()
        self._reduction.residuals.follow(loss_scale)
        self._reduction.checkpoint.load_state_dict(saved)

    def metrics(self) -> dict[str, int]:
        """Return this model's counters of hvd.metrics(); empty before the first reduction."""
        return {} if self._reducer is None else self._reducer.metrics()

    def tuning(self) -> dict[str, Any]:
        """Return the state and results of tuning of this model's gradients, as hvd.tuning()."""
        return autotune.nothing() if self._reducer is None else self._reducer.tuning()

    # ---- checkpoints ----

    def state_dict(self) -> dict[str, Any]:
        """Return residuals of error feedback, and the compressors' memory; empty if there are none.

        Residuals are this rank's, or every rank's after ``consolidate_residuals``: float32, in host memory.
        """
        return self._reduction.checkpoint.state_dict()

    def load_state_dict(self, saved: Mapping[str, Any] | None) -> None:
        """Continue from what ``state_dict()`` returned, or start from nothing if it is empty or None.

        Residuals that it lacks for this rank start again from zero, with a warning.
        """
        self._reduction.checkpoint.load_state_dict(saved, self._known_names())

    def consolidate_residuals(self, to: int = 0) -> None:
        """Gather all ranks' residuals on rank ``to`` of the job. Collective; call it between steps.

        state_dict() of ``to`` then has them until gradients are reduced again. ValueError if ``to`` is not a
        rank of the model.
        """
        if self.process_group is None and not dist.is_initialized():
            return  # there are no other ranks
        self.begin()
        self._reduction.checkpoint.consolidate(to)


def _no_model() -> None:
    """The reference to a model that is not known, or not wrapped."""


def _peers_in(group: dist.ProcessGroup) -> Peers:
    """Return the ranks of a process group, as peers of a checkpoint."""
    ranks, own_position = dist.get_process_group_ranks(group), dist.get_rank(group)

    def gathered(own: Any, at: int) -> list[Any] | None:
        received: list[Any] | None = [None] * len(ranks) if own_position == at else None
        dist.gather_object(own, received, ranks[at], group)
        return received

    return Peers("state", lambda: ranks, lambda: own_position, lambda: len(ranks), gathered)


class ParameterNames:
    """The names of ``model.named_parameters()``, without DDP's "module.".

    Without a model, parameters are numbered in the order of the first step's buckets, which is the same on
    all ranks and in every run.
    """

    def __init__(self, model: torch.nn.Module | None) -> None:
        inner = model.module if isinstance(model, DistributedDataParallel) else model
        self.is_numbering = inner is None
        named = [] if inner is None else inner.named_parameters()
        self._names: dict[Any, str] = {parameter: name for name, parameter in named}

    def parameters(self) -> list[tuple[str, torch.Tensor]]:
        """Return all parameters that have a name by now."""
        return [(name, parameter) for parameter, name in self._names.items()]

    def of(self, parameter: torch.Tensor) -> str:
        """Return the name of a parameter. ValueError if it belongs to another model than the names."""
        name = self._names.get(parameter)
        if name is None:
            if not self.is_numbering:
                raise errors.unknown_parameter(shape=list(parameter.shape))
            name = self._names[parameter] = f"parameter.{len(self._names)}"
        return name
