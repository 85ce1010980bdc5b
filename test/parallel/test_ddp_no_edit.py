"""Plain DDP scripts run compressed in each of the ways that need no edit: fewer bytes travel."""

from __future__ import annotations

import importlib
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from ddp_jobs import run_torchrun
from installed_package import entry_points, environment_with_metadata
from page_blocks import blocks, commands
from rank_jobs import run_job

JOB_LIMIT = 150.0  # seconds
pytestmark = pytest.mark.timeout(4 * JOB_LIMIT + 30)

SCRIPTS = Path(__file__).parent / "plain_ddp"
COUNTING = """
import atexit, os, pathlib
import lean_torch  # as test/lean_torch/sitecustomize.py, which is not found besides this one

def tell():
    lines = pathlib.Path("/proc/self/io").read_text().splitlines()
    written = next(line.split()[1] for line in lines if line.startswith("wchar"))
    counts = pathlib.Path(os.environ["HOROVOD_TEST_BYTES"])
    # In one step, as multiprocessing's resource tracker may still end after the job.
    part = counts / f".{os.getpid()}"
    part.write_text(written)
    part.rename(counts / str(os.getpid()))

atexit.register(tell)
"""


Job = Callable[[dict[str, str]], "subprocess.CompletedProcess[str]"]


class Place:
    """A place in which scripts have this package installed, and each process reports the bytes it wrote."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._counts = folder / "counts"
        packages = folder / "packages"
        for made in (self._counts, packages):
            made.mkdir()
        (packages / "sitecustomize.py").write_text(COUNTING)
        self._environment = environment_with_metadata(packages)
        self.output = ""

    def torchrun(self, *argv: str, np: int = 2, **variables: str) -> int:
        """Run a job with torchrun; return the bytes that its processes wrote, mainly to sockets."""
        return self._bytes(lambda env: run_torchrun(np, list(argv), JOB_LIMIT, env), variables)

    def python(self, *argv: str, **variables: str) -> int:
        return self._bytes(lambda env: run_job([sys.executable, *argv], JOB_LIMIT, env), variables)

    def _bytes(self, job: Job, variables: dict[str, str]) -> int:
        for old in self._counts.iterdir():
            old.unlink()
        done = job({**self._environment, "HOROVOD_TEST_BYTES": str(self._counts), **variables})
        self.output = done.stdout
        assert done.returncode == 0, done.stdout
        return sum(int(file.read_text()) for file in self._counts.glob("[0-9]*"))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return Place(tmp_path_factory.mktemp("place"))


@pytest.fixture(scope="module")
def torchrun_script() -> str:
    return str(SCRIPTS / "mnist_torchrun.py")


@pytest.fixture(scope="module")
def plain_bytes(place: Place, torchrun_script: str) -> int:
    """Return the bytes that the script's two ranks write without compression."""
    written = place.torchrun(torchrun_script)
    assert "Test set: Average loss" in place.output
    assert written > 16 * 2 * 4_800_000  # steps, ranks, bytes of gradients
    return written


def edited(place: Place, script: str, old: str, new: str) -> str:
    """Return a copy of a script with one replacement."""
    text = (SCRIPTS / script).read_text()
    assert text.count(old) == 1
    copy = place.folder / script
    copy.write_text(text.replace(old, new))
    return str(copy)


def test_the_variable(place: Place, torchrun_script: str, plain_bytes: int) -> None:
    assert place.torchrun(torchrun_script, HOROVOD_DDP_COMPRESSION="bit8") < 0.5 * plain_bytes
    assert "Test set: Average loss" in place.output


def test_the_module_in_the_place_of_python(place: Place, torchrun_script: str, plain_bytes: int) -> None:
    model = place.folder / "model.pt"
    program = ["-m", "horovod.torch.ddp", "--compression", "bit8", torchrun_script]
    assert place.torchrun(*program, "--epochs", "1", "--save-model", str(model)) < 0.5 * plain_bytes
    assert "Test set: Average loss" in place.output and model.exists()


@pytest.mark.parametrize("np", [1, 3, pytest.param(4, marks=pytest.mark.slow)])
def test_the_module_with_more_ranks(place: Place, torchrun_script: str, np: int) -> None:
    place.torchrun("-m", "horovod.torch.ddp", torchrun_script, np=np)
    assert "Test set: Average loss" in place.output


def test_the_backend(place: Place, plain_bytes: int) -> None:
    script = edited(place, "mnist_torchrun.py", 'init_process_group("gloo")', 'init_process_group("horovod")')
    assert place.torchrun(script) > 0.9 * plain_bytes
    assert place.torchrun(script, HOROVOD_COMPRESSION="bit8") < 0.5 * plain_bytes
    assert "Test set: Average loss" in place.output


def test_ranks_that_the_script_spawns(place: Place) -> None:
    script = str(SCRIPTS / "mnist_spawn.py")
    plain = place.python(script)
    assert plain > 16 * 2 * 3_180_000  # steps, ranks, bytes of gradients
    assert place.python("-m", "horovod.torch.ddp", "--compression", "bit8", script) < 0.5 * plain
    assert "Finished running basic DDP example on rank 1." in place.output
    assert place.python(script, HOROVOD_DDP_COMPRESSION="bit8") < 0.5 * plain
    backend = edited(place, "mnist_spawn.py", 'init_process_group("gloo"', 'init_process_group("horovod"')
    assert place.python(backend, HOROVOD_COMPRESSION="bit8") < 0.5 * plain
    assert "Finished running basic DDP example on rank 1." in place.output


@pytest.mark.slow
def test_a_recipe_for_imagenet_on_dummy_data(place: Place) -> None:
    """Two epochs of four steps each, with accumulated gradients; resumed for a third."""
    script, checkpoint = str(SCRIPTS / "imagenet_dummy.py"), place.folder / "imagenet.pt"
    plain = place.torchrun(script)
    assert plain > 8 * 2 * 4_830_860  # steps, ranks, bytes of gradients
    for compression, fewer in (("bit8", 3.8), ("int4:error_feedback=1", 7.0)):
        assert place.torchrun(script, HOROVOD_DDP_COMPRESSION=compression) < 0.5 * plain
        assert re.search(r"epoch 2: loss 0\.\d+, accuracy (9|100)", place.output), place.output
        said = re.search(r"horovod: \S+: 9 of 26 tensors, 99.\d % of bytes, ([\d.]+)x fewer", place.output)
        assert said and float(said[1]) >= fewer, place.output
    for epochs in ("1", "2"):
        arguments = ("--resume", str(checkpoint), "--epochs", epochs)
        place.torchrun(script, *arguments, HOROVOD_DDP_COMPRESSION="bit8")
    assert "epoch 2: loss" in place.output and "epoch 1" not in place.output


@pytest.mark.parametrize("command", commands("docs/ddp.md", "Scripts nobody may edit"))
def test_the_commands_of_the_page(place: Place, plain_bytes: int, command: str) -> None:
    """docs/ddp.md. The spawning script has the smaller model."""
    for name, script in (("train.py", "mnist_torchrun.py"), ("train_spawning.py", "mnist_spawn.py")):
        shutil.copy(SCRIPTS / script, place.folder / name)
    assert run_command(place, command) < 0.5 * plain_bytes


def test_the_process_group_of_the_page(place: Place) -> None:
    (script,) = blocks("docs/ddp.md", "python", "A process group")
    (command,) = commands("docs/ddp.md", "A process group")
    (place.folder / "train.py").write_text(script)
    assert run_command(place, command) > 0


def run_command(place: Place, command: str) -> int:
    words = shlex.split(command)
    variables = dict(words.pop(0).split("=") for word in list(words) if re.match("[A-Z_]+=", word))
    words = [str(place.folder / word) if word.startswith("train") else word for word in words]
    if words[0] == "torchrun":
        words[:1] = ["-m", "torch.distributed.run", "--standalone"]  # at its own port
    else:
        assert words.pop(0) == "python"
    return place.python(*words, **variables)


def test_a_hook_of_the_script_wins(place: Place, plain_bytes: int) -> None:
    hook = "torch.distributed.algorithms.ddp_comm_hooks.default_hooks"
    own = f"import {hook} as hooks\n    model.register_comm_hook(None, hooks.fp16_compress_hook)"
    script = edited(place, "mnist_torchrun.py", "DDP(Net())", f"DDP(Net())\n    {own}")
    assert place.torchrun(script, HOROVOD_DDP_COMPRESSION="bit8") > 0.45 * plain_bytes
    assert place.output.count("HOROVOD_DDP_COMPRESSION=bit8 does not count for a model: the script has") == 1
    assert "fp16_compress_hook" in place.output


def test_import_torch_stays_light_and_never_fails(place: Place) -> None:
    code = (
        "import sys, torch, torch.distributed as dist\n"
        "print(dist.is_backend_available('horovod'), 'horovod.torch_autoload' in sys.modules)\n"
        "print([name for name in sys.modules if name.startswith(('horovod.torch.', 'horovod._native'))])"
    )
    place.python("-c", code, HOROVOD_DDP_COMPRESSION="bit9", HOROVOD_COMPRESSION="nonsense=")
    assert place.output.split() == ["True", "True", "[]"]
    place.python("-c", code, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert place.output.split() == ["False", "False", "[]"]


def test_a_wrong_variable_is_told_when_it_is_used(place: Place) -> None:
    code = (
        "import os, torch, torch.distributed as dist\n"
        "os.environ |= dict(MASTER_ADDR='localhost', MASTER_PORT='0', RANK='0', WORLD_SIZE='1')\n"
        "dist.init_process_group('{backend}')\n"
        "torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))"
    )
    for backend, variable in (("gloo", "HOROVOD_DDP_COMPRESSION"), ("horovod", "HOROVOD_COMPRESSION")):
        with pytest.raises(AssertionError, match=rf"WrongArgument: {variable}=bit9: .*'bit9'"):
            place.python("-c", code.format(backend=backend), **{variable: "bit9"})


def test_a_torch_with_no_place_for_it_gets_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch.distributed as dist

    import horovod.torch_autoload as autoload

    monkeypatch.setattr(dist.Backend, "backend_list", [])
    monkeypatch.delattr(dist.Backend, "register_backend")
    with pytest.warns(UserWarning, match="horovod: this torch has no place for.*AttributeError"):
        autoload.load()


def test_a_missing_entry_point_is_told(place: Place, torchrun_script: str) -> None:
    """The processes that a script starts would not be compressed."""
    place.python("-m", "horovod.torch.ddp", "-m", "platform", TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert "starts are not compressed: TORCH_DEVICE_BACKEND_AUTOLOAD=0" in place.output


def test_entry_points_are_there() -> None:
    points = entry_points()
    assert set(points) == {"torch.backends"}
    for target in points["torch.backends"].values():
        module, _, name = target.partition(":")
        assert callable(getattr(importlib.import_module(module), name))
