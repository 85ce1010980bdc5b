"""skip_extra_backward=True: gradients that another model's backward pass adds between steps are left out.

A discriminator's parameters get gradients when the generator's loss goes through it. They come when the
discriminator's own gradients are reduced, or its step has been made; the script zeroes them before it goes
on.
"""

from __future__ import annotations

from typing import Any

import torch

from horovod.torch import before_accumulation
from horovod.torch.seen_gradient import SeenGradient

__all__ = ["ExtraGradients"]


class ExtraGradients:
    """Of one optimizer.

    Attribute ``hooks``: by parameter, what keeps extra gradients away.
    """

    def __init__(self) -> None:
        self.hooks: dict[torch.Tensor, Any] = {}
        self._final: dict[torch.Tensor, SeenGradient] = {}  # those that are reduced, or that a step has used
        self._kept: dict[torch.Tensor, torch.Tensor] = {}

    def listen_to(self, parameter: torch.Tensor) -> None:
        """Keep extra gradients away from a parameter from now on."""
        self.hooks[parameter] = before_accumulation.register(self, parameter)

    def note_final(self, parameter: torch.Tensor) -> None:
        """Its gradient is reduced, or used by a step: what is added to it from here on is extra."""
        self._final[parameter] = SeenGradient(parameter)

    def before_accumulation(self, parameter: torch.Tensor) -> None:
        """Keep the gradient, unless it has been zeroed or changed: then the next step has begun."""
        final = self._final.get(parameter)
        if final is not None and parameter.grad is not None and final.is_untouched(parameter):
            self._kept[parameter], parameter.grad = parameter.grad, None

    def drop(self, parameter: torch.Tensor) -> bool:
        """Give the gradient back that was kept, in place of the extra one; False if there is none."""
        kept = self._kept.pop(parameter, None)
        if kept is None:
            self._final.pop(parameter, None)
            return False
        parameter.grad = kept
        return True
