"""A copy of the tree in which a mutant is built and tested, and the lines that each test file reaches."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PASSED = (0, 5)  # pytest's exit codes: all passed, or no test was selected
# Processes, their ids, shared memory and made hosts end with the tests that started them. The shell is their
# init: it waits for processes whose parents have ended.
_ALONE = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "--ipc", "sh", "-c")
_ALONE_SCRIPT = """
mount -t tmpfs none /dev/shm && mount -t tmpfs none /run && ulimit -v 33554432 || exit 2
"$@"
exit $?
"""
_QUICK = re.compile(r"\bmark\.quick\b")
_PYTEST = (sys.executable, "-m", "pytest", "-x")
_COVERAGE = """[run]
branch = false
source = {tree}/horovod
data_file = {folder}/data
parallel = true
sigterm = true
patch = subprocess, _exit, execv
disable_warnings = no-data-collected
"""


@dataclass
class Survey:
    """`reached`: source -> line -> test files. `seconds`: of each test file. `failed`: files left out."""

    reached: dict[str, dict[int, list[str]]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)

    def save(self, path: Path) -> None:
        path.write_text(json.dumps(self.__dict__))

    @classmethod
    def load(cls, path: Path) -> Survey:
        survey = cls(**json.loads(path.read_text()))
        survey.reached = {
            source: {int(line): files for line, files in lines.items()}
            for source, lines in survey.reached.items()
        }
        return survey

    def tests_of(self, source: str, statement: Sequence[int]) -> list[str]:
        """Return tests that reach one of the lines: first those most specific to this source, fastest first.

        If no test reaches a line, return all tests that reach the source: ranks that a test forks may end
        without writing their counts.
        """
        lines = self.reached.get(source, {})
        about: dict[str, float] = {}
        for files in lines.values():
            for file in files:
                about[file] = about.get(file, 0.0) + 1 / len(files) ** 2
        reaching = {file for line in statement for file in lines.get(line, [])} or about.keys()
        files = [file for file in sorted(reaching) if file not in self.failed]
        return sorted(files, key=lambda file: (2 + self.seconds[file]) / about[file])


def files_of_make_test(tree: Path) -> list[str]:
    others = [path for name in ("parallel", "cluster") for path in (tree / "test" / name).glob("test_*.py")]
    quick = [path for path in others if _QUICK.search(path.read_text())]
    return sorted(str(p.relative_to(tree)) for p in [*(tree / "test" / "single").rglob("test_*.py"), *quick])


class Workshop:
    """A tree of HEAD's commit, built in place."""

    def __init__(self, tree: Path, **build: str) -> None:
        self.tree = tree
        # With the parts of the core that tests need; but a mutant may have an unused variable.
        developer = {"HOROVOD_DEVELOPER": "1", "CMAKE_ARGS": "-DHOROVOD_DEVELOPER=OFF"}
        own = {"PYTHONPATH": str(tree), "HOROVOD_WITH_CUDA": "0", **developer}
        self._environment = {**os.environ, **own, **build}
        self._environment.pop("PYTHONDONTWRITEBYTECODE", None)
        if not tree.exists():
            tree.mkdir(parents=True)
            archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, check=True, stdout=subprocess.PIPE)
            subprocess.run(["tar", "-x", "-C", str(tree)], input=archive.stdout, check=True)
            why = self.build()
            if why:
                shutil.rmtree(tree)
                raise RuntimeError(f"the tree without a mutation does not build: {why}")

    def build(self) -> str:
        """Return the end of the output if the build failed."""
        words = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
        done = subprocess.run(words, cwd=self.tree, env=self._environment, capture_output=True, text=True)
        return "" if done.returncode == 0 else (done.stdout + done.stderr)[-2000:] or "failed"

    def test(
        self,
        file: str,
        limit: float,
        python: Sequence[str] = _PYTEST,
        **variables: str,
    ) -> tuple[int, str]:
        """Return pytest's exit code, -1 after `limit` seconds, and the end of its output."""
        mark = "not slow" if file.startswith("test/single/") else "quick"
        pytest = ["-q", "--color=no", "-p", "no:cacheprovider", "-m", mark, file]
        words = [*_ALONE, _ALONE_SCRIPT, "sh", *python, *pytest]
        environment = {**self._environment, **variables}
        process = subprocess.Popen(
            words, cwd=self.tree, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        try:
            said, _ = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            process.kill()
            said, _ = process.communicate()
            return -1, said[-500:]
        return process.returncode, said[-500:]


def surveyed(workshop: Workshop, file: str, folder: Path) -> tuple[dict[str, set[int]], float, int, str]:
    """Run a test file with coverage; return lines reached by source, seconds, exit code, last words."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    rcfile = folder / "coveragerc"
    rcfile.write_text(_COVERAGE.format(tree=workshop.tree, folder=folder))
    began = time.monotonic()
    code, said = workshop.test(
        file,
        900,
        (sys.executable, "-m", "coverage", "run", f"--rcfile={rcfile}", "-m", "pytest"),
        GCOV_PREFIX=str(folder / "gcov"),
        WARM_PYTHON="0",  # forks of a warm process end without writing their coverage
    )
    seconds = time.monotonic() - began
    reached = {**_python_lines(workshop.tree, folder), **_cpp_lines(workshop.tree, folder)}
    shutil.rmtree(folder)
    return reached, seconds, code, said


def show_isolated(tree: Path) -> None:
    """Make Python start coverage in all processes, also in the programs that run ranks."""
    for path in [*(tree / "horovod").rglob("*.py"), *(tree / "test").rglob("*.py")]:
        text = path.read_text()
        shown = text.replace('"-I", "-S", ', '"-I", ').replace(" -I -S {", " -I {")
        if shown != text:
            path.write_text(shown)


def _python_lines(tree: Path, folder: Path) -> dict[str, set[int]]:
    from coverage import CoverageData

    lines: dict[str, set[int]] = {}
    for path in folder.glob("data.*"):
        data = CoverageData(basename=str(path))
        data.read()
        for name in data.measured_files():
            if name.startswith(f"{tree}/"):
                lines.setdefault(name.removeprefix(f"{tree}/"), set()).update(data.lines(name) or ())
    return lines


def _cpp_lines(tree: Path, folder: Path) -> dict[str, set[int]]:
    lines: dict[str, set[int]] = {}
    prefix = folder / "gcov"
    for counts in prefix.rglob("*.gcda"):
        notes = Path("/") / counts.relative_to(prefix).with_suffix(".gcno")
        counts.with_suffix(".gcno").symlink_to(notes)
        done = subprocess.run(
            ["gcov", "--json-format", "--stdout", str(counts)],
            cwd=counts.parent,
            capture_output=True,
            text=True,
        )
        for text in done.stdout.splitlines():
            _add(lines, json.loads(text), tree)
    return lines


def _add(lines: dict[str, set[int]], report: Mapping[str, Any], tree: Path) -> None:
    for source in report["files"]:
        path = Path(report["current_working_directory"], source["file"]).resolve()
        if path.is_relative_to(tree):
            found = lines.setdefault(str(path.relative_to(tree)), set())
            found.update(line["line_number"] for line in source["lines"] if line["count"])


def survey_of(build: Path, at_once: int) -> Survey:
    """Return the lines that every test file of `make test` reaches; build/survey.json keeps known ones."""
    from concurrent.futures import ThreadPoolExecutor

    stored = build / "survey.json"
    survey = Survey.load(stored) if stored.exists() else Survey()
    shop = Workshop(build / "tree0")
    files = [file for file in files_of_make_test(shop.tree) if file not in survey.seconds]
    if not files:
        return survey
    workshop = Workshop(build / "survey", CXXFLAGS="--coverage", LDFLAGS="--coverage")
    show_isolated(workshop.tree)
    with ThreadPoolExecutor(at_once) as pool:
        folders = [build / "reached" / Path(file).stem for file in files]
        results = pool.map(lambda file, folder: surveyed(workshop, file, folder), files, folders)
        for file, (reached, seconds, code, _) in zip(files, results, strict=True):
            print(f"{file}: {seconds:.0f} s, {len(reached)} sources, exit code {code}", flush=True)
            survey.seconds[file] = seconds
            if code not in PASSED and (plain := shop.test(file, 900))[0] not in PASSED:
                print(f"left aside, as it fails without a mutation: {plain[1]}", flush=True)
                survey.failed.append(file)
            for source, lines in reached.items():
                for line in lines:
                    survey.reached.setdefault(source, {}).setdefault(line, []).append(file)
            survey.save(stored)
    return survey
