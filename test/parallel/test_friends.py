"""Lightning, Accelerate and Trainer, as docs/ddp.md has them, and in scripts without this package."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shlex
import sys
from functools import lru_cache
from pathlib import Path

import pytest
from example_runs import EXAMPLES, ROOT, real_mnist, run
from installed_package import environment_with_metadata
from launching import environment
from page_blocks import blocks, commands

pytestmark = pytest.mark.timeout(400)
SECTION = "Lightning, Accelerate, Trainer"
CALLBACK, STRATEGY, AFTER_PREPARE, ON_TRAIN_BEGIN = blocks("docs/ddp.md", "python", SECTION)
RUN = [sys.executable, "-m", "horovod.runner", "-np", "2", "--ddp"]

# Every script trains alike, three steps of one layer, and prints the SHA-256 of each way's parameters.
COMMON = """
import hashlib, json, os, sys
import torch
from torch.utils.data import DataLoader, TensorDataset

def data():
    torch.manual_seed(1)
    return TensorDataset(torch.randn(48, 64), torch.randn(48, 64))

def layer():
    torch.manual_seed(0)
    return torch.nn.Linear(64, 64)

def checksum(model):
    return hashlib.sha256(model.weight.detach().numpy().tobytes()).hexdigest()

def tell(**checksums):
    print(json.dumps(checksums), flush=True)
"""
LIGHTNING = """
import lightning
from common import *

class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = layer()

    def training_step(self, batch, _):
        x, y = batch
        return ((self.layer(x) - y) ** 2).mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

def trained(**options):
    model = Model()
    extras = ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary")
    ranks = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    options = {"strategy": "ddp", **dict.fromkeys(extras, False), **options}
    trainer = lightning.Trainer(accelerator="cpu", devices=ranks, max_steps=3, **options)
    trainer.fit(model, DataLoader(data(), 8))
    return checksum(model.layer)
"""
LIGHTNING_SAYS_NOTHING = """
from model import *
tell(unsaid=trained())
"""
LIGHTNING_SAYS_IT = f"""
from model import *
{CALLBACK}
from lightning.pytorch.strategies import DDPStrategy as GpusOnly

class OnCpusToo(GpusOnly):
    def configure_ddp(self):
        super().configure_ddp()
        self.model.register_comm_hook(self._ddp_comm_state, self._ddp_comm_hook)

{STRATEGY.replace(" DDPStrategy(", " OnCpusToo(")}
tell(
    plain=trained(),
    callback=trained(callbacks=callbacks),
    strategy=trained(strategy=strategy),
)
"""
ACCELERATE = f"""
from accelerate import Accelerator
from common import *

def trained(is_compressed):
    accelerator = Accelerator(cpu=True)
    model, loader = layer(), DataLoader(data(), 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    if is_compressed:
{re.sub("^", " " * 8, AFTER_PREPARE, flags=re.MULTILINE)}
    else:
        model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for x, y in loader:
        optimizer.zero_grad()
        accelerator.backward(((model(x) - y) ** 2).mean())
        optimizer.step()
    return checksum(accelerator.unwrap_model(model))

tell(plain=trained(False), prepared=trained(True))
"""
TRAINER = f"""
import tempfile
from transformers import Trainer, TrainingArguments
from common import *

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = layer()

    def forward(self, x, labels):
        return {{"loss": ((self.layer(x) - labels) ** 2).mean()}}

def trained(is_compressed):
    model, rows = Model(), [{{"x": x, "labels": y}} for x, y in data()]
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder, use_cpu=True, max_steps=3, save_strategy="no", report_to="none", disable_tqdm=True
        )
        trainer = Trainer(model=model, args=arguments, train_dataset=rows)
        if is_compressed:
{re.sub("^", " " * 12, ON_TRAIN_BEGIN, flags=re.MULTILINE)}
        trainer.train()
    return checksum(model.layer)

tell(plain=trained(False), callback=trained(True))
"""


def need(library: str) -> None:
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"{library} is not installed: pip install {library}, or this package's extra `friends`")


@lru_cache
def checksums(folder: Path, script: str, *command: str) -> dict[str, str]:
    """Return the output of a script of two ranks, which must agree."""
    found = told(folder, script, *command)[0]
    assert len(found) == 2 and found[0] == found[1], found
    return found[0]


def told(folder: Path, script: str, *command: str) -> tuple[list[dict[str, str]], str]:
    """Return the output of each rank of a script, and the errors of all."""
    for name, text in (("common.py", COMMON), ("model.py", LIGHTNING), ("script.py", script)):
        (folder / name).write_text(text)
    packages = folder / "packages"
    if not packages.exists():
        packages.mkdir()
        environment_with_metadata(packages)
    path = os.pathsep.join([str(packages), environment("friends")["PYTHONPATH"]])
    variables = environment("friends", OMP_NUM_THREADS="1", PYTHONPATH=path)
    ended = run([*command, "script.py"], folder, 300, **variables)
    return [json.loads(text) for text in re.findall(r'\{"[^}]*\}', ended.stdout)], ended.stderr


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("friends")


def test_lightning(folder: Path) -> None:
    """The callback and the strategy's own way give equal results, which differ from exact training."""
    need("lightning")
    found = checksums(folder, LIGHTNING_SAYS_IT, *RUN, sys.executable)
    assert found["plain"] != found["callback"] == found["strategy"]


TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
COMMANDS = {  # a script without compression -> its equal in LIGHTNING_SAYS_IT. CI has the first
    "horovodrun": ([*RUN, "--compression", "bit8", sys.executable], "callback"),
    "torchrun": ([*TORCHRUN, "-m", "horovod.torch.ddp", "--compression", "bit8"], "callback"),
    "plain": ([*RUN, sys.executable], "plain"),
}


@pytest.mark.parametrize(
    "way", [pytest.param(way, marks=[pytest.mark.slow] * (way != "horovodrun")) for way in COMMANDS]
)
def test_a_lightning_script_that_says_nothing(way: str, folder: Path) -> None:
    need("lightning")
    command, twin = COMMANDS[way]
    said = checksums(folder, LIGHTNING_SAYS_IT, *RUN, sys.executable)
    assert checksums(folder, LIGHTNING_SAYS_NOTHING, *command)["unsaid"] == said[twin]


@pytest.mark.parametrize(
    "library, script", [("accelerate", ACCELERATE), ("transformers", TRAINER)], ids=["accelerate", "trainer"]
)
def test_hugging_face(library: str, script: str, folder: Path) -> None:
    need(library)
    found = checksums(folder, script, *RUN, sys.executable)
    assert len(set(found.values())) == 2, found


def test_each_works_with_one_process(folder: Path) -> None:
    """`python script.py`: all three in one, because their imports take longest."""
    for library in ("lightning", "accelerate", "transformers"):
        need(library)
    scripts = {"accelerate": ACCELERATE, "trainer": TRAINER, "lightning": LIGHTNING_SAYS_IT}
    for name, text in scripts.items():
        (folder / f"{name}_alone.py").write_text(text)
    names = [f"{name}_alone.py" for name in scripts]
    all_three = f"import runpy\nfor name in {names}:\n    runpy.run_path(name)"
    found, complaints = told(folder, all_three, sys.executable)
    assert len(found) == 3
    for each in found:
        assert len(set(each.values())) == 1, "nothing is compressed"
    assert complaints.count("ddp.compress(): there is one process, so nothing is sent") == 2, complaints


@pytest.mark.parametrize("command", commands("docs/ddp.md", SECTION))
def test_an_example(command: str, tmp_path: Path) -> None:
    (name,) = re.findall(r"examples/(\w+)_\w+\.py", command)
    need({"trainer": "transformers"}.get(name, name))
    if "mnist" in command and real_mnist() is None:
        pytest.skip("no real MNIST: neither $MNIST_DATA_DIR nor ../shared/data/mnist")
    launcher, *words = shlex.split(command)
    ranks, module = {"horovodrun": (2, ["-m", "horovod.runner"]), "python": (1, [])}[launcher]
    more = environment("friends", MNIST_DATA_DIR=str(real_mnist() or ""), OMP_NUM_THREADS="1")
    printed = run([sys.executable, *module, *words], ROOT, 300, **more).stdout
    assert f"compression    bit8, {ranks} rank(s)" in printed
    same = rf"parameters     bit-identical on {ranks} rank\(s\), SHA-256 \w{{16}}$"
    assert re.search(same, printed, re.MULTILINE)
    if "mnist" in command:
        (accuracy,) = re.findall(r"test accuracy  ([\d.]+) %", printed)
        assert float(accuracy) > 85
    elif ranks > 1:
        (loss,) = re.findall(r"training loss  ([\d.]+) ", printed)
        assert float(loss) < 4.5, "a model that guesses has 5.5, the logarithm of 256"


def test_examples_end_alike_without_data(tmp_path: Path) -> None:
    need("accelerate")
    more = environment("friends", MNIST_DATA_DIR=str(tmp_path))
    ended = run([*RUN, sys.executable, "accelerate_mnist.py"], EXAMPLES, 300, expected_exit=None, **more)
    assert ended.returncode == 1
    assert 1 <= ended.stderr.count(f"{tmp_path} lacks train-images-idx3-ubyte") <= 2  # by each rank
