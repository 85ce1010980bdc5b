"""Compiler warnings are errors: g++'s in the package's build, clang's in scripts/check_cpp.py."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "scripts"))
sys.path.append(str(ROOT))  # last, as a sanitized build may be before it
import check_cpp  # noqa: E402
import show_build  # noqa: E402

from build_support import requirements  # noqa: E402

MEMBER = """
#include "base/mutex.h"
class Count {
 public:
  int next() { BODY; }
 private:
  hvd::Mutex mutex_;
  int value_ GUARDED_BY(mutex_) = 0;
};
int main() { return Count().next(); }
"""
LOCKED = "hvd::MutexLock lock(mutex_); return ++value_"
UNUSED = "int main() { int unused; }\n"
MOVED = """
#include <string>
std::string both(std::string text) {
  std::string moved = std::move(text);
  return moved + text;
}
"""

COMPILER = ["clang++", *check_cpp.flags(), "-fsyntax-only", *check_cpp.STRICT, "{}"]
LINTER = ["clang-tidy", "--quiet", f"--config-file={ROOT / '.clang-tidy'}", "{}", "--", *check_cpp.flags()]


@pytest.fixture(autouse=True)
def nothing_has_passed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_cpp, "PASSED", tmp_path / "passed")
    monkeypatch.setattr(show_build, "LOGS", tmp_path / "logs")


def checked(source: Path, command: list[str] = COMPILER) -> bool:
    if not shutil.which(command[0]):
        pytest.skip(f"there is no {command[0]}; apt-get install clang clang-tidy")
    return check_cpp.check([source], command)


@pytest.mark.parametrize(
    ("command", "text", "said"),
    [
        (COMPILER, MEMBER.replace("BODY", "return ++value_"), "requires holding mutex 'mutex_'"),
        (COMPILER, UNUSED, "unused variable 'unused'"),
        (LINTER, MOVED, "bugprone-use-after-move"),
    ],
    ids=["mutex", "unused", "tidy"],
)
def test_clang_refuses(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: list[str], text: str, said: str
) -> None:
    """A refused file is checked again each time."""
    (tmp_path / "wrong.cc").write_text(text)
    for _ in range(2):
        assert not checked(tmp_path / "wrong.cc", command)
        assert said in capsys.readouterr().out


def test_what_has_passed_is_read_again_when_it_changes(tmp_path: Path) -> None:
    source = tmp_path / "right.cc"
    source.write_text(MEMBER.replace("BODY", LOCKED))

    def is_read() -> bool:
        assert checked(source)
        return "no work to do" not in (show_build.LOGS / "clang++.log").read_text()

    assert (is_read(), is_read()) == (True, False)
    source.write_text(source.read_text() + "\n")
    assert (is_read(), is_read()) == (True, False)


def test_how_far_a_tool_is_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(show_build, "EVERY", 0.05)
    tool, last = tmp_path / "tool", tmp_path / "last.cc"
    tool.write_text("#!/bin/sh\ncase $1 in *last.cc) sleep 0.5 ;; esac\n")
    tool.chmod(0o755)
    first = last.with_name("first.cc")
    first.touch()
    last.touch()
    assert check_cpp.check([first, last], [str(tool), "{}"])
    assert re.search(r"^  \d+ s  \[1/2\] tool .*first.cc$", capsys.readouterr().out, re.MULTILINE)


def test_clang_reads_what_has_mutexes() -> None:
    engine, codec = check_cpp.NATIVE / "schedule" / "engine.cc", check_cpp.NATIVE / "codec" / "codec.cc"
    assert check_cpp.with_mutexes([codec, engine]) == [engine]


def test_what_has_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only changed sources, and sources that include a changed header."""
    names = ("base/log.cc", "schedule/engine.h", "base/removed.cc")
    changes = [*(f"horovod/native/{name}" for name in names), "test/emulated_cuda/include/cuda.h"]
    monkeypatch.setattr(check_cpp.repository, "changed", lambda base: changes)
    sources = sorted(check_cpp.NATIVE.rglob("*.cc"))
    found = check_cpp.changed(sources)
    assert check_cpp.NATIVE / "base" / "log.cc" in found
    (other,) = set(found) - {check_cpp.NATIVE / "base" / "log.cc"}
    assert '#include "schedule/engine.h"' in other.read_text()


@pytest.mark.skipif(not check_cpp.program("clang-format"), reason="no clang-format: make .venv/.tests")
def test_how_sources_are_laid_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copy(ROOT / ".clang-format", tmp_path)
    (tmp_path / "wide.cc").write_text("int  main( ) { return 0 ; }\n")
    monkeypatch.setattr(check_cpp, "NATIVE", tmp_path)
    program = check_cpp.program("clang-format")
    assert program
    assert not check_cpp.is_laid_out(program, fix=False)
    assert "python scripts/check_cpp.py --fix" in capsys.readouterr().out
    assert check_cpp.is_laid_out(program, fix=True)
    assert (tmp_path / "wide.cc").read_text() == "int main() { return 0; }\n"


def test_a_developers_build_takes_warnings_for_errors(tmp_path: Path) -> None:
    """Every file of the package is compiled so; the compiler then refuses an unused variable."""
    nanobind = pytest.importorskip("nanobind", reason="a build's requirements are not installed")
    cmake = requirements.usable_cmake()
    assert cmake
    settings = {
        "HOROVOD_DEVELOPER": "ON",
        "CMAKE_EXPORT_COMPILE_COMMANDS": "ON",
        "nanobind_DIR": nanobind.cmake_dir(),
        "Python_EXECUTABLE": sys.executable,
    }
    options = [f"-D{name}={value}" for name, value in settings.items()]
    subprocess.run([cmake, "-S", ROOT, "-B", tmp_path, *options], check=True, stdout=subprocess.DEVNULL)
    commands = json.loads((tmp_path / "compile_commands.json").read_text())
    ours = {c["file"]: c["command"] for c in commands if "nanobind" not in c["file"]}
    together = "".join(path.read_text() for path in map(Path, ours) if path.name.startswith("unity_"))
    compiled = [path for path in check_cpp.NATIVE.rglob("*.cc") if str(path) in ours or str(path) in together]
    assert len(compiled) > 70  # all but MPI's and CUDA's
    for file, command in ours.items():
        assert {"-Wall", "-Wextra", "-Werror"} <= set(command.split()), file
    any_file, command = next(iter(ours.items()))
    (tmp_path / "wrong.cc").write_text(UNUSED)
    refused = subprocess.run(
        command.replace(any_file, str(tmp_path / "wrong.cc")),
        shell=True,
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert refused.returncode != 0
    assert "unused variable" in refused.stderr


@pytest.mark.skipif(not shutil.which("make"), reason="there is no make; apt-get install make")
@pytest.mark.parametrize(("given", "before", "strict"), [("", 0, 0), ("1", 0, 1), ("", 1, 1), ("0", 1, 0)])
def test_make_builds_so_for_developers(tmp_path: Path, given: str, before: int, strict: int) -> None:
    """A user's unknown compiler may warn. An earlier HOROVOD_DEVELOPER=1 stays in force."""
    (tmp_path / f".developer-{before}").touch()
    environment = {name: value for name, value in os.environ.items() if name != "HOROVOD_DEVELOPER"}
    if given:
        environment["HOROVOD_DEVELOPER"] = given
    shown = subprocess.run(
        ["make", "--dry-run", f"VENV={tmp_path}", "mnist"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert re.findall(r"export HOROVOD_DEVELOPER=(\d);", shown) == [str(strict)]
