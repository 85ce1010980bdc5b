"""Fixed jobs that fail, on made hosts. `run_failures.py` runs more of them, and shows one in full."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from failure_places import LAUNCHER, made
from failure_programs import KINDS
from run_failures import Series, main, run_seeds, shown

from horovod.made_hosts import why_not

SEEDS = len(KINDS)  # a block of seeds, which has every kind once
AT_ONCE = 3  # they mostly wait
KILLED = 5  # a seed with that event, on one host
pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]


@pytest.fixture(scope="session", autouse=True)
def hosts_can_be_made() -> None:
    if reason := why_not():
        pytest.skip(reason)


@pytest.fixture(scope="session")
def records(request: pytest.FixtureRequest) -> Iterator[dict[int, dict[str, Any]]]:
    """The records of the requested programs, which run together."""
    chosen = [item.callspec.params["seed"] for item in request.session.items if _is_of_a_program(item)]
    found: dict[int, dict[str, Any]] = {}
    run_seeds(Series(), chosen, AT_ONCE, lambda record: found.update({record["seed"]: record}))
    yield found


def _is_of_a_program(item: pytest.Item) -> bool:
    return getattr(item, "function", None) is test_a_job_ends_as_it_should


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_job_ends_as_it_should(seed: int, records: dict[int, dict[str, Any]]) -> None:
    record = records[seed]
    again = f"python test/failures/run_failures.py --replay {seed}"
    assert not record["complaints"], f"{shown(record)}\nAll that it printed: {again}"


def test_a_replay_shows_all_that_the_job_printed(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["--replay", str(KILLED)])
    shown_text = capsys.readouterr().out
    assert code == 0, shown_text
    for part in ('"kind": "killed"', "[0]<stdout>:step 0 of rank 0", "was killed by signal 9", ": right\n"):
        assert part in shown_text


def test_a_run_goes_on_where_it_was(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The seeds in the file are not run again, and a recorded complaint remains."""
    file = tmp_path / "results"
    record = {"kind": "fixed", "complaints": []}
    lines = [{**record, "seed": 0}, {**record, "seed": 1, "complaints": ["it hung"]}, {**record, "seed": 7}]
    lines.append({"kind": "elastic", "seed": 0, "complaints": ["it hung"]})
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    assert main(["--seeds", "0,1", "--resume", str(file)]) == 1
    assert capsys.readouterr().out == "2 programs, 1 wrong: 1\n"
    assert main(["--seeds", "0", "--resume", str(file)]) == 0
    assert main(["--kind", "elastic", "--seeds", "0", "--resume", str(file)]) == 1


def test_what_a_job_leaves_is_seen() -> None:
    """Without it the programs above would prove nothing about the judge."""
    with made() as place:
        assert place.left() == []
        leave = 'touch /dev/shm/window "$TMPDIR/session"; setsid sleep 300 & kill -STOP $!'
        command = place.made.command(LAUNCHER, ["sh", "-c", leave])
        subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
        left = place.left()
        assert f"{LAUNCHER}: /dev/shm/window" in left and f"{LAUNCHER}: $TMPDIR/session" in left
        assert [what for what in left if "sleep 300" in what], left
        place.renew()
        assert place.left() == []
