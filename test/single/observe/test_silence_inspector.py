"""Ranks that show no sign of life while others wait for them: silent ranks, and ranks that only work."""

from __future__ import annotations

import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from native_testing import testing
from ranks import on_ranks, stepped_engines, submit
from refusals import refused
from test_stall_inspector import ask, settings_with

from horovod import _native
from horovod.common.exceptions import LostRank, Stalled


def looks(
    inspector: testing.SilenceInspector, seconds: int, alive: tuple[int, ...] = (), moves: bool = False
) -> list[testing.SilenceReport]:
    """Inspects ranks 1 to 3 once a second; the sign of life of live ranks grows."""
    looks.start = start = getattr(looks, "start", 0) + seconds  # type: ignore[attr-defined]
    return [
        inspector.inspect(
            float(start + i), {rank: i if rank in alive else 0 for rank in (1, 2, 3)}, i if moves else 0
        )
        for i in range(1, seconds + 1)
    ]


class TestWho:
    def test_is_named_and_when(self) -> None:
        inspector = testing.SilenceInspector(10.0, 25.0)
        reports = looks(inspector, 40, alive=(1, 3))
        assert [i for i, report in enumerate(reports) if report.is_due] == [10, 20, 30]
        assert [report.silent for report in reports] == [[]] * 10 + [[2]] * 30
        assert [report.must_end for report in reports] == [False] * 25 + [True] * 15
        assert reports[10].longest == 10.0

    def test_is_never_given_up_without_a_limit(self) -> None:
        assert not any(report.must_end for report in looks(testing.SilenceInspector(1.0), 200))

    def test_has_shown_life_since_begins_anew(self) -> None:
        inspector = testing.SilenceInspector(10.0)
        looks(inspector, 9)
        looks(inspector, 2, alive=(1, 2, 3))
        assert not any(report.silent for report in looks(inspector, 9))

    def test_is_silent_while_something_moves_is_not_accused(self) -> None:
        """Over a slow wire signs of life may wait behind the data."""
        assert not any(report.silent for report in looks(testing.SilenceInspector(5.0), 100, moves=True))

    def test_is_not_awaited_any_more_is_forgotten(self) -> None:
        inspector = testing.SilenceInspector(5.0)
        for second in range(1, 5):
            assert not inspector.inspect(float(second), {1: 0}).silent
        inspector.inspect(5.0, {})
        for second in range(6, 10):
            assert not inspector.inspect(float(second), {1: 0}).silent

    def test_was_itself_stopped_accuses_nobody(self) -> None:
        inspector = testing.SilenceInspector(10.0, 20.0)
        inspector.inspect(1.0, {1: 0})
        assert not inspector.inspect(1000.0, {1: 0}).silent
        assert not inspector.inspect(1001.0, {1: 1}).silent

    def test_looks_do_not_cost_much(self) -> None:
        for warn, period in ((60.0, 2.0), (10.0, 0.5), (0.0, 0.2)):
            inspector = testing.SilenceInspector(warn)
            inspector.inspect(100.0, {})
            assert not inspector.is_due(100.0 + 0.9 * period) and inspector.is_due(100.0 + 1.1 * period)


def run_for(engine: _native.Engine, seconds: int) -> None:
    for _ in range(seconds):
        engine.step(1000.0)


class TestCoordinator:
    """The ranks' behaviour when rank 0, the coordinator, does not answer."""

    def test_that_is_silent_is_named(self, capfd: pytest.CaptureFixture[str]) -> None:
        with stepped_engines(3, settings_with(warn=10, shut_down=30)) as engines:
            x = np.ones(3, np.float32)
            handle = submit(engines[1], "b", x)
            submit(engines[1], "a", x)
            run_for(engines[1], 9)
            assert capfd.readouterr().err == ""
            run_for(engines[1], 3)
            said = capfd.readouterr().err
            assert "no sign of life of rank 0 (process " in said
            assert re.search(r"while rank 1 .* 'a' and 1 others", said)
            asked_by = re.compile("_SECONDS=30$")
            with refused(LostRank, "silent", ranks=(0,), rank=1, setting=asked_by):
                run_for(engines[1], 30)
            assert not engines[1].poll(handle)

    def test_that_waits_for_others_itself_is_not(self, capfd: pytest.CaptureFixture[str]) -> None:
        """Ranks without a request are reported by the stall inspector, on rank 0."""
        with stepped_engines(3, settings_with(warn=10)) as engines:
            ask(engines, {0: ["x"], 1: ["x"]})
            for _ in range(25):
                engines[0].step(1000.0)
                engines[1].step(1000.0)
            said = capfd.readouterr().err
            assert "\n2: [x]" in said and "no sign of life" not in said

    def test_is_not_awaited_by_a_rank_that_asks_for_nothing(self, capfd: pytest.CaptureFixture[str]) -> None:
        with stepped_engines(2, settings_with(warn=10, shut_down=20)) as engines:
            run_for(engines[1], 100)
            assert capfd.readouterr().err == ""


def test_the_end_for_what_a_silent_rank_did_not_ask_for_says_so() -> None:
    with stepped_engines(3, settings_with(warn=10, shut_down=20)) as engines:
        handles = ask(engines, {0: ["x"], 1: ["x"]})
        for _ in range(21):
            engines[0].step(1000.0)
            engines[1].step(1000.0)
        for rank in (0, 1):
            report = re.compile(r"\n2!: \[x\]\n(.|\n)*\nNo sign .* rank 2 \(process ")
            with refused(Stalled, "stalled", ranks=(2,), values={2: "x"}, report=report):
                engines[rank].wait(handles[f"{rank}.x"])


WORLDS = {"window": (True, ()), "messages": (False, ()), "hosts": (True, (0, 0, 1, 1))}


def lose_rank(world: str, stopped: int) -> dict[int, LostRank]:
    """Make a rank agree to a large allreduce and then stop; return the errors of the others."""
    shares_memory, hosts = WORLDS[world]

    def program(rank: int, engine: _native.Engine) -> Any:
        x = np.ones(1_000_000, np.float32)
        handle = submit(engine, world, x)
        if rank == stopped:
            engine.step(25.0)
            return None
        with refused(LostRank, "operation_failed", tensor=world, ranks=(stopped,), rank=rank) as caught:
            engine.wait(handle)
        return caught.value

    settings = settings_with(warn=1, shut_down=2)
    told = on_ranks(4, program, shares_memory, settings, (stopped,), hosts)
    return {rank: error for rank, error in enumerate(told) if rank != stopped}


def test_a_rank_that_stops_inside_a_collective(capfd: pytest.CaptureFixture[str]) -> None:
    """On every transport, all others name it, and no waiting rank."""
    with ThreadPoolExecutor() as pool:
        told = dict(zip(WORLDS, pool.map(lose_rank, WORLDS, (1, 2, 3)), strict=True))
    warned = capfd.readouterr().err
    for world, by_rank in told.items():
        assert {error.facts["operation"] for error in by_rank.values()} == {f"'{world}', 4000000 bytes"}
        reasons = [error.facts["why"] for error in by_rank.values() if error.facts["cause"] == "silent"]
        assert reasons and all("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS=2" in why for why in reasons)
        assert re.search(rf" s, while rank 0 .*'{world}', 4000000 bytes\.", warned)


def test_a_rank_that_stops_listening_to_the_coordinator() -> None:
    """Rank 0's responses exceed the memory between the ranks: it waits before the operation."""
    names = [f"{i:03}" + 300 * "x" for i in range(600)]
    has_asked = threading.Event()

    def program(rank: int, engine: _native.Engine) -> str:
        xs = [np.ones(3, np.float32) for _ in names]
        if rank == 1:
            for name, x in zip(names, xs, strict=True):
                submit(engine, name, x)
            engine.step(25.0)
            for _ in range(100):  # rank 0 takes as much at a time as fits between the ranks
                engine.step()
                time.sleep(0.002)
            has_asked.set()
            return ""
        assert has_asked.wait(30)
        handles = [submit(engine, name, x) for name, x in zip(names, xs, strict=True)]
        with refused(LostRank, "silent", ranks=(1,), rank=0, setting=re.compile("_SECONDS=2$")) as caught:
            engine.wait(handles[0])
        return str(caught.value.facts["doing"])

    settings = [settings_with(warn=1, shut_down=2) for _ in range(2)]
    settings[0].cycle_time = 60_000.0  # ms: it announces everything at once when it waits
    told, _ = on_ranks(2, program, settings=settings, stepped=(1,))
    assert told.startswith("tells the others")
