"""Whether what a checkpoint holds has the form that `checkpoint.Checkpoint` writes.

A file may be damaged, or of somebody else; what is wrong is said when it is loaded, not steps later.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import torch

from horovod.torch.residuals import STAGES

__all__ = ["FORM", "check_form"]

FORM = 1  # raised when what is written cannot be read as before; older ones are read on


def check_form(saved: Any) -> None:
    """ValueError, which says what is wrong, unless it is of the form of ``Checkpoint.state_dict()``."""
    if not isinstance(saved, Mapping) or type(saved.get("size")) is not int:
        raise ValueError("it does not say of how many ranks it is")
    form = saved.get("form", 1)  # which 0.29.0 does not say
    if type(form) is not int or not 1 <= form <= FORM:
        raise ValueError(f"it is of form {form!r:.80}, and this release reads up to {FORM}")
    residuals, compressors = saved.get("residuals"), saved.get("compressors")
    if not isinstance(residuals, Mapping) or not all(type(rank) is int for rank in residuals):
        raise ValueError("it has no error feedback by rank")
    for state in residuals.values():
        _check_residuals(state)
    _check_compressors(compressors)


def _check_compressors(compressors: Any) -> None:
    """As ``Memory.state_dict()`` has them."""
    if not isinstance(compressors, Mapping) or not all(
        isinstance(state, Mapping) for state in compressors.values()
    ):
        raise ValueError("it does not say what compressors remember")
    if not all(isinstance(key, str) for state in compressors.values() for key in (*compressors, *state)):
        raise ValueError("what its compressors remember has no names")
    for name, state in compressors.items():
        for value in state.values():
            if isinstance(value, torch.Tensor) and (wrong := _wrong_with(value)):
                raise ValueError(f"what the compressor of {name!r:.80} remembers is {wrong}")


def _check_residuals(state: Any) -> None:
    """Of one rank, as ``Residuals.state_dict()`` has them."""
    if not isinstance(state, Mapping) or not isinstance(state.get("parameters"), Mapping):
        raise ValueError("it has no error feedback by parameter")
    scale = state.get("loss_scale", "missing")
    if scale is not None and not (_is_size(scale) and scale > 0):
        raise ValueError(f"its loss scale is {scale!r:.80}")
    for name, saved in state["parameters"].items():
        if not isinstance(name, str) or not isinstance(saved, Mapping):
            raise ValueError(f"it has no error feedback of {name!r:.80}")
        _check_parameter(name, saved)


def _wrong_with(values: torch.Tensor) -> str:
    """Why nobody can go on from these numbers; "" where one can, whatever their strides are."""
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
                    raise ValueError(f"the error feedback of {name!r:.80} is {wrong}")
                if values.dim() != 1:
                    raise ValueError(f"the error feedback of {name!r:.80} has {values.dim()} dimensions")
            case _:
                raise ValueError(f"the error feedback of {name!r:.80} has no stage {stage!r}")
    if not all(type(count) is int and 0 <= count < 2**63 for count in counts):
        raise ValueError(f"the error feedback of {name!r:.80} has {counts!r:.200} for its counts")
    usual = saved.get("usual", ())
    if not isinstance(usual, tuple | list) or not all(_is_size(size) for size in usual):
        raise ValueError(f"the error feedback of {name!r:.80} has {usual!r:.200} for its usual size")


def _is_size(value: Any) -> bool:
    """Whether it is a number of 0 or more that is finite."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and 0 <= value <= sys.float_info.max
