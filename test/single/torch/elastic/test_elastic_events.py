"""Reports of resets: counters, the timeline. Workers are threads, as in test_elastic_worlds.py."""

# private: _untold: memory that must be let go

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from elastic_threads import Lost, together

import horovod.torch as hvd
from horovod.common import rejoining
from horovod.common.elastic import ADDED
from horovod.common.rejoining import HOST_CHANGE, LOSS, Recoveries, Recovery


@pytest.fixture(autouse=True)
def elastic(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOROVOD_ELASTIC", "1")


def trained(lost: dict[str, int], news: int = -1) -> dict[str, Any]:
    """Steps of one allreduce each. Workers are lost at chosen steps; at another, hosts change. Returns each
    worker's final counters.
    """

    def work(name: str) -> Any:
        state = hvd.elastic.TorchState(step=0)

        @hvd.elastic.run
        def train(state: Any) -> Any:
            while state.step < 6:
                hvd.allreduce(torch.ones(3), name="x")
                if lost.get(name) == state.step:
                    raise Lost
                if state.step == news and hvd.rank() == 0:
                    state.on_hosts_updated(1.0, ADDED)
                state.step += 1
                state.commit()
            hvd.barrier()
            return {key: hvd.metrics()[key] for key in ("resets", "losses", "recovery_microseconds")}

        return train(state)

    return together("abc", work)


def test_counters_survive_resets() -> None:
    for counted in trained({"b": 1, "c": 4}, news=2).values():
        assert counted["resets"] == 3 and counted["losses"] == 2
        assert 0 < counted["recovery_microseconds"] < 60_000_000


def test_the_timeline_goes_on_and_tells_of_resets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "trace.json"
    monkeypatch.setenv("HOROVOD_TIMELINE", str(path))
    trained({"b": 1}, news=3)
    events = json.loads(path.read_text())
    check_operations(events)
    inside = [e["name"] for e in events if e["pid"] == 0 and e["ph"] == "X"]
    phases = ["LEAVE", "MEET", "SYNCHRONISE"]
    assert inside == [LOSS, "LEAVE", "RESTORE", *phases[1:], HOST_CHANGE, *phases]
    [loss] = [e for e in events if e["name"] == LOSS]
    [change] = [e for e in events if e["name"] == HOST_CHANGE]
    told = loss["args"]
    assert told["lost_ranks"] in ([], [1]) and told["why"]
    assert (told["rank_before"], told["size_before"], told["rank"], told["size"]) == (0, 3, 0, 2)
    assert (told["generation"], change["args"]["generation"]) == (2, 3) and told["commit"] == 4
    assert set(told["seconds"]) == {"left", "restored", "met", "synchronised"}
    assert sum(told["seconds"].values()) == pytest.approx(loss["dur"] / 1e6, abs=1e-4)
    assert "lost_ranks" not in change["args"] and "restored" not in change["args"]["seconds"]


def check_operations(events: list[dict[str, Any]]) -> None:
    """Events before and after each reset belong to one process of the trace; every begun event has ended."""
    [x] = {e["pid"] for e in events if e["ph"] == "M" and e["args"]["name"] == "allreduce.x"}
    done = [e["ts"] for e in events if e["pid"] == x and e["ph"] == "E" and "dtype" in e.get("args", {})]
    for reset in (e for e in events if e["name"] in (LOSS, HOST_CHANGE)):
        assert min(done) < reset["ts"] and max(done) > reset["ts"] + reset["dur"]
    begun, ended = ([e for e in events if e["ph"] == phase] for phase in "BE")
    assert len(begun) == len(ended)


def test_a_timeline_that_a_script_has_begun_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOROVOD_TIMELINE", "DYNAMIC")
    path = tmp_path / "few.json"

    def work(name: str) -> Any:
        hvd.start_timeline(str(path))
        hvd.allreduce(torch.ones(1), name="before")

        def train(state: Any) -> None:
            hvd.barrier()
            if name == "b":
                raise Lost
            hvd.barrier()
            hvd.allreduce(torch.ones(1), name="after")
            hvd.barrier()

        hvd.elastic.run(train)(hvd.elastic.TorchState(step=0))
        hvd.stop_timeline()

    together("abc", work)
    seen = {e["args"]["name"] for e in json.loads(path.read_text()) if e["ph"] == "M"}
    assert {"allreduce.before", "allreduce.after"} <= seen


def test_an_earlier_jobs_file_is_begun_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on another host, on which the new rank 0 has no file of this job."""
    path = tmp_path / "trace.json"
    monkeypatch.setenv("HOROVOD_TIMELINE", str(path))
    hvd.init()
    path.write_text('[\n{"ph": "M", "name": "process_name", "pid": 0, "args": {"name": "old"}}\n]\n')
    monkeypatch.setattr("horovod.common.basics.os.path.getmtime", lambda path: 1.0)
    rejoining.rejoin()
    [first] = json.loads(path.read_text())
    assert first["args"]["name"] == "horovod"
    hvd.shutdown()


def test_no_timeline_is_no_reason_to_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.setenv("HOROVOD_TIMELINE", str(folder / "trace.json"))
    hvd.init()
    (folder / "trace.json").unlink()
    folder.rmdir()
    with caplog.at_level(logging.WARNING, "horovod"):
        rejoining.rejoin()
    assert str(folder) in caplog.text and "without a timeline" in caplog.text
    hvd.shutdown()


def test_a_recovery_that_another_loss_ends_is_told_too() -> None:
    recoveries = Recoveries()
    recoveries.begin(LOSS, "rank 0 lost rank 2", (2,))
    recoveries.note("left")
    recoveries.begin(LOSS, "rank 0 lost rank 1", (1,))
    for phase in ("left", "restored", "met"):
        recoveries.note(phase)
    first, second = list(recoveries._untold)
    recoveries.end(7)
    assert first.described({"commit": 7})["interrupted"] and "commit" not in first.described({"commit": 7})
    assert first.described({})["lost_ranks"] == [2] and second.described({"commit": 7})["commit"] == 7
    assert [what for what, _, _ in second.phases()] == ["left", "restored", "met", "synchronised"]
    assert not recoveries._untold


def test_phases_are_what_lies_between_marks() -> None:
    marks = [("", 10.0), ("left", 10.5), ("met", 12.5)]
    one = Recovery(HOST_CHANGE, "hosts have changed", (), 0, 2, marks)
    assert one.phases() == [("left", 10.0, 0.5), ("met", 10.5, 2.0)] and one.seconds == 2.5
    assert one.described({})["seconds"] == {"left": 0.5, "met": 2.0}
