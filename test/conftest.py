"""Which Python processes the tests start, and how tests are divided where several processes run them.

In the processes torch does without what the compiler needs until it is used: see lean_torch/lean_torch.py.
Those of WARM_FOLDERS, but for `cold` tests, are forks of one that has loaded it: lean_torch/warm_server.py.

Where the machine is busy, time limits of tests, and of processes that they wait for, are longer by its load.

With `pytest --numprocesses 2 --dist loadscope`, what shares something that is dear to make (hosts, an image,
a browser) is a group, which one process runs in order. Elsewhere a file is one.
"""

import os
from pathlib import Path
from typing import Any

import pytest
from busy import be_patient_with_processes, times_longer
from warm import WarmPython
from xdist.scheduler import LoadScopeScheduling

LEAN_TORCH = str(Path(__file__).parent / "lean_torch")

# Folders whose tests share hosts, an image or a browser for as long as a session lasts.
SHARING = {"browser", "cluster", "container"}
# Files whose tests share nothing: some take a minute or two each, others are many.
DIVIDED = {f"test/parallel/test_{name}.py" for name in ("torch_ranks", "ddp_ranks", "pages")}

_path = os.environ.get("PYTHONPATH", "").split(os.pathsep)
if LEAN_TORCH not in _path:
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [LEAN_TORCH, *_path]))


be_patient_with_processes()
WARM = WarmPython()
# In tests of these folders, Python processes are forks of one that has loaded torch.
WARM_FOLDERS = ("parallel",)
# Files that are about how processes start, fail and end: theirs start as a user's.
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
    """None: what --dist says."""
    return InGroups(config, log) if config.getvalue("dist") == "loadscope" else None


@pytest.hookimpl(tryfirst=True, optionalhook=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> Any:
    """pytest-timeout's own, with more time."""
    import pytest_timeout

    longer = settings._replace(timeout=settings.timeout * times_longer())
    return pytest_timeout.pytest_timeout_set_timer(item, longer)
