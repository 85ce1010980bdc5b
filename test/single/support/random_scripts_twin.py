"""The slow twin of a random training script: one process that has all ranks' data, and plain optimizers.

It computes each rank's gradients in turn on one model, since all ranks have the same parameters, and combines
them explicitly: a gradient that a rank lacks counts as zeros.
"""

from __future__ import annotations

import contextlib
from typing import Any

import torch
from random_scripts_program import Step
from random_scripts_rank import Model, Script, options_there_are
from torch import nn

__all__ = ["Twin"]

Gradients = dict[nn.Parameter, torch.Tensor]


class Twin(Script):
    """A script of all ranks; ``backward`` returns with reduced gradients."""

    def wrapped(self, model: Model, optimizer: torch.optim.Optimizer, named: Any) -> Any:
        return optimizer

    def begin(self) -> None:
        pass

    def end(self) -> None:
        pass

    def takes_part(self, step: Step) -> bool:
        return True

    def freeze(self, number: int) -> None:
        pass  # done in backward, separately for each rank

    def synchronize(self, optimizer: Any) -> None:
        pass

    def without_synchronizing(self, optimizer: Any) -> Any:
        return contextlib.nullcontext()

    def backward(self, number: int, step: Step) -> float:
        """Leave the gradients that ranks must have; return their expected loss."""
        by_rank, losses = [], []
        for rank in range(self.program.ranks):
            gradients, loss = self._of_rank(rank, number, step)
            by_rank.append(gradients)
            losses.append(loss)
        for parameter in self.model.parameters():
            parameter.requires_grad_(True)
            parameter.grad = self._reduced(parameter, by_rank)
        self._forget_frozen(number)
        return sum(losses) / self._divisor()

    def _of_rank(self, rank: int, number: int, step: Step) -> tuple[Gradients, float]:
        """The sums of the rank's backward passes."""
        super_freeze(self, number, rank)
        self.model.zero_grad()
        total = 0.0
        for index, each in enumerate(step.passes[rank]):
            loss = self.model.loss(each, rank, number, index)
            self.scaler.scale(loss).backward()
            total += float(loss.detach())
        return {p: p.grad.clone() for p in self.model.parameters() if p.grad is not None}, total

    def _reduced(self, parameter: nn.Parameter, by_rank: list[Gradients]) -> torch.Tensor | None:
        found = [gradients[parameter] for gradients in by_rank if parameter in gradients]
        if found:
            return torch.stack(found).sum(0) / self._divisor()
        fills = self.program.unused == "zeros" or "unused" not in options_there_are()
        return torch.zeros_like(parameter) if fills else None

    def _divisor(self) -> int:
        return self.program.ranks if self.program.op == "Average" else 1

    def _forget_frozen(self, number: int) -> None:
        """Remove gradients of parameters frozen on every rank, so that weight decay does not change them."""
        everywhere = [self.program.frozen(number, rank) for rank in range(self.program.ranks)]
        for head in set.intersection(*everywhere):
            for parameter in self.model.heads[head].parameters():
                parameter.grad = None


def super_freeze(script: Script, number: int, rank: int) -> None:
    frozen = script.program.frozen(number, rank)
    for head, module in enumerate(script.model.heads):
        module.requires_grad_(head not in frozen)
