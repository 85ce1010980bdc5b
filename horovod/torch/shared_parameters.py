"""Parameters that several optimizers hold under different names: one optimizer reduces their gradients.

The optimizer that was wrapped first is the owner. The others use the gradients that it has reduced, and have
it reduce gradients that no backward pass has. With op=Adasum each optimizer reduces its own steps, and
nothing is shared.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import TYPE_CHECKING

import torch

from horovod.torch import errors
from horovod.torch.compression import short_name
from horovod.torch.reduce_ops import OP_NAMES, Adasum
from horovod.torch.step_gradients import SeenGradient

if TYPE_CHECKING:
    from horovod.torch.gradient_listener import GradientListener


def has_owner(optimizer: GradientListener, parameter: torch.Tensor) -> bool:
    """Return whether ``leave_to_owner`` has found an older optimizer that still reduces the parameter."""
    reference = optimizer._shared.get(parameter)
    owner = reference() if reference is not None else None
    return owner is not None and parameter in owner._hooks


def leave_to_owner(
    optimizer: GradientListener, parameter: torch.Tensor, others: Iterable[GradientListener]
) -> bool:
    """Return whether an older optimizer reduces the parameter. ValueError if its options differ."""
    for owner in others:
        if parameter not in owner._hooks or owner.op == optimizer.op == Adasum:
            continue
        _check_alike(optimizer, owner, parameter)
        optimizer._shared[parameter] = weakref.ref(owner)
        owner._lent_to_others.add(parameter)
        return True
    optimizer._shared.pop(parameter, None)
    return False


def _check_alike(optimizer: GradientListener, owner: GradientListener, parameter: torch.Tensor) -> None:
    own, others = _terms(optimizer, parameter), _terms(owner, parameter)
    unlike = [term for term in own if own[term] != others[term]]
    differing = [f"{term}={own[term]} here and {others[term]} there" for term in unlike]
    if differing:
        raise errors.shared_unlike(
            tensor=optimizer._parameter_names[parameter],
            before=owner._parameter_names[parameter],
            differing=differing,
        )


def _terms(optimizer: GradientListener, parameter: torch.Tensor) -> dict[str, object]:
    name = optimizer._parameter_names[parameter]
    return {
        "op": OP_NAMES[optimizer.op],
        "compression": short_name(optimizer._reducer.compressor_of(name, parameter)),
        "process_set": optimizer.process_set.process_set_id,
        "backward_passes_per_step": optimizer.backward_passes_per_step,
        "gradient_predivide_factor": optimizer.gradient_predivide_factor,
        "sparse_as_dense": optimizer.sparse_as_dense,
    }


def reduce_shared(optimizer: GradientListener) -> None:
    """Before a step, have owners reduce the shared gradients that are not reduced yet."""
    by_owner: dict[int, tuple[GradientListener, set[torch.Tensor]]] = {}
    for parameter, reference in optimizer._shared.items():
        owner = reference()
        if owner is not None:
            by_owner.setdefault(id(owner), (owner, set()))[1].add(parameter)
    for owner, parameters in by_owner.values():
        owner._reduce_for_others(parameters)


def is_lent(owner: GradientListener, parameter: torch.Tensor) -> bool:
    """Return whether its gradient was reduced for another optimizer's earlier step, and is still the same."""
    reduced = owner._lent.get(parameter)
    return reduced is not None and reduced.is_of(parameter)


def lend(owner: GradientListener) -> None:
    """Note at the end of a step that optimizers which share the parameters need not reduce them again."""
    for parameter in owner._lent_to_others:
        if parameter in owner._hooks:
            owner._lent[parameter] = SeenGradient(parameter)


def forget(optimizer: GradientListener) -> None:
    """Forget shared gradients, which are about to be zeroed."""
    optimizer._lent.clear()
    for parameter, reference in optimizer._shared.items():
        owner = reference()
        if owner is not None:
            owner._lent.pop(parameter, None)
            owner._forget_reduced(lambda other, parameter=parameter: other is parameter)  # type: ignore[misc]
