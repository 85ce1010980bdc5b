"""horovod.torch.lightning, and docs/lightning.md: the newest Lightning, and the release before it."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from example_runs import run
from launching import environment
from page_blocks import blocks

if importlib.util.find_spec("lightning") is None:
    pytest.skip("Lightning is not installed: pip install lightning", allow_module_level=True)

pytestmark = pytest.mark.timeout(400)
PAGE = "docs/lightning.md"
STRATEGY, CALLBACK = blocks(PAGE, "python")
RUN = [sys.executable, "-m", "horovod.runner", "-np", "2"]

# Both ranks print checksums of the parameters, and the results of the strategy's collectives.
SCRIPT = """
import hashlib, json, tempfile
import lightning, torch
import horovod.torch as hvd
from horovod.torch.lightning import HorovodStrategy
from lightning.pytorch.utilities import rank_zero_only
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

def data():
    torch.manual_seed(1)
    return TensorDataset(torch.randn(56, 64), torch.randn(56, 64))

class Model(lightning.LightningModule):
    def __init__(self, seed=0):
        super().__init__()
        torch.manual_seed(seed)
        self.layer, self.unused = torch.nn.Linear(64, 64), torch.nn.Linear(2, 2)

    def training_step(self, batch, _):
        x, y = batch
        return ((self.layer(x) - y) ** 2).mean()

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)]

def checksum(model):
    return hashlib.sha256(model.layer.weight.detach().numpy().tobytes()).hexdigest()

def by_hand(passes, most):
    model = Model()
    (optimizer,), (scheduler,) = model.configure_optimizers()
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters(), backward_passes_per_step=passes)
    sampler = DistributedSampler(data(), hvd.size(), hvd.rank())
    for epoch in range(2):
        sampler.set_epoch(epoch)
        batches = list(DataLoader(data(), 4, sampler=sampler))
        for number, batch in enumerate(batches):
            if number % passes == 0:
                optimizer.zero_grad()
            (model.training_step(batch, number) / passes).backward()
            if (number + 1) % passes == 0 or number + 1 == len(batches):
                optimizer.synchronize()
                torch.nn.utils.clip_grad_norm_(model.parameters(), most)
                with optimizer.skip_synchronize():
                    optimizer.step()
        scheduler.step()
    return model

class Manual(Model):  # two backward passes before a step
    automatic_optimization = False

    def training_step(self, batch, number):
        optimizer = self.optimizers()
        optimizer.zero_grad()
        for _ in range(2):
            self.manual_backward(super().training_step(batch, number))
        optimizer.step()

class QuasiNewton(Model):
    def configure_optimizers(self):
        return torch.optim.LBFGS(self.layer.parameters(), lr=0.1, max_iter=2)

class Untrained(Model):
    def configure_optimizers(self):
        return None

def trained(compression="none", epochs=2, path=None, kind=None, passes=None, **options):
    silent = ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary")
    trainer = lightning.Trainer(
        strategy=HorovodStrategy(compression, backward_passes_per_step=passes), accelerator="cpu", devices=1,
        max_epochs=epochs, **dict.fromkeys(silent, False), **options)
    model = (kind or Model)(seed=hvd.rank())  # rank 0's counts
    trainer.fit(model, DataLoader(data(), 4, shuffle=True), ckpt_path=path)
    return trainer, model

_, plain = trained(accumulate_grad_batches=2, gradient_clip_val=0.05)  # of 7 batches
whole, fed_back = trained("int4:error_feedback=1")
folder = hvd.broadcast_object(tempfile.mkdtemp(), 0)
half, _ = trained("int4:error_feedback=1", epochs=1)
half.save_checkpoint(f"{folder}/half.ckpt")
_, resumed = trained("int4:error_feedback=1", path=f"{folder}/half.ckpt")
others = [trained(kind=kind, passes=passes, epochs=1)[1]
          for kind, passes in ((Manual, 2), (QuasiNewton, None), (Untrained, None))]
strategy, mine = half.strategy, torch.tensor([hvd.rank() + 1])
ours = torch.tensor([1.0 + hvd.rank()], requires_grad=True)
(strategy.all_gather(ours, sync_grads=True) * torch.tensor([[1.0], [3.0]])).sum().backward()
print(json.dumps({
    "by hand": checksum(by_hand(2, 0.05)), "strategy": checksum(plain),
    "int4": checksum(fed_back), "resumed": checksum(resumed), "size": hvd.size(),
    "others": list(map(checksum, others)), "beginning": checksum(Model()),
    "is known": rank_zero_only.rank == hvd.rank(),
    "rates": whole.optimizers[0].param_groups[0]["lr"],
    "mean": strategy.reduce(mine).tolist(), "sum": strategy.reduce(mine, reduce_op="sum").tolist(),
    "all": [strategy.reduce_boolean_decision(hvd.rank() == 0, all=each) for each in (True, False)],
    "gathered": strategy.all_gather(mine).tolist(),
    "sum of gradients": ours.grad.item() / (1 + 2 * hvd.rank()),
    "broadcast": strategy.broadcast({"rank": hvd.rank()}, src=hvd.size() - 1)["rank"],
}), flush=True)
"""


def told(folder: Path, *command: str, packages: Path | None = None) -> list[dict[str, Any]]:
    (folder / "script.py").write_text(SCRIPT)
    found = environment("lightning", OMP_NUM_THREADS="1")
    if packages is not None:
        found["PYTHONPATH"] = os.pathsep.join([str(packages), found["PYTHONPATH"]])
    printed = run([*command, sys.executable, "script.py"], folder, 350, **found).stdout
    return [json.loads(text) for text in re.findall(r"\{.*\}", printed)]


def check(ranks: list[dict[str, Any]], size: int) -> None:
    assert len(ranks) == size and ranks[0] == ranks[-1]
    (first, *_) = ranks
    assert first["strategy"] == first["by hand"], "the same bits as one's own loop, accumulated and clipped"
    assert first["int4"] == first["resumed"] != first["strategy"], "error feedback goes on in a checkpoint"
    assert first["size"] == size and first["rates"] == 0.025, "the scheduler has halved the rate twice"
    assert first["mean"] == [(size + 1) / 2] and first["sum"] == [sum(range(size + 1))]
    assert first["all"] == [size == 1, True] and first["broadcast"] == size - 1
    assert first["sum of gradients"] == size
    assert first["is known"], "or every rank's loggers write"
    manual, quasi_newton, untrained = first["others"]
    assert len({manual, quasi_newton, first["beginning"]}) == 3 and untrained == first["beginning"]
    assert first["gathered"] == [[rank + 1] for rank in range(size)]


def test_the_strategy(tmp_path: Path) -> None:
    check(told(tmp_path, *RUN), 2)


@pytest.mark.slow
def test_the_release_before_the_newest(tmp_path: Path) -> None:
    """Installed beside the newest, so that no environment is made for it."""
    major, minor = version("lightning").split(".")[:2]
    packages = tmp_path / "packages"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(packages)]
    subprocess.run([*pip, f"lightning<{major}.{minor}"], check=True)
    show = [sys.executable, "-c", "import lightning; print(lightning.__version__)"]
    older = environment("lightning", PYTHONPATH=str(packages))
    found = subprocess.run(show, env=older, capture_output=True, text=True, check=True).stdout
    assert found.split(".")[:2] == [major, str(int(minor) - 1)]
    check(told(tmp_path, *RUN, packages=packages), 2)
