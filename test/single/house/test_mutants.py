"""The mutants of `make test-mutants`: changes to a source, and the tests that could detect them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2] / "mutants"))

from mutants import Mutation, drawn, is_valid, lines_of_statement, mutated, mutations_of
from workshop import Survey, files_of_make_test, show_isolated

SOURCE = """\
#include <vector>
// i < n in a comment, and "a + b" in a
const char* text = "a + b";
template <typename T> T sum(const std::vector<T>& all, int n) {
  T result = 0;
  for (int i = 0; i < n && i >= 0; ++i) result += all[i];
  return result;
}
"""


def test_one_place_is_changed_and_never_what_is_no_code() -> None:
    lines = SOURCE.splitlines()
    found = mutations_of("a.cc", SOURCE)
    assert {mutation.line for mutation in found} == {5, 6}
    for mutation in found:
        after = mutated(mutation, SOURCE).splitlines()
        changed = [
            number for number, pair in enumerate(zip(lines, after, strict=True), 1) if pair[0] != pair[1]
        ]
        assert changed == [mutation.line]
    texts = {mutated(mutation, SOURCE).splitlines()[5].strip() for mutation in found if mutation.line == 6}
    assert "for (int i = 0; i <= n && i >= 0; ++i) result += all[i];" in texts
    assert "for (int i = 0; i < n || i >= 0; ++i) result += all[i];" in texts
    assert "for (int i = 0; i < n && i >= 0; ++i) result -= all[i];" in texts


def test_python_is_changed_but_for_its_types() -> None:
    pytest.importorskip("cosmic_ray", reason="needs cosmic-ray: make test-mutants installs it")
    source = 'def f(a: "int | None", b: int = 1) -> int:\n    return a + b if a else b\n'
    found = mutations_of("a.py", source)
    assert found and all(mutated(mutation, source) != source for mutation in found)
    assert not any(
        '"int' in line for m in found for line in [mutated(m, source)] if '"int | None"' not in line
    )


def test_a_seed_draws_the_same_mutants_one_of_each_line() -> None:
    first = list(drawn({"a.cc": SOURCE}, seed=3))
    assert first == list(drawn({"a.cc": SOURCE}, seed=3))
    assert sorted(mutation.line for mutation in first) == [5, 6]


def test_tests_that_are_about_a_source_come_first() -> None:
    reached = {"a.py": {1: ["all", "own"], 2: ["own"], 3: ["all"]}, "b.py": {1: ["all"]}}
    survey = Survey(reached, {"all": 30.0, "own": 1.0}, failed=["flaky"])
    assert survey.tests_of("a.py", [1]) == ["own", "all"]
    assert survey.tests_of("a.py", [9]) == ["own", "all"], "of the file, as none was seen to reach the line"
    assert survey.tests_of("c.py", [1]) == []
    assert survey.tests_of("a.py", range(3, 10)) == ["all"]


def test_what_make_test_runs_is_surveyed() -> None:
    files = files_of_make_test(Path(__file__).resolve().parents[3])
    assert "test/single/house/test_mutants.py" in files and "test/parallel/test_pages.py" in files
    assert "test/cluster/test_made_hosts.py" in files and "test/cluster/test_exposure.py" not in files
    assert not any(file.startswith("test/failures/") for file in files)


def test_the_survey_sees_processes_that_are_isolated(tmp_path: Path) -> None:
    root = Path(__file__).resolve().parents[3]
    isolated = [path for path in (root / "horovod").rglob("*.py") if '"-S"' in path.read_text()]
    assert isolated
    for path in isolated:
        copy = tmp_path / path.relative_to(root)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(path.read_text())
    show_isolated(tmp_path)
    for path in isolated:
        shown = (tmp_path / path.relative_to(root)).read_text()
        assert '"-I", ' in shown and '"-S"' not in shown
        assert len(shown.splitlines()) == len(path.read_text().splitlines())


def test_statements_are_found_by_any_of_their_lines() -> None:
    python = "@d\ndef f(\n    a,\n    b=(1,\n       2),\n):\n    return (a +\n            b)\n"
    assert lines_of_statement("a.py", python, 4) == range(2, 7)
    assert lines_of_statement("a.py", python, 8) == lines_of_statement("a.py", python, 7) == range(7, 9)
    cpp = "int f() {\n  g(1,\n    2);\n\n  return 3 +\n         4;  // four\n}\n"
    assert lines_of_statement("a.cc", cpp, 2) == lines_of_statement("a.cc", cpp, 3) == range(2, 4)
    assert lines_of_statement("a.cc", cpp, 5) == range(5, 7)


def test_what_python_cannot_read_is_no_mutant() -> None:
    mutation = Mutation("a.py", 1, "an operator", 0)
    assert is_valid(mutation, "a = 1\n") and not is_valid(mutation, "def f(<<, a): pass\n")
    assert is_valid(Mutation("a.cc", 1, "an operator", 0), "int a = ;")
