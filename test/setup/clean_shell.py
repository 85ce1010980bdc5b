"""Run shell lines as a person types them: clean environment, this interpreter; and copy the sources."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TEXTBOOK = (
    "HOROVOD_WITHOUT_MXNET=1 HOROVOD_WITHOUT_GLOO=1 HOROVOD_WITHOUT_TENSORFLOW=1 HOROVOD_WITH_PYTORCH=1 "
    "python setup.py build"
)


def clean_environment(**changes: str) -> dict[str, str]:
    """Return this environment without settings of a build, and with this interpreter as `python`.

    CUDA is left out, even on a machine with a GPU: it takes minutes, and scripts/check_cuda.py compiles it
    once. The setting that makes warnings errors stays, so that ccache has most of the files that `make`
    compiled.
    """
    drop = ("HOROVOD_", "OMPI_", "PMIX_", "PRTE_", "MPICC", "CXX", "PYTHONPATH")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(drop)}
    kept |= {name: os.environ[name] for name in ("HOROVOD_DEVELOPER",) if name in os.environ}
    path = f"{Path(sys.executable).parent}{os.pathsep}{kept.get('PATH', os.defpath)}"
    return kept | {"PATH": path, "HOROVOD_WITH_CUDA": "0"} | changes


def run_shell(command: str, cwd: Path, **changes: str) -> "subprocess.CompletedProcess[str]":
    """Run one line as a person types it; stdout and stderr come back together."""
    return subprocess.run(
        ["bash", "-c", command],
        cwd=cwd,
        env=clean_environment(**changes),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=1500,
    )


def typed(command: str, cwd: Path, **changes: str) -> str:
    """Run a line that must succeed; return its output."""
    run = run_shell(command, cwd, **changes)
    assert run.returncode == 0, f"{command}\n{run.stdout[-4000:]}"
    return run.stdout


def copy_sources(target: Path) -> Path:
    """Copy the files of a fresh clone, with uncommitted changes."""
    command = ["git", "ls-files", "-co", "--exclude-standard"]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    for name in names:
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)
    return target
