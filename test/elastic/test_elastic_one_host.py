"""An elastic job on one machine: a dead worker blocks its slot for a while, and the others train on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import busy
import pytest
from launching import fresh_mark, horovodrun, processes_of, start

# Each step is a line in a file of its process: the size, and the GPU that the process would use.
SCRIPT = """
import json, os, pathlib, time
import torch
import horovod.torch as hvd

hvd.init()
folder, gpu = pathlib.Path(__file__).parent, hvd.local_rank()
notes = open(folder / f"{os.getpid()}.steps", "w", buffering=1)
state = hvd.elastic.TorchState(step=0)


@hvd.elastic.run
def train(state):
    is_over = False
    while not is_over:
        stop = torch.tensor([float((folder / "stop").exists())])
        is_over = hvd.allreduce(stop, op=hvd.Max, name="stop").item() > 0
        state.step += 1
        print(json.dumps({"size": hvd.size(), "step": state.step, "gpu": gpu}), file=notes)
        state.commit()
        time.sleep(0.02)


train(state)
"""
COOLDOWN = ("--blacklist-cooldown-range", "2", "4")
pytestmark = pytest.mark.timeout(180)


def last_steps(folder: Path) -> dict[int, dict[str, Any]]:
    """Return the last step of each process that finished one, by process id."""
    found = {}
    for file in folder.glob("*.steps"):
        if lines := file.read_text().split("\n")[:-1]:
            found[int(file.stem)] = json.loads(lines[-1])
    return found


class Job:
    def __init__(self, folder: Path, *options: str) -> None:
        self.folder, self.mark = folder, fresh_mark()
        (folder / "train.py").write_text(SCRIPT)
        words = ["-np", "3", "--min-np", "2", *options, sys.executable, str(folder / "train.py")]
        self.process = start(words, self.mark, subprocess.DEVNULL)

    def wait(self, is_so: Callable[[], bool]) -> None:
        def has_come() -> bool:
            assert self.process.poll() is None, self.end()
            return is_so()

        busy.until(has_come, 60)

    def wait_for(self, size: int, *without: int) -> dict[int, dict[str, Any]]:
        """Wait until `size` processes, none of them in `without`, train together; return their last steps."""

        def members() -> dict[int, dict[str, Any]]:
            steps = last_steps(self.folder)
            newest = max((step["step"] for step in steps.values()), default=0)
            together = {pid: one for pid, one in steps.items() if one["step"] > newest - 3}
            is_whole = all(one["size"] == size for one in together.values()) and len(together) == size
            return together if is_whole and not set(without) & set(together) else {}

        self.wait(lambda: bool(members()))
        return members() or self.wait_for(size, *without)

    def end(self) -> tuple[int, str]:
        _, err = self.process.communicate(timeout=60)
        return self.process.returncode, err


@pytest.mark.parametrize("restart", [(), ("--elastic-restart",)], ids=["goes on", "starts again"])
def test_a_killed_worker_comes_back_on_its_slot(restart: tuple[str, ...], tmp_path: Path) -> None:
    job = Job(tmp_path, *COOLDOWN, *restart)
    first = job.wait_for(3)
    assert sorted(one["gpu"] for one in first.values()) == [0, 1, 2]
    victim = next(pid for pid, one in first.items() if one["gpu"] == 1)
    os.kill(victim, signal.SIGKILL)
    two = job.wait_for(2, victim)
    again = job.wait_for(3, victim)
    assert sorted(one["gpu"] for one in again.values()) == [0, 1, 2], "each has a GPU of its own"
    if not restart:
        assert set(two) == set(first) - {victim} < set(again), "processes go on"
    assert min(one["step"] for one in again.values()) > max(one["step"] for one in first.values())
    (tmp_path / "stop").touch()
    code, err = job.end()
    assert code == 0, err
    assert "on host localhost was killed by signal 9 (SIGKILL); slot 1 there is used again after 2 s" in err
    assert "blacklist" not in err and "has finished" not in err
    assert not processes_of(job.mark)


def test_it_ends_where_all_are_dead(tmp_path: Path) -> None:
    job = Job(tmp_path)
    for pid in job.wait_for(3):
        os.kill(pid, signal.SIGKILL)
    code, err = job.end()
    assert code == 137 and "nobody is left who holds the state of training" in err, err


def test_a_start_that_always_fails_ends() -> None:
    done = horovodrun("-np", "3", "--min-np", "2", "sh", "-c", "exit 7", limit=60)
    assert done.returncode == 7 and "and no slot is left" in done.stderr, done.stderr
    assert done.stderr.count("is not used again before the job has begun") == 3
