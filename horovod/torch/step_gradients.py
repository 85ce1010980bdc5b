"""The gradients of an optimizer's current step: their reductions and versions, and hooks before a change."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import torch

from horovod.common import jobs
from horovod.torch import devices
from horovod.torch.compiling import breaks_graphs
from horovod.torch.gradients import Pending, wait_for_all

Which = Callable[[torch.Tensor], bool]


def all_of_them(parameter: torch.Tensor) -> bool:
    return True


class SeenGradient:
    """The tensor and version of a parameter's gradient. In-place operations raise the version.

    Writes through ``.data`` or another view of the memory are not detected.
    """

    __slots__ = ("_reference", "_version")

    def __init__(self, parameter: torch.Tensor) -> None:
        gradient = parameter.grad
        self._reference = None if gradient is None else weakref.ref(gradient)
        self._version = 0 if gradient is None else gradient._version

    def is_of(self, parameter: torch.Tensor) -> bool:
        """Return whether the parameter's gradient is still the same tensor."""
        gradient = parameter.grad
        if gradient is None:
            return self._reference is None
        return self._reference is not None and gradient is self._reference()

    def is_untouched(self, parameter: torch.Tensor) -> bool:
        """Return whether it is the same tensor with unchanged values."""
        gradient = parameter.grad
        return self.is_of(parameter) and (gradient is None or gradient._version == self._version)

    def was_only_added_to(self, parameter: torch.Tensor) -> bool:
        """Return whether at most one in-place operation has changed it, as a backward pass does."""
        gradient = parameter.grad
        return self.is_of(parameter) and gradient is not None and gradient._version <= self._version + 1


class StepGradients:
    """The gradients of one optimizer's parameters."""

    def __init__(self) -> None:
        # by parameter with a new gradient, its reduction, or None before it starts; and a context
        self.handles: dict[torch.Tensor, tuple[Pending | None, Any]] = {}
        # by such parameter, its gradient when it was accumulated, or its reduction started or ended
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
        self, may_yield: bool, reduced: Callable[[list[torch.Tensor], bool], None], which: Which = all_of_them
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

    def take_rested(self, which: Which = all_of_them) -> list[torch.Tensor]:
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
        is_reduced = reduction is not None and reduction.is_over
        return is_reduced and not self.seen[parameter].was_only_added_to(parameter)

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


class ExtraGradients:
    """skip_extra_backward=True: ignores gradients that another model's backward pass adds between steps.

    In a GAN, the generator's loss passes through the discriminator and adds gradients to its parameters,
    after the discriminator's own were reduced, or after its step. The script zeroes them before it continues.
    """

    def __init__(self) -> None:
        self.hooks: dict[torch.Tensor, Any] = {}  # by parameter, the hook that intercepts extra gradients
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


class _Listener(Protocol):
    def before_accumulation(self, parameter: torch.Tensor) -> None: ...


def call_before_accumulation(listener: _Listener, parameter: torch.Tensor) -> Any:
    """Call ``listener.before_accumulation(parameter)`` in this job, before each accumulation.

    Returns the hook's handle. The hook keeps neither object alive.
    """
    of_listener, of_parameter, job = weakref.ref(listener), weakref.ref(parameter), jobs.current()

    @breaks_graphs
    def hook(_gradient: torch.Tensor) -> None:
        found, its_parameter = of_listener(), of_parameter()
        if found is not None and its_parameter is not None:
            job.run(found.before_accumulation, its_parameter)

    return parameter.register_hook(hook)  # type: ignore[no-untyped-call]
