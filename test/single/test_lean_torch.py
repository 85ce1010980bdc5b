"""The stand-in for torch._dynamo in Python processes of the tests: who gets it, and who torch's own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "lean_torch"
TRAINED = """
import sys, torch
model = torch.nn.Linear(2, 2)
optimizer = torch.optim.Adam(model.parameters())
model(torch.ones(2, 2)).sum().backward()
optimizer.step()
assert "torch._dynamo" in sys.modules and "torch._dynamo.config" not in sys.modules
"""
OWN = """
own = sys.modules["torch._dynamo"]
assert own.__spec__.origin.endswith("torch/_dynamo/__init__.py"), own
assert torch._dynamo is own and torch._dynamo.config is sys.modules["torch._dynamo.config"]
"""


@pytest.mark.parametrize(
    "asks",
    [
        "assert torch.compile(lambda x: x + 1, backend='eager')(torch.ones(2)).tolist() == [2, 2]",
        "from torch.distributed.tensor import DTensor",
        "from torch.distributed.fsdp import fully_shard",
        "import torch._dynamo.utils as utils; assert utils is torch._dynamo.utils",
        "assert torch._dynamo.utils.get_optimize_ddp_mode() == 'ddp_optimizer'",
    ],
)
def test_whoever_asks_for_more_gets_torchs_own(asks: str) -> None:
    run(TRAINED + asks + OWN)


def test_whoever_looks_through_all_modules_does_not() -> None:
    look = "import inspect; [hasattr(module, '__file__') for module in sys.modules.values()]\n"
    run(TRAINED + look + "assert 'torch._dynamo.config' not in sys.modules")


def run(code: str) -> None:
    environment = os.environ | {"PYTHONPATH": str(FOLDER)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
