"""A slice of the soak: ten events on names of this machine. `run_soak.py` does 200 on made hosts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import run_soak
import soak_judge
from survival import notes


@pytest.mark.timeout(240)
def test_ten_events(tmp_path: Path) -> None:
    report = run_soak.run(tmp_path, events=10, seconds=20, seed=3, on_loopback=True)
    assert report.complaints == [], "\n".join([*report.events, report.said[-6000:]])
    assert report.figures["events"] == 10 and report.figures["epochs"] > 0


def steps(world: float, step: int, size: int, samples: list[list[int]], **more: Any) -> list[dict[str, Any]]:
    """What ranks write of a step: each "tries", and the first has finished it."""
    place = {"world": world, "step": step, "size": size, "epoch": 0, "at": world + step, **more}
    tries = [{"what": "tries", "samples": own, **place} for own in samples]
    return [*tries, {"what": "step", **place}]


END = [{"what": "epoch", "epoch": 0, "world": 2.0, "digest": "a", "at": 9.0}]


def test_what_was_rolled_back_does_not_count() -> None:
    again = steps(2.0, 2, 1, [[2, 3]]) + END
    whole = steps(1.0, 1, 2, [[0], [1]]) + steps(1.0, 2, 2, [[2], [3]]) + again
    assert notes.wrong_samples(whole, 4) == []
    lost = steps(1.0, 1, 2, [[0], [1]]) + steps(1.0, 2, 2, [[2], [3]]) + steps(2.0, 2, 1, [[2]]) + END
    assert notes.wrong_samples(lost, 4) == ["epoch 0 lost 1 samples"]
    (twice,) = notes.wrong_samples(whole + steps(2.0, 3, 1, [[0, 1]]), 4)
    assert twice.startswith("epoch 0 did 2 samples again")


def test_ranks_that_differ_and_processes_that_grow_are_named() -> None:
    assert notes.wrong_bits([*END, *END]) == []
    assert notes.wrong_bits([*END, {**END[0], "digest": "b"}]) == ["at the end of epoch 0 ranks differ"]
    steady = [
        {"memory": 100 << 20, "descriptors": 30 + number % 3, "threads": 5, "shared": 2}
        for number in range(30)
    ]
    assert soak_judge.leaks("it", steady) == []
    growing = [{**held, "descriptors": 30 + number} for number, held in enumerate(steady)]
    assert soak_judge.leaks("it", growing) == ["it holds 11 more descriptors"]
