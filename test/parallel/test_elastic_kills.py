"""Workers that are killed (SIGKILL) at chosen points; the others train on in their processes.

Here a store and this process stand for the launcher: it sees who has ended, and says which workers form the next
world when all that are left have asked for one.
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

import launching
import pytest
import torch
import torch.distributed as dist

PROGRAM = Path(__file__).with_name("elastic_worker.py")
PATIENCE = 90.0
LONGEST = 5.0  # seconds from a kill until the survivors have finished a collective; issue 26 asks for reasons beyond


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
        """Until all workers have ended."""
        deadline = time.monotonic() + PATIENCE
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
    names = [f"w{i}" for i in range(5)]
    job = Job(names, tmp_path / "job", ELASTIC_TEST_DEATHS=deaths)
    started.append(job)
    job.run()
    dead = [each.split()[0] for each in deaths.split(",")]
    alive = [name for name in names if name not in dead]
    codes = {name: process.returncode for name, process in job.processes.items()}
    assert codes == {name: -signal.SIGKILL if name in dead else 0 for name in names}, job.said()
    assert job.worlds[0] == names and job.worlds[-1] == alive and len(alive) == 2
    ends = [job.content(f"end.{name}") for name in alive]
    assert is_same(*ends)

    took = []
    for name in dead:
        killed = float(job.store.get(f"dies/{name}"))
        on = [event["time"] for each in alive for event in job.events(each, "goes on")]
        took.append(min(when for when in on if when > killed) - killed)
    record_property("seconds from a kill to the next finished collective", took)
    with capsys.disabled():
        print(f"\n[{deaths}] from a kill to the next finished collective: "
              f"{', '.join(f'{each:.2f} s' for each in took)}")  # fmt: skip
    limit = LONGEST + (3 if "meeting" in deaths else 0)  # that long the others wait in this test's store
    assert max(took) < limit, job.said()
    ended = [job.events(name, "ends")[0] for name in alive]
    assert all(event["resets"] == len(job.worlds) - 1 - ("meeting" in deaths) for event in ended)
    assert max(event["descriptors"] for event in ended) < 60, "descriptors of old worlds are left"

    last = len(job.worlds)
    start = tmp_path / "job" / f"start.{last}"
    again = Job(["u0", "u1"], tmp_path / "undisturbed", ELASTIC_TEST_START=str(start))
    started.append(again)
    again.run()
    assert [process.returncode for process in again.processes.values()] == [0, 0], again.said()
    assert again.worlds == [["u0", "u1"]]
    assert job.content(f"start.{last}")["step"] < ends[0]["step"]
    assert is_same(again.content("end.u0"), ends[0])

