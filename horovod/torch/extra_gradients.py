"""skip_extra_backward=True: ignore gradients that another model's backward pass adds between steps.

In a GAN, the generator's loss passes through the discriminator and adds gradients to its parameters, after
the discriminator's own were reduced, or after its step. The script zeroes them before it continues.
"""

from __future__ import annotations

from typing import Any

import torch

from horovod.torch.step_gradients import SeenGradient, call_before_accumulation

__all__ = ["ExtraGradients"]


class ExtraGradients:
    """Ignores the extra gradients of one optimizer.

    Attributes:
        hooks: by parameter, the hook that intercepts extra gradients.
    """

    def __init__(self) -> None:
        self.hooks: dict[torch.Tensor, Any] = {}
        # gradients that are reduced, or that a step has used
        self._final: dict[torch.Tensor, SeenGradient] = {}
        self._kept: dict[torch.Tensor, torch.Tensor] = {}

    def listen_to(self, parameter: torch.Tensor) -> None:
        """Ignore extra gradients of a parameter from now on."""
        self.hooks[parameter] = call_before_accumulation(self, parameter)

    def note_final(self, parameter: torch.Tensor) -> None:
        """Note that its gradient is reduced, or used by a step. Later additions are extra."""
        self._final[parameter] = SeenGradient(parameter)

    def before_accumulation(self, parameter: torch.Tensor) -> None:
        """Set the final gradient aside. If it was zeroed or changed, the next step has begun: do nothing."""
        final = self._final.get(parameter)
        if final is not None and parameter.grad is not None and final.is_untouched(parameter):
            self._kept[parameter], parameter.grad = parameter.grad, None

    def drop(self, parameter: torch.Tensor) -> bool:
        """Replace the extra gradient by the one set aside. Return False if there is none."""
        kept = self._kept.pop(parameter, None)
        if kept is None:
            self._final.pop(parameter, None)
            return False
        parameter.grad = kept
        return True
