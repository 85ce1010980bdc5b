"""Settings that change under native DDP, by tuning or gathered buckets: parameters stay equal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from ddp_training import all_equal, flat
from torch.nn.parallel import DistributedDataParallel

from horovod.torch import ddp

needs_others = pytest.mark.skipif(
    "int(__import__('os').environ['WORLD_SIZE']) < 2", reason="needs other ranks"
)
pytestmark = needs_others


def training(bucket_mb: float = 0.01, **options: Any) -> tuple[DistributedDataParallel, ddp.CompressionState]:
    torch.manual_seed(3)
    layers = [torch.nn.Linear(48, 48) for _ in range(6)]
    model = DistributedDataParallel(torch.nn.Sequential(*layers), bucket_cap_mb=bucket_mb)
    return model, ddp.compress(model, "bit8", **options)


def steps(model: DistributedDataParallel, count: int) -> torch.Tensor:
    """Train the steps; return all parameters at the end."""
    data = torch.Generator().manual_seed(dist.get_rank())
    for _ in range(count):
        model.zero_grad()
        x = torch.randn(4, 48, generator=data)
        (model(x) - x).square().mean().backward()
        with torch.no_grad():
            for parameter in model.parameters():
                assert parameter.grad is not None
                parameter -= 0.01 * parameter.grad
    return flat(model)


@pytest.fixture
def tuned(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, text in {"": "1", "_REUSE": "off", "_MAX_STEPS": "80", "_STEPS_PER_SAMPLE": "2"}.items():
        monkeypatch.setenv(f"HOROVOD_AUTOTUNE{name}", text)


def test_ranks_stay_alike_while_it_tunes(tuned: None) -> None:
    model, state = training(may_turn_off=True)
    assert state.tuning() == {"phase": "warming up", "settings": {}}
    parameters = steps(model, 100)
    found = state.tuning()
    assert all_equal(parameters) and found["phase"] == "watching"
    assert found["settings"].keys() >= {"HOROVOD_DDP_BUCKET_MB", "HOROVOD_COMPRESSION"}
    assert state.choice is None, "the tuner decides, not the trial of may_turn_off"
    state.close()


def test_small_buckets_are_gathered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The parameters are the same with fewer announcements, and nothing is pending at the end of a step."""
    found = {}
    for mb in ("0", "0.02", "64"):
        monkeypatch.setenv("HOROVOD_DDP_BUCKET_MB", mb)
        model, state = training()
        steps(model, 4)
        before = state.metrics()["buckets"]
        parameters = steps(model, 3)
        found[mb] = (parameters, state.metrics()["buckets"] - before)
        assert all_equal(parameters)
        state.close()
    assert all(torch.equal(parameters, found["0"][0]) for parameters, _ in found.values())
    assert found["0"][1] > found["0.02"][1] > found["64"][1] == 6, (
        "of matrices and of vectors, in three steps"
    )


def test_a_pass_that_fails_leaves_nothing_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch refuses to continue with such a model; closing it does not wait forever."""
    monkeypatch.setenv("HOROVOD_DDP_BUCKET_MB", "64")
    model, state = training()
    steps(model, 3)

    def fail(gradient: torch.Tensor) -> torch.Tensor:
        raise ArithmeticError("on all ranks")

    model.module[1].weight.register_hook(fail)
    with pytest.raises(ArithmeticError):
        steps(model, 1)
    state.close()
    model, state = training()
    assert all_equal(steps(model, 3))
    state.close()
