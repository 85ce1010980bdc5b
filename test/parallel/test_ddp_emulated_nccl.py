"""Programs for native DDP on GPUs, under init_process_group("nccl"), on emulated GPUs: see emulated_nccl.py.

Each runs unedited, with its gradients compressed on emulated GPUs, and again on the CPU over gloo: the
parameters have the same bits, and torch's process group carries none of the gradients.
"""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from ddp_jobs import run_torchrun
from example_runs import EXAMPLES, ROOT, real_mnist
from gpu_jobs import emulated_gpus
from page_blocks import blocks

RUNNER = Path(__file__).with_name("emulated_nccl.py")
LIMIT = 200.0  # seconds for one job
pytestmark = pytest.mark.timeout(2 * LIMIT + 30)
COMPRESSED = {"HOROVOD_DDP_COMPRESSION": "bit8"}

# As in PyTorch's tutorials: without this package, with a GPU for each rank if there are GPUs.
TINY_GPT = """
import hashlib, os, sys
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.c_attn, self.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        b, t, c = x.shape
        parts = self.c_attn(self.ln_1(x)).chunk(3, -1)
        q, k, v = (each.view(b, t, self.heads, -1).transpose(1, 2) for each in parts)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.c_proj(y.transpose(1, 2).reshape(b, t, c))
        return x + self.mlp(self.ln_2(x))

class GPT(nn.Module):
    def __init__(self, vocabulary=65, width=48, block_size=32):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(block_size, width)
        self.h = nn.Sequential(*(Block(width, 4) for _ in range(2)))
        self.ln_f, self.lm_head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens):
        places = torch.arange(tokens.shape[1], device=tokens.device)
        return self.lm_head(self.ln_f(self.h(self.wte(tokens) + self.wpe(places))))

on_gpu = torch.cuda.is_available()
local_rank = int(os.environ["LOCAL_RANK"])
if on_gpu:
    torch.cuda.set_device(local_rank)
device = torch.device("cuda", local_rank) if on_gpu else torch.device("cpu")
dist.init_process_group("nccl" if on_gpu else "gloo")
torch.manual_seed(0)
model = DDP(GPT().to(device), device_ids=[local_rank] if on_gpu else None)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
torch.manual_seed(dist.get_rank())
for step in range(2):
    for micro in range(2):
        model.require_backward_grad_sync = micro == 1
        tokens = torch.randint(65, (2, 33), device=device)
        loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
parameters = b"".join(each.detach().cpu().numpy().tobytes() for each in model.parameters())
line = f"backend {dist.get_backend()} SHA-256 {hashlib.sha256(parameters).hexdigest()}\\n"
sys.stdout.write(line)  # in one piece: torchrun's ranks do not buffer, print() would write six
dist.destroy_process_group()
"""
FSDP = blocks("docs/ddp.md", "python", "FSDP2")[0]


class Ran(NamedTuple):
    """The output of a job of two ranks, and by rank the traffic of torch and of this package."""

    output: str
    reports: list[dict[str, Any]]

    def checksums(self) -> set[str]:
        return set(re.findall(r"SHA-256 (\w+)", self.output))

    def of_jobs(self, counter: str) -> int:
        """Return a counter of this package's jobs, summed over ranks."""
        return sum(job[counter] for report in self.reports for job in report["jobs"])

    def of_torch(self, *operations: str) -> int:
        """Return the bytes that process groups carried in these operations, summed over ranks."""
        return sum(report["torch"].get(name, 0) for report in self.reports for name in operations)


def ran(words: list[str], folder: Path, env: Mapping[str, str]) -> Ran:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    own = {"EMULATED_REPORT": str(folder), "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    own["HOROVOD_ALLREDUCE_ALGORITHM"] = "scatter"  # otherwise the routes' sums differ
    job = run_torchrun(2, [str(RUNNER), *words], LIMIT, {**own, **env})
    assert job.returncode == 0, job.stdout
    return Ran(job.stdout, [json.loads((folder / str(rank)).read_text()) for rank in range(2)])


def check(on_gpus: Ran, on_cpu: Ran) -> None:
    """Check that bits are equal, and that this package, not torch, carried the gradients, encoded."""
    assert len(on_gpus.checksums()) == 1 and on_gpus.checksums() == on_cpu.checksums()
    assert all(report["backends"] == ["nccl"] for report in on_gpus.reports)
    assert all(report["backends"] == ["gloo"] for report in on_cpu.reports)
    assert on_gpus.of_jobs("gpu_operations") > 0 and on_cpu.of_jobs("gpu_operations") == 0
    assert on_gpus.of_jobs("tensor_bytes") == on_cpu.of_jobs("tensor_bytes")
    assert 0 < on_gpus.of_jobs("wire_bytes") < 0.3 * on_gpus.of_jobs("tensor_bytes")
    assert on_gpus.of_torch("allreduce", "allreduce_coalesced") < 0.01 * on_gpus.of_jobs("tensor_bytes")


@pytest.mark.parametrize("transport", ["nccl", pytest.param("host", marks=pytest.mark.slow)])
def test_a_gpt_that_knows_nothing_of_us(transport: str, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(TINY_GPT)
    by = {"HOROVOD_GPU_TRANSPORT": transport}
    on_gpus = ran([str(script)], tmp_path / "report", {**emulated_gpus(), **COMPRESSED, **by})
    check(on_gpus, ran([str(script)], tmp_path / "report", COMPRESSED))
    assert on_gpus.of_torch("allreduce") == 0


def test_what_is_not_compressed_is_the_process_groups(tmp_path: Path) -> None:
    """The counters of torch's bytes count gradients that torch carries."""
    script = tmp_path / "train.py"
    script.write_text(TINY_GPT)
    plain = ran([str(script)], tmp_path / "report", emulated_gpus())
    gradients = 4 * 2 * 2 * 60_000  # bytes, steps, ranks; at least the parameters
    assert plain.of_torch("allreduce") > gradients and plain.reports[0]["jobs"] == []
    assert "backend nccl" in plain.output and "HOROVOD" not in plain.output


@pytest.mark.slow
def test_the_tutorials_script(tmp_path: Path) -> None:
    words = [str(EXAMPLES / "pytorch_ddp.py"), "--compression", "bit8", "--model", "deeplabv3_resnet18"]
    words += ["--image-size", "33", "--batch-size", "2", "--train-images", "8", "--test-images", "4"]
    on_gpus = ran(words, tmp_path / "report", emulated_gpus())
    check(on_gpus, ran(words, tmp_path / "report", {}))
    assert "2 rank(s) over nccl, compression bit8" in on_gpus.output


@pytest.mark.slow  # emulated GPUs on two cores
@pytest.mark.parametrize(
    ("library", "script"),
    [("lightning", "lightning_mnist"), ("accelerate", "accelerate_mnist"), ("transformers", "trainer_text")],
)
def test_libraries(library: str, script: str, tmp_path: Path) -> None:
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"there is no {library}")
    if "mnist" in script and real_mnist() is None:
        pytest.skip("there is no MNIST")
    words = [str(EXAMPLES / f"{script}.py"), "--compression", "bit8", "--max-steps", "4"]
    mnist = {"MNIST_DATA_DIR": str(real_mnist() or "")}
    on_cpu = ran([*words, "--no-cuda"], tmp_path / "report", mnist)
    check(ran(words, tmp_path / "report", {**emulated_gpus(), **mnist}), on_cpu)


def test_fsdp(tmp_path: Path) -> None:
    """Shards are in host memory, but count as a GPU's: fully_shard() checks the place of its parameters."""
    script = tmp_path / "fsdp.py"
    losses = []
    for backend, env in (("nccl", emulated_gpus()), ("gloo", {})):
        script.write_text(FSDP.replace('"gloo"', f'"{backend}"'))
        done = ran([str(script)], tmp_path / "report", env)
        losses.append(re.findall(r"loss [\d.]+", done.output))
        assert done.reports[0]["backends"] == [backend] and done.of_torch("_reduce_scatter_base") == 0
        assert (done.of_jobs("gpu_operations") > 0) == (backend == "nccl")
        assert 0 < done.of_jobs("wire_bytes") < 0.15 * done.of_jobs("tensor_bytes")
    assert losses[0] == losses[1] and len(losses[0]) == 1
