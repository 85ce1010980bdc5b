"""HOROVOD_AUTOTUNE under a DistributedOptimizer: ranks are threads, and train while settings change."""

# private: _director, _due, _note_end_of_step, _reducer, _tuner, _under_way: tests set the clock of steps

from __future__ import annotations

import gc
import itertools
import json
import os
import random
import statistics
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from ranks import in_threads
from refusals import refused
from thread_ranks import run_ranks

import horovod.torch as hvd
from horovod import _native as native
from horovod.common import belongings, jobs, variables
from horovod.common import errors as of_common
from horovod.common.exceptions import LostRank, ShutDown
from horovod.torch import autotune
from horovod.torch.autotune import Tuning
from horovod.tune.knobs import Space
from horovod.tune.tuner import Decision

_director = autotune._director


@pytest.fixture(autouse=True)
def tuned_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, text in {
        "": "1", "_CACHE": str(tmp_path / "tune"), "_MAX_STEPS": "90", "_STEPS_PER_SAMPLE": "2",
        "_WARMUP_SAMPLES": "1",
    }.items():  # fmt: skip
        monkeypatch.setenv(f"HOROVOD_AUTOTUNE{name}", text)


class Training:
    """A small model of this rank, and its optimizer."""

    def __init__(self, named: str = "", **options: Any) -> None:
        shape = torch.Generator().manual_seed(7)
        self.model = torch.nn.Sequential(*(torch.nn.Linear(40, 40) for _ in range(4)))
        with torch.no_grad():
            for parameter in self.model.parameters():
                parameter.copy_(torch.randn(parameter.shape, generator=shape) * 0.2)
        names = [(named + name, parameter) for name, parameter in self.model.named_parameters()]
        self.optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD(self.model.parameters(), lr=0.01), names, **options
        )
        self.data = torch.Generator().manual_seed(hvd.rank())

    def steps(self, count: int) -> None:
        for _ in range(count):
            x = torch.randn(4, 40, generator=self.data)
            self.optimizer.zero_grad()
            (self.model(x) - x).square().mean().backward()
            self.optimizer.step()

    def parameters(self) -> list[float]:
        return torch.cat([p.detach().flatten() for p in self.model.parameters()]).tolist()


def in_ranks(size: int, work: Callable[[], Any], hosts: list[int] | None = None) -> list[Any]:
    results = run_ranks(size, work, hosts)
    assert all(result == results[0] for result in results[1:]), "ranks have the same"
    return results


@pytest.mark.parametrize(("compression", "size"), [("none", 2), ("bit8", 3), ("int4", 3), ("topk", 2)])
def test_ranks_stay_bit_identical(compression: str, size: int) -> None:
    def work() -> tuple[list[float], str, dict[str, str]]:
        training = Training(compression=compression)
        training.steps(110)
        found = hvd.tuning()
        return training.parameters(), found["phase"], found["settings"]

    parameters, phase, settings = in_ranks(size, work)[0]
    assert phase == "watching" and settings.keys() >= {"HOROVOD_FUSION_THRESHOLD", "HOROVOD_CYCLE_TIME"}
    assert all(value == value for value in parameters), "and finite"


def test_hosts_with_several_ranks_have_more_to_try() -> None:
    def work() -> tuple[list[float], set[str]]:
        training = Training(compression="bit8")
        training.steps(110)
        return training.parameters(), set(hvd.tuning()["settings"])

    _, names = in_ranks(4, work, [0, 0, 1, 1])[0]
    assert names >= {"HOROVOD_CARRIERS", "HOROVOD_MESSAGE_KB", "HOROVOD_STEPS_UNDER_WAY"}


def test_what_was_found_is_taken_the_next_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOROVOD_AUTOTUNE_LOG", str(tmp_path / "log.json"))

    def work() -> dict[str, str]:
        training = Training()
        training.steps(110)
        return dict(hvd.tuning()["settings"])

    first = in_ranks(2, work)[0]
    log = json.loads((tmp_path / "log.json").read_text())
    assert log["settings"] == first and log["trials"] and log["steps"] <= 90

    def again() -> tuple[str, dict[str, str]]:
        training = Training()
        training.steps(3)
        return hvd.tuning()["phase"], dict(hvd.tuning()["settings"])

    (tmp_path / "log.json").unlink()
    assert in_ranks(2, again)[0] == ("watching", first)
    now = json.loads((tmp_path / "log.json").read_text())
    assert (
        now["settings"] == first and now["phase"] == "watching" and now["trials"] == [] and now["steps"] == 0
    )
    assert now["is_reused"] and now["duels"] == log["duels"] and now["began_with"] == log["began_with"]


def test_compression_may_be_given_up_where_that_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOROVOD_AUTOTUNE_COMPRESSION", "1")

    def work() -> tuple[dict[str, str], list[int]]:
        training = Training(compression="bit8")
        training.steps(110)
        tuning, sent = belongings.own(Tuning), []
        for text in ("as asked", "none", "as asked"):
            tuning.fix({**hvd.tuning()["settings"], "HOROVOD_COMPRESSION": text})
            before = hvd.metrics()["wire_bytes"]
            training.steps(2)
            sent.append(hvd.metrics()["wire_bytes"] - before)
        return dict(hvd.tuning()["settings"]), sent

    settings, (bit8, none, again) = in_ranks(2, work)[0]
    assert "HOROVOD_COMPRESSION" in settings and bit8 == again < none


@pytest.mark.parametrize(("size", "first"), [(3, 1), (2, 0)])
def test_a_rank_that_runs_out_of_data(size: int, first: int) -> None:
    """It joins, and continues with the others' settings. While rank 0 has joined, no settings change."""

    def work() -> tuple[list[float], list[Any]]:
        training, told = Training(compression="bit8"), []
        for _ in range(4):
            training.steps(13 if hvd.rank() == first else 25)
            hvd.join()
            told.append((hvd.tuning()["phase"], dict(hvd.tuning()["settings"])))
            hvd.broadcast_parameters(training.model.state_dict(), root_rank=1 - first)
        training.steps(40)
        return training.parameters(), [*told, dict(hvd.tuning()["settings"])]

    in_ranks(size, work)


@pytest.mark.parametrize("late", [0, 1])
@pytest.mark.parametrize("before", [1, 2, 9])
def test_a_rank_that_joins_before_its_first_step(late: int, before: int) -> None:
    def work() -> tuple[list[float], dict[str, str], str]:
        training = Training()
        if hvd.rank() != late:
            training.steps(before)
        hvd.join()
        hvd.broadcast_parameters(training.model.state_dict(), root_rank=1 - late)
        training.steps(30)
        return training.parameters(), dict(hvd.tuning()["settings"]), str(hvd.tuning()["phase"])

    assert in_ranks(2, work)[0][2] == "searching"


def test_after_a_join_the_first_to_make_a_step_leads() -> None:
    """On one rank the second optimizer has made enough steps to lead, on the other it has not."""

    def work() -> list[Any]:
        first, second = Training(), Training(named="b.")
        first.steps(20)
        second.steps(5 + 10 * hvd.rank())
        hvd.join()
        for each in (first, second):
            hvd.broadcast_parameters(each.model.state_dict(), root_rank=1)
        second.steps(60)
        phase = hvd.tuning()["phase"]
        first.steps(30)
        return [phase, first.parameters(), second.parameters()]

    assert in_ranks(2, work)[0][0] == "searching"


class Decided:
    """A director that switches compression off and on every few steps."""

    phase, settled, result = "searching", 0, None

    def __init__(self) -> None:
        self.texts = itertools.cycle(["none", "as asked"])
        self.space = Space([], {})

    def decide(self, step: int, trained: object) -> Decision:
        return Decision("searching", 2, {"HOROVOD_COMPRESSION": next(self.texts)})

    def figures(self) -> dict[str, Any]:
        return {}

    settings = figures

    def how_far(self) -> str:
        return ""

    def add_step(self, seconds: float) -> None:
        pass

    def taken(self) -> None:
        pass


@pytest.fixture
def decided(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOROVOD_AUTOTUNE_COMPRESSION", "1")
    monkeypatch.setattr(autotune, "_director", lambda *words: Decided())


@pytest.mark.filterwarnings("error:bit8 compresses none")  # "made_later" does, by the decision
@pytest.mark.parametrize("late", [0, 1])
@pytest.mark.parametrize("first", [0, 7])
def test_compression_is_alike_in_the_first_step_after_a_join(first: int, late: int, decided: None) -> None:
    """Ranks may have different decisions; codes and numbers in one reduction would be refused."""

    def work() -> list[Any]:
        training, told = Training(compression="bit8"), []
        if first:
            training.steps(first)
        for more in range(1, 9):
            if hvd.rank() != late:
                training.steps(more)
            hvd.join()
            told.append(hvd.tuning()["settings"])
            hvd.broadcast_parameters(training.model.state_dict(), root_rank=1 - late)
            before = hvd.metrics()["wire_bytes"]
            training.steps(1)
            told.append(hvd.metrics()["wire_bytes"] - before)
        made_later = Training(named="b.", compression="bit8")
        made_later.steps(3)
        return [training.parameters(), made_later.parameters(), *map(repr, told)]

    told = in_ranks(2, work)[0]
    assert first == 0 or late == 0 or len({text for text in told[3::2]}) == 2, (
        "both kinds of steps were there"
    )


@pytest.mark.parametrize("seed", range(10))
def test_random_optimizers_and_joins(seed: int, decided: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three optimizers step in a random order, some created before their first step; ranks run out of data
    at any time. Every second job uses the tuner's real settings.
    """
    monkeypatch.setenv("HOROVOD_AUTOTUNE_WARMUP_SAMPLES", "0")
    if seed % 2:
        monkeypatch.setattr(autotune, "_director", _director)

    def work() -> list[Any]:
        plan, made, told = random.Random(seed), {}, []

        def one(name: str) -> Training:
            if name not in made:
                made[name] = Training(named=name, compression="bit8")
            return made[name]

        for _ in range(6):
            calls = [plan.choice("AAABBC" if plan.random() < 0.7 else "A") for _ in range(plan.randrange(25))]
            ends = [plan.randrange(len(calls) + 1) for _ in range(hvd.size())]
            for name in "ABC" if plan.random() < 0.5 else "":
                one(name)
            for name in calls[: ends[hvd.rank()]]:
                one(name).steps(1)
            last = hvd.join()
            told.append((hvd.tuning()["phase"], dict(hvd.tuning()["settings"])))
            for name in "ABC":
                hvd.broadcast_parameters(one(name).model.state_dict(), root_rank=last)
        return [told, [one(name).parameters() for name in "ABC"]]

    in_ranks(2 + seed % 3 % 2, work)


def test_who_does_not_lead_takes_what_is_found_too(decided: None) -> None:
    """At the end of its own steps, even if it has led before."""

    def work() -> list[int]:
        first, second = Training(compression="bit8"), Training(named="b.", compression="bit8")
        first.steps(8)
        left_with = hvd.tuning()["settings"]
        second.steps(20)
        tuner = belongings.own(Tuning)._tuner
        assert tuner is not None
        while tuner._under_way is not None or tuner.decision.settings == left_with:
            second.steps(1)
        tuner._due = 10**9  # as if the search has ended
        sent = []
        for training in (first, second):
            training.steps(1)
            before = hvd.metrics()["wire_bytes"]
            training.steps(2)
            sent.append(hvd.metrics()["wire_bytes"] - before)
        return sent

    for sent in run_ranks(2, work):
        assert sent[0] == sent[1]


def test_short_epochs_measure_whole_steps() -> None:
    def work() -> list[float]:
        training = Training()
        for _ in range(16):
            training.steps(7)
            hvd.join()
        director = belongings.own(Tuning)._director
        return [] if director is None else [step for trial in director.trials for step in trial.steps]

    steps, _ = run_ranks(2, work)
    assert steps and min(steps) > 0.05 * statistics.median(steps)


def test_another_optimizer_leads_when_the_first_makes_no_steps_any_more() -> None:
    """On all ranks at the same step, even if only one of them still has the first."""

    def work() -> tuple[str, list[float]]:
        first = Training()
        first.steps(8)
        kept = first if hvd.rank() == 1 else None
        del first
        gc.collect()
        second = Training(named="b.")
        second.steps(120)
        del kept
        return str(hvd.tuning()["phase"]), second.parameters()

    assert in_ranks(2, work)[0][0] == "watching"


def test_a_rank_that_makes_no_step_of_its_own_after_the_reduction() -> None:
    """The tuner counts reductions, which all ranks make."""

    def work() -> str:
        training = Training()
        for number in range(110):
            training.optimizer.zero_grad()
            training.model(torch.ones(2, 40)).sum().backward()
            training.optimizer.synchronize()
            if hvd.rank() == 0 or number not in (5, 9, 20):
                with training.optimizer.skip_synchronize():
                    training.optimizer.step()
        return str(hvd.tuning()["phase"])

    assert in_ranks(2, work)[0] == "watching"


def test_no_home_and_nothing_tried(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def work() -> str:
        Training().steps(20)
        return str(hvd.tuning()["phase"])

    monkeypatch.setenv("HOROVOD_AUTOTUNE_MAX_STEPS", "0")
    assert in_ranks(2, work)[0] == "watching" and not list((tmp_path / "tune").glob("*.json"))
    monkeypatch.delenv("HOROVOD_AUTOTUNE_CACHE")
    monkeypatch.setattr(Path, "expanduser", _no_home)
    assert in_ranks(2, work)[0] == "watching"


def _no_home(path: Path) -> Path:
    raise RuntimeError("Could not determine home directory.")


def test_ranks_that_were_told_differently_hear_of_it() -> None:
    one = dict.fromkeys(variables.TUNED_ALIKE, "1")
    variables.check_tuned_alike([one, one])
    with refused(of_common.settings_differ, setting="HOROVOD_AUTOTUNE", values={0: "1", 1: "0"}):
        variables.check_tuned_alike([one, one | {"HOROVOD_AUTOTUNE": "0"}])


@pytest.mark.parametrize("name", ["MODE", "REUSE", "MAX_STEPS", "WARMUP_SAMPLES", "STEPS_PER_SAMPLE"])
def test_what_is_wrong_all_ranks_hear_of_when_they_meet(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"HOROVOD_AUTOTUNE_{name}", "-x")
    wrong = variables.wrong_tuning(os.environ, 1)
    assert f"HOROVOD_AUTOTUNE_{name}" in wrong and "'-x'" in wrong
    assert variables.wrong_tuning({**os.environ, "HOROVOD_AUTOTUNE": "0"}, 1) == ""
    heard = in_threads(2, _said_by_init(native.local_worlds(2)))
    assert heard[0] == heard[1] and f"rank 0: {wrong}" in heard[0]


def test_a_log_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All ranks raise the error. An existing file is unchanged, and no new file remains."""
    monkeypatch.setenv("HOROVOD_AUTOTUNE_LOG", str(tmp_path / "none" / "log.json"))
    heard = in_threads(2, _said_by_init(native.local_worlds(2)))
    assert heard[0] == heard[1]
    assert "rank 0: HOROVOD_AUTOTUNE_LOG: " in heard[0] and "none/log.json" in heard[0]
    there = tmp_path / "there.json"
    for path in (there, tmp_path / "new.json"):
        there.write_text("before")
        assert variables.wrong_tuning({"HOROVOD_AUTOTUNE": "1", "HOROVOD_AUTOTUNE_LOG": str(path)}, 0) == ""
        assert there.read_text() == "before" and list(tmp_path.glob("*.json")) == [there]
    os.mkfifo(tmp_path / "pipe")
    pipe = {"HOROVOD_AUTOTUNE": "1", "HOROVOD_AUTOTUNE_LOG": str(tmp_path / "pipe")}
    assert "pipe" in variables.wrong_tuning(pipe, 0), "which nobody reads: to open it would wait"
    assert variables.wrong_tuning({**os.environ, "HOROVOD_ELASTIC": "1"}, 0) == ""


def _said_by_init(worlds: list[native.World]) -> Callable[[int], str]:
    def said(rank: int) -> str:
        with jobs.Job(lambda settings, ranks: worlds[rank]).entered():
            with pytest.raises(ValueError) as raised:
                hvd.init()
            return str(raised.value)

    return said


@pytest.mark.parametrize("frozen", [True, False])
def test_other_parameters_are_new_tensors(frozen: bool) -> None:
    """Parameters that a step does not use do not count."""

    def work() -> tuple[list[float], int]:
        training = Training()
        last = training.model[3]
        training.model[3] = torch.nn.Identity()  # the optimizer still has its parameters
        if frozen:
            last.requires_grad_(False)
        training.steps(20)
        if not frozen:
            training.model[3] = last
        last.requires_grad_(True)
        training.steps(12)
        director = belongings.own(Tuning)._director
        return training.parameters(), 0 if director is None else director.retunings

    results = run_ranks(2, work)
    assert results[0][0] == results[1][0] and results[0][1] == frozen


def test_a_job_that_ends_in_the_search_says_so(capfd: pytest.CaptureFixture[str]) -> None:
    run_ranks(2, lambda: Training().steps(30))
    said = [line for line in capfd.readouterr().err.splitlines() if "tuning ended early, " in line]
    assert len(said) == 1
    assert (
        "after 2" in said[0]
        and " of at most 90 steps; nothing faster was found yet. Nothing is kept" in said[0]
    )


def test_before_the_first_step() -> None:
    assert in_ranks(2, hvd.tuning)[0] == {"phase": "warming up", "settings": {}}


@pytest.mark.parametrize(("is_chosen", "steps"), [("0", 12), ("1", 3)], ids=["settings", "compression"])
def test_a_dropped_optimizer_is_let_go(is_chosen: str, steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOROVOD_AUTOTUNE_COMPRESSION", is_chosen)

    def work() -> list[bool]:
        training = Training(compression="bit8")
        training.steps(steps)
        references = [weakref.ref(each) for each in (training.model[0].weight, training.optimizer._reducer)]
        del training
        gc.collect()
        return [reference() is None for reference in references]

    assert in_ranks(2, work)[0] == [True, True]


def test_two_optimizers_count_steps_once() -> None:
    def work() -> str:
        first, second = Training(), torch.nn.Linear(3, 3)
        other = hvd.DistributedOptimizer(
            torch.optim.SGD(second.parameters(), 0.1), [("b." + n, p) for n, p in second.named_parameters()]
        )
        for _ in range(110):
            first.steps(1)
            other.zero_grad()
            second(torch.ones(3)).sum().backward()
            other.step()
        return str(hvd.tuning()["phase"])

    assert in_ranks(2, work)[0] == "watching"


def test_a_lost_rank_ends_it_for_all() -> None:
    def work() -> None:
        training = Training()
        training.steps(20 + 3 * hvd.rank())

    with pytest.raises((LostRank, ShutDown)):
        run_ranks(3, work)


def test_a_rank_that_has_left_after_the_last_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks were to agree at that step; a later rank continues without it."""
    monkeypatch.setenv("HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE", "1")

    def work() -> list[float]:
        training = Training()
        ended = training.optimizer._note_end_of_step
        training.steps(20)
        if hvd.rank() == 1:
            training.optimizer._note_end_of_step = lambda: (time.sleep(0.3), ended())  # type: ignore
        training.steps(1)
        return training.parameters()

    for _ in range(4):
        in_ranks(2, work)


def test_alone_nothing_is_tuned() -> None:
    def work() -> dict[str, Any]:
        Training().steps(3)
        return hvd.tuning()

    assert in_ranks(1, work) == [{"phase": "off", "settings": {}}]


def test_a_process_set_is_not_tuned(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ranks of a set cannot agree on settings of all ranks."""

    def work() -> dict[str, Any]:
        some = hvd.add_process_set([0, 1])
        if hvd.rank() < 2:
            Training(process_set=some).steps(10)
        hvd.barrier()
        return hvd.tuning()

    monkeypatch.setenv("HOROVOD_DYNAMIC_PROCESS_SETS", "1")
    assert in_ranks(3, work)[0] == {"phase": "warming up", "settings": {}}, "as before the first step"


def test_deterministic_refuses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOROVOD_DETERMINISTIC", "1")
    with refused(of_common.autotune_not_deterministic):
        hvd.init()


def test_the_timeline_says_when_settings_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOROVOD_TIMELINE", str(tmp_path / "timeline.json"))
    run_ranks(2, lambda: Training().steps(110))
    events = json.loads((tmp_path / "timeline.json").read_text())
    changes = [event["args"]["settings"] for event in events if "settings" in event.get("args", {})]
    assert len(changes) > 5 and all("\nHOROVOD_FUSION_THRESHOLD=" in text for text in changes)
    assert changes[0].startswith("phase=warming up\n") and "phase=searching\n" in "".join(changes)
