"""Jobs whose processes are started again after a loss: by horovodrun --elastic-restart, and by torchrun."""

from __future__ import annotations

import dataclasses
import glob
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from launching import environment, fresh_mark, horovodrun, processes_of, start

PROGRAM = Path(__file__).with_name("restart_rank.py")
BEHAVIOUR = Path(__file__).with_name("plain_rank.py")
DETERMINISTIC = {"HOROVOD_DETERMINISTIC": "1"}
LIMIT = 200  # seconds, on a machine that does other things


def hosts(count: int) -> list[str]:
    return ["-H", ",".join(f"127.0.0.{number + 1}:1" for number in range(count))]


@dataclasses.dataclass
class Task:
    """As restart_rank.py reads it."""

    folder: Path
    deaths: tuple[tuple[int, str, int], ...] = ()
    more: dict[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        self.folder.mkdir(exist_ok=True)

    def written(self) -> str:
        deaths = [{"rank": rank, "point": point, "step": step} for rank, point, step in self.deaths]
        task = {"folder": str(self.folder), "deaths": deaths, "epochs": 2, **self.more}
        path = self.folder / "task.json"
        path.write_text(json.dumps(task))
        return str(path)

    def notes(self, what: str) -> list[dict[str, Any]]:
        texts = [path.read_text() for path in self.folder.glob("worker-*.jsonl")]
        lines = [line for text in texts for line in text.splitlines()]
        notes = [note for line in lines if (note := json.loads(line))["what"] == what]
        return sorted(notes, key=lambda note: note["at"])

    def undisturbed(self) -> set[str]:
        """Digests of a job that begins where the last processes did, and is left alone."""
        last = [note for note in self.notes("begins") if note["rank"] == 0][-1]
        more = {**self.more, "resume": str(self.folder / last["kept"])}
        twin = Task(self.folder / "undisturbed", (), more)
        words = ["--launcher", "tcp", "-np", str(last["size"]), sys.executable, str(PROGRAM), twin.written()]
        done = horovodrun(*words, limit=LIMIT, **DETERMINISTIC)
        assert done.returncode == 0, done.stderr
        return {note["digest"] for note in twin.notes("ends")}


@pytest.mark.timeout(2 * LIMIT)
@pytest.mark.parametrize(("rank", "point", "step"), [(0, "step", 13), (1, "commit", 12)])
def test_training_goes_on_from_the_newest_commit(rank: int, point: str, step: int, tmp_path: Path) -> None:
    task = Task(tmp_path / "job", ((rank, point, step),))
    options = ["--elastic-restart", "-np", "3", "--min-np", "1", *hosts(3)]
    words = ["python", str(PROGRAM), task.written()]
    timeline = tmp_path / "trace.json"
    done = horovodrun(*options, *words, limit=LIMIT, HOROVOD_TIMELINE=str(timeline), **DETERMINISTIC)
    assert done.returncode == 0, done.stderr
    assert f"host 127.0.0.{rank + 1} is on the blacklist" in done.stderr
    ends, begins = task.notes("ends"), task.notes("begins")
    assert [note["size"] for note in ends] == [2, 2]
    assert len({note["pid"] for note in begins}) == 5, "all processes are new ones"
    assert {note["step"] for note in begins[-2:]} <= ({12} if point == "step" else {9, 12})
    assert {note["digest"] for note in ends} == task.undisturbed()
    assert len({note["folder"] for note in ends}) == 2
    assert not any(os.path.exists(note["folder"]) for note in ends), "commits go with their job"
    began = json.loads(timeline.read_text())[0]["args"]["start_time_since_epoch_in_micros"] / 1e6
    [died] = task.folder.glob("died-*")
    assert began < died.stat().st_mtime, "the timeline goes on"


@pytest.mark.timeout(2 * LIMIT)
def test_under_torchrun(tmp_path: Path) -> None:
    task = Task(tmp_path / "job", ((1, "step", 13),))
    words = ["--standalone", "--nproc-per-node", "2", "--max-restarts", "2", str(PROGRAM), task.written()]
    mark = fresh_mark()
    process = subprocess.Popen(
        [sys.executable, "-m", "torch.distributed.run", *words],
        env=environment(mark, **DETERMINISTIC),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        out, _ = process.communicate(timeout=LIMIT)
    finally:
        process.kill()
        for found in processes_of(mark):
            os.kill(int(found.partition(":")[0]), signal.SIGKILL)
    assert process.returncode == 0, out
    assert [note["step"] for note in task.notes("begins")] == [0, 0, 12, 12]
    assert {note["digest"] for note in task.notes("ends")} == task.undisturbed()
    assert not glob.glob(f"/dev/shm/horovod-commits-*-by-*-{process.pid}-*")


@pytest.mark.timeout(2 * LIMIT)
def test_a_host_comes_and_nothing_is_lost(tmp_path: Path) -> None:
    task = Task(tmp_path / "job", (), {"epochs": 40, "pause": 0.05})
    found = tmp_path / "hosts"
    found.write_text("127.0.0.1\n127.0.0.2\n")
    words = ["--elastic-restart", "-np", "2", "--host-discovery-script", f"cat {found}"]
    mark = fresh_mark()
    process = start([*words, "python", str(PROGRAM), task.written()], mark, **DETERMINISTIC)
    try:
        wait(lambda: len(task.notes("step")) > 6)
        (tmp_path / "new").write_text("127.0.0.1\n127.0.0.2\n127.0.0.3\n")
        (tmp_path / "new").rename(found)
        wait(lambda: len([note for note in task.notes("step") if note["size"] == 3]) >= 3)
    finally:
        process.terminate()
        _, err = process.communicate(timeout=60)
    last = max(note["step"] for note in task.notes("step") if note["size"] == 2)
    assert {note["step"] for note in task.notes("begins") if note["size"] == 3} == {last}, err
    assert "blacklist" not in err and not processes_of(mark)


def wait(is_so: Callable[[], bool], seconds: float = LIMIT) -> None:
    until = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.05)


@pytest.mark.timeout(LIMIT)
@pytest.mark.parametrize("victim", ["launcher", "agent"])
def test_nothing_is_left_where_those_who_would_clean_up_are_killed(victim: str, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(
        "import os, time\n"
        f"open('{tmp_path}/' + os.environ['HOROVOD_RANK'], 'w').write(os.environ['HOROVOD_COMMITS_FOLDER'])\n"
        "time.sleep(600)\n"
    )
    mark = fresh_mark()
    words = ["--elastic-restart", "-np", "2", *hosts(2), "python", str(tmp_path / "script.py")]
    process = start(words, mark)
    try:
        written = [tmp_path / "0", tmp_path / "1"]
        wait(lambda: all(path.exists() and path.read_text() for path in written))
        folders = [path.read_text() for path in written]
        assert all(map(os.path.isdir, folders))
        if victim == "launcher":
            process.kill()
        else:
            for found in [found for found in processes_of(mark) if "agent.py" in found]:
                os.kill(int(found.partition(":")[0]), signal.SIGKILL)
        wait(lambda: not processes_of(mark), 30)
    finally:
        process.kill()
        process.communicate()
    assert not any(map(os.path.isdir, folders))


def without_what_differs(text: str) -> list[str]:
    lines = [line for line in text.splitlines() if "torch is there:" not in line]
    return sorted(re.sub(r"0x[0-9a-f]+", "", line) for line in lines)


@pytest.mark.timeout(LIMIT)
@pytest.mark.parametrize("how", ["", "raise", "exit", "-m"])
def test_a_forked_rank_is_as_one_that_was_started(how: str, tmp_path: Path) -> None:
    words = ["python", str(BEHAVIOUR), how] if how != "-m" else ["python", "-u", "-m", "plain_rank", how]
    more = {"PYTHONPATH": str(BEHAVIOUR.parent)} if how == "-m" else {}
    if more:
        more["PYTHONPATH"] += os.pathsep + environment("")["PYTHONPATH"]
    job = ["--elastic-restart", "-np", "2", *hosts(2)]
    warm = horovodrun(*job, *words, limit=LIMIT, **more)
    cold = horovodrun(*job, "env", *words, limit=LIMIT, **more)
    assert "loads torch anew" in cold.stderr and "loads torch anew" not in warm.stderr
    assert "torch is there: True" in warm.stdout and "torch is there: False" in cold.stdout
    assert without_what_differs(warm.stdout) == without_what_differs(cold.stdout)
    ours = [line for line in warm.stderr.splitlines() if line.startswith("[0]")]
    assert ours == [line for line in cold.stderr.splitlines() if line.startswith("[0]")]
    assert warm.returncode == cold.returncode == {"raise": 1, "exit": 7}.get(how, 0)


@pytest.mark.timeout(LIMIT)
def test_where_torch_cannot_be_loaded_before_ranks_start_by_themselves(tmp_path: Path) -> None:
    python = tmp_path / "python"
    refuses = f'case "$1" in *warm_server.py) exit 1;; esac; exec {sys.executable} "$@"'
    python.write_text(f"#!/bin/sh\n{refuses}\n")
    python.chmod(0o755)
    words = ["--elastic-restart", "-np", "2", *hosts(2), str(python), str(BEHAVIOUR), ""]
    done = horovodrun(*words, limit=LIMIT)
    assert done.returncode == 0, done.stderr
    assert "torch is there: False" in done.stdout and "torch is there: True" not in done.stdout


@pytest.mark.timeout(LIMIT)
def test_an_exception_of_the_script_ends_the_job(tmp_path: Path) -> None:
    task = Task(tmp_path / "job", (), {"raises": 5})
    words = ["--elastic-restart", "-np", "2", *hosts(2), "python", str(PROGRAM), task.written()]
    done = horovodrun(*words, limit=LIMIT)
    assert done.returncode == 1 and "RuntimeError: the data is damaged" in done.stderr
    assert len(task.notes("starts")) == 2


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--launcher", "mpi", *hosts(2)], "MPI's ranks cannot come and go"),
        ([], "an elastic job needs two hosts or more"),
        (["--ddp", *hosts(2)], "a fixed number of ranks"),
    ],
)
def test_where_it_cannot_be(words: list[str], says: str) -> None:
    done = horovodrun("--elastic-restart", "-np", "2", *words, "true")
    assert done.returncode == 2 and says in done.stderr
