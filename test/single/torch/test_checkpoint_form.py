"""Error feedback from a checkpoint: loading names the damaged entries and keeps the valid ones."""

from __future__ import annotations

import re
import warnings
from typing import Any

import pytest
import torch
from checkpoint_peers import Peers
from refusals import refused

from horovod.torch import errors
from horovod.torch.checkpoint import Checkpoint
from horovod.torch.compression.memory import Memory
from horovod.torch.compression.registry import Compression
from horovod.torch.residuals import Residuals

GRADIENT = torch.ones(4, 8)


def kept() -> dict[str, Any]:
    """A checkpoint's entry of a parameter compressed with top-k."""
    residuals = Residuals(is_kept=True)
    feedback = residuals.of("w", GRADIENT, Compression.topk)
    assert feedback is not None
    feedback.keep(GRADIENT, GRADIENT * 0.5)
    return Checkpoint(residuals, Memory(), Peers()).state_dict()


def loaded(saved: dict[str, Any], compressor: Any = Compression.topk) -> Any:
    """The feedback of that parameter when training continues."""
    residuals = Residuals(is_kept=True)
    Checkpoint(residuals, Memory(), Peers()).load_state_dict(saved, ["w"])
    return residuals.of("w", GRADIENT, compressor)


def test_another_compressor_goes_on_with_what_was_lost() -> None:
    """The core's feedback has other bounds than the feedback of compressors in Python."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        feedback = loaded(kept(), Compression.bit8(error_feedback=True))
    begin, values = feedback.read("sent")
    assert begin == 0 and torch.equal(torch.from_dlpack(values), torch.full((32,), 0.5))


@pytest.mark.parametrize(
    ("key", "value", "because", "facts"),
    [
        *[(key, value, "wrong_counts", {}) for key, value in (("count", "32"), ("uses", -1))],
        *[("usual", value, "wrong_usual", {}) for value in (None, [float("nan")])],
        *[
            (stage, value, "no_stage", {"stage": stage})
            for stage, value in (("sent", None), ("result", (0, [1.0])))
        ],
        *[
            ("sent", (0, values), "wrong_feedback", {})
            for values in (
                torch.ones(32).to_sparse(),
                torch.ones(32, device="meta"),
                torch.ones(32, dtype=torch.complex64),
            )
        ],
        ("sent", (0, torch.ones(8, 4).t()), "wrong_dimensions", {"dimensions": 2}),
    ],
)
def test_what_is_damaged_is_named_when_it_is_loaded(
    key: str, value: Any, because: str, facts: dict[str, Any]
) -> None:
    saved = kept()
    saved["residuals"][0]["parameters"]["w"][key] = value
    with refused(errors.damaged_checkpoint, owner="optimizer", name="w", because=because, **facts):
        loaded(saved)


@pytest.mark.parametrize(
    ("wrong", "because"),
    [
        ({"size": "1"}, "no_size"),
        ({"residuals": None}, "no_feedback_by_rank"),
        ({"residuals": {0: {}}}, "no_feedback_by_parameter"),
        ({"residuals": {0: {"parameters": {}, "loss_scale": 0}}}, "wrong_saved_scale"),
        ({"residuals": {0: {"parameters": {"w": 3}, "loss_scale": None}}}, "no_feedback_of"),
        ({"compressors": {"w": 3}}, "no_compressors"),
        ({"compressors": {3: {}}}, "no_names"),
    ],
)
def test_an_entry_of_another_form_is_damaged(wrong: dict[str, Any], because: str) -> None:
    with refused(errors.damaged_checkpoint, because=because):
        loaded({**kept(), **wrong})


@pytest.mark.parametrize("compressor", [Compression.topk, Compression.bit8(error_feedback=True)])
def test_residuals_with_any_strides_are_taken(compressor: Any) -> None:
    for values in (torch.arange(64.0)[::2], torch.full((1,), 0.5).expand(32), torch.arange(32)):
        saved = kept()
        saved["residuals"][0]["parameters"]["w"]["sent"] = (0, values)
        restored = torch.from_dlpack(loaded(saved, compressor).read("sent")[1])
        assert torch.equal(restored, values.float())


Q = torch.ones(8, 1)


def remembered(q: Any) -> dict[str, Any]:
    return {"form": 1, "rank": 0, "size": 1, "residuals": {}, "compressors": {"w": {"q": q}}}


def memory_of(q: Any, compressor: Any) -> list[str]:
    """Warnings when training continues with this compressor after PowerSGD had stored ``q``."""
    memory = Memory()
    Checkpoint(Residuals(is_kept=True), memory, Peers()).load_state_dict(remembered(q), ["w"])
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for _ in range(2):
            memory.of("w", compressor, GRADIENT)
    return [str(each.message) for each in told]


@pytest.mark.parametrize(
    ("q", "why"),
    [
        (torch.ones(3), r"\[3\].*\[8, 1\]"),
        (Q.expand(8, 2), r"\[8, 2\]"),
        (Q * float("nan"), "not finite"),
        ([1.0], "list"),
    ],
)
def test_powersgds_memory_that_does_not_fit_begins_anew_with_a_warning(q: Any, why: str) -> None:
    (said,) = memory_of(q, Compression.powersgd(rank=1))
    assert re.search(f"'w' .*{why}", said)


def test_powersgds_memory_that_fits_or_is_not_used_is_no_warning() -> None:
    cold, bulky = Compression.powersgd(rank=1, warm_start=False), Compression.powersgd(rank=8)
    assert memory_of(Q, Compression.powersgd(rank=1)) == []
    for compressor in (cold, bulky, Compression.topk):
        assert memory_of(torch.ones(3), compressor) == []


@pytest.mark.parametrize("q", [Q.to_sparse(), Q.to("meta")])
def test_memory_without_plain_numbers_is_named_when_it_is_loaded(q: torch.Tensor) -> None:
    with refused(errors.damaged_checkpoint, because="wrong_memory", name="w"):
        memory_of(q, Compression.powersgd(rank=1))


def test_residuals_that_are_not_finite_begin_anew() -> None:
    saved = kept()
    saved["residuals"][0]["parameters"]["w"]["sent"][1][3] = float("nan")
    with pytest.warns(UserWarning, match="'w' .* not finite"):
        feedback = loaded(saved)
    assert feedback.read("sent")[1].numel() == 0
