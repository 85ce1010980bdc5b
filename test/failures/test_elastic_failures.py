"""Workers of elastic jobs die, or are struck from outside, on names of this machine: the others train on."""

from __future__ import annotations

import pytest
from failure_judge import complaints
from failure_places import loopback
from failure_programs import Event, Moment, Program
from failure_runner import run
from run_failures import Series, shown


@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", [0, 1])  # each point and each rank; `make test-soak` has 100 of them
def test_training_goes_on(seed: int) -> None:
    with loopback() as place:
        record, seen = Series("elastic").record_of(seed, place)
    assert not record["complaints"], f"{shown(record)}\n{seen.err[-6000:]}"


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_ten_events() -> None:
    """`make test-soak` has 200, on made hosts."""
    with loopback() as place:
        record, seen = Series("soak", 10, 10, on_loopback=True).record_of(3, place)
    assert not record["complaints"], "\n".join([shown(record), *seen.happened, seen.err[-6000:]])
    assert len(record["events"]) == 10 and record["epochs"] > 0


@pytest.mark.timeout(330)
@pytest.mark.parametrize(
    ("way", "victim"), [("plain", 0), ("compress", 1), pytest.param("backend", 2, marks=pytest.mark.slow)]
)
def test_survivors_make_a_new_process_group(way: str, victim: int) -> None:
    """DDP inside of hvd.elastic.run: ranks leave groups, and make them again."""
    death = Event("killed", victim, moment=Moment("idle", step=7))
    program = Program("elastic", 0, (1, 1, 1), (death,), way=way, epochs=1)
    with loopback() as place:
        seen = run(program, place)
    assert complaints(program, seen) == [], seen.err[-6000:]
    began = [note for note in seen.told("begins") if note["rank"] == 0][-1]
    assert (began["size"], began["step"]) == (2, 6)


@pytest.mark.timeout(180)
def test_an_error_of_the_script_is_not_tried_again() -> None:
    """The error's text reads like a lost rank, but all ranks exist. The launcher goes by the text."""
    error = Event("exception_like_a_loss", 0, moment=Moment("step", step=5))
    with loopback() as place:
        seen = run(Program("elastic", 0, (1, 1), (error,), way="plain"), place)
    assert seen.err.count("RuntimeError: Connection closed by peer: of a database") == 1, seen.err
    [failed] = {note["worker"] for note in seen.told("strikes")}
    assert [note["step"] for note in seen.told("begins") if note["worker"] == failed] == [0]
