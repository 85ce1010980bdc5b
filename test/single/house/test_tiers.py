"""`make test`, `make test-all` and `.ci/run`: each test belongs to one tier, and CI runs all of them."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import pytest_timeout
from busy import MOST

ROOT = Path(__file__).resolve().parents[3]
MAKEFILE = (ROOT / "Makefile").read_text()


def recipe(target: str) -> str:
    found = re.search(rf"^{target}:(.*\n(?:\t.*\n)*)", MAKEFILE, re.MULTILINE)
    assert found, f"there is no target {target}"
    return found[1]


def test_what_one_tier_leaves_out_the_next_runs() -> None:
    assert "-m 'not slow' --numprocesses logical test/single" in recipe("test")
    assert re.search(r"-m quick \$\(ABREAST\) test/parallel test/cluster \|\|", recipe("test"))
    assert "-m 'not slow and not quick' $(ABREAST) --ignore test/single test" in recipe("test-rest")
    assert "-m slow " in recipe("test-fresh")
    assert recipe("test-all").split("##")[0].split() == ["test", "test-sanitize-slice", "test-rest"]
    assert {"test-fresh", "test-sanitize", "test-faults"} < set(recipe("test-nightly").split())


def test_what_is_quick_is_where_make_test_looks_for_it() -> None:
    marked = {path for path in (ROOT / "test").rglob("*.py") if "mark.quick" in path.read_text()}
    marked.discard(Path(__file__))
    assert {path.parent for path in marked} == {ROOT / "test" / folder for folder in ("parallel", "cluster")}
    for path in marked:  # a mark, not a word in a text
        nodes = ast.walk(ast.parse(path.read_text()))
        assert any(isinstance(node, ast.Attribute) and node.attr == "quick" for node in nodes), path


def test_ci_runs_all_of_test_all() -> None:
    lines = (ROOT / ".ci" / "run").read_text().splitlines()
    timed = [line.split()[1] for line in lines if line.startswith("timed ")]
    assert timed == ["mnist", *recipe("test-all").split("##")[0].split()]


@pytest.mark.parametrize(("load", "times"), [(0.0, 1.0), (1.0, 1.0), (3.0, 3.0), (1000.0, MOST)])
def test_a_busy_machine_has_more_time(
    load: float, times: float, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The timeout that pytest-timeout uses for each test."""
    limits: list[float] = []

    def note(item: pytest.Item, settings: pytest_timeout.Settings) -> bool:
        limits.append(settings.timeout)
        return True

    monkeypatch.setattr(os, "getloadavg", lambda: (load * (os.cpu_count() or 1), 0.0, 0.0))
    monkeypatch.setattr(pytest_timeout, "pytest_timeout_set_timer", note)
    own = pytest_timeout.get_env_settings(request.config)._replace(timeout=100.0)
    assert request.config.hook.pytest_timeout_set_timer(item=request.node, settings=own)
    assert limits == [100.0 * times]


FAILING = {
    "once": """
from pathlib import Path
def test_once():
    first = not Path("seen").exists()
    Path("seen").touch()
    assert not first
""",
    "always": "def test_always(): assert False",
    "four": "import pytest, pathlib\n@pytest.mark.parametrize('n', range(4))\ndef test_four(n): "
    "assert pathlib.Path('seen').exists()",
    "collection": "import nothing_of_this_name",
}


needs_make = pytest.mark.skipif(shutil.which("make") is None, reason="no make here, which .ci/run calls")


def ci_in(folder: Path, test: str, arguments: str = "") -> subprocess.CompletedProcess[str]:
    """The result of CI's `make test` on this file."""
    (folder / "test").mkdir()
    (folder / "test" / "test_it.py").write_text(test)
    (folder / ".venv" / "bin").mkdir(parents=True)
    for name in ("pytest", "python"):
        (folder / ".venv" / "bin" / name).symlink_to(Path(sys.executable).parent / name)
    [failed] = re.findall(r"^FAILED = .*$", MAKEFILE, re.MULTILINE)
    run = f".venv/bin/pytest -q {arguments} test || $(FAILED)"
    (folder / "Makefile").write_text(
        f"SHELL := bash\n{failed}\n.PHONY: test\ntest:\n\t@failed=0; {run}; exit $$failed\n"
    )
    script = (ROOT / ".ci" / "run").read_text()
    functions = script[script.index("failed=()") : script.index("export HOROVOD_DEVELOPER")]
    ending = script[script.index("[ ${#alone[@]}") :]
    words = f"set -euo pipefail\nSECONDS=0\n{functions}\ntimed test once_more\n{ending}"
    kept = {name: text for name, text in os.environ.items() if not name.startswith(("PYTEST", "MAKE"))}
    return subprocess.run(
        ["bash", "-c", words], cwd=folder, env=kept, capture_output=True, text=True, timeout=60
    )


@needs_make
def test_a_test_that_failed_beside_others_gets_a_second_run_and_is_named(tmp_path: Path) -> None:
    done = ci_in(tmp_path, FAILING["once"])
    assert done.returncode == 0, done.stdout + done.stderr
    assert "CI: failed beside others, and passed alone: test/test_it.py::test_once" in done.stdout


@needs_make
@pytest.mark.parametrize(
    ("test", "arguments", "runs"),
    [
        (FAILING["always"], "", 2),
        (FAILING["four"], "", 1),  # too many failures for a flaky test
        (FAILING["collection"], "", 1),
        (FAILING["once"], "--nonsense", 0),
    ],
)
def test_what_still_fails_ci(test: str, arguments: str, runs: int, tmp_path: Path) -> None:
    done = ci_in(tmp_path, test, arguments)
    said, failed, again = done.stdout.partition("CI: failed: test, whose last words were:\n")
    assert done.returncode == 1 and failed and again, done.stdout + done.stderr
    assert len(re.findall(r"\d (?:failed|error)\w* .*in [\d.]+s", said)) == runs, done.stdout
