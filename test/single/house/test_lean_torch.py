"""Substitutes for parts of torch in test processes: which processes get them, and which get torch's own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "lean_torch"
TRAINED = """
import sys, torch
model = torch.nn.Linear(2, 2)
optimizer = torch.optim.Adam(model.parameters())
model(torch.ones(2, 2)).sum().backward()
optimizer.step()
assert torch.rand(2, generator=torch.Generator().manual_seed(1)).shape == (2,)
assert "torch._dynamo" in sys.modules and "torch._dynamo.config" not in sys.modules
"""
IN_DDP = """
import os, torch.distributed as dist
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
ddp = torch.nn.parallel.DistributedDataParallel(model)
ddp(torch.ones(2, 2)).sum().backward()
optimizer.step()
dist.destroy_process_group()
assert "torch._dynamo.config" not in sys.modules and "torch._decomp" not in sys.modules
"""
OWN = """
own, meta = sys.modules["torch._dynamo"], sys.modules["torch._meta_registrations"]
assert own.__spec__.origin.endswith("torch/_dynamo/__init__.py"), own
assert meta.__spec__.origin.endswith("torch/_meta_registrations.py"), meta
assert torch._dynamo is own and torch._dynamo.config is sys.modules["torch._dynamo.config"]
"""


@pytest.mark.parametrize(
    "asks",
    [
        "assert torch.compile(lambda x: x + 1, backend='eager')(torch.ones(2)).tolist() == [2, 2]",
        "from torch.distributed.fsdp import fully_shard",
        "from torch._meta_registrations import meta_mm",
        *(
            pytest.param(asks, marks=pytest.mark.slow)  # each imports the compiler, in 5 s
            for asks in (
                "from torch.distributed.tensor import DTensor",
                "import torch._dynamo.utils as utils; assert utils is torch._dynamo.utils",
                "mode = torch._dynamo.utils.get_optimize_ddp_mode(); torch._dynamo.config; "
                "assert mode == torch._dynamo.utils.get_optimize_ddp_mode()",
                "assert torch._dynamo.utils.counters == {}",
                "torch._dynamo.reset(); torch._dynamo.trace_rules.clear_lru_cache()",
            )
        ),
    ],
)
def test_whoever_asks_for_more_gets_torchs_own(asks: str) -> None:
    run(TRAINED + asks + OWN)


def test_ddp_does_not() -> None:
    run(TRAINED + IN_DDP)


def test_whoever_looks_through_all_modules_does_not() -> None:
    look = "import inspect; [hasattr(module, '__file__') for module in sys.modules.values()]\n"
    run(TRAINED + look + "assert 'torch._dynamo.config' not in sys.modules")


def run(code: str) -> None:
    environment = os.environ | {"PYTHONPATH": str(FOLDER)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
