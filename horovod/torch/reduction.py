"""The reduction of one model's gradients, and its state between steps.

A DistributedOptimizer, DDP's hook, the backend "horovod" and FSDP2 have one each, and call it in different
orders.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from horovod.common import belongings
from horovod.common.process_sets import ProcessSet
from horovod.torch import autotune
from horovod.torch.checkpoint import Checkpoint, Peers
from horovod.torch.complex_numbers import as_reals
from horovod.torch.compression import NoneCompressor, Rules, compressor_name
from horovod.torch.compression.first_step import FirstStep
from horovod.torch.compression.memory import Memory
from horovod.torch.reduce_ops import ReduceArguments
from horovod.torch.residuals import Residuals
from horovod.torch.submission import Kept, start_allreduce
from horovod.torch.workloads import NONE, Workload, compression_knob, weakly


class Gradient(NamedTuple):
    """A tensor to reduce in place, of any shape and dtype. ``compressor`` is resolved.

    If ``source`` is given, with equal shape, strides and dtype, it is reduced into ``tensor``.
    """

    name: str
    tensor: torch.Tensor
    compressor: Any
    source: torch.Tensor | None = None

    def fill(self) -> None:
        if self.source is not None:
            self.tensor.copy_(self.source)


class Reduction:
    """The rules by which gradients are reduced, and the state kept of them by the parameter's name.

    Args:
        rules: the compressor of each parameter.
        peers: the ranks that share the checkpoint, if they are known already.
        first_step: replaces that of ``rules``.
        is_tuned: whether the autotuner may turn compression off if the user allows it.
        may_turn_off: the user allows it, independent of HOROVOD_AUTOTUNE_COMPRESSION.

    Attributes:
        memory: the compressors' state between steps.
        residuals: the part of gradients that compressors have lost, to be added later.
        first_step: collects, for rank 0's report, how gradients travel.
        checkpoint: saves and restores memory and residuals.
        tuned: the settings that the autotuner may change between steps.
        is_compressed: False while compression is off, whatever the rules say; the same on all ranks.
    """

    def __init__(
        self,
        rules: Rules,
        peers: Peers | None = None,
        first_step: FirstStep | None = None,
        is_tuned: bool = True,
        may_turn_off: bool = False,
    ) -> None:
        self.rules = rules
        self.first_step = first_step or FirstStep(rules)
        self.memory = Memory()
        self.residuals = Residuals(any(getattr(each, "error_feedback", False) for each in rules.compressors))
        self.checkpoint = Checkpoint(self.residuals, self.memory, peers)
        self.is_compressed = True
        knobs = compression_knob(rules, weakly(self._compress), may_turn_off) if is_tuned else ()
        self.tuned = autotune.Tuned(knobs)

    def _compress(self, text: str) -> None:
        self.is_compressed = text != NONE

    def go_on_from(self, other: Reduction) -> None:
        """Take over copies of another reduction's state for the same parameters."""
        self.residuals.follow(other.residuals.source)
        remembered = other.checkpoint.state_dict()
        if remembered:
            self.checkpoint.load_state_dict(copy.deepcopy(remembered))

    def compressor_of(self, name: str, parameter: torch.Tensor) -> Any:
        """Return the compressor that applies to a parameter's gradient now."""
        return self.rules.gradient_compressor(name, parameter) if self.is_compressed else NoneCompressor

    def begin(self) -> None:
        """Prepare for the start of reductions, while none are under way."""
        self.checkpoint.on_reduction()
        self.residuals.rescale()

    def reduce(
        self,
        gradients: Sequence[Gradient],
        label: str,
        arguments: ReduceArguments,
        process_set: ProcessSet,
        *,
        grouped: bool = False,
    ) -> int:
        """Submit gradients that share a compressor to the engine, as one operation; return its handle."""
        return start_allreduce(
            [each.tensor if each.source is None else each.source for each in gradients],
            label,
            arguments,
            gradients[0].compressor,
            process_set,
            into=[each.tensor for each in gradients],
            grouped=grouped,
            kept=[self._kept(*each[:3]) for each in gradients],
        )

    def _kept(self, name: str, tensor: torch.Tensor, compressor: Any) -> Kept:
        reals = as_reals(tensor)
        return Kept(
            self.memory.of(name, compressor, reals),
            self.residuals.of(name, reals, compressor),
            self.first_step.note(name, reals, compressor),
        )

    def step_ended(self, face: str, trained: Callable[[], tuple[str, Sequence[torch.Tensor]]]) -> None:
        """Report to the autotuner that all ranks have made a step. All ranks call it at the same point.

        Args:
            face: "optimizer" or "ddp", part of the key of the results.
            trained: returns the model's name and its parameters.
        """

        def workload() -> Workload:
            compressors = sorted(set(map(compressor_name, self.rules.compressors)))
            return Workload(face, *trained(), ", ".join(compressors), self.tuned.knobs)

        belongings.own(autotune.Tuning).step_ended(self.tuned, workload)
