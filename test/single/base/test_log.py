"""The core's log: which lines each level writes, to which stream, and the prefix of a line."""

from __future__ import annotations

import re
import time
from datetime import datetime

import numpy as np
import pytest
from ranks import on_ranks, stepped_engines, submit

from horovod import _native

LEVELS = ("trace", "debug", "info", "warning", "error", "fatal")
INCOMPLETE = "the timeline '/dev/full' is incomplete: No space left on device"
LINE = re.compile(
    r"\[(?P<time>.*?)(?P<letter>[A-Z]) \w+\.(?:cc|h):[1-9]\d*\] \[(?P<rank>\d+)\]: (?P<text>.*)\n"
)


def settings(level: str, hides_time: bool = True) -> _native.Settings:
    """The log of a rank that writes a line at each level: its timeline's disk is full."""
    made = _native.Settings()
    made.log_level, made.log_hide_time, made.timeline = level, hides_time, "/dev/full"
    return made


def run(level: str, hides_time: bool = True) -> None:
    with stepped_engines(1, settings(level, hides_time)) as [engine]:
        x = np.ones(3, np.float32)
        handle = submit(engine, "x", x)
        engine.step(100.0)
        engine.wait(handle)
        engine.stop_timeline()


def lines(text: str) -> list[re.Match[str]]:
    found = list(LINE.finditer(text))
    assert "".join(line[0] for line in found) == text, "each line is whole"
    return found


@pytest.mark.parametrize("level", LEVELS)
def test_a_level_has_all_that_weighs_as_much_or_more(level: str, capfd: pytest.CaptureFixture[str]) -> None:
    """Warnings and errors go to standard error, other lines to standard output."""
    run(level)
    said = capfd.readouterr()
    letters = {line["letter"] for line in lines(said.out)}, {line["letter"] for line in lines(said.err)}
    wanted = [name[0].upper() for name in LEVELS[LEVELS.index(level) :]]
    assert letters == (set(wanted) & set("DI"), set(wanted) & set("WE"))
    if level in LEVELS[:4]:
        first, last = lines(said.err)
        assert first["text"].startswith(f"{INCOMPLETE}. No more is written") and first["letter"] == "E"
        assert (last["letter"], last["text"]) == ("W", INCOMPLETE)


def test_a_line_has_the_time_of_this_place_to_the_microsecond(capfd: pytest.CaptureFixture[str]) -> None:
    began = time.time()
    run("error", hides_time=False)
    (line,) = lines(capfd.readouterr().err)
    written = re.fullmatch(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)\.(\d{6}): ", line["time"])
    assert written is not None
    moment = datetime.strptime(written[1], "%Y-%m-%d %H:%M:%S").timestamp() + int(written[2]) / 1e6
    assert began - 0.001 <= moment <= time.time() + 0.001
    run("error")
    (line,) = lines(capfd.readouterr().err)
    assert line["time"] == ""


def test_a_line_says_whose_it_is(capfd: pytest.CaptureFixture[str]) -> None:
    on_ranks(3, lambda rank, engine: None, settings=settings("info"))
    said = capfd.readouterr()
    begun = {line["rank"]: line["text"] for line in lines(said.out) if "over" in line["text"]}
    assert {rank: text.partition(" over ")[0] for rank, text in begun.items()} == {
        str(rank): f"rank {rank} of 3" for rank in range(3)
    }
    assert {line["rank"] for line in lines(said.err)} == {"0"}, "who writes the timeline"
