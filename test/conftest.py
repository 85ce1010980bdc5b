"""Which Python processes the tests start, and how tests are divided where several processes run them.

In the processes torch does without what the compiler needs until it is used: see lean_torch/lean_torch.py.

With `pytest --numprocesses 2 --dist loadscope`, what shares something that is dear to make (hosts, an image,
a browser) is a group, which one process runs in order. Elsewhere a file is one.
"""

import os
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

LEAN_TORCH = str(Path(__file__).parent / "lean_torch")

# Folders whose tests share hosts, an image or a browser for as long as a session lasts.
SHARING = {"browser", "cluster", "container", "faults"}
# Files whose tests share nothing, and take a minute or two each.
DIVIDED = {"test/parallel/test_torch_ranks.py", "test/parallel/test_ddp_ranks.py"}

_path = os.environ.get("PYTHONPATH", "").split(os.pathsep)
if LEAN_TORCH not in _path:
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [LEAN_TORCH, *_path]))


class InGroups(LoadScopeScheduling):
    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        folder = file.split("/")[1]
        return folder if folder in SHARING else nodeid if file in DIVIDED else file


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> InGroups | None:
    """None: what --dist says."""
    return InGroups(config, log) if config.getvalue("dist") == "loadscope" else None
