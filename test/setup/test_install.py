"""`pip install .` as typed: isolated, without PyTorch; and the MPI that the installed package finds."""

import os
import re
import shlex
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from clean_shell import ROOT, copy_sources, run_shell, typed

pytestmark = pytest.mark.timeout(900)
INSTALLS = pytest.mark.slow  # compiles all files in a new environment

WHO_AM_I = """
import os
from horovod import _native
from horovod.common.build_info import build_info
from horovod.common.launched import detect
from horovod.common.mpi_here import mpi_here
libmpi, launch = mpi_here(build_info().mpi).library_path(), detect(os.environ)
world = _native.open_world(_native.Settings.from_environment(), libmpi, launch.size, launch.evidence)
print(f"rank {world.rank} of {world.size} by {world.transport} with {world.mpi_library}")
_native.close_mpi()
"""
TYPED_SCRIPT = """
import torch
import horovod.torch as hvd
from horovod.torch import ddp

hvd.init()
model = torch.nn.Linear(2, 2)
adam = torch.optim.Adam(model.parameters(), lr=0.1)
optimizer = hvd.DistributedOptimizer(adam, model.named_parameters(), compression=hvd.Compression.bit8)
reveal_type(optimizer)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1)
hvd.broadcast_optimizer_state(optimizer, root_rank=0)
mean: torch.Tensor = hvd.allreduce(torch.ones(2), name="mean")
state = ddp.compress(model, "bit8", may_turn_off=True)
reveal_type(state)
hvd.allreduce("no tensor")
"""
SEEN = [
    r'user.py:10: note: Revealed type is "torch\.optim\.adam\.Adam"',
    r'user.py:15: note: Revealed type is "horovod\.torch\.ddp\.state\.CompressionState"',
    r'user.py:16: error: Argument 1 to "allreduce" has incompatible type "str"; .*  \[arg-type\]',
    r"Found 1 error in 1 file \(checked 1 source file\)",
]
DEBIANS_MPIRUN = Path("/usr/bin/mpirun.openmpi")


@pytest.fixture(scope="module")
def editable(
    sources: Path, textbook_build: tuple[Path, str], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """An environment after `pip install -e .`, which is quick if these sources were built."""
    home = tmp_path_factory.mktemp("editable")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home / "venv")], check=True)
    code = f"from build_support import backend; backend.build_editable('{home}')"
    typed(f'python -c "{code}"', sources)
    (wheel,) = home.glob("*.whl")
    pip = [sys.executable, "-m", "pip", "--python", str(home / "venv"), "install", "--quiet", "--no-deps"]
    subprocess.run([*pip, "--no-index", str(wheel)], check=True)
    return home


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new environment in which only `pip install .` was typed."""
    home = tmp_path_factory.mktemp("installed")
    subprocess.run([sys.executable, "-m", "venv", str(home / "venv")], check=True)
    (home / "sources").mkdir()
    copy_sources(home / "sources")
    typed("pip install .", home / "sources", PATH=f"{home}/venv/bin{os.pathsep}{os.environ['PATH']}")
    (home / "who.py").write_text(WHO_AM_I)
    return home


def in_environment(home: Path, command: str, path: str = "") -> "subprocess.CompletedProcess[str]":
    return run_shell(command, home, PATH=f"{path}{home}/venv/bin{os.pathsep}{os.environ['PATH']}")


@INSTALLS
def test_it_imports_without_torch_and_without_libmpi(installed: Path) -> None:
    code = "import horovod._native; print('libmpi.so' in open('/proc/self/maps').read())"
    assert in_environment(installed, f'python -c "{code}"').stdout == "False\n"
    assert "Horovod v" in in_environment(installed, "horovodrun --check-build").stdout


@INSTALLS
def test_only_what_belongs_there_is_installed(installed: Path) -> None:
    (package,) = (installed / "venv" / "lib").glob("python*/site-packages/horovod")
    assert not list(package.rglob("*.cc"))
    assert not (package / "native").exists()
    data = tuple(f"lab/report/{name}" for name in ("en.jinja", "zh.jinja", "report.html.jinja", "style.css"))
    for name in ("py.typed", "_native.pyi", "build_info.json", "libhorovod_mpi.so", *data):
        assert (package / name).exists(), name


@INSTALLS
@pytest.mark.parametrize("how", ["installed", "editable"])
def test_a_users_script_has_types(how: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """PyTorch comes from this environment, whose own horovod comes after the installed one."""
    torch, home = find_spec("torch"), request.getfixturevalue(how)
    if torch is None or torch.origin is None:
        pytest.skip("there is no PyTorch here")
    (packages,) = (home / "venv" / "lib").glob("python*/site-packages")
    (packages / "of_pytorch.pth").write_text(f"{Path(torch.origin).parents[1]}\n")
    (tmp_path / "user.py").write_text(TYPED_SCRIPT)
    check = [sys.executable, "-m", "mypy", "--strict", "--python-executable", str(home / "venv/bin/python")]
    cache = request.config.cache.mkdir("mypy_of_users_script")  # PyTorch's types take half a minute
    try:
        run = run_shell(shlex.join([*check, "--cache-dir", str(cache), "user.py"]), tmp_path)
    finally:
        (packages / "of_pytorch.pth").unlink()
    said = run.stdout.strip().splitlines()
    assert len(said) == len(SEEN), run.stdout
    for line, expected in zip(said, SEEN, strict=True):
        assert re.fullmatch(expected, line), run.stdout


@INSTALLS
def test_two_ranks_find_the_environments_libmpi(installed: Path) -> None:
    run = in_environment(installed, "mpirun --allow-run-as-root --oversubscribe -np 2 python who.py")
    assert run.returncode == 0, run.stdout
    said = [line for line in run.stdout.splitlines() if line.startswith("rank ")]
    assert sorted(line.split(" by ")[0] for line in said) == ["rank 0 of 2", "rank 1 of 2"]


@INSTALLS
@pytest.mark.skipif(not DEBIANS_MPIRUN.exists(), reason="Debian's openmpi-bin is not installed")
def test_debians_mpirun_first_on_the_path(installed: Path, tmp_path: Path) -> None:
    """The mpirun of one MPI, the library of another: one job or a refusal, never two worlds of one rank.

    Open MPI 4.1 and 5 can start each other's ranks if their PMIx versions agree, as in Debian 12.
    """
    (tmp_path / "mpirun").symlink_to(DEBIANS_MPIRUN)
    version = in_environment(installed, "mpirun --version", f"{tmp_path}{os.pathsep}").stdout
    assert "Open MPI) 4." in version
    command = "mpirun --allow-run-as-root --oversubscribe -np 2 python who.py"
    run = in_environment(installed, command, f"{tmp_path}{os.pathsep}")
    assert " of 1 " not in run.stdout
    if run.returncode == 0:
        assert "rank 0 of 2" in run.stdout
        assert "rank 1 of 2" in run.stdout
    else:
        assert_refusal_names_both(run.stdout, installed)


@INSTALLS
@pytest.mark.parametrize(
    "launcher", ["OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=0", "PMI_SIZE=2 PMI_RANK=0"]
)
def test_a_launcher_that_the_library_does_not_hear_is_a_named_error(installed: Path, launcher: str) -> None:
    """Under MPICH's mpirun, or a too different Open MPI: MPI reports size 1, the launcher 2."""
    run = in_environment(installed, f"{launcher} python who.py")
    assert run.returncode != 0, run.stdout
    assert launcher.split()[0] in run.stdout
    assert_refusal_names_both(run.stdout, installed)


def assert_refusal_names_both(said: str, installed: Path) -> None:
    assert f"{installed}/venv/lib/libmpi.so.40 (Open MPI v5" in said
    assert re.search(r"one of 2 ranks .* found itself alone", said)
    assert "Use horovodrun, or the mpirun of the environment" in said


def test_the_sources_are_all_tracked() -> None:
    """An sdist or a clone has all files that the build reads: git ignores none of them."""
    ignored = ["git", "ls-files", "-o", "-i", "--exclude-standard", "horovod/native", "build_support"]
    listed = subprocess.run(ignored, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    assert not [name for name in listed if not name.endswith(".pyc")]
