"""scripts/changed_tests.py, for `make test CHANGED=1`: a changed file selects the tests of its concept."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "scripts"))

import changed_tests  # noqa: E402 -- of that folder
from changed_tests import (  # noqa: E402
    ALL,
    ELSEWHERE,
    HOUSE,
    OTHERS,
    STUB,
    changed_files,
    of_folder,
    selected_by,
)

SINGLE = ROOT / "test" / "single"
SOURCES = (".py", ".cc", ".h", ".cu", ".cuh")


def folders_of_the_package() -> set[str]:
    files = (path for path in (ROOT / "horovod").rglob("*") if path.suffix in SOURCES)
    return {str(path.parent.relative_to(ROOT)) for path in files} - {"horovod"}


def test_each_folder_of_the_package_has_tests() -> None:
    folders = folders_of_the_package()
    assert len(folders) > 30, "the package is not seen any more"
    assert set(ELSEWHERE) <= folders
    for folder in folders:
        tests = of_folder(folder)
        assert tests and all((ROOT / test).exists() for test in tests), f"{folder}: {tests}"


def test_each_folder_of_tests_is_one_of_the_package() -> None:
    """Other folders are named here. All tests are in folders, as changes select folders."""
    others = {HOUSE, *OTHERS.values(), "test/single/build_support", "test/single/support"}
    named = others.union(*map(of_folder, folders_of_the_package()))
    data = {"test/single/torch/stored_checkpoints"}
    found = {str(path.parent.relative_to(ROOT)) for path in SINGLE.rglob("*.py")}
    assert found - named - data == {"test/single"}
    assert [path.name for path in SINGLE.glob("*.py")] == ["conftest.py"]


@pytest.mark.parametrize(
    ("file", "selected"),
    [
        ("horovod/tune/search.py", {"test/single/tune"}),
        ("horovod/runner/elastic/slots.py", {"test/single/runner/elastic"}),
        ("horovod/lab/report/style.css", {"test/single/lab/report"}),
        ("horovod/native/transport/mpi/mpi.cc", {*ELSEWHERE["horovod/native/transport/mpi"]}),
        ("horovod/common/numpy_codec/gone.py", {"test/single/codec"}),
        ("horovod/_native.pyi", {STUB}),
        ("scripts/check_prose.py", {HOUSE}),
        ("examples/pytorch_mnist.py", {"test/single/examples"}),
        ("CHANGELOG.md", {HOUSE}),
        ("test/single/tune/test_tune_cache.py", {"test/single/tune/test_tune_cache.py"}),
        ("test/parallel/test_pages.py", {"test/parallel/test_pages.py"}),
        ("test/single/tune/test_gone.py", set()),
        ("test/single/common/rendezvous/meeting_ranks.py", {"test/single/common/rendezvous"}),
        *((file, {ALL}) for file in ("Makefile", "setup.py", "test/single/conftest.py", "new/unknown.txt")),
        *((file, {ALL}) for file in ("test/single/support/ranks.py", "test/parallel/ranks/test_sums.py")),
        *((file, {ALL}) for file in ("horovod/gloo_threads.py", "horovod/new/folder.py", "CMakeLists.txt")),
    ],
)
def test_a_file_selects(file: str, selected: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changed_tests, "_uses", lambda: set[tuple[str, str]]())
    assert set(selected_by([file])) == selected


@pytest.mark.parametrize(
    ("file", "user"),
    [
        ("horovod/native/codec/codec.h", "test/single/collective"),
        ("horovod/native/codec/codec.cc", "test/single/collective"),  # other files include its header
        ("horovod/native/bind/plan.cc", "test/single/torch"),  # torch imports the native module
        ("horovod/common/agent_channel.py", "test/single/runner"),
        ("horovod/common/numpy_codec/__init__.py", "test/single/lab/report"),
    ],
)
def test_who_takes_it_is_tested_too(file: str, user: str) -> None:
    assert user in selected_by([file])


def test_what_is_inside_of_another_is_not_said_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changed_tests, "_uses", lambda: set[tuple[str, str]]())
    files = ["horovod/torch/gathered.py", "horovod/torch/ddp/work.py", "test/single/torch/test_handles.py"]
    assert selected_by(files) == ["test/single/torch"]
    assert selected_by([*files, "Makefile"]) == [ALL] and selected_by([]) == []


def test_what_has_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def git(*words: str) -> None:
        who = ["-c", "user.name=a", "-c", "user.email=a@example.com"]
        subprocess.run(["git", *who, *words], cwd=tmp_path, check=True, capture_output=True)

    def commit(name: str) -> None:
        (tmp_path / name).write_text(name)
        git("add", ".")
        git("commit", "-m", name)

    monkeypatch.setattr(changed_tests, "ROOT", tmp_path)
    git("init", "-b", "main")
    for name in ("first", "second", "third"):
        commit(name)
    (tmp_path / "first").rename(tmp_path / "moved")
    assert sorted(changed_files("1")) == ["first", "moved", "third"]  # no origin/main: the last commit
    git("update-ref", "refs/remotes/origin/main", "HEAD~2")
    assert sorted(changed_files("1")) == ["first", "moved", "second", "third"]
    assert sorted(changed_files("HEAD")) == ["first", "moved"]
    with pytest.raises(SystemExit, match="CHANGED=nothing: git knows no such commit"):
        changed_files("nothing")
