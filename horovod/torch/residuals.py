"""Error feedback of one optimizer: what compression has lost of each parameter's gradients on this rank.

Of parameters that the core's codecs compress the core keeps it (``native.Feedback``), of others a
TensorFeedback; both hold float32 and are used alike here. Both keep it where the gradients are, and give it
out, for checkpoints, in host memory. Names are the parameters', never a bucket's.
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

__all__ = ["Feedback", "Residuals", "TensorFeedback", "compressed_with"]

STAGES = ("sent", "result")

# A residual beyond MOST times the usual is an outlier's; gradients that stay larger become usual, by RISE in
# a step, and smaller ones by DECAY. As in the core: horovod/native/codec/residual_bound.h has the reasons.
MOST, RISE, DECAY = native.RESIDUAL_BOUND


class TensorFeedback:
    """Error feedback around a compressor that works in Python; as ``native.Feedback``, with one stage."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.uses = 0
        self._lost = torch.empty(0)
        self._usual = torch.zeros(())  # the largest residual of late, where the residuals are; 0: unknown

    @property
    def usual(self) -> Sequence[float]:
        """As a sequence, as that of ``native.Feedback``."""
        return (float(self._usual),)

    @usual.setter
    def usual(self, usual: Sequence[float]) -> None:
        self._usual = torch.tensor(float(usual[0]))

    @property
    def nbytes(self) -> int:
        return self._lost.nbytes

    def added_to(self, values: torch.Tensor) -> torch.Tensor:
        """``values`` and what was lost before, as a new tensor of float32 (float64 for float64)."""
        wanted = values.to(torch.promote_types(values.dtype, torch.float32), copy=True)
        if self._lost.numel():
            # The model may have been moved since; this waits for nothing where it has not.
            self._lost = self._lost.to(values.device)
            wanted.add_(self._lost.view(values.shape))
        return wanted

    def keep(self, wanted: torch.Tensor, got: torch.Tensor) -> None:
        """Remember what ``got`` lacks, but for what is not finite, and nothing where it is an outlier's: an
        overflow is seen once and does not stay.

        What the core drops by the element goes as a whole here: of what is left such compressors send a part
        in each step.
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
    """Make all of ``lost`` zero if it is an outlier's; returns the next ``usual``. The GPU is not asked."""
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
    """``compressor.compress(tensor)``, or of what is owed besides, of which it keeps what is lost."""
    if feedback is None:
        small, ctx = compressor.compress(tensor)
        return small, ctx
    wanted = feedback.added_to(tensor)
    small, ctx = compressor.compress(wanted.to(tensor.dtype))
    feedback.keep(wanted, compressor.decompress(small, ctx))
    return small, ctx


class Residuals:
    """The feedback of each parameter, made when its first gradient is reduced.

    Residuals are in units of the gradients they were lost of: where the loss is scaled, of scaled ones.
    ``is_kept``: whether any compressor wants error feedback. ``source``: see follow().
    """

    def __init__(self, is_kept: bool) -> None:
        self.is_kept = is_kept
        self._feedback: dict[str, Feedback] = {}
        self._waiting: dict[str, Mapping[str, Any]] = {}  # from a checkpoint, until their parameter turns up
        self.source: Any = None
        self._unit: float | None = None  # the loss scale that residuals are in units of, if that is known

    def of(self, name: str, tensor: torch.Tensor, compressor: Any) -> Feedback | None:
        """The feedback of the parameter ``name``; None if the compressor wants no error feedback."""
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
            usual = saved.get("usual", ())  # none in older checkpoints, another of other compressors
            feedback.usual = usual if len(usual) == len(feedback.usual) else feedback.usual
        except ValueError as error:
            feedback.clear()
            warnings.warn(
                f"The error feedback in the checkpoint of {name!r} does not fit: {error}. It begins anew.",
                stacklevel=2,
            )

    # ---- loss scale ----

    def follow(self, source: Any) -> None:
        """Gradients are scaled by ``source``: a number, what has get_scale(), or None if nobody says."""
        if source is not None and not hasattr(source, "get_scale"):
            _checked_scale(source)
        self.source = source

    def rescale(self) -> None:
        """Bring residuals into the units of the gradients that come now."""
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
        """Memory in use, here and in the core."""
        return sum(feedback.nbytes for feedback in self._feedback.values())

    def __bool__(self) -> bool:
        return bool(self._feedback or self._waiting)

    def state_dict(self) -> dict[str, Any]:
        """``loss_scale`` (units; None: unknown), and of each parameter its stages as (first element, values).

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
        """Go on from what ``state_dict()`` returned, or, with None, from nothing.

        Returns the parameters that are not among ``names``, if these are given; theirs is forgotten.
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
