"""Error feedback of one optimizer: what compression lost of each parameter's gradients on this rank.

The core keeps it (``native.Feedback``) for parameters that its codecs compress, and a TensorFeedback for
others. Both have one interface, and hold float32 on the gradients' device. For checkpoints they return it in
host memory. Names are the parameters', never a bucket's.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch
from torch.utils.dlpack import from_dlpack

from horovod import _native as native
from horovod.torch import devices, errors
from horovod.torch.compression import codec_for

STAGES = ("sent", "result")

# A residual beyond MOST times the usual size is an outlier. The usual size grows by at most RISE per step,
# and shrinks by at most DECAY. horovod/native/codec/residual_bound.h gives the reasons.
MOST, RISE, DECAY = native.RESIDUAL_BOUND


class TensorFeedback:
    """Error feedback around a compressor written in Python. Like ``native.Feedback``, with one stage."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.uses = 0
        self._lost = torch.empty(0)
        self._usual = torch.zeros(())  # recently largest residual, on the residuals' device; 0: unknown

    @property
    def usual(self) -> Sequence[float]:
        """A sequence, as in ``native.Feedback``."""
        return (float(self._usual),)

    @usual.setter
    def usual(self, usual: Sequence[float]) -> None:
        self._usual = torch.tensor(float(usual[0]))

    @property
    def nbytes(self) -> int:
        return self._lost.nbytes

    def added_to(self, values: torch.Tensor) -> torch.Tensor:
        """Return ``values`` plus the residual, as a new tensor of float32 (float64 for float64)."""
        wanted = values.to(torch.promote_types(values.dtype, torch.float32), copy=True)
        if self._lost.numel():
            # The model may have moved to another device. Otherwise this is free.
            self._lost = self._lost.to(values.device)
            wanted.add_(self._lost.view(values.shape))
        return wanted

    def keep(self, wanted: torch.Tensor, got: torch.Tensor) -> None:
        """Remember ``wanted - got``, with zeros for values that are not finite.

        An outlier is not remembered, so that an overflow has no lasting effect. The core drops single
        elements instead, but compressors in Python send only a part of the residual in each step.
        """
        lost = (wanted - got.to(wanted.dtype)).to(torch.float32).reshape(-1)
        self._lost = torch.nan_to_num_(lost, nan=0.0, posinf=0.0, neginf=0.0)
        if self.count:
            self._usual = _dropping_outliers(lost, self._usual.to(lost.device))

    def read(self, stage: str) -> tuple[int, torch.Tensor]:
        return 0, self._lost.to("cpu", copy=True) if stage == "sent" else torch.empty(0)

    def restore(self, stage: str, begin: int, values: torch.Tensor) -> None:
        if stage == "sent" and values.numel() in (0, self.count):
            self._lost = values.clone()
        elif values.numel():
            raise errors.other_compressor(count=values.numel(), stage=stage)

    def scale(self, factor: float) -> None:
        self._lost.mul_(factor)
        self._usual.mul_(abs(factor))

    def clear(self) -> None:
        self._lost = torch.empty(0)
        self._usual = torch.zeros(())


def _dropping_outliers(lost: torch.Tensor, usual: torch.Tensor) -> torch.Tensor:
    """Zero ``lost`` if it is an outlier, and return the next ``usual``. The host does not wait for a GPU."""
    largest = torch.linalg.vector_norm(lost, math.inf)
    if devices.device_of(lost) != devices.CPU:
        known = torch.where(usual > 0, usual, largest)
        lost.mul_(largest <= MOST * known)
        return torch.where(largest > 0, largest.clamp(DECAY * known, RISE * known), usual)
    now, before = float(largest), float(usual)
    if not now or not before:
        return largest if now else usual
    if now > MOST * before:
        lost.zero_()
    return usual.new_tensor(min(max(now, DECAY * before), RISE * before))


Feedback = native.Feedback | TensorFeedback


def compressed_with(
    compressor: Any, tensor: torch.Tensor, feedback: TensorFeedback | None
) -> tuple[torch.Tensor, Any]:
    """Return ``compressor.compress(tensor)``; with feedback, add the residual before and keep the next."""
    if feedback is None:
        small, ctx = compressor.compress(tensor)
        return small, ctx
    wanted = feedback.added_to(tensor)
    small, ctx = compressor.compress(wanted.to(tensor.dtype))
    feedback.keep(wanted, compressor.decompress(small, ctx))
    return small, ctx


class Residuals:
    """The feedback of each parameter, made when its first gradient is reduced.

    Residuals have the unit of their gradients: if the loss is scaled, they are scaled too. ``is_kept`` tells
    whether any compressor uses error feedback.
    """

    def __init__(self, is_kept: bool) -> None:
        self.is_kept = is_kept
        self._feedback: dict[str, Feedback] = {}
        # from a checkpoint, until the parameter's first gradient
        self._waiting: dict[str, Mapping[str, Any]] = {}
        self.source: Any = None  # see follow()
        self._unit: float | None = None  # the loss scale of the residuals, if it is known

    def of(self, name: str, tensor: torch.Tensor, compressor: Any) -> Feedback | None:
        """Return the feedback of the parameter ``name``; None if the compressor uses no error feedback."""
        if not getattr(compressor, "error_feedback", False) or not tensor.is_floating_point():
            return None
        feedback = self._feedback.get(name)
        if feedback is None or feedback.count != tensor.numel():
            has_codec = codec_for(compressor, tensor) is not None
            made = native.Feedback(tensor.numel()) if has_codec else TensorFeedback(tensor.numel())
            feedback = self._feedback[name] = made
            self._restore(name, feedback)
        return feedback

    def _restore(self, name: str, feedback: Feedback) -> None:
        saved = self._waiting.pop(name, None)
        if saved is None:
            return
        try:
            if saved["count"] != feedback.count:
                raise errors.other_count(before=saved["count"], now=feedback.count)
            for stage in STAGES:
                begin, values = saved[stage]
                if not bool(torch.isfinite(values).all()):
                    raise errors.not_finite()
                feedback.restore(stage, begin, values.to("cpu", torch.float32).contiguous())
            feedback.uses = saved["uses"]
            # absent in older checkpoints, of other length from other compressors
            usual = saved.get("usual", ())
            feedback.usual = usual if len(usual) == len(feedback.usual) else feedback.usual
        except ValueError as error:
            feedback.clear()
            warnings.warn(
                f"The error feedback in the checkpoint of {name!r} does not fit: {error}. It begins anew.",
                stacklevel=2,
            )

    # ---- loss scale ----

    def follow(self, source: Any) -> None:
        """Set the source of the loss scale: a number, an object with get_scale(), or None if unknown."""
        if source is not None and not hasattr(source, "get_scale"):
            _checked_scale(source)
        self.source = source

    def rescale(self) -> None:
        """Convert residuals to the loss scale of the next gradients."""
        if self.source is None:
            return
        has_changes = hasattr(self.source, "get_scale")
        scale = _checked_scale(self.source.get_scale() if has_changes else self.source)
        if self._unit is not None and scale != self._unit:
            factor = scale / self._unit
            for feedback in self._feedback.values():
                feedback.scale(factor)
            self._waiting = {name: _scaled(saved, factor) for name, saved in self._waiting.items()}
        self._unit = scale

    # ---- checkpoints ----

    @property
    def nbytes(self) -> int:
        """Return the bytes in use, here and in the core."""
        return sum(feedback.nbytes for feedback in self._feedback.values())

    def __bool__(self) -> bool:
        return bool(self._feedback or self._waiting)

    def state_dict(self) -> dict[str, Any]:
        """Return ``loss_scale`` (None: unknown), and by parameter its stages as (first element, values).

        Values are copies, 1-D float32.
        """
        parameters = {name: dict(saved) for name, saved in self._waiting.items()}
        for name, feedback in self._feedback.items():
            stages = {stage: feedback.read(stage) for stage in STAGES}
            parameters[name] = {
                "count": feedback.count,
                "uses": feedback.uses,
                "usual": list(feedback.usual),
                **{stage: (begin, from_dlpack(values)) for stage, (begin, values) in stages.items()},
            }
        return {"loss_scale": self._unit, "parameters": parameters}

    def load_state_dict(
        self, state: Mapping[str, Any] | None, names: Collection[str] | None = None
    ) -> list[str]:
        """Continue from what ``state_dict()`` returned; from nothing with None.

        Returns the parameters that are not in ``names``, if given. Their residuals are dropped.
        """
        saved = dict(state["parameters"]) if state and self.is_kept else {}
        strangers = [name for name in saved if names is not None and name not in names]
        self._feedback.clear()
        self._waiting = {name: own for name, own in saved.items() if name not in strangers}
        self._unit = state["loss_scale"] if state else None
        return strangers


def _checked_scale(scale: Any) -> float:
    number = float(scale)
    if not (math.isfinite(number) and number > 0):
        raise errors.wrong_loss_scale(value=repr(scale))
    return number


def _scaled(saved: Mapping[str, Any], factor: float) -> dict[str, Any]:
    scaled = {stage: (saved[stage][0], saved[stage][1] * factor) for stage in STAGES}
    return {**saved, **scaled, "usual": [usual * factor for usual in saved.get("usual", ())]}
