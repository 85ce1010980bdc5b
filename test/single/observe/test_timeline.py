"""The timeline is valid JSON at any moment and shows negotiations and operations."""

from __future__ import annotations

import json
import re
import resource
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ranks import allreduce, on_ranks, stepped_engines, tensor
from refusals import refused

from horovod import _native
from horovod.common.exceptions import WrongArgument, WrongSetting


def traced(path: Path, mark_cycles: bool = False) -> _native.Settings:
    settings = _native.Settings()
    settings.timeline = str(path)
    settings.timeline_mark_cycles = mark_cycles
    return settings


def test_it_is_valid_json_after_every_step(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    with stepped_engines(1, traced(path)) as [engine]:
        [start] = json.loads(path.read_text())
        assert start["args"]["start_time_since_epoch_in_micros"] / 1e6 == pytest.approx(time.time(), abs=60)
        x = np.ones(3, np.float32)
        for name in ("a", 'with "quotes" and \\ and \n \t \x1f \x7f é 中', "b"):
            engine.allreduce(name, [tensor(x)], _native.Reduction())
            engine.step(5.0)
            events = json.loads(path.read_text())
            assert any(e["ph"] == "M" and e["args"]["name"] == name for e in events)


def test_a_full_disk_is_said_once_and_operations_go_on(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "trace.json"
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    x = np.ones(3, np.float32)
    with stepped_engines(1, traced(path)) as [engine]:
        resource.setrlimit(resource.RLIMIT_FSIZE, (2000, limits[1]))
        try:
            for i in range(40):
                handle = engine.allreduce(f"t{i}", [tensor(x)], _native.Reduction())
                engine.step(5.0)
                engine.wait(handle)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        said = f"the timeline '{path}' is incomplete: File too large"
        assert (
            capfd.readouterr().err.count(f"[0]: {said}. No more is written; operations go on without it.")
            == 1
        )
        events = json.loads(path.read_text())  # what fitted in
        assert 500 < path.stat().st_size <= 2000 and events[-1]["name"]
        engine.stop_timeline()
        assert capfd.readouterr().err.endswith(f"[0]: {said}\n")
        engine.stop_timeline()
        assert capfd.readouterr().err == ""
        engine.start_timeline(str(path))
    assert len(json.loads(path.read_text())) == 1


def test_a_disk_that_is_full_from_the_beginning(capfd: pytest.CaptureFixture[str]) -> None:
    with stepped_engines(1, traced(Path("/dev/full"))) as [engine]:
        said = "the timeline '/dev/full' is incomplete: No space left on device"
        assert f"[0]: {said}. No more" in capfd.readouterr().err
        handle = engine.allreduce("x", [tensor(np.ones(3, np.float32))], _native.Reduction())
        engine.step(5.0)
        engine.wait(handle)
    del engine
    assert capfd.readouterr().err.count(said) == 1


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
    told = mine[-1]["args"]
    assert (told["dtype"], told["shape"]) == ("float32", "(2, 5)")
    assert told["route"] == "window gather"
    assert told["reason"].startswith("estimated: window gather 0.00")


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


def test_each_member_of_a_group_has_the_route_of_its_dtype(tmp_path: Path) -> None:
    """Sums of float16 are float32, and do not use the ring."""

    def program(rank: int, engine: _native.Engine) -> None:
        xs = [np.ones(3, dtype) for dtype in (np.float32, np.float16, np.float32)]
        engine.wait(engine.allreduce("g", [tensor(x) for x in xs], _native.Reduction()))

    settings = traced(tmp_path / "trace.json")
    settings.allreduce_algorithm = "ring"
    on_ranks(3, program, shares_memory=False, settings=settings)
    events = json.loads((tmp_path / "trace.json").read_text())
    members = {e["pid"]: e["args"]["name"] for e in events if e["ph"] == "M"}
    routes = {members[e["pid"]]: e["args"]["route"] for e in events if "route" in e.get("args", {})}
    assert routes.pop("g_2of3").startswith(("exchange gather", "exchange scatter"))
    assert routes == {"g_1of3": "exchange ring", "g_3of3": "exchange ring"}


def test_the_phases_of_a_route_are_activities(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"

    def program(rank: int, engine: _native.Engine) -> None:
        allreduce(engine, "plain", np.ones(500_000, np.float32))
        allreduce(engine, "coded", np.ones(5000, np.float32), codec=_native.get_codec("bit8"))
        x = np.ones(6, np.float32)
        engine.wait(engine.allreduce("adasum", [tensor(x)], _native.Reduction(op=2)))

    on_ranks(2, program, shares_memory=False, settings=traced(path))
    events = json.loads(path.read_text())
    process = {e["args"]["name"]: e["pid"] for e in events if e["ph"] == "M"}

    def activities(name: str) -> list[str]:
        return names([e for e in events if e["pid"] == process[name]], "B")

    # In steps that overlap: the phases alternate.
    plain = activities("plain")
    assert plain[:3] == ["NEGOTIATE_ALLREDUCE", "ALLREDUCE", "MEMCPY_IN_FUSION_BUFFER"]
    assert set(plain[3:]) - {plain[2]} == {"LOCAL_ALLREDUCE", "REDUCE", "MEMCPY_OUT_FUSION_BUFFER"}
    assert plain[-1] == "MEMCPY_OUT_FUSION_BUFFER"
    assert activities("coded") == ["NEGOTIATE_ALLREDUCE", "ALLREDUCE", "ENCODE", "LOCAL_ALLREDUCE", "REDUCE"]
    assert activities("adasum")[:4] == [
        "NEGOTIATE_ALLREDUCE",
        "ADASUM",
        "MEMCPY_IN_FUSION_BUFFER",
        "LOCAL_ADASUM_ALLREDUCE",
    ]


def test_it_starts_and_stops_at_run_time(tmp_path: Path) -> None:
    with stepped_engines(1, traced(Path("DYNAMIC"), mark_cycles=True)) as [engine]:
        x = np.ones(3, np.float32)

        def step(name: str) -> None:
            engine.allreduce(name, [tensor(x)], _native.Reduction())
            engine.step(5.0)

        step("before")
        for path, mark_cycles in ((tmp_path / "first", True), (tmp_path / "second", False)):
            engine.start_timeline(str(path), mark_cycles)
            step(path.name)
            engine.stop_timeline()
            engine.stop_timeline()  # harmless
            step("between")
        engine.start_timeline(str(tmp_path / "third"))
        engine.start_timeline(str(tmp_path / "fourth"))  # ends the third
        step("fourth")
        path = str(tmp_path / "missing" / "x")
        with refused(WrongSetting, "timeline_not_writable", path=path, why=re.compile("No such file")):
            engine.start_timeline(path)
    for name in ("first", "second", "third", "fourth"):
        events = json.loads((tmp_path / name).read_text())
        seen = {e["args"]["name"] for e in events if e["ph"] == "M"}
        assert seen == {"horovod"} | ({name} if name != "third" else set())
        assert ("CYCLE_START" in names(events, "i")) == (name == "first")


def test_starting_needs_the_variable() -> None:
    with stepped_engines(1) as [engine]:
        for name in ("start_timeline", "stop_timeline"):
            with refused(WrongArgument, "timeline_not_asked_for", call=name):
                getattr(engine, name)(*["x"] * (name == "start_timeline"))
    assert not Path("x").exists()


def test_a_folder_that_does_not_exist_is_named(tmp_path: Path) -> None:
    [world] = _native.local_worlds(1)
    path = tmp_path / "missing" / "trace.json"
    with refused(WrongSetting, "timeline_not_writable", path=str(path)):
        _native.Engine(world, traced(path))


def continued(path: Path, tensors: tuple[str, ...]) -> list[dict[str, Any]]:
    """The file's events after another engine, as in a restarted process, has continued it."""
    with stepped_engines(1, traced(Path("DYNAMIC"))) as [engine]:
        engine.start_timeline(str(path), continues=True)
        x = np.ones(3, np.float32)
        for name in tensors:
            engine.allreduce(name, [tensor(x)], _native.Reduction())
            engine.step(5.0)
    events: list[dict[str, Any]] = json.loads(path.read_text())
    return events


def test_another_engine_goes_on_with_a_file(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    quoted = 'with "quotes", "pid": 7 and \\ and \n \x1f é 中'
    with stepped_engines(1, traced(path)) as [engine]:
        for name in ("a", quoted):
            engine.allreduce(name, [tensor(np.ones(3, np.float32))], _native.Reduction())
            engine.step(5.0)
    before = json.loads(path.read_text())
    time.sleep(0.05)
    events = continued(path, (quoted, "b", "a"))
    assert events[: len(before)] == before
    named = [(e["args"]["name"], e["pid"]) for e in events if e["ph"] == "M"]
    assert named == [("horovod", 0), ("a", 1), (quoted, 2), ("b", 3)]
    later = events[len(before) :]
    assert later[0]["ts"] >= before[-1]["ts"] + 50_000 and max(e["ts"] for e in events) < 60e6
    assert len(names(events, "B")) == len(names(events, "E")) == 2 * 5
    assert len(continued(path, ())) == len(events)


def test_what_had_begun_when_its_writer_was_killed_ends(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    with stepped_engines(1, traced(path)) as [engine]:
        engine.allreduce("a", [tensor(np.ones(3, np.float32))], _native.Reduction())
        engine.step(5.0)
    whole = path.read_text()
    lines = whole.splitlines()
    begun = max(number for number, line in enumerate(lines) if '"ALLREDUCE"' in line and '"ph": "B"' in line)
    kept = lines[: begun + 1]
    # Killed during a write: after a whole event, inside the next, before the bracket.
    for end in ("\n", "\n" + lines[begun + 1][:25], "\n" + lines[begun + 1], "\n]\n"):
        path.write_text("\n".join(kept).rstrip(",") + ("" if end == "\n]\n" else ",") + end)
        events = continued(path, ("a",))
        assert len(names(events, "B")) == len(names(events, "E")), end
        assert [e["pid"] for e in events if e["ph"] == "M"] == [0, 1]


@pytest.mark.parametrize("text", ["", "[", "[\n]\n", "no timeline\n", '[\n{"ph": "M"}\n]\n', '{"a": 1}'])
def test_what_is_no_timeline_is_begun_anew(text: str, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text(text)
    events = continued(path, ("a",))
    assert [e["args"]["name"] for e in events if e["ph"] == "M"] == ["horovod", "a"]


def test_spans_of_no_tensor(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    with stepped_engines(1, traced(path)) as [engine]:
        began = time.monotonic()
        engine.note_span("LOSS", began, 0.25, json.dumps({"why": "rank 1"}))
        engine.note_span("LEAVE", began - 1000, 0.125)
    loss, leave = json.loads(path.read_text())[1:]
    assert (loss["ph"], loss["pid"], loss["tid"], loss["name"]) == ("X", 0, 0, "LOSS")
    assert loss["dur"] == pytest.approx(250_000, abs=2) and loss["args"] == {"why": "rank 1"}
    assert 0 <= loss["ts"] < 5e6 and leave["ts"] == 0, "before the file began there is nothing"
    with stepped_engines(1) as [engine]:
        engine.note_span("LOSS", began, 0.25)  # it is not requested
