"""Error feedback from a checkpoint: what is damaged is named when it is loaded, and what fits is kept."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch

from horovod.torch.checkpoint import Checkpoint
from horovod.torch.compression.memory import Memory
from horovod.torch.compression.registry import Compression
from horovod.torch.residuals import Residuals


class Alone:
    """The peers of a world of one."""

    owner = "optimizer"

    def ranks(self) -> list[int]:
        return [0]

    def position(self) -> int:
        return 0

    def size(self) -> int:
        return 1

    def gathered(self, own: Any, at: int) -> list[Any]:
        return [own]


GRADIENT = torch.ones(4, 8)


def kept() -> dict[str, Any]:
    """What a checkpoint has of a parameter that top-k has compressed."""
    residuals = Residuals(is_kept=True)
    feedback = residuals.of("w", GRADIENT, Compression.topk)
    assert feedback is not None
    feedback.keep(GRADIENT, GRADIENT * 0.5)
    return Checkpoint(residuals, Memory(), Alone()).state_dict()


def loaded(saved: dict[str, Any], compressor: Any = Compression.topk) -> Any:
    """The feedback of that parameter when training goes on."""
    residuals = Residuals(is_kept=True)
    Checkpoint(residuals, Memory(), Alone()).load_state_dict(saved, ["w"])
    return residuals.of("w", GRADIENT, compressor)


def test_another_compressor_goes_on_with_what_was_lost() -> None:
    """The core's feedback has other bounds than that of compressors that work in Python."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        feedback = loaded(kept(), Compression.bit8(error_feedback=True))
    begin, values = feedback.read("sent")
    assert begin == 0 and torch.equal(torch.from_dlpack(values), torch.full((32,), 0.5))


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("count", "32", "for its counts"),
        ("uses", -1, "for its counts"),
        ("sent", None, "no stage 'sent'"),
        ("result", (0, [1.0]), "no stage 'result'"),
        ("usual", None, "for its usual size"),
        ("usual", [float("nan")], "for its usual size"),
    ],
)
def test_what_is_damaged_is_named_when_it_is_loaded(key: str, value: Any, said: str) -> None:
    saved = kept()
    saved["residuals"][0]["parameters"]["w"][key] = value
    with pytest.raises(ValueError, match=f"entry \"horovod\" is damaged.*'w' has.*{said}"):
        loaded(saved)


def test_residuals_that_are_not_finite_begin_anew() -> None:
    saved = kept()
    saved["residuals"][0]["parameters"]["w"]["sent"][1][3] = float("nan")
    with pytest.warns(UserWarning, match="'w' does not fit: it is not finite. It begins anew"):
        feedback = loaded(saved)
    assert feedback.read("sent")[1].numel() == 0
