"""The timeline is valid JSON at any moment and tells what was negotiated and done."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ranks import allreduce, on_ranks, stepped_engines, tensor

from horovod import _native


def traced(path: Path, mark_cycles: bool = False) -> _native.Settings:
    settings = _native.Settings()
    settings.timeline = str(path)
    settings.timeline_mark_cycles = mark_cycles
    return settings


def test_it_is_valid_json_after_every_step(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    with stepped_engines(1, traced(path)) as [engine]:
        assert json.loads(path.read_text()) == []
        x = np.ones(3, np.float32)
        for name in ("a", 'with "quotes" and \\ and \n', "b"):
            engine.allreduce(name, [tensor(x)], _native.Reduction())
            engine.step(5.0)
            events = json.loads(path.read_text())
            assert any(e["ph"] == "M" and e["args"]["name"] == name for e in events)


def test_every_phase_is_there_and_closed(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"

    def program(rank: int, engine: _native.Engine) -> None:
        for _ in range(3):
            allreduce(engine, "grad", np.ones((2, 5), np.float32))

    on_ranks(2, program, settings=traced(path, mark_cycles=True))
    events = json.loads(path.read_text())
    assert [e["ts"] for e in events] == sorted(e["ts"] for e in events)
    assert "CYCLE_START" in names(events, "i")
    [process] = [e["pid"] for e in events if e["ph"] == "M" and e["args"]["name"] == "grad"]
    mine = [e for e in events if e["pid"] == process and e["ph"] != "M"]
    begun = names(mine, "B")
    assert begun.count("NEGOTIATE_ALLREDUCE") == begun.count("ALLREDUCE") == 3
    assert len(begun) == len(names(mine, "E"))
    assert set(names(mine, "X")) == {"0", "1"}
    assert mine[-1]["args"] == {"dtype": "float32", "shape": "(2, 5)"}


def names(events: list[dict[str, Any]], phase: str) -> list[str]:
    return [event["name"] for event in events if event["ph"] == phase]


def test_a_group_appears_member_by_member(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    with stepped_engines(1, traced(path)) as [engine]:
        x, y = np.ones(3, np.float32), np.ones(3, np.float32)
        engine.allreduce("g", [tensor(x), tensor(y)], _native.Reduction())
        engine.step(5.0)
    members = {e["args"]["name"] for e in json.loads(path.read_text()) if e["ph"] == "M"}
    assert {"g_1of2", "g_2of2"} <= members


def test_a_folder_that_does_not_exist_is_named(tmp_path: Path) -> None:
    [world] = _native.local_worlds(1)
    with pytest.raises(ValueError, match=r"cannot write the timeline to .*missing"):
        _native.Engine(world, traced(tmp_path / "missing" / "trace.json"))
