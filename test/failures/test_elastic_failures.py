"""Workers of elastic jobs die, or are struck from outside, on names of this machine: the others train on."""

from __future__ import annotations

import pytest
from failure_places import loopback
from run_failures import Series, shown


@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", [0, 1])  # each point and each rank; `make test-soak` has 100 of them
def test_training_goes_on(seed: int) -> None:
    with loopback() as place:
        record, seen = Series("elastic").record_of(seed, place)
    assert not record["complaints"], f"{shown(record)}\n{seen.err[-6000:]}"


@pytest.mark.timeout(240)
def test_ten_events() -> None:
    """`make test-soak` has 200, on made hosts."""
    with loopback() as place:
        record, seen = Series("soak", 10, 10, on_loopback=True).record_of(3, place)
    assert not record["complaints"], "\n".join([shown(record), *seen.happened, seen.err[-6000:]])
    assert len(record["events"]) == 10 and record["epochs"] > 0
