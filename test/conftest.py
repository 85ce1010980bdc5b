"""Warm Python processes for the tests, time limits by the load, and the groups of `--dist loadscope`.

In these processes torch loads the parts for the compiler only when they are used: see
lean_torch/lean_torch.py. Processes of tests in WARM_FOLDERS, except `cold` tests, are forks of a process that
has loaded torch: lean_torch/warm_server.py.

On a busy machine, time limits of tests, and of processes that they wait for, are longer by its load.

With `pytest --numprocesses 2 --dist loadscope`, tests that share an expensive fixture (hosts, an image, a
browser) form a group, which one process runs in order. Otherwise a file is a group.
"""

import os
from pathlib import Path
from typing import Any

import pytest
from busy import be_patient_with_processes, times_longer
from warm import WarmPython
from xdist.scheduler import LoadScopeScheduling

LEAN_TORCH = str(Path(__file__).parent / "lean_torch")

# Folders whose tests share hosts, an image or a browser during a session.
SHARING = {"browser", "cluster", "container"}
# Files whose tests share nothing: some take a minute or two each, others are many.
DIVIDED = {f"test/parallel/test_{name}.py" for name in ("torch_ranks", "ddp_ranks", "pages")}

_path = os.environ.get("PYTHONPATH", "").split(os.pathsep)
if LEAN_TORCH not in _path:
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [LEAN_TORCH, *_path]))


be_patient_with_processes()
WARM = WarmPython()
# In tests of these folders, Python processes are forks of a process that has loaded torch.
WARM_FOLDERS = ("parallel",)
# Tests of how processes start, fail and end: their processes start like a user's.
COLD_FILES = {
    f"test_{name}.py"
    for name in (
        *("ddp_failures", "elastic_kills", "launch_blame", "launch_failures", "launch_mpi", "launch_streams"),
        *("launch_tcp", "lingering_rank", "stopped_rank", "tcp_failures", "torch_exit"),
    )
}


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    is_cold = item.path.name in COLD_FILES or item.get_closest_marker("cold") is not None
    WARM.choose(item.nodeid.split("/")[1] in WARM_FOLDERS and not is_cold)


class InGroups(LoadScopeScheduling):
    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        folder = file.split("/")[1]
        return folder if folder in SHARING else nodeid if file in DIVIDED else file


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> InGroups | None:
    """None: the default of --dist applies."""
    return InGroups(config, log) if config.getvalue("dist") == "loadscope" else None


@pytest.hookimpl(tryfirst=True, optionalhook=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> Any:
    """Return pytest-timeout's limit, longer by the load."""
    import pytest_timeout

    longer = settings._replace(timeout=settings.timeout * times_longer())
    return pytest_timeout.pytest_timeout_set_timer(item, longer)
