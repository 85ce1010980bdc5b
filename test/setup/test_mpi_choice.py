"""The choice of MPI: the output of a system's compiler wrapper, and the mpirun that belongs to it."""

import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from build_support import mpi
from build_support.requirements import BuildError


def program(path: Path, says: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\ncat <<'E'\n{says}\nE\n")
    path.chmod(0o755)
    return path


def system_mpi(prefix: Path, suffix: str, library: str, mpirun_says: str) -> Path:
    """An installed MPI as in Debian: mpicc -> mpicc.<suffix>, a versioned library, its own mpirun."""
    (prefix / "lib").mkdir(parents=True)
    (prefix / "empty.c").write_text("")
    real = prefix / "lib" / f"lib{library}.so.12.3.4"
    link = ["cc", "-shared", f"-Wl,-soname,lib{library}.so.12", "-o", str(real), str(prefix / "empty.c")]
    subprocess.run(link, check=True)
    (prefix / "lib" / f"lib{library}.so.12").symlink_to(real)
    (prefix / "lib" / f"lib{library}.so").symlink_to(real)
    program(prefix / "bin" / f"mpirun.{suffix}", mpirun_says)
    program(prefix / "bin" / "mpirun", "mpirun of another MPI, through the alternatives")
    answer = f"cc -I{prefix}/include -pthread -L{prefix}/lib -Wl,-rpath -Wl,{prefix}/lib -l{library} -lm"
    wrapper = program(prefix / "bin" / f"mpicc.{suffix}", answer)
    (prefix / "bin" / "mpicc").symlink_to(wrapper)
    return prefix / "bin" / "mpicc"


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOROVOD_MPI", "HOROVOD_WITHOUT_MPI", "MPICC"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("suffix", "library", "says", "name", "version"),
    [
        ("openmpi", "mpi", "mpirun (Open MPI) 4.1.4", "Open MPI", "4.1.4"),
        ("mpich", "mpich", "HYDRA build details:\n    Version: 4.0.2", "MPICH", "4.0.2"),
    ],
)
def test_a_system_mpi(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    suffix: str,
    library: str,
    says: str,
    name: str,
    version: str,
) -> None:
    mpicc = system_mpi(tmp_path, suffix, library, says)
    monkeypatch.setenv("MPICC", str(mpicc))
    chosen = mpi.chosen_mpi()
    assert chosen.record() == {
        "source": "system",
        "name": name,
        "version": version,
        "mpicc": str(mpicc),
        "mpirun": str(tmp_path / "bin" / f"mpirun.{suffix}"),
        "library": str(tmp_path / "lib" / f"lib{library}.so.12"),
    }
    assert chosen.include_directories == [f"{tmp_path}/include"]
    assert chosen.library_directories == [f"{tmp_path}/lib"]


def test_system_means_not_the_wheels_wrapper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = program(tmp_path / "venv" / "bin" / "mpicc", "cc -lmpi").parent
    program(wheel / "ompirun_wrapper", "only the wheel has this")
    mpicc = system_mpi(tmp_path / "usr", "openmpi", "mpi", "mpirun (Open MPI) 4.1.4")
    monkeypatch.setenv("HOROVOD_MPI", "system")
    monkeypatch.setenv("PATH", f"{wheel}:{mpicc.parent}:/usr/bin:/bin")
    assert mpi.chosen_mpi().mpicc == str(mpicc)


def test_a_system_without_mpi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOROVOD_MPI", "system")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BuildError, match=r"no MPI compiler wrapper mpicc was found; install one"):
        mpi.chosen_mpi()


def test_a_wrapper_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = program(tmp_path / "mpicc", "")
    broken.write_text("#!/bin/sh\necho cannot open configuration >&2; exit 1\n")
    monkeypatch.setenv("MPICC", str(broken))
    with pytest.raises(BuildError, match="cannot open configuration"):
        mpi.chosen_mpi()


def test_the_wheel_is_the_default() -> None:
    chosen = mpi.chosen_mpi()
    assert (chosen.source, chosen.mpirun, chosen.library) == ("wheel", None, "lib/libmpi.so.40")
    assert (Path(chosen.include_directories[0]) / "mpi.h").exists()


def test_no_mpi(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOROVOD_WITHOUT_MPI", "1")
    assert mpi.chosen_mpi().record()["source"] == "none"


def test_any_mpi_takes_links_to_the_headers_of_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error's remedy works in an sdist too, which lacks the script that fetches the headers."""
    monkeypatch.setenv("HOROVOD_MPI", "any")
    monkeypatch.setenv("HOROVOD_MPI_HEADERS", str(tmp_path / "headers"))
    with pytest.raises(
        BuildError, match=r"a folder with two links, open_mpi and mpich, .*; in a clone `python "
    ):
        mpi.chosen_mpi()
    (tmp_path / "headers").mkdir()
    for link, folder in (("open_mpi", "openmpi"), ("mpich", "mpich")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "mpi.h").touch()
        (tmp_path / "headers" / link).symlink_to(tmp_path / folder)
    chosen = mpi.chosen_mpi()
    assert chosen.source == "any" and set(chosen.headers) == set(mpi.FAMILIES)
