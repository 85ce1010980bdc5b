"""The stall inspector reports missing ranks in time and ends a job that would wait for ever."""

from __future__ import annotations

import re
import time

import numpy as np
import pytest
from ranks import add_set, allreduce, on_ranks, stepped_engines, submit
from refusals import refused

from horovod import _native
from horovod.common.exceptions import Stalled


def settings_with(warn: float = 60.0, shut_down: float = 0.0, disable: bool = False) -> _native.Settings:
    settings = _native.Settings()
    settings.stall_check_time_seconds = warn
    settings.stall_shutdown_time_seconds = shut_down
    settings.stall_check_disable = disable
    settings.log_hide_time = True
    return settings


def ask(engines: list[_native.Engine], asked: dict[int, list[str]]) -> dict[str, int]:
    """Make ranks request allreduces that another rank does not request; return handles by rank and name."""
    handles = {
        f"{rank}.{name}": submit(engines[rank], name, np.ones(3, np.float32))
        for rank, names in asked.items()
        for name in names
    }
    for rank in sorted(asked, reverse=True):  # rank 0 receives messages when it steps
        engines[rank].step(25.0)  # long enough for a rank whose last announcement is unanswered
    engines[0].step(5.0)
    return handles


def said_after(capfd: pytest.CaptureFixture[str], engine: _native.Engine, seconds: float) -> str:
    engine.step(seconds * 1000)
    return capfd.readouterr().err


def test_the_warning_names_ranks_and_tensors(capfd: pytest.CaptureFixture[str]) -> None:
    with stepped_engines(3, settings_with()) as engines:
        ask(engines, {0: ["b", "a"], 1: ["b", "c"]})
        assert said_after(capfd, engines[0], 59) == ""
        warning = said_after(capfd, engines[0], 2)
        assert warning.startswith("[W observers.cc:")
        assert warning.partition("] [0]: ")[2].splitlines() == [
            "some ranks wait for others, the longest for 61 s: not every rank has asked for the operations "
            "below. Ranks may differ in control flow, have died, or use an optimizer or a loader of another "
            "length.",
            "Missing ranks:",
            "0: [c]",
            "1: [a]",
            "2: [a, b, c]",
        ]


def test_ranks_that_say_nothing_of_a_missing_gradient_are_named(capfd: pytest.CaptureFixture[str]) -> None:
    with stepped_engines(3, settings_with()) as engines:
        engines[1].missing("question of 1", ["a", "b"], [False, False])
        ask(engines, {2: ["b"]})  # answers b, and informs rank 1
        engines[1].step(25.0)
        engines[0].missing("question of 0", ["c"], [False])
        engines[0].step(5.0)
        warning = said_after(capfd, engines[0], 61)
        assert "1: [b, c]" in warning and "2: [c]" in warning and "a" not in warning.partition("0:")[2]


def test_six_tensors_are_named_and_the_others_counted(capfd: pytest.CaptureFixture[str]) -> None:
    for count, more in ((6, "]"), (7, " and 1 more]"), (50, " and 44 more]")):
        with stepped_engines(2, settings_with()) as engines:
            ask(engines, {0: [f"t{i:02}" for i in range(count)]})
            assert f"1: [t00, t01, t02, t03, t04, t05{more}" in said_after(capfd, engines[0], 61)


def test_it_is_said_again_after_each_such_while(capfd: pytest.CaptureFixture[str]) -> None:
    with stepped_engines(2, settings_with(warn=10)) as engines:
        ask(engines, {0: ["x"]})
        spoken = [second for second in range(1, 45) if said_after(capfd, engines[0], 1)]
        assert spoken == [10, 20, 30, 40]


def test_what_is_asked_for_in_time_is_not_named(capfd: pytest.CaptureFixture[str]) -> None:
    """A new operation has its own time limit; a completed one is not missing any more."""
    with stepped_engines(2, settings_with()) as engines:
        ask(engines, {0: ["old"]})
        said_after(capfd, engines[0], 40)
        ask(engines, {0: ["new"]})
        warning = said_after(capfd, engines[0], 30)
        assert "1: [old]" in warning and "new" not in warning


def test_what_everybody_asked_for_in_the_end_is_forgotten(capfd: pytest.CaptureFixture[str]) -> None:
    settings = settings_with(warn=0.6)

    def program(rank: int, engine: _native.Engine) -> None:
        x = np.ones(3, np.float32)
        for _ in range(2):
            time.sleep(1.5 * rank)
            assert allreduce(engine, "x", x).tolist() == [2.0] * 3
        capfd.readouterr()
        engine.wait(engine.barrier("b"))
        time.sleep(1.5)

    on_ranks(2, program, settings=settings)
    assert capfd.readouterr().err == ""


def test_sets_are_told_apart(capfd: pytest.CaptureFixture[str]) -> None:
    settings = settings_with(warn=0.5)
    said = []

    def program(rank: int, engine: _native.Engine) -> None:
        both = add_set(engine, 1, 2)
        x = np.ones(3, np.float32)
        if rank == 2:
            time.sleep(2.0)
            said.append(capfd.readouterr().err)
        if rank != 0:
            allreduce(engine, "x", x, both)
        engine.wait(engine.barrier("b", 0))

    on_ranks(3, program, settings=settings)
    assert "2: [b, process_set_1/x]" in said[0] or "2: [process_set_1/x]" in said[0]
    assert "1: [b]" in said[0]  # rank 0 waits for it in the barrier


def test_nothing_is_said_when_it_is_off(capfd: pytest.CaptureFixture[str]) -> None:
    with stepped_engines(2, settings_with(shut_down=100, disable=True)) as engines:
        handles = ask(engines, {0: ["x"]})
        assert said_after(capfd, engines[0], 1000) == ""
        assert not engines[0].poll(handles["0.x"])


class TestEnd:
    def test_all_ranks_hear_why(self, capfd: pytest.CaptureFixture[str]) -> None:
        with stepped_engines(3, settings_with(shut_down=120)) as engines:
            handles = ask(engines, {0: ["x"], 1: ["x"], 2: ["other"]})
            warning = said_after(capfd, engines[0], 100)
            assert "\n2: [x]" in warning and "!" not in warning
            end = said_after(capfd, engines[0], 21)
            assert "\n2!: [x]" in end and "\n0!: [other]\n1!: [other]" in end
            assert "The job ends, as HOROVOD_STALL_SHUTDOWN_TIME_SECONDS=120 asks (ranks with !)." in end
            for engine in engines[1:]:
                engine.step()
            for rank, name in ((0, "x"), (1, "x"), (2, "other")):
                missing = {0: "other", 1: "other", 2: "x"}
                with refused(Stalled, "stalled", ranks=(0, 1, 2), values=missing) as caught:
                    engines[rank].wait(handles[f"{rank}.{name}"])
                assert caught.value.facts["report"] in end
                with refused(Stalled, report=re.compile("STALL_SHUTDOWN_TIME_SECONDS=120")):
                    submit(engines[rank], "later", np.ones(3, np.float32))
                assert engines[rank].has_failed

    def test_only_ranks_missing_that_long_are_marked(self, capfd: pytest.CaptureFixture[str]) -> None:
        with stepped_engines(3, settings_with(warn=10, shut_down=120)) as engines:
            ask(engines, {0: ["x"], 1: ["x"]})
            said_after(capfd, engines[0], 100)
            ask(engines, {0: ["y"], 2: ["y"]})
            end = said_after(capfd, engines[0], 20)
            assert "\n1: [y]\n2!: [x]\n" in end

    def test_with_threads(self) -> None:
        def program(rank: int, engine: _native.Engine) -> None:
            x = np.ones(3, np.float32)
            allreduce(engine, "before", x)
            with refused(Stalled, report=re.compile("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS=1 ")):
                engine.wait(submit(engine, "x" if rank else "y", x))

        on_ranks(3, program, settings=settings_with(warn=0.5, shut_down=1.0))

    def test_a_time_shorter_than_the_warning_is_ignored(self, capfd: pytest.CaptureFixture[str]) -> None:
        with stepped_engines(2, settings_with(warn=60, shut_down=30)) as engines:
            assert (
                "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS=30 is ignored: it is shorter than "
                "HOROVOD_STALL_CHECK_TIME_SECONDS=60" in capfd.readouterr().err
            )
            handles = ask(engines, {0: ["x"]})
            assert "1: [x]" in said_after(capfd, engines[0], 1000)
            assert not engines[0].poll(handles["0.x"])


def test_ranks_that_have_joined_are_not_missed(capfd: pytest.CaptureFixture[str]) -> None:
    """A rank without data left waits for the others while they work; this is not a stall."""
    with stepped_engines(3, settings_with(shut_down=120)) as engines:
        joins = [engines[rank].join() for rank in (0, 2)]
        ask(engines, {0: [], 2: []})
        assert said_after(capfd, engines[0], 1000) == ""
        ask(engines, {2: ["x"]})
        warning = said_after(capfd, engines[0], 61)
        assert "1: [x]" in warning and "0: [" not in warning
        assert not engines[0].poll(joins[0])
