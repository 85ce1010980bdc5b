"""Which MPI library a portable wheel loads, with folders made here and the environments of launchers."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from refusals import refused

from horovod.common.build_info import BuildInfo, MpiInfo
from horovod.common.mpi_here import folders, mpi_here
from horovod.runner import build_report, errors, launchers

RECORDED = MpiInfo("any")
OPEN_MPI, MPICH, DEBIANS_MPICH = "libmpi.so.40", "libmpi.so.12", "libmpich.so.12"
OPEN_MPIS_MPIRUN = "mpirun (Open MPI) 4.1.4"
MPICHS_MPIRUN = "HYDRA build details:\n    Version:                                 4.0.2"
BY_OPEN_MPI, BY_MPICH = {"OMPI_COMM_WORLD_SIZE": "2"}, {"PMI_SIZE": "2", "PMI_RANK": "1"}


def installation(
    prefix: Path, library: str, folder: str = "lib", has_mpirun: bool = True, says: str = ""
) -> Path:
    (prefix / folder).mkdir(parents=True, exist_ok=True)
    (prefix / folder / library).touch()
    if has_mpirun:
        (prefix / "bin").mkdir(exist_ok=True)
        says = says or (OPEN_MPIS_MPIRUN if library == OPEN_MPI else MPICHS_MPIRUN)
        (prefix / "bin" / "mpirun").write_text(f"#!/bin/sh\necho '{says}'\n")
        (prefix / "bin" / "mpirun").chmod(0o755)
    return prefix


@pytest.fixture(autouse=True)
def environment_of_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder in place of the running interpreter's."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "venv"))
    return tmp_path / "venv"


def debians(prefix: Path, says: str) -> Path:
    """The libraries of both families in one folder, and an mpirun that prints this version."""
    installation(prefix, OPEN_MPI, has_mpirun=False)
    return installation(prefix, DEBIANS_MPICH, says=says)


def found(environment: dict[str, str], *system: Path) -> tuple[str, str, str]:
    """Family, library and mpirun."""
    mpi = mpi_here(RECORDED, environment, [str(folder) for folder in system])
    return mpi.name, mpi.library_path(), mpi.mpirun_path()


def test_what_was_linked_is_not_looked_for() -> None:
    for linked in (MpiInfo("wheel", "Open MPI", "5.0.11", library="lib/libmpi.so.40"), MpiInfo()):
        assert mpi_here(linked, {"PATH": "/usr/bin"}) is linked


def test_of_a_linked_wheel_the_environments_library_is_loaded(environment_of_python: Path) -> None:
    linked = MpiInfo("wheel", "Open MPI", library="lib/libmpi.so.40")
    assert linked.library_path() == ""
    installation(environment_of_python, OPEN_MPI)
    assert linked.library_path() == str(environment_of_python / "lib" / OPEN_MPI)


def test_of_a_linked_system_mpi_nothing_is_loaded_first() -> None:
    assert MpiInfo("system", "MPICH", library="/usr/lib/libmpich.so.12").library_path() == ""


def test_nothing_is_found() -> None:
    assert found({"PATH": ""}) == ("", "", "")
    assert not mpi_here(RECORDED, {"PATH": ""}, []).built


def test_the_python_environments_comes_first(environment_of_python: Path, tmp_path: Path) -> None:
    own = installation(environment_of_python, OPEN_MPI)
    other = installation(tmp_path / "opt", OPEN_MPI)
    assert found({"PATH": f"{other}/bin"}) == ("Open MPI", f"{own}/lib/{OPEN_MPI}", f"{own}/bin/mpirun")


def test_then_that_of_mpirun_on_the_path(tmp_path: Path) -> None:
    system = installation(tmp_path / "usr", OPEN_MPI)
    loaded = installation(tmp_path / "module", MPICH, "lib64")
    shown = found({"PATH": f"{loaded}/bin:{system}/bin"}, system / "lib")
    assert shown == ("MPICH", f"{loaded}/lib64/{MPICH}", f"{loaded}/bin/mpirun")


def test_mpirun_may_be_a_link_as_debians(tmp_path: Path) -> None:
    real = installation(tmp_path / "usr", OPEN_MPI)
    (tmp_path / "alternatives").mkdir()
    (tmp_path / "alternatives" / "mpirun").symlink_to(real / "bin" / "mpirun")
    assert found({"PATH": f"{tmp_path}/alternatives"})[1] == f"{real}/lib/{OPEN_MPI}"


def test_then_the_loaders_folders(tmp_path: Path) -> None:
    given = installation(tmp_path / "given", MPICH, has_mpirun=False)
    system = installation(tmp_path / "usr", DEBIANS_MPICH, has_mpirun=False)
    assert found({"LD_LIBRARY_PATH": f"{given}/lib"}, system / "lib")[1] == f"{given}/lib/{MPICH}"
    assert found({"LD_LIBRARY_PATH": ""}, system / "lib") == ("MPICH", f"{system}/lib/{DEBIANS_MPICH}", "")


@pytest.mark.parametrize(
    ("said", "family"), [(BY_OPEN_MPI, "Open MPI"), (BY_MPICH, "MPICH"), ({}, "Open MPI")]
)
def test_a_ranks_launcher_decides_between_families(said: dict[str, str], family: str, tmp_path: Path) -> None:
    one = installation(tmp_path / "one", OPEN_MPI)
    other = installation(tmp_path / "other", MPICH)
    assert found({"PATH": f"{one}/bin", **said}, other / "lib")[0] == family


@pytest.mark.parametrize(
    ("says", "said", "family"),
    [
        (MPICHS_MPIRUN, {}, "MPICH"),
        (OPEN_MPIS_MPIRUN, {}, "Open MPI"),
        ("nothing that is known", {}, "Open MPI"),
        (MPICHS_MPIRUN, BY_OPEN_MPI, "Open MPI"),
        (OPEN_MPIS_MPIRUN, BY_MPICH, "MPICH"),
    ],
)
def test_of_two_families_in_one_folder_that_of_mpirun_counts(
    says: str, said: dict[str, str], family: str, tmp_path: Path
) -> None:
    both = debians(tmp_path / "usr", says)
    assert found({"PATH": f"{both}/bin", **said})[0] == family


def test_of_two_families_without_mpirun_the_first_counts(tmp_path: Path) -> None:
    both = debians(tmp_path / "usr", MPICHS_MPIRUN)
    assert found({"PATH": ""}, both / "lib")[0] == "Open MPI"


def test_mpirun_that_cannot_be_asked_decides_nothing(tmp_path: Path) -> None:
    both = debians(tmp_path / "usr", MPICHS_MPIRUN)
    (both / "bin" / "mpirun").write_text("#!/nowhere/sh\n")
    assert found({"PATH": f"{both}/bin"})[0] == "Open MPI"


def test_slurm_sets_pmis_variables_for_any_mpi(tmp_path: Path) -> None:
    only = installation(tmp_path / "usr", OPEN_MPI)
    assert found({"PATH": f"{only}/bin", **BY_MPICH})[0] == "Open MPI"


def test_each_folder_is_looked_in_once(tmp_path: Path) -> None:
    system = installation(tmp_path / "usr", OPEN_MPI)
    listed = folders({"PATH": f"{system}/bin", "LD_LIBRARY_PATH": f"{system}/lib:"}, [f"{system}/lib"])
    assert len(listed) == len(set(listed)) and Path(f"{system}/lib") in listed


def wheels(monkeypatch: pytest.MonkeyPatch, mpi: MpiInfo) -> None:
    """Make this installation a portable wheel, on a machine with this MPI."""
    for module in (launchers, build_report):
        monkeypatch.setattr(module, "build_info", lambda: BuildInfo(mpi=RECORDED))
        monkeypatch.setattr(module, "mpi_here", lambda recorded: mpi)
        monkeypatch.setattr(module, "why_unbuilt", lambda: "")
    monkeypatch.setattr(build_report, "_simd_level", lambda: "x86-64-v3")


def test_horovodrun_says_how_to_get_an_mpi(monkeypatch: pytest.MonkeyPatch) -> None:
    wheels(monkeypatch, MpiInfo())
    with refused(errors.no_mpi):
        launchers.installed_mpirun()
    report = build_report.report()
    assert "    [ ] MPI" in report and "    MPI: none here; horovodrun starts ranks without" in report


def test_a_library_without_mpirun(monkeypatch: pytest.MonkeyPatch) -> None:
    wheels(monkeypatch, MpiInfo("found", "MPICH", library="/usr/lib/libmpich.so.12"))
    with refused(errors.mpirun_not_on_path, library="/usr/lib/libmpich.so.12"):
        launchers.installed_mpirun()
    needed = "MPI: MPICH (/usr/lib/libmpich.so.12; its mpirun is not on PATH: --launcher mpi needs it)\n"
    assert needed in build_report.report()


def test_what_is_found_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    mpirun = str(installation(tmp_path, OPEN_MPI) / "bin" / "mpirun")
    wheels(monkeypatch, MpiInfo("found", "Open MPI", library="/x/libmpi.so.40", mpirun=mpirun))
    assert launchers.installed_mpirun() == mpirun
    report = build_report.report()
    assert "    [X] MPI" in report and f"    MPI: Open MPI 4.1.4 (/x/libmpi.so.40; {mpirun})" in report


def test_the_report_tells_no_version_of_another_mpi(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    mpirun = str(debians(tmp_path, MPICHS_MPIRUN) / "bin" / "mpirun")
    wheels(monkeypatch, mpi_here(RECORDED, {"PATH": f"{tmp_path}/bin"}, []))
    assert f"    MPI: MPICH 4.0.2 ({tmp_path}/lib/{DEBIANS_MPICH}; {mpirun})" in build_report.report()
    (tmp_path / "lib" / DEBIANS_MPICH).unlink()
    wheels(monkeypatch, mpi_here(RECORDED, {"PATH": f"{tmp_path}/bin"}, []))
    alone = f"    MPI: Open MPI ({tmp_path}/lib/{OPEN_MPI}; {mpirun} is of MPICH, and cannot start its ranks)"
    assert alone in build_report.report()


def test_no_rank_is_started_by_another_mpis_mpirun(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Each rank would be alone; without --launcher mpi, agents start them."""
    installation(tmp_path, OPEN_MPI, says=MPICHS_MPIRUN)
    wheels(monkeypatch, mpi_here(RECORDED, {"PATH": f"{tmp_path}/bin"}, []))
    with refused(errors.mpirun_of_another, got="MPICH", expected="Open MPI"):
        launchers.installed_mpirun()
