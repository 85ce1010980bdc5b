"""The image of our Dockerfile: its content and its user, and that training and tests work in it."""

from __future__ import annotations

import os
import re
from pathlib import Path

import commands
import pytest
from image import ROOT, Container, Image

pytestmark = pytest.mark.timeout(5400)  # the first test builds the image

WORKPLACE = ROOT.parent / "shared" / "data" / "mnist"


def said(container: Container, command: str, *options: str, limit: float = 200) -> str:
    done = container.run(command, *options, limit=limit)
    assert done.returncode == 0, f"{command}:\n{done.stdout[-6000:]}"
    return done.stdout


def mnist() -> list[str]:
    """Return the options that give a container the real MNIST, if this machine has it."""
    named = os.environ.get("MNIST_DATA_DIR", str(WORKPLACE))
    there = Path(named).is_dir()
    return ["-v", f"{named}:/data/mnist:ro", "-e", "MNIST_DATA_DIR=/data/mnist"] if there else []


def test_the_image_says_what_it_is(image: Image) -> None:
    described = image.description()
    labels = {name.rpartition(".")[2]: text for name, text in described["Labels"].items() if "image" in name}
    assert labels["title"] == "horovod"
    assert labels["licenses"] == "Apache-2.0"
    assert (labels["version"], labels["revision"]) == ("1.2.3", "abc")
    assert described["User"] == "mpiuser"
    assert described["WorkingDir"] == "/home/mpiuser"
    assert list(described["ExposedPorts"]) == ["2222/tcp"]
    assert described["Cmd"] == commands.CHECK_BUILD.split()


def test_the_user_is_not_root(container: Container) -> None:
    assert said(container, "id -u; id -un; pwd").split() == ["1000", "mpiuser", "/home/mpiuser"]
    assert container.run("touch /opt/horovod/written").returncode != 0
    assert container.run("cat /etc/shadow").returncode != 0


def test_nothing_that_compiles_is_shipped(container: Container) -> None:
    tools = "cc c++ gcc g++ clang make cmake ninja ld as git"
    assert said(container, f"for tool in {tools}; do command -v $tool || true; done") == ""
    assert said(container, "ls /usr/lib/gcc /usr/include/c++ /usr/include/python3* 2>/dev/null || true") == ""


def test_no_secret_and_no_cache_is_in_a_layer(image: Image) -> None:
    root = image.container().files()  # of a container in which nothing has run
    assert not [path.name for path in (root / "etc" / "ssh").iterdir() if path.name.startswith("ssh_host")]
    assert not list((root / "home" / "mpiuser" / ".ssh").iterdir())
    for absent in ("etc/pip.conf", "run/ca.crt", "root/.cache", "home/mpiuser/.cache", "wheels", "build"):
        path = root / absent
        # A file mounted during the build may leave an empty one behind.
        assert not path.exists() or (path.is_file() and path.stat().st_size == 0), absent
    for emptied in ("var/lib/apt/lists", "var/cache/apt/archives"):
        assert not [path for path in (root / emptied).rglob("*") if path.is_file() and path.name != "lock"]
    history = image.buildah("inspect", "--type", "image", "localhost/horovod")
    assert "/run/ca.crt" not in history
    assert not list((root / "home" / "mpiuser" / "sources").rglob("*.so"))
    assert not (root / "home" / "mpiuser" / "sources" / ".git").exists()


def test_python_files_are_compiled(container: Container) -> None:
    """Ranks cannot write beside the modules later: each would compile all of PyTorch at each start."""
    (packages,) = (container.files() / "opt" / "horovod" / "lib").glob("python3*/site-packages")
    for source in (packages / "horovod" / "__init__.py", packages / "torch" / "__init__.py"):
        assert list((source.parent / "__pycache__").glob("__init__.*.pyc")), source
    assert not (packages / "nanobind").exists()
    shown = said(container, "python -v -c 'import horovod.torch' 2>&1")
    read = re.findall(r"^# code object from (.*)", shown, re.MULTILINE)
    assert read
    assert not [path for path in read if ".pyc" not in path]


def test_what_the_build_found(container: Container) -> None:
    shown = said(container, commands.CHECK_BUILD)
    assert "[X] PyTorch" in shown
    assert re.search(r"MPI: Open MPI 5\.\S+ \(wheel; /opt/horovod/bin/mpirun\)", shown)
    assert "CUDA: none" in shown
    where = "python -c 'import horovod, torch; print(horovod.__file__, torch.version.cuda)'"
    assert re.fullmatch(r"/opt/horovod/lib/\S+/horovod/__init__.py None\n", said(container, where))


def test_mpirun_trains(container: Container) -> None:
    shown = said(container, commands.TRAIN, *mnist(), limit=400)
    assert "parameters     bit-identical on 2 rank(s)" in shown
    assert "compression    bit8, 2 rank(s)" in shown
    accuracy = re.search(r"test accuracy +([\d.]+) %", shown)
    assert accuracy, shown
    assert float(accuracy[1]) > (95 if mnist() else 50)


def test_horovodrun_trains(container: Container) -> None:
    busy = ("-e", "HOROVOD_START_TIMEOUT=120")  # this machine may be busy
    shown = said(container, commands.TRAIN_WITH_HOROVODRUN, *busy, limit=400)
    assert "[0]<stdout>:parameters     bit-identical on 2 rank(s)" in shown


def test_some_tests_pass_in_it(container: Container) -> None:
    shown = said(container, commands.QUICK_TESTS, limit=400)
    assert re.search(r"^\d+ passed", shown, re.MULTILINE), shown[-2000:]


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_all_tests_pass_in_it(container: Container) -> None:
    done = container.run(commands.ALL_TESTS, *mnist(), limit=5000)
    print(done.stdout[-3000:])
    assert done.returncode == 0, done.stdout[-6000:]
