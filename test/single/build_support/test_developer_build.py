"""Parts that only a developer build in a clone has. A script that creates empty files replaces CMake."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from setuptools import Distribution, Extension

sys.path.append(str(Path(__file__).resolve().parents[3]))  # last, as a sanitized build may be before it

from build_support import generated_headers, native

SUFFIX = ".x.so"
pytest.importorskip("nanobind", reason="a build's requirements are not installed")


class Build(native.BuildNative):
    """Run the build without a compiler."""

    def _cmake(self, *arguments: str) -> None:
        if "--build" in arguments:
            build = Path(arguments[1])
            (build / "out").mkdir(exist_ok=True)
            (build / "facts.json").write_text("{}")
            for name in ("_native", "_native_testing"):
                (build / "out" / f"{name}{SUFFIX}").touch()


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "horovod").mkdir()
    (tmp_path / "horovod" / "__init__.py").write_text('__version__ = "1"\n')
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "make_stub.py").write_text("open('stub', 'w')\n")
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "ruff.py").touch()  # the build requests it before the script runs
    monkeypatch.syspath_prepend(tmp_path / "modules")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(native, "ROOT", tmp_path)
    monkeypatch.setattr(generated_headers, "write", lambda: None)
    monkeypatch.setenv("SETUPTOOLS_EXT_SUFFIX", SUFFIX)
    monkeypatch.setenv("HOROVOD_WITHOUT_MPI", "1")
    monkeypatch.setenv("HOROVOD_WITH_CUDA", "0")
    for name in ("HOROVOD_DEVELOPER", "HOROVOD_SANITIZE", "MPICC", "HOROVOD_MPI"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def build(in_place: bool) -> list[str]:
    """The modules that a build leaves."""
    command = Build(Distribution({"name": "x", "ext_modules": [Extension("horovod._native", [])]}))
    command.inplace = in_place
    command.ensure_finalized()
    command.run()
    folder = Path("horovod") if in_place else Path(command.build_lib, "horovod")
    modules = sorted(path.name.removesuffix(SUFFIX) for path in folder.glob(f"*{SUFFIX}"))
    announced = {Path(output).name.removesuffix(SUFFIX) for output in command.get_outputs()}
    assert announced == {*modules, native.BUILD_INFO}
    return modules


def test_in_place_it_has_what_tests_need_and_writes_the_stub(
    clone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOROVOD_DEVELOPER", "1")
    assert build(in_place=True) == ["_native", "_native_testing"] and (clone / "stub").exists()
    (clone / "stub").unlink()
    monkeypatch.setenv("HOROVOD_DEVELOPER", "0")
    assert build(in_place=True) == ["_native"], "what another build left is of another core"
    assert not (clone / "stub").exists()


def test_a_wheel_is_the_same_whoever_builds_it(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Except a build with sanitizers, which is for tests."""
    monkeypatch.setenv("HOROVOD_DEVELOPER", "1")
    assert build(in_place=False) == ["_native"]
    monkeypatch.setenv("HOROVOD_SANITIZE", "thread")
    assert build(in_place=False) == ["_native", "_native_testing"]
    assert not (clone / "stub").exists()


def test_a_stub_that_cannot_be_written_ends_the_build(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOROVOD_DEVELOPER", "1")
    (clone / "scripts" / "make_stub.py").write_text("raise SystemExit(1)")
    with pytest.raises(native.SetupError, match="make_stub"):
        build(in_place=True)
