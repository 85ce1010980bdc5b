"""Training in restarted processes: workers are threads, each a host with a folder of commits."""

# private: _commits: numbers of commits are sent to ranks only

from __future__ import annotations

import itertools
import json
import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from elastic_threads import together
from refusals import refused

import horovod.torch as hvd
from horovod import _native as native
from horovod.common import basics as basics_of_hvd
from horovod.common import host_memory, jobs, restarting
from horovod.common.agent_messages import VARIABLE as AGENT
from horovod.torch import errors
from horovod.torch.elastic import state as states


@pytest.fixture
def restarts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """torchrun without its processes."""

    def folder() -> str:
        path = tmp_path / threading.current_thread().name
        path.mkdir(mode=0o700, exist_ok=True)
        return str(path)

    monkeypatch.setattr(restarting, "is_on", lambda *_: True)
    monkeypatch.setattr(restarting, "folder", folder)
    monkeypatch.setattr(restarting, "place_on_host", lambda: (0, 1))
    monkeypatch.setattr(states, "_started", itertools.repeat(0))
    monkeypatch.setattr(states, "_forget_at_exit", lambda *_: None)
    monkeypatch.delenv("HOROVOD_ELASTIC_RESTART", raising=False)


class Script:
    """A worker's training: some steps, each with a commit; the learning rate depends on the world's size.

    Attributes: begun: (step, rate) when the function was called; adapted: sizes the callback was called with.
    """

    def __init__(self, best: Any = 0.0) -> None:
        self.model = torch.nn.Linear(3, 2)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01 * hvd.size(), momentum=0.9)
        self.state = hvd.elastic.TorchState(model=self.model, optimizer=self.optimizer, step=0, best=best)
        self.state.register_reset_callbacks([self._adapt])
        self.begun: list[tuple[int, float]] = []
        self.adapted: list[int] = []

    def _adapt(self) -> None:
        self.adapted.append(hvd.size())
        self.optimizer.param_groups[0]["lr"] = 0.01 * hvd.size()

    def train(self, until: int, act: Callable[[Any], None] = lambda state: None) -> Script:
        hvd.elastic.run(self._train)(self.state, until, act)
        return self

    def _train(self, state: Any, until: int, act: Callable[[Any], None]) -> None:
        self.begun.append((state.step, self.optimizer.param_groups[0]["lr"]))
        while state.step < until:
            state.step += 1
            act(state)
            state.commit()


@pytest.mark.usefixtures("restarts")
def test_new_processes_adapt_to_another_size() -> None:
    def job(names: str, until: int) -> list[tuple[list[tuple[int, float]], list[int]]]:
        found = together(names, lambda name: Script().train(until))
        return [(script.begun, script.adapted) for script in found.values()]

    assert job("ab", 3) == [([(0, 0.02)], [])] * 2, "nothing was before these"
    assert job("a", 5) == [([(3, 0.01)], [1])]
    assert job("anm", 6) == [([(5, 0.03)], [3])] * 3, "also those whose hosts are new"


@pytest.mark.usefixtures("restarts")
def test_what_a_callback_has_changed_is_committed() -> None:
    together("ab", lambda name: Script().train(2))

    def killed(name: str) -> float:
        script = Script().train(2)
        script.state.restore()  # the commit of the first synchronisation
        rate: float = script.optimizer.param_groups[0]["lr"]
        return rate

    assert together("a", killed) == {"a": 0.01}


@pytest.mark.usefixtures("restarts")
def test_commits_of_a_host_that_was_out_do_not_count_by_their_numbers() -> None:
    """b fails a commit ahead of a. Alone, a goes back to the previous one, and reuses the number."""

    def first(name: str) -> list[int]:
        state = Script().train(3).state
        if name == "b":
            state.step = 99
            state.save()
        return state._commits.numbers

    assert together("ab", first) == {"a": [3, 4], "b": [4, 5]}
    alone = together("a", lambda name: Script().train(4))["a"]
    assert alone.begun == [(3, 0.01)] and alone.state._commits.numbers == [5, 6]
    both = together("ab", lambda name: Script().train(6))
    for script in both.values():
        assert script.begun == [(4, 0.02)] and script.state._commits.numbers == [8, 9]
    both = together("ba", lambda name: Script().train(6))
    assert [script.begun for script in both.values()] == [[(6, 0.02)]] * 2


@pytest.mark.usefixtures("restarts")
def test_old_commits_with_higher_numbers_do_not_stay_before_new_ones(tmp_path: Path) -> None:
    """b has more commits than all survivors, and returns after they have continued without it."""
    together("ab", lambda name: Script().train(2))
    (tmp_path / "a").rename(tmp_path / "kept")
    together("ab", lambda name: Script().train(7))
    (tmp_path / "kept").rename(tmp_path / "c")
    for _ in range(2):  # newer by generations, not by numbers
        together("c", lambda name: Script().train(3))
    both = together("bc", lambda name: Script().train(4))
    for script in both.values():
        assert script.begun == [(3, 0.02)]
    assert [sorted(os.listdir(tmp_path / name)) for name in "bc"] == [sorted(os.listdir(tmp_path / "c"))] * 2
    assert together("b", lambda name: Script().train(4))["b"].begun == [(4, 0.01)]


NOWHERE = [ValueError("no agent of torchrun is found"), FileNotFoundError(2, "No such file", "/dev/shm/x")]


@pytest.mark.usefixtures("restarts")
@pytest.mark.parametrize("why", NOWHERE)
def test_a_guess_of_ours_ends_no_job(
    why: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails() -> str:
        raise why

    monkeypatch.setattr(restarting, "folder", fails)
    with caplog.at_level(logging.WARNING, "horovod"):
        assert together("a", lambda name: Script().train(2).state.step) == {"a": 2}
    assert caplog.text.count("no commits are kept on this host") == 1 and str(why) in caplog.text
    monkeypatch.setenv("HOROVOD_ELASTIC_RESTART", "1")
    with pytest.raises(type(why)):
        together("a", lambda name: Script().train(2))


class Best(float):
    """Not a plain value, like a number of NumPy."""


@pytest.mark.usefixtures("restarts")
def test_a_value_that_no_file_holds_ends_no_job_that_asked_for_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def improve(state: Any) -> None:
        if state.step == 3:
            state.best = Best(0.5)

    with caplog.at_level(logging.WARNING, "horovod"):
        script = together("a", lambda name: Script().train(5, improve))["a"]
    assert script.state.step == 5 and script.state._saved_state["best"] == 0.5
    assert caplog.text.count("no commits are kept on this host") == 1 and "state.best" in caplog.text
    assert os.listdir(tmp_path / "a") == []
    monkeypatch.setenv("HOROVOD_ELASTIC_RESTART", "1")
    with refused(errors.not_plain) as caught:
        together("b", lambda name: Script().train(5, improve))
    assert caught.value.facts["where"].startswith("state.best ")


# ---- the timeline ----


@pytest.fixture
def process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[int, str], list[str]]:
    """(generation, name) -> names of operations in the timeline, when a new rank 0 has done one."""
    channel = SimpleNamespace(generation=0)
    path = tmp_path / "trace.json"
    monkeypatch.setenv(AGENT, "5:1:1")
    monkeypatch.setenv("HOROVOD_TIMELINE", str(path))
    monkeypatch.setattr(basics_of_hvd, "agent_channel", lambda _: channel)
    monkeypatch.setattr(host_memory, "ROOT", str(tmp_path))

    def run(generation: int, name: str) -> list[str]:
        channel.generation = generation
        job = jobs.Job(lambda settings, ranks: native.local_worlds(1)[0])
        with job.entered():
            hvd.init()
            hvd.allreduce(torch.ones(2), name=name)
            hvd.shutdown()
            job.belongings.forget()
        events = json.loads(path.read_text())
        named = [event["args"]["name"] for event in events if event["name"] == "process_name"]
        return [each.removeprefix("allreduce.") for each in named if each != "horovod"]

    return run


def test_the_timeline_goes_on_in_new_processes(
    process: Callable[[int, str], list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "trace.json").write_text("[]")
    os.utime(tmp_path / "trace.json", (1, 1))
    kept = host_memory.KeptFolder()
    monkeypatch.setenv(host_memory.VARIABLE, kept.path)
    assert process(1, "a") == ["a"], "the file was another job's"
    assert process(2, "b") == ["a", "b"]
    assert process(3, "c") == ["a", "b", "c"]
    os.utime(tmp_path / "trace.json", (1, 1))
    assert process(4, "d") == ["d"], "on this host the file is an earlier job's"
    assert process(1, "e") == ["e"]
    kept.remove()


def test_a_timeline_that_cannot_be_written(
    process: Callable[[int, str], list[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv(host_memory.VARIABLE, "")  # the agent could make no folder
    assert process(1, "a") == ["a"] and process(2, "b") == ["a", "b"]
    monkeypatch.setenv("HOROVOD_TIMELINE", str(tmp_path / "missing" / "trace.json"))
    with pytest.raises(ValueError, match="cannot write the timeline"):
        process(1, "c")
    with caplog.at_level(logging.WARNING, "horovod"):
        assert process(2, "c") == ["a", "b"]
    assert "Training goes on without a timeline" in caplog.text
