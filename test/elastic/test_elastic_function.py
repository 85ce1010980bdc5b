"""horovod.run with elastic jobs: results of the remaining ranks, and the error if there are none."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from launching import environment, fresh_mark, processes_of

SCRIPT = """
import os, signal, sys
import horovod


def train(steps, dies_at=None, raises_at=None):
    import torch
    import horovod.torch as hvd

    hvd.init()
    begun_as = os.environ["HOROVOD_RANK"]
    model = torch.nn.Linear(4, 4)
    state = hvd.elastic.TorchState(model=model, step=0)

    @hvd.elastic.run
    def loop(state):
        while state.step < steps:
            total = hvd.allreduce(torch.ones(1), op=hvd.Sum, name="one")
            assert total.item() == hvd.size()
            state.step += 1
            if begun_as == "1" and state.step == dies_at:
                os.kill(os.getpid(), signal.SIGKILL)
            if begun_as == "1" and state.step == raises_at:
                raise LookupError("no such image")
            state.commit()

    loop(state)
    return begun_as, hvd.rank(), hvd.size(), state.step


hosts = "127.0.0.1:1,127.0.0.2:1,127.0.0.3:1"
try:
    print("<", horovod.run(train, (9,), {sys.argv[1]: 4}, num_proc=3, min_num_proc=2, hosts=hosts), ">")
except RuntimeError as error:
    print("failed:", error)
"""


BY_HOST = {"HOROVOD_ELASTIC_BLACKLIST": "host"}  # a worker does not come back during the test


def run(what: str, folder: Path) -> subprocess.CompletedProcess[str]:
    mark = fresh_mark()
    (folder / "script.py").write_text(SCRIPT)
    words = [sys.executable, str(folder / "script.py"), what]
    own = environment(mark, TMPDIR=str(folder), **BY_HOST)
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, env=own)
    assert not processes_of(mark), done.stderr
    assert sorted(os.listdir(folder)) == ["script.py"], "what was sent to workers is gone"
    return done


@pytest.mark.timeout(120)
def test_results_are_those_of_who_is_left(tmp_path: Path) -> None:
    done = run("dies_at", tmp_path)
    assert "< [('0', 0, 2, 9), ('2', 1, 2, 9)] >" in done.stdout, done.stdout + done.stderr


@pytest.mark.timeout(120)
def test_an_exception_comes_with_its_traceback(tmp_path: Path) -> None:
    done = run("raises_at", tmp_path)
    text = done.stdout.partition("failed: ")[2]
    assert text.startswith("the job failed with exit code 1: "), done.stdout + done.stderr
    assert "rank 1 on host 127.0.0.2 exited with code 1 of an exception that nothing caught" in text
    assert "rank 1: its function raised LookupError: no such image\n\nTraceback" in text
    assert "in loop" in text and text.rstrip().endswith("LookupError: no such image")
