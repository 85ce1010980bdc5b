"""Checks that a loaded checkpoint has the form that `checkpoint.Checkpoint` writes.

So a damaged or foreign file fails at loading, not steps later.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import torch

from horovod.torch import errors
from horovod.torch.residuals import STAGES

__all__ = ["FORM", "check_form"]

FORM = 1  # raised when older versions could not read the form; older forms stay readable


def check_form(saved: Any) -> None:
    """Raise ValueError, with the reason, unless ``saved`` has the form of ``Checkpoint.state_dict()``."""
    if not isinstance(saved, Mapping) or type(saved.get("size")) is not int:
        raise errors.no_size()
    form = saved.get("form", 1)  # 0.29.0 writes none
    if type(form) is not int or not 1 <= form <= FORM:
        raise errors.unknown_form(form=f"{form!r:.80}", newest=FORM)
    residuals, compressors = saved.get("residuals"), saved.get("compressors")
    if not isinstance(residuals, Mapping) or not all(type(rank) is int for rank in residuals):
        raise errors.no_feedback_by_rank()
    for state in residuals.values():
        _check_residuals(state)
    _check_compressors(compressors)


def _check_compressors(compressors: Any) -> None:
    """Check the form of ``Memory.state_dict()``."""
    if not isinstance(compressors, Mapping) or not all(
        isinstance(state, Mapping) for state in compressors.values()
    ):
        raise errors.no_compressors()
    if not all(isinstance(key, str) for state in compressors.values() for key in (*compressors, *state)):
        raise errors.no_names()
    for name, state in compressors.items():
        for value in state.values():
            if isinstance(value, torch.Tensor) and (wrong := _wrong_with(value)):
                raise errors.wrong_memory(name=name, wrong=wrong)


def _check_residuals(state: Any) -> None:
    """Check the form of one rank's ``Residuals.state_dict()``."""
    if not isinstance(state, Mapping) or not isinstance(state.get("parameters"), Mapping):
        raise errors.no_feedback_by_parameter()
    scale = state.get("loss_scale", "missing")
    if scale is not None and not (_is_size(scale) and scale > 0):
        raise errors.wrong_saved_scale(got=f"{scale!r:.80}")
    for name, saved in state["parameters"].items():
        if not isinstance(name, str) or not isinstance(saved, Mapping):
            raise errors.no_feedback_of(name=name)
        _check_parameter(name, saved)


def _wrong_with(values: torch.Tensor) -> str:
    """Return why these numbers cannot be used; "" if they can, with any strides."""
    if values.device.type == "meta":
        return "without data (on the device meta)"
    if values.layout != torch.strided or values.is_quantized or values.is_complex():
        return f"of layout {values.layout} and dtype {values.dtype}, and no plain numbers"
    return ""


def _check_parameter(name: str, saved: Mapping[str, Any]) -> None:
    counts = [saved.get("count"), saved.get("uses")]
    for stage in STAGES:
        match saved.get(stage):
            case [begin, torch.Tensor() as values]:
                counts.append(begin)
                if wrong := _wrong_with(values):
                    raise errors.wrong_feedback(name=name, wrong=wrong)
                if values.dim() != 1:
                    raise errors.wrong_dimensions(name=name, dimensions=values.dim())
            case _:
                raise errors.no_stage(name=name, stage=stage)
    if not all(type(count) is int and 0 <= count < 2**63 for count in counts):
        raise errors.wrong_counts(name=name, got=f"{counts!r:.200}")
    usual = saved.get("usual", ())
    if not isinstance(usual, tuple | list) or not all(_is_size(size) for size in usual):
        raise errors.wrong_usual(name=name, got=f"{usual!r:.200}")


def _is_size(value: Any) -> bool:
    """Return whether ``value`` is a finite number of at least 0."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and 0 <= value <= sys.float_info.max
