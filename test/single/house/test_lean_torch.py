"""The stand-ins for parts of torch in Python processes of the tests: who gets them, and who torch's own."""

import os
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "lean_torch"
TRAINED = """
import os, sys, torch
model = torch.nn.Linear(2, 2)
optimizer = torch.optim.Adam(model.parameters())
model(torch.ones(2, 2)).sum().backward()
optimizer.step()
assert torch.rand(2, generator=torch.Generator().manual_seed(1)).shape == (2,)
assert "torch._dynamo" in sys.modules and "torch._dynamo.config" not in sys.modules
"""
IN_DDP = """
import torch.distributed as dist
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
ddp = torch.nn.parallel.DistributedDataParallel(model)
ddp(torch.ones(2, 2)).sum().backward()
optimizer.step()
dist.destroy_process_group()
assert "torch._dynamo.config" not in sys.modules and "torch._decomp" not in sys.modules
"""
# Each child begins where training has ended, and asks for one thing.
IN_CHILDREN = """
children = {}
for asks in sys.argv[1:]:
    child = os.fork()
    if child == 0:
        exec(asks)
        os._exit(0)  # after an error, Python ends with 1
    children[child] = asks
wrong = [asks for child, asks in children.items() if os.waitpid(child, 0)[1]]
assert not wrong, wrong
"""
OWN = """
own, meta = sys.modules["torch._dynamo"], sys.modules["torch._meta_registrations"]
assert own.__spec__.origin.endswith("torch/_dynamo/__init__.py"), own
assert meta.__spec__.origin.endswith("torch/_meta_registrations.py"), meta
assert torch._dynamo is own and torch._dynamo.config is sys.modules["torch._dynamo.config"]
"""
ASKS_FOR_MORE = [
    "assert torch.compile(lambda x: x + 1, backend='eager')(torch.ones(2)).tolist() == [2, 2]",
    "from torch.distributed.tensor import DTensor",
    "from torch.distributed.fsdp import fully_shard",
    "import torch._dynamo.utils as utils; assert utils is torch._dynamo.utils",
    "mode = torch._dynamo.utils.get_optimize_ddp_mode(); torch._dynamo.config; "
    "assert mode == torch._dynamo.utils.get_optimize_ddp_mode()",
    "assert torch._dynamo.utils.counters == {}",
    "torch._dynamo.reset(); torch._dynamo.trace_rules.clear_lru_cache()",
    "from torch._meta_registrations import meta_mm",
]
LOOKS_THROUGH_ALL = """
[hasattr(module, "__file__") for module in sys.modules.values()]
assert "torch._dynamo.config" not in sys.modules
"""


def run(code: str, *words: str) -> None:
    environment = os.environ | {"PYTHONPATH": str(FOLDER)}
    done = subprocess.run(
        [sys.executable, "-c", code, *words], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_only_whoever_asks_for_more_gets_torchs_own() -> None:
    run(TRAINED + IN_CHILDREN, LOOKS_THROUGH_ALL, *(asks + OWN for asks in ASKS_FOR_MORE))


def test_ddp_does_not() -> None:
    run(TRAINED + IN_DDP)
