"""HOROVOD_AUTOTUNE under a DistributedOptimizer: ranks are threads, and train while settings change."""

from __future__ import annotations

import gc
import json
import statistics
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from thread_ranks import run_ranks

import horovod.torch as hvd
from horovod.common import jobs, membership
from horovod.common.exceptions import HorovodInternalError
from horovod.torch.autotune import Tuning

SIZES = [2, 3]


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


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    ("compression", "error_feedback"), [("none", ""), ("bit8", ""), ("int4", "e"), ("topk", "e")]
)
def test_ranks_stay_bit_identical(size: int, compression: str, error_feedback: str) -> None:
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

    assert in_ranks(2, again)[0] == ("watching", first)


def test_compression_may_be_given_up_where_that_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOROVOD_AUTOTUNE_COMPRESSION", "1")

    def work() -> tuple[dict[str, str], list[int]]:
        training = Training(compression="bit8")
        training.steps(110)
        tuning, sent = jobs.current().own(Tuning), []
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
    """It joins, and goes on with the others' settings. While that is rank 0 nobody decides."""

    def work() -> tuple[list[float], dict[str, str]]:
        training = Training(compression="bit8")
        for _ in range(4):
            training.steps(13 if hvd.rank() == first else 25)
            hvd.join()
            hvd.broadcast_parameters(training.model.state_dict(), root_rank=1 - first)
        training.steps(40)
        return training.parameters(), dict(hvd.tuning()["settings"])

    in_ranks(size, work)


def test_short_epochs_measure_whole_steps() -> None:
    def work() -> list[float]:
        training = Training()
        for _ in range(16):
            training.steps(7)
            hvd.join()
        director = jobs.current().own(Tuning)._director
        return [] if director is None else [step for trial in director.trials for step in trial.steps]

    steps, _ = run_ranks(2, work)
    assert steps and min(steps) > 0.05 * statistics.median(steps)


def test_another_optimizer_leads_when_the_first_makes_no_steps_any_more() -> None:
    """On all ranks at the same step, also where only one of them still has the first."""

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
    """Reductions are counted, which all ranks make."""

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
    one = dict.fromkeys(membership._TUNING, "1")
    membership._check_tuning([one, one])
    with pytest.raises(ValueError, match=r"different settings: HOROVOD_AUTOTUNE \(rank 0: 1; rank 1: 0\)"):
        membership._check_tuning([one, one | {"HOROVOD_AUTOTUNE": "0"}])


def test_a_dropped_optimizer_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOROVOD_AUTOTUNE_COMPRESSION", "1")

    def work() -> bool:
        training = Training(compression="bit8")
        training.steps(3)
        reference = weakref.ref(training.optimizer._reducer)
        del training
        gc.collect()
        return reference() is None

    assert in_ranks(2, work)[0]


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

    with pytest.raises(HorovodInternalError, match=r"shut down|lost"):
        run_ranks(3, work)


def test_a_rank_that_has_left_after_the_last_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """At which ranks were to agree: whoever comes later does not mind."""
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
    """Its ranks alone could not agree on settings of all."""

    def work() -> str:
        some = hvd.add_process_set([0, 1])
        if hvd.rank() < 2:
            Training(process_set=some).steps(10)
        hvd.barrier()
        return str(hvd.tuning()["phase"])

    monkeypatch.setenv("HOROVOD_DYNAMIC_PROCESS_SETS", "1")
    assert in_ranks(3, work)[0] == "off"


def test_deterministic_refuses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOROVOD_DETERMINISTIC", "1")
    with pytest.raises(ValueError, match="HOROVOD_AUTOTUNE=1 with HOROVOD_DETERMINISTIC=1"):
        hvd.init()


def test_before_init() -> None:
    with pytest.raises(ValueError, match="not been initialized"):
        hvd.tuning()


def test_the_timeline_says_when_settings_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOROVOD_TIMELINE", str(tmp_path / "timeline.json"))
    run_ranks(2, lambda: Training().steps(110))
    events = json.loads((tmp_path / "timeline.json").read_text())
    changes = [event["args"]["settings"] for event in events if "settings" in event.get("args", {})]
    assert len(changes) > 5 and all("\nHOROVOD_FUSION_THRESHOLD=" in text for text in changes)
    assert changes[0].startswith("phase=warming up\n") and "phase=searching\n" in "".join(changes)
