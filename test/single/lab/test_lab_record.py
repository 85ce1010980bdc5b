"""The recorder of a user's script, in a world of one: its output, and the calls that it tolerates."""

# private: _SENT, _WAITED: the counters that a record reads, without a job that counts

from __future__ import annotations

import json
import warnings
from pathlib import Path

import pytest
import torch

from horovod.lab import record
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
    """Each rank has its own statistics of batch normalisation, and extra state need not be tensors."""

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


class Counting:
    """Replaces hvd: a world whose counters rise by these amounts at each read."""

    def __init__(self, rank: int = 0, **by: int) -> None:
        self._rank, self._by, self._looks = rank, by, 0

    def is_initialized(self) -> bool:
        return True

    def rank(self) -> int:
        return self._rank

    def size(self) -> int:
        return 1

    def metrics(self) -> dict[str, int]:
        self._looks += 1
        return {name: by * self._looks for name, by in self._by.items()} | {"others": 7}


def test_what_a_step_waited_and_sent_is_the_difference_of_counters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Waits and bytes between steps, as in a test of the model, belong to no step."""
    counters = {record._WAITED: 250_000, record._SENT: 100}
    monkeypatch.setattr(record, "basics", Counting(**counters))
    monkeypatch.setenv("HOROVOD_COMPRESSION", " bit8 ")
    found = log_of(tmp_path / "log", torch.nn.Linear(2, 1), steps=3)
    assert [one["wait_seconds"] for one in found[:3]] == [0.25] * 3
    assert found[-1]["bytes_sent"] == 300
    assert all((one["compression"], one["ranks"], one["dataset"]) == ("bit8", 1, "d") for one in found)


def test_other_ranks_write_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "basics", Counting(1, **{record._WAITED: 1, record._SENT: 1}))
    recorder = Recorder(str(tmp_path / "log"), dataset="d", seed=1, steps=1)
    recorder.step(1.0)
    recorder.finish(torch.nn.Linear(1, 1))
    assert not (tmp_path / "log").exists()


def test_epochs_are_counted_and_their_steps_begin_anew(tmp_path: Path) -> None:
    recorder = Recorder(str(tmp_path / "log"), dataset="d", seed=4, steps=2)
    for epoch in range(2):
        for step in range(2):
            recorder.step(torch.tensor(float(step)))
        recorder.epoch(epoch, 0.5 + epoch / 10)
    recorder.finish(torch.nn.Linear(1, 1))
    found = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    shape = [(one["event"], one["epoch"], one.get("step")) for one in found]
    assert shape == [
        *(("step", 1, 1), ("step", 1, 2), ("epoch", 1, None)),
        *(("step", 2, 1), ("step", 2, 2), ("epoch", 2, None), ("final", 2, None)),
    ]
    assert [one["loss"] for one in found] == [0, 1, 0, 0, 1, 1, 1]
    assert (found[-1]["accuracy"], found[0]["seed"], found[0]["steps"]) == (0.6, 4, 2)
    assert all(one["seconds"] > 0 for one in found if one["event"] == "step")
