"""The timeline in scripts: started and stopped while the job runs, and readable at once."""

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from refusals import refused

import horovod.torch as hvd
from horovod.common.exceptions import WrongSetting

os.environ["HOROVOD_TIMELINE"] = "DYNAMIC"  # after the import and before init(): init reads it

OPERATIONS: dict[str, Callable[[], object]] = {
    "ALLREDUCE": lambda: hvd.allreduce(torch.ones(3), name="apple"),
    "ALLGATHER": lambda: hvd.allgather(torch.ones(3), name="apple"),
    "BROADCAST": lambda: hvd.broadcast(torch.ones(3), 0, name="apple"),
    "ALLTOALL": lambda: hvd.alltoall(torch.ones(hvd.size()), name="apple"),
    "REDUCESCATTER": lambda: hvd.reducescatter(torch.ones(4), name="apple"),
}


@pytest.fixture
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for all ranks: rank 0 writes the file, and all ranks read it."""
    return Path(hvd.broadcast_object(str(tmp_path_factory.mktemp("timeline") / "timeline.json")))


@contextlib.contextmanager
def recorded(path: Path, **how: Any) -> Iterator[None]:
    """Record the block in a timeline; at its end rank 0, which writes, has stopped."""
    hvd.start_timeline(str(path), **how)
    yield
    hvd.stop_timeline()
    hvd.barrier()


@contextlib.contextmanager
def job_with(monkeypatch: pytest.MonkeyPatch, **variables: str | None) -> Iterator[None]:
    """Run the block in a new job with these variables; None removes one."""
    hvd.shutdown()
    with monkeypatch.context() as environment:
        for name, text in variables.items():
            if text is None:
                environment.delenv(name, raising=False)
            else:
                environment.setenv(name, text)
        hvd.init()
        yield
        hvd.barrier()
        hvd.shutdown()
    hvd.init()


def soon_in(path: Path) -> list[dict[str, Any]]:
    """Read the file a tenth of a second after an operation: it is valid JSON without being closed."""
    time.sleep(0.1)
    return json.loads(path.read_text())


def names(events: list[dict[str, Any]]) -> list[str]:
    """Return the names of begins and instants; every end has a begin."""
    return [str(event.get("name")) for event in events if event["ph"] != "E"]


@pytest.mark.parametrize("operation", OPERATIONS)
def test_an_operation_is_readable_at_once(operation: str, path: Path, rank: int, size: int) -> None:
    with recorded(path):
        for count in (1, 2):
            OPERATIONS[operation]()
            if rank == 0:
                events = soon_in(path)
                found = names(events)
                assert found.count(operation) == found.count(f"NEGOTIATE_{operation}") == count
                tensors = [e["args"]["name"] for e in events if e.get("name") == "process_name"]
                assert f"{operation.lower()}.apple" in tensors
                assert {event["ph"] for event in events} <= set("MBEXi")
                # During negotiation, an instant for each rank has its number as name.
                assert all(found.count(str(r)) >= 1 for r in range(size))
                assert "CYCLE_START" not in found
            hvd.barrier()


def spans(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return spans, without barriers: others may be in the next test, in which the file may end."""
    barriers = {e["pid"] for e in events if e["ph"] == "M" and "barrier" in e["args"]["name"]}
    return [event for event in events if event["ph"] in "BEXi" and event["pid"] not in barriers]


def test_spans_are_well_formed(path: Path, rank: int) -> None:
    """Every begin has an end, time does not run backwards, and the end has dtype and shape."""
    with recorded(path):
        for operation in OPERATIONS.values():
            operation()
        handles = [hvd.allreduce_async(torch.ones(3), name=f"fused.{i}") for i in range(10)]
        for handle in handles:
            hvd.synchronize(handle)
    if rank > 0:
        return
    events = spans(soon_in(path))
    depth: dict[Any, int] = {}
    for event in events:
        key = (event["pid"], event.get("tid"))
        depth[key] = depth.get(key, 0) + {"B": 1, "E": -1}.get(event["ph"], 0)
        assert depth[key] >= 0
    assert set(depth.values()) == {0} and min(event["ts"] for event in events) >= 0
    ends = [str(event["args"]) for event in events if event["ph"] == "E" and "args" in event]
    assert any("float32" in args and "3" in args for args in ends)


def test_first_record_says_when_it_began(path: Path, rank: int) -> None:
    before = time.time() * 1e6
    with recorded(path):
        hvd.allreduce(torch.ones(3), name="apple")
        if rank == 0:
            first = soon_in(path)[0]
            assert first["ph"] == "M" and first["name"] == "process_name"
            (began,) = (v for v in first["args"].values() if isinstance(v, int) and v > 1e12)
            assert before - 1e6 <= began <= time.time() * 1e6


def test_cycles_are_marked_when_asked(path: Path, rank: int) -> None:
    with recorded(path, mark_cycles=True):
        hvd.allreduce(torch.ones(3), name="apple")
        if rank == 0:
            events = soon_in(path)
            assert "CYCLE_START" in names(events) and "NEGOTIATE_ALLREDUCE" in names(events)
            assert {event["ph"] for event in events if event["name"] == "CYCLE_START"} == {"i"}


def test_several_in_a_row(path: Path, rank: int) -> None:
    """Each file has only the operations of the time in which it was open."""
    files = [path.with_name(f"timeline.{i}.json") for i in range(3)]
    for i, file in enumerate(files):
        with recorded(file, mark_cycles=bool(i % 2)):
            hvd.allreduce(torch.ones(3), name=f"pear.{i}")
        hvd.allreduce(torch.ones(3), name="unseen")
    hvd.barrier()
    if rank == 0:
        for i, file in enumerate(files):
            text = json.dumps(soon_in(file))
            assert f"allreduce.pear.{i}" in text and "unseen" not in text
            assert all(f"pear.{j}" not in text for j in range(3) if j != i)
            assert ("CYCLE_START" in text) == bool(i % 2)


def test_only_rank_0_writes(path: Path, rank: int) -> None:
    own = path.with_name(f"timeline.{rank}.json")
    with recorded(own):
        hvd.allreduce(torch.ones(3), name="apple")
    time.sleep(0.1)
    assert own.exists() == (rank == 0)


def test_starting_the_same_file_again_begins_anew(path: Path, rank: int) -> None:
    for i in range(2):
        with recorded(path):
            hvd.allreduce(torch.ones(3), name=f"plum.{i}")
    if rank == 0:
        text = json.dumps(soon_in(path))
        assert "plum.1" in text and "plum.0" not in text


def test_stop_without_start_and_twice(path: Path) -> None:
    hvd.stop_timeline()
    hvd.start_timeline(str(path))
    hvd.stop_timeline()
    hvd.stop_timeline()


def test_a_file_that_cannot_be_written(tmp_path: Path, rank: int) -> None:
    if rank == 0:
        path = str(tmp_path / "nowhere" / "timeline.json")
        with refused(WrongSetting, "timeline_not_writable", path=path):
            hvd.start_timeline(path)
    assert torch.equal(hvd.allreduce(torch.ones(2)), torch.ones(2))


def test_errors_are_in_the_timeline(path: Path, rank: int) -> None:
    with recorded(path):
        with pytest.raises(hvd.HorovodInternalError):
            hvd.allreduce(torch.ones(3 + rank), name="mismatch")
        hvd.barrier()
        if rank == 0:
            assert "ERROR" in names(soon_in(path))


def test_barrier_and_join_are_in_the_timeline(path: Path, rank: int) -> None:
    with recorded(path):
        hvd.barrier()
        hvd.join()
        hvd.allreduce(torch.ones(3))
        if rank == 0:
            assert {"BARRIER", "JOIN"} <= set(names(soon_in(path)))


def test_outside_of_a_job_it_is_an_error() -> None:
    hvd.shutdown()
    for start_or_stop in (lambda: hvd.start_timeline("x.json"), hvd.stop_timeline):
        with pytest.raises(ValueError):
            start_or_stop()
    hvd.init()


def test_without_dynamic_at_init_it_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        job_with(monkeypatch, HOROVOD_TIMELINE=None),
        pytest.raises(ValueError, match="HOROVOD_TIMELINE"),
    ):
        hvd.start_timeline(str(tmp_path / "timeline.json"))


def test_timeline_named_at_init(path: Path, rank: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """HOROVOD_TIMELINE=<file>: rank 0 writes it from init() on."""
    with job_with(monkeypatch, HOROVOD_TIMELINE=str(path), HOROVOD_TIMELINE_MARK_CYCLES="1"):
        hvd.allreduce(torch.ones(3), name="apple")
        if rank == 0:
            text = json.dumps(soon_in(path))
            assert all(word in text for word in ("NEGOTIATE_ALLREDUCE", "allreduce.apple", "CYCLE_START"))
