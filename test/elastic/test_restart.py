"""Jobs whose processes restart after a loss: by horovodrun --elastic-restart, and by torchrun."""

from __future__ import annotations

import glob
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import busy
import pytest
from elastic_job import Job, at_step
from launching import environment, fresh_mark, horovodrun, processes_of, start

BEHAVIOUR = Path(__file__).with_name("plain_rank.py")
DETERMINISTIC = {"HOROVOD_DETERMINISTIC": "1"}
LIMIT = 200  # seconds, on a busy machine


def hosts(count: int) -> list[str]:
    return ["-H", ",".join(f"127.0.0.{number + 1}:1" for number in range(count))]


class RestartedJob(Job):
    def undisturbed(self) -> set[str]:
        """Return the digests of an undisturbed job that begins at the state of the last processes."""
        last = [note for note in self.notes("begins") if note["rank"] == 0][-1]
        twin = Job(self.folder / "undisturbed", resume=last["kept"])
        words = ["--launcher", "tcp", "-np", str(last["size"])]
        done = horovodrun(*words, *twin.command, limit=LIMIT, **DETERMINISTIC)
        assert done.returncode == 0, done.stderr
        return {note["digest"] for note in twin.notes("ends")}


@pytest.mark.timeout(2 * LIMIT)
@pytest.mark.parametrize(
    ("rank", "point", "step"), [(0, "step", 13), pytest.param(1, "kept", 12, marks=pytest.mark.slow)]
)
def test_training_goes_on_from_the_newest_commit(rank: int, point: str, step: int, tmp_path: Path) -> None:
    job = RestartedJob(tmp_path / "job", at_step("killed", rank, step, point))
    options = ["--elastic-restart", "-np", "3", "--min-np", "1", "--blacklist", "host", *hosts(3)]
    timeline = tmp_path / "trace.json"
    done = horovodrun(*options, *job.command, limit=LIMIT, HOROVOD_TIMELINE=str(timeline), **DETERMINISTIC)
    assert done.returncode == 0, done.stderr
    assert f"host 127.0.0.{rank + 1} is on the blacklist" in done.stderr
    ends, begins = job.notes("ends"), job.notes("begins")
    assert [note["size"] for note in ends] == [2, 2]
    assert len({note["pid"] for note in begins}) == 5, "all processes are new ones"
    assert {note["step"] for note in begins[-2:]} <= ({12} if point == "step" else {9, 12})
    assert {note["digest"] for note in ends} == job.undisturbed()
    folders = {note["commits"] for note in begins[-2:]}
    assert len(folders) == 2 and not any(map(os.path.exists, folders)), "commits go with their job"
    began = json.loads(timeline.read_text())[0]["args"]["start_time_since_epoch_in_micros"] / 1e6
    [died] = job.folder.glob("struck-*")
    assert began < died.stat().st_mtime, "the timeline goes on"


@pytest.mark.timeout(2 * LIMIT)
def test_under_torchrun(tmp_path: Path) -> None:
    job = RestartedJob(tmp_path / "job", at_step("killed", 1, 13))
    words = ["--standalone", "--nproc-per-node", "2", "--max-restarts", "2", *job.command[1:]]
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
    assert [note["step"] for note in job.notes("begins")] == [0, 0, 12, 12]
    assert {note["digest"] for note in job.notes("ends")} == job.undisturbed()
    assert not glob.glob(f"/dev/shm/horovod-commits-*-by-*-{process.pid}-*")


@pytest.mark.timeout(2 * LIMIT)
def test_a_host_comes_and_nothing_is_lost(tmp_path: Path) -> None:
    job = Job(tmp_path / "job", epochs=40)
    with job.started("--elastic-restart", "-np", "2"):
        job.wait(lambda _: len(job.notes("step")) > 6, LIMIT)
        job.hosts(1, 2, 3)
        job.wait(lambda _: len([note for note in job.notes("step") if note["size"] == 3]) >= 3, LIMIT)
    last = max(note["step"] for note in job.notes("step") if note["size"] == 2)
    assert {note["step"] for note in job.notes("begins") if note["size"] == 3} == {last}, job.err
    assert "blacklist" not in job.err


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
        busy.until(lambda: all(path.exists() and path.read_text() for path in written), LIMIT)
        folders = [path.read_text() for path in written]
        assert all(map(os.path.isdir, folders))
        if victim == "launcher":
            process.kill()
        else:
            for found in [found for found in processes_of(mark) if "agent.py" in found]:
                os.kill(int(found.partition(":")[0]), signal.SIGKILL)
        busy.until(lambda: not processes_of(mark))
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
    elastic = ["--elastic-restart", "-np", "2", *hosts(2)]
    warm = horovodrun(*elastic, *words, limit=LIMIT, **more)
    cold = horovodrun(*elastic, "env", *words, limit=LIMIT, **more)
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
    job = Job(tmp_path / "job", at_step("exception", 0, 5))
    done = horovodrun("--elastic-restart", "-np", "2", *hosts(2), *job.command, limit=LIMIT)
    assert done.returncode == 1 and "RuntimeError: the loss is not finite" in done.stderr
    assert len(job.notes("starts")) == 2


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--launcher", "mpi", *hosts(2)], "MPI's ranks cannot come and go"),
        (["--blacklist", "host"], "--blacklist host needs two hosts or more"),
        (["--ddp", *hosts(2)], "a fixed number of ranks"),
    ],
)
def test_where_it_cannot_be(words: list[str], says: str) -> None:
    done = horovodrun("--elastic-restart", "-np", "2", *words, "true")
    assert done.returncode == 2 and says in done.stderr
