"""Workers that are killed (SIGKILL) at chosen points; the others train on in their processes.

A store and this process replace the launcher: it sees which workers have ended, and defines the next world
when all remaining workers have requested one.
"""

from __future__ import annotations

import datetime
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import busy
import launching
import pytest
import torch
import torch.distributed as dist

PROGRAM = Path(__file__).with_name("elastic_worker.py")
WORKERS = [f"w{i}" for i in range(5)]
PATIENCE = 90.0
LONGEST = 5.0  # seconds from a kill until survivors have finished a collective


class Job:
    """A launcher and its workers."""

    def __init__(self, names: list[str], folder: Path, **variables: str) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)
        self.store: Any = dist.TCPStore(  # type: ignore[attr-defined]
            "127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=datetime.timedelta(seconds=30)
        )
        self.worlds: list[list[str]] = []
        self.asked = dict.fromkeys(names, 0)
        self.processes = {name: self._start(name, variables) for name in names}

    def _start(self, name: str, variables: dict[str, str]) -> subprocess.Popen[str]:
        out = (self.folder / f"{name}.out").open("w")
        err = (self.folder / f"{name}.err").open("w")
        own = {"HOROVOD_ELASTIC": "1", "HOROVOD_DETERMINISTIC": "1", "OMP_NUM_THREADS": "1", **variables}
        return subprocess.Popen(
            [sys.executable, str(PROGRAM), name, str(self.store.port), str(self.folder)],
            env=launching.environment("elastic", **own),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            text=True,
        )

    def run(self) -> None:
        """Wait until all workers have ended."""
        deadline = busy.limit(PATIENCE)
        while running := [name for name, each in self.processes.items() if each.poll() is None]:
            assert time.monotonic() < deadline, self.said()
            asks = {name: self.store.add(f"asks/{name}", 0) for name in running}
            if all(asks[name] > self.asked[name] for name in running):
                self.asked.update(asks)
                before = self.worlds[-1] if self.worlds else []
                order = [name for name in before if name in running]
                self.worlds.append(order + [name for name in running if name not in order])
                self.store.set(f"world/{len(self.worlds)}", json.dumps(self.worlds[-1]))
            time.sleep(0.005)

    def end(self) -> None:
        for process in self.processes.values():
            if process.poll() is None:
                process.kill()
            process.wait()

    def said(self) -> str:
        self.end()
        return "\n".join(f"{path.name}: {path.read_text()[-3000:]}" for path in self.folder.glob("*.*"))

    def events(self, name: str, kind: str) -> list[dict[str, Any]]:
        lines = (self.folder / f"{name}.out").read_text().splitlines()
        return [event for event in map(json.loads, lines) if event["event"] == kind]

    def content(self, file: str) -> dict[str, Any]:
        loaded: dict[str, Any] = torch.load(self.folder / file, weights_only=True)
        return loaded


@pytest.fixture
def started() -> Iterator[list[Job]]:
    jobs: list[Job] = []
    yield jobs
    for job in jobs:
        job.end()


def is_same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(is_same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(is_same, one, other))
    return bool(one == other)


SCENES = {
    "negotiation of rank 0, bulk data, commit": "w0 negotiation 3,w1 bulk 6,w3 commit 9",
    "idle, step, another's reset": "w1 idle 3,w4 step 7,w0 reset 2",
    "two at once, in a meeting": "w0 step 4,w2 step 4,w4 meeting 2",
}


@pytest.mark.timeout(180)
@pytest.mark.parametrize("deaths", SCENES.values(), ids=SCENES.keys())
def test_the_others_train_on(
    tmp_path: Path, started: list[Job], deaths: str, record_property: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    job = Job(WORKERS, tmp_path / "job", ELASTIC_TEST_DEATHS=deaths)
    started.append(job)
    job.run()
    dead = [each.split()[0] for each in deaths.split(",")]
    alive = [name for name in WORKERS if name not in dead]
    check_ends(job, dead, alive)
    took = seconds_of(job, dead, alive)
    record_property("seconds from a kill to the next finished collective", took)
    with capsys.disabled():
        texts = ", ".join(f"{each:.2f} s" for each in took)
        print(f"\n[{deaths}] from a kill to the next finished collective: {texts}")
    limit = LONGEST + (3 if "meeting" in deaths else 0)  # the others wait so long in this test's store
    assert max(took) < limit, job.said()
    check_bits(job, alive, tmp_path / "undisturbed", started)


def check_ends(job: Job, dead: list[str], alive: list[str]) -> None:
    """Check that the victims were killed, and that the others ended with a reset for each world."""
    codes = {name: process.returncode for name, process in job.processes.items()}
    assert codes == {name: -signal.SIGKILL if name in dead else 0 for name in WORKERS}, job.said()
    assert job.worlds[0] == WORKERS and job.worlds[-1] == alive and len(alive) == 2
    formed = {event["world"] for name in WORKERS for event in job.events(name, "goes on")}
    for name in alive:
        (end,) = job.events(name, "ends")
        assert end["resets"] == len(formed) - 1
        assert end["descriptors"] < 60, "descriptors of old worlds are left"


def seconds_of(job: Job, dead: list[str], alive: list[str]) -> list[float]:
    """Return the seconds from each death until the first collective of the others was finished."""
    on = sorted(event["time"] for name in alive for event in job.events(name, "goes on"))
    killed = [float(job.store.get(f"dies/{name}")) for name in dead]
    return [next(when for when in on if when > each) - each for each in killed]


def check_bits(job: Job, alive: list[str], folder: Path, started: list[Job]) -> None:
    """Survivors end like a job of their number that was started from the state at their last reset."""
    last = len(job.worlds)
    again = Job(["u0", "u1"], folder, ELASTIC_TEST_START=str(job.folder / f"start.{last}"))
    started.append(again)
    again.run()
    assert [process.returncode for process in again.processes.values()] == [0, 0], again.said()
    assert again.worlds == [["u0", "u1"]]
    ends = [*(job.content(f"end.{name}") for name in alive), again.content("end.u0")]
    assert is_same(ends[0], ends[1]) and is_same(ends[0], ends[2])
    assert job.content(f"start.{last}")["step"] < ends[0]["step"], "nothing was left to train"
