"""scripts/check_budget.py, which `make check` runs, reports files over the size budget."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "scripts"))
pytest.importorskip("lizard", reason="what measures functions, of the extra `check`, is not installed")
import check_budget  # noqa: E402

CPP = """
namespace hvd {  // { in a comment, and in a "string {"
#define NOT_A_FUNCTION(x) \\
  if (x) {
struct Shape : Base {
  explicit Shape(int rank, std::map<int, int> sizes = {}) : rank_{rank}, sizes_(sizes) {}
  bool operator()(int a) const { return a > 0 && rank_ > 1'000; }
  int rank_{3};
};
static const int table[] = {1, 2, 3};
template <typename T>
auto longest(std::function<void(T, T)> f,
             T&& value) -> std::pair<T, T> {
  switch (value) {
    case 1: return {value, [&] { return f ? 1 : 2; }()};
    case 2: break;
  }
}
}  // namespace hvd
"""


def test_functions_of_a_cpp_file_are_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shape.h").write_text(CPP)
    monkeypatch.setattr(check_budget, "ROOT", tmp_path)
    of_file, *found = check_budget.measure_file(tmp_path / "shape.h")
    assert (of_file.what, of_file.value) == ("lines of a header", CPP.count("\n"))
    by_function = {m.function: [n.value for n in found if n.function == m.function] for m in found}
    assert list(by_function.values()) == [[1, 1, 2], [1, 2, 1], [7, 4, 2]], by_function
    assert [m.line for m in found[::3]] == [6, 7, 12]


@pytest.mark.parametrize(
    ("what", "body"),
    [
        ("lines of a function", "def f():\n" + "    x = 1\n" * 60),
        ("branches of a function", "def f(a):\n" + "    a = a and a\n" * 15),
        ("parameters of a function", "def f(a, b, c, d, e, f, g, h, *i):\n    pass\n"),
        ("lines of a Python file", "x = 1\n" * 501),
    ],
)
def test_what_is_over_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, body: str) -> None:
    (tmp_path / "large.py").write_text(body)
    monkeypatch.setattr(check_budget, "ROOT", tmp_path)
    monkeypatch.setattr(check_budget, "EXCEPTIONS", {})
    found = check_budget.complaints(list(check_budget.measure_file(tmp_path / "large.py")))
    assert len(found) == 1
    assert what in found[0]
    assert "large.py" in found[0]


def test_a_needless_exception_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_budget, "EXCEPTIONS", {("gone.py", "f", "lines of a function"): "history"})
    assert [line.split(" (")[0] for line in check_budget.complaints([])] == ["gone.py: the exception for f"]
