"""docs/logging.md: its scripts with two ranks, its commands, and the files that they write.

TensorBoard is the real one. A stand-in for wandb, as the page says, records calls.
"""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import launching
import pytest
import typed
from page_blocks import ROOT, blocks, commands

PAGE = "docs/logging.md"
WITH_TENSORBOARD, WITH_WANDB = blocks(PAGE, "python")
TRAIN, SHOW = commands(PAGE)
PARAMETERS, STEP_BYTES = 64 * 32, 32 * 4  # the weight in 8 bits, the bias exactly
WANDB = """
import json

class Run:
    def log(self, figures, step):
        print(json.dumps({"step": step, **figures}), flush=True)

    def finish(self):
        print("finished", flush=True)

def init(project, mode, config):
    print(json.dumps({"mode": mode, **config}), flush=True)
    return Run()
"""


@pytest.fixture(scope="module")
def logged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("tensorboard", reason="TensorBoard is not installed: pip install tensorboard")
    folder = tmp_path_factory.mktemp("logged")
    (folder / "logged.py").write_text(WITH_TENSORBOARD)
    assert typed.output_of(TRAIN, folder) == ""
    return folder


def test_rank_0_alone_has_written_figures_of_all(logged: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    (file,) = (logged / "runs").rglob("events.*")  # a second one would be another rank's
    events = EventAccumulator(str(file)).Reload()
    names = ("wire_bytes", "collective_microseconds", "blocked_microseconds")
    assert set(events.Tags()["scalars"]) == {"loss", *(f"horovod/{name}" for name in names)}
    losses = events.Scalars("loss")
    assert [point.step for point in losses] == list(range(10, 101, 10))
    assert losses[-1].value < losses[0].value / 2
    for point in events.Scalars("horovod/wire_bytes"):
        assert PARAMETERS + STEP_BYTES <= point.value < 1.1 * (PARAMETERS + STEP_BYTES)


def test_tensorboard_shows_it(logged: Path) -> None:
    environment = launching.environment(launching.fresh_mark())
    words = [*SHOW.split(), "--port", "0"]  # a free port: others may use the default
    with subprocess.Popen(words, cwd=logged, env=environment, stderr=subprocess.PIPE, text=True) as server:
        try:
            said = iter(server.stderr or ())
            assert any(re.search(r"TensorBoard \S+ at http://", line) for line in said)
        finally:
            server.terminate()


def test_weights_and_biases(tmp_path: Path) -> None:
    (tmp_path / "wandb.py").write_text(WANDB)
    (tmp_path / "train.py").write_text(WITH_WANDB)
    printed = typed.output_of("horovodrun -np 2 python train.py", tmp_path)
    lines = [line.removeprefix("[0]<stdout>:") for line in printed.splitlines()]
    begun, *figures = (json.loads(line) for line in lines[:-1])
    assert begun == {"mode": "offline", "ranks": 2}
    assert [(each["step"], each["loss"]) for each in figures] == [(step, 0.5) for step in range(5)]
    assert lines[-1] == "finished"
    assert "stand-in" in (ROOT / PAGE).read_text()
