"""Elastic jobs on several hosts: ranks that --elastic-restart starts again, and a function of horovod.run."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import rig  # puts test/parallel on the path
from launching import MARK, fresh_mark
from rig import Cluster
from test_agents_on_hosts import all_end

FAILURES = rig.ROOT / "test" / "failures"
sys.path.append(str(FAILURES))
from failure_programs import Event, Moment, Program  # noqa: E402

LIMIT = 150.0  # seconds
FUNCTION = """
import os, signal, sys
import horovod

def work(mark):
    import torch, horovod.torch as hvd
    hvd.init()
    state = hvd.elastic.TorchState(step=0)

    @hvd.elastic.run
    def train(state):
        while state.step < 30:
            hvd.allreduce(torch.ones(3), name="x")
            state.step += 1
            if state.step % 5 == 0:
                state.commit()
            if state.step == 13 and os.uname().nodename == "t2" and not os.path.exists(mark):
                open(mark, "w").close()
                os.kill(os.getpid(), signal.SIGKILL)
        return hvd.rank(), hvd.size(), os.uname().nodename, state.step

    return train(state)

print(sorted(horovod.run(work, (sys.argv[1],), num_proc=3, min_num_proc=2, hosts="t1:1,t2:1,t3:1")))
"""


@pytest.mark.timeout(LIMIT + 30)
def test_ranks_are_started_again_on_the_hosts_that_are_left(cluster: Cluster, tmp_path: Path) -> None:
    """The commits are in each host's memory; the remaining ranks agree on the newest."""
    program = Program("elastic", 0, (1, 1, 2), (Event("killed", 2, moment=Moment("step", step=13)),))
    (tmp_path / "program.json").write_text(json.dumps(program.as_record()))
    mark = fresh_mark()
    options = ("--elastic-restart", "--blacklist", "host", "-np", "4", "--min-np", "1")
    command = (sys.executable, str(FAILURES / "failing_rank.py"), str(tmp_path))
    hosts = ("-H", "t1:1,t2:1,t3:2")
    own = {"HOROVOD_DETERMINISTIC": "1", MARK: mark}
    done = cluster.horovodrun(*options, *hosts, *command, limit=LIMIT, **own)
    assert done.returncode == 0, done.stderr
    assert "host t3 is on the blacklist" in done.stderr
    files = tmp_path.glob("worker-*.jsonl")
    notes = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    ends = [note for note in notes if note["what"] == "ends"]
    assert [note["size"] for note in ends] == [2, 2] and len({note["digest"] for note in ends}) == 1
    begun = sorted((note for note in notes if note["what"] == "begins"), key=lambda note: note["at"])
    assert [(note["size"], note["step"]) for note in begun] == [(4, 0)] * 4 + [(2, 12)] * 2
    all_end(mark, 10)
    assert cluster.files_left() == []


@pytest.mark.timeout(LIMIT + 30)
def test_a_function_goes_on_without_a_host(cluster: Cluster, tmp_path: Path) -> None:
    mark = fresh_mark()
    words = [sys.executable, "-c", FUNCTION, str(tmp_path / "died")]
    done = cluster.run("t1", words, LIMIT, HOROVOD_ELASTIC_BLACKLIST="host", **{MARK: mark})
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "[(0, 2, 't1', 30), (1, 2, 't3', 30)]", done.stderr
    all_end(mark, 10)
