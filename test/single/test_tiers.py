"""`make test`, `make test-all` and `.ci/run`: each test belongs to one tier, and CI leaves none out."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
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
