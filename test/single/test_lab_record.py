"""The recorder of a user's script, in a world of one: what it writes, and what it does not mind."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import pytest
import torch

from horovod.lab.record import Recorder


def log_of(path: Path, model: torch.nn.Module, steps: int = 2) -> list[dict[str, object]]:
    recorder = Recorder(str(path), dataset="d", seed=1, steps=steps)
    for _ in range(steps):
        recorder.step(model(torch.ones(3, 2)).sum())
    recorder.epoch(0.5, torch.tensor(0.75))
    recorder.finish(model)
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_what_it_writes(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a loss that wants its gradient is the usual one
        found = log_of(tmp_path / "log", torch.nn.Linear(2, 1))
    assert [record["event"] for record in found] == ["step", "step", "epoch", "final"]
    assert [record.get("step") for record in found[:2]] == [1, 2]
    assert {record["epoch"] for record in found} == {1}
    assert (found[2]["loss"], found[2]["accuracy"]) == (0.5, 0.75)
    assert found[3]["identical"] is True and found[3]["bytes_sent"] == 0


def test_the_checksum_is_of_the_parameters(tmp_path: Path) -> None:
    """Statistics of batch normalisation are each rank's own, and extra state need not be tensors."""

    class Counting(torch.nn.Linear):
        def get_extra_state(self) -> dict[str, int]:
            return {"seen": 3}

        def set_extra_state(self, state: object) -> None:
            raise NotImplementedError

    model = torch.nn.Sequential(Counting(2, 2), torch.nn.BatchNorm1d(2))
    first = log_of(tmp_path / "first", model)[-1]["checksum"]
    assert log_of(tmp_path / "second", model)[-1]["checksum"] == first, "only running statistics have changed"
    with torch.no_grad():
        model[1].weight[0] += 1
    assert log_of(tmp_path / "third", model)[-1]["checksum"] != first


def test_without_a_file_it_does_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    recorder = Recorder(None, dataset="d", seed=1, steps=1)
    recorder.step(1.0)
    recorder.epoch(1.0, 0.5)
    recorder.finish(torch.nn.Linear(1, 1))
    assert not list(tmp_path.iterdir())
