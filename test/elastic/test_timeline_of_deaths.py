"""What is told of rank 0 that was killed: the timeline goes on, and nobody says that all is over."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import deaths
import pytest


@pytest.mark.timeout(120)
def test_the_timeline_survives_rank_0(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    task = deaths.Task(str(tmp_path), (deaths.Death(0, "step", 7),), epochs=1)
    seen = deaths.run(task, ranks=3, HOROVOD_TIMELINE=str(path), HOROVOD_LOG_LEVEL="info")
    assert seen.code == 0 and seen.of("dies"), seen.err
    assert " E engine.cc" not in seen.err and "cannot go on" not in seen.err, seen.err
    events = json.loads(path.read_text())
    [loss] = [event for event in events if event["name"] == "LOSS"]
    told = loss["args"]
    assert told["lost_ranks"] == [0] and "lost rank 0 (process" in told["why"]
    assert (told["rank_before"], told["size_before"], told["rank"], told["size"]) == (1, 3, 0, 2)
    assert told["generation"] == 2 and told["commit"] > 0
    check_operations(events, loss)


def check_operations(events: list[dict[str, Any]], loss: dict[str, Any]) -> None:
    """All that began has ended, and a gradient travelled before the loss and after it."""
    begun, ended = ([event for event in events if event["ph"] == phase] for phase in "BE")
    assert len(begun) == len(ended)
    by_name = {event["args"]["name"]: event["pid"] for event in events if event["name"] == "process_name"}
    gradient = next(number for name, number in by_name.items() if name == "allreduce.0.weight")
    done = [event["ts"] for event in ended if event["pid"] == gradient]
    assert min(done) < loss["ts"] and max(done) > loss["ts"] + loss["dur"]
