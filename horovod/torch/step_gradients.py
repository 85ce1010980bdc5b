"""The gradients of an optimizer's current step, with their reductions and versions."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

import torch

from horovod.torch import devices
from horovod.torch.gradients import Pending, wait_for_all
from horovod.torch.seen_gradient import SeenGradient

__all__ = ["StepGradients"]

Which = Callable[[torch.Tensor], bool]


def _all(parameter: torch.Tensor) -> bool:
    return True


class StepGradients:
    """The gradients of one optimizer's parameters.

    Attributes:
        handles: by parameter with a new gradient, (its reduction, or None before it starts; a context).
        seen: by such parameter, its gradient when it was accumulated, or its reduction started or ended.
    """

    def __init__(self) -> None:
        self.handles: dict[torch.Tensor, tuple[Pending | None, Any]] = {}
        self.seen: dict[torch.Tensor, SeenGradient] = {}
        self._streams: dict[torch.Tensor, int] = {}  # of incomplete groups: the stream that made the gradient

    def note(self, members: Iterable[torch.Tensor]) -> None:
        """Note the current state of these gradients as the expected one."""
        for member in members:
            self.seen[member] = SeenGradient(member)

    def wait_for(self, parameter: torch.Tensor) -> None:
        """Note a new gradient that is not reduced yet."""
        self.handles.setdefault(parameter, (None, None))
        self.note([parameter])

    def clear(self) -> None:
        for of_step in (self.handles, self.seen, self._streams):
            of_step.clear()

    # ---- reductions ----

    def in_flight(self) -> dict[Pending, list[torch.Tensor]]:
        """Return the reductions under way, with the parameters of each."""
        members: dict[Pending, list[torch.Tensor]] = {}
        for parameter, (reduction, _) in self.handles.items():
            if reduction is not None and not reduction.is_over:
                members.setdefault(reduction, []).append(parameter)
        return members

    def finish(
        self, may_yield: bool, reduced: Callable[[list[torch.Tensor], bool], None], which: Which = _all
    ) -> list[torch.Tensor]:
        """Wait for reductions. Return parameters whose gradients were changed meanwhile by other code.

        ``reduced`` is called with the parameters of each reduction, and whether some rank lacked a gradient.

        With ``may_yield``, skip a reduction if other ranks wait for this rank elsewhere.
        """
        changed: list[torch.Tensor] = []

        def finish(reduction: Pending, members: list[torch.Tensor]) -> None:
            if may_yield and not reduction.wait_or_yield():
                return
            changed.extend(member for member in members if not self.seen[member].is_untouched(member))
            reduction.wait()
            reduced(members, reduction.is_completed)

        chosen = [each for each in self.in_flight().items() if which(each[1][0])]
        wait_for_all([functools.partial(finish, *each) for each in chosen])
        return changed

    def take_rested(self, which: Which = _all) -> list[torch.Tensor]:
        """Forget gradients that are not being reduced, and return their parameters."""
        rested = [
            parameter
            for parameter, (reduction, _) in self.handles.items()
            if (reduction is None or reduction.is_over) and which(parameter)
        ]
        for parameter in rested:
            del self.handles[parameter]
        return rested

    def may_be_averaged_again(self, parameter: torch.Tensor) -> bool:
        """Return whether it was reduced, and then zeroed, or another gradient was added to it."""
        reduction, _ = self.handles.get(parameter, (None, None))
        return reduction is not None and reduction.is_over and not self.was_only_added_to(parameter)

    def was_only_added_to(self, parameter: torch.Tensor) -> bool:
        return self.seen[parameter].was_only_added_to(parameter)

    # ---- streams of a GPU ----

    def note_stream(self, parameter: torch.Tensor) -> None:
        """Note that the current stream makes the parameter's gradient."""
        device = devices.device_of(parameter)
        if device != devices.CPU:
            self._streams[parameter] = devices.current_stream(device)

    def follow_streams(self, members: list[torch.Tensor]) -> None:
        """In a group's last hook, make its stream wait for the others that made the group's gradients."""
        streams = {self._streams.pop(member) for member in members if member in self._streams}
        if streams:
            devices.follow(devices.device_of(members[0]), streams)
