"""Lists the sentences of all errors in sentences.txt and checks that the code supplies their facts.

After a change of a sentence, `make generated` writes the file again.
"""

# private: _layer: rows of a layer are its module's names, and these rows have no module

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path

from horovod.common import exceptions
from horovod.common.exceptions import Disagreement, LostRank, WrongArgument
from horovod.common.sentences import Explained, Sentence

ROOT = next(parent for parent in Path(__file__).resolve().parents if (parent / "pyproject.toml").exists())
LAYERS = sorted((ROOT / "horovod").rglob("errors.py"))
NATIVE = ROOT / "horovod" / "native"


def sentences_of(path: Path) -> dict[str, Sentence]:
    """A layer's rows, by name."""
    module = importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
    return {name: row for name, row in vars(module).items() if isinstance(row, Sentence)}


def core_sentences() -> dict[str, Sentence]:
    """Rows of the core's table, by code: HVD_SAYS(code, kind, "cause", "remedy")."""
    text = r'((?:\s*"(?:[^"\\]|\\.)*")+)'  # C++ joins several parts
    table = (NATIVE / "base" / "sentences.h").read_text()
    found = re.findall(rf"^HVD_SAYS\(\s*(\w+), (\w+),{text},{text}\)$", table, re.MULTILINE)
    assert len(found) == table.count("\nHVD_SAYS("), "a row has another form"
    rows = {}
    for code, kind, *parts in found:
        cause, remedy = ("".join(re.findall(r'"((?:[^"\\]|\\.)*)"', part)) for part in parts)
        rows[code] = Sentence(getattr(exceptions, kind), cause, remedy, {})
    return rows


def shown() -> str:
    """All sentences, by layer and name."""
    parts = []
    layers = {str(path.relative_to(ROOT)): sentences_of(path) for path in LAYERS}
    for layer, rows in sorted({**layers, "horovod/native": core_sentences()}.items()):
        parts.append(f"== {layer}\n")
        for name, row in sorted(rows.items()):
            parts.append(f"{name} ({row.kind.__name__}): {row.cause}{f'; {row.remedy}' * bool(row.remedy)}\n")
    return "".join(parts)


def raised(path: Path) -> Iterator[tuple[str, ast.Call | None]]:
    """Each errors.NAME of a file, with its call; None for a row in a table, which is called elsewhere."""
    nodes = list(ast.walk(ast.parse(path.read_text())))
    imports = [node for node in nodes if isinstance(node, ast.ImportFrom)]
    if not any(alias.name == "errors" for node in imports for alias in node.names):
        return  # then it is a variable's name
    calls = {node.func: node for node in nodes if isinstance(node, ast.Call)}
    for node in nodes:
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "errors":
            yield node.attr, calls.get(node)


def layer_of(path: Path) -> Path:
    """The errors.py that a file uses: in its folder, or in the nearest folder above."""
    return next(folder / "errors.py" for folder in path.parents if (folder / "errors.py") in LAYERS)


def test_no_sentence_has_changed_unseen() -> None:
    stored = Path(__file__).with_name("sentences.txt").read_text()
    assert shown() == stored, "a sentence has changed: run `make generated`, and read the difference"


def test_each_sentence_is_raised_with_the_facts_that_it_names() -> None:
    wrong, used = [], set()
    for path in (ROOT / "horovod").rglob("*.py"):
        for name, call in raised(path):
            used.add((layer_of(path), name))
            if call is None:
                continue
            where = f"{path.relative_to(ROOT)}:{call.lineno}: errors.{name}"
            row = sentences_of(layer_of(path)).get(name)
            given = {keyword.arg for keyword in call.keywords}
            if row is None or call.args or (row.fields - given and None not in given):
                wrong.append(f"{where}: {'no such row' if row is None else f'needs {sorted(row.fields)}'}")
    rows = {(path, name) for path in LAYERS for name in sentences_of(path)}
    assert not wrong
    assert not {f"{path.relative_to(ROOT)}: {name} is never raised" for path, name in rows - used}


def said_in_core() -> Iterator[tuple[str, str, str, str]]:
    """The core's uses of a sentence: file and line, its code, the statement, the file's text."""
    for path in sorted(NATIVE.rglob("*")):
        if path.suffix not in (".cc", ".cu", ".h") or path.name == "sentences.h":
            continue
        text = re.sub(r"//.*", "", path.read_text())
        for match in re.finditer(r"\bSaid::(\w+)", text):
            begin = max(text.rfind(end, 0, match.start()) for end in (";", "}\n", "{\n"))
            where = f"{path.relative_to(ROOT)}:{text.count(chr(10), 0, match.start()) + 1}"
            if match[1] != "nothing":
                yield where, match[1], text[begin : text.index(";", match.end())], text


def facts_given(cpp: str) -> set[str]:
    """Names of the facts that C++ code gives."""
    own = re.findall(r"\.(tensor|ranks|values)(?: =|\.push_back)", cpp)
    return {*own, *re.findall(r'(?:\{|emplace_back\()"(\w+)"', cpp)}


def test_each_sentence_of_the_core_is_said_with_the_facts_that_it_names() -> None:
    rows, wrong, said = core_sentences(), [], set()
    for where, code, statement, text in said_in_core():
        said.add(code)
        given = facts_given(statement)
        if re.search(r"\brefuse\(|\bstd::move\(", statement):  # of lines before
            given |= facts_given(text)
        if re.search(r"\}, cause[})]", statement):  # of another error: base/error.h
            given.add("why")
        if re.search(r"\bnumbered<", statement):  # bind/bind.h
            given.add("value")
        is_asked_about = re.search(r"\bsaid [!=]= $", statement.partition("Said::")[0])
        if code not in rows:
            wrong.append(f"{where}: there is no {code}")
        elif rows[code].fields - given and not is_asked_about:
            wrong.append(f"{where}: {code} needs {sorted(rows[code].fields - given)}")
    assert not wrong
    assert not rows.keys() - said, "never said"


def test_classes_of_the_core_s_errors_are_those_of_python() -> None:
    """By name, in the order of the numbers that ranks send."""
    header = (NATIVE / "base" / "error.h").read_text()
    listed = re.findall(r"\w+", re.search(r"enum class ErrorKind : uint8_t \{([^}]*)\}", header)[1])  # type: ignore[index]
    source = (NATIVE / "base" / "error.cc").read_text()
    named = re.findall(r'"(\w+)"', re.search(r"kNames\[\] = \{([^}]*)\}", source)[1])  # type: ignore[index]
    assert listed == named
    assert all(issubclass(getattr(exceptions, name), Explained) for name in named)


def test_an_error_has_its_facts_as_fields_and_says_them() -> None:
    lost = LostRank.says("{ranks:ranks} ended: {why}", "see the output of {ranks:ranks}")
    error = lost(ranks=[1, 3], why="killed", tensor="w")
    assert str(error) == "ranks 1, 3 ended: killed; see the output of ranks 1, 3"
    assert (error.ranks, error.tensor, error.remedy) == ((1, 3), "w", "see the output of ranks 1, 3")
    assert error.facts == {"ranks": [1, 3], "why": "killed", "tensor": "w"}
    differ = Disagreement.says("shapes differ: {values:by_rank}; {names:listed}")
    text = str(differ(values={0: 4, 1: 5, 2: 5}, names=["a", "b"]))
    assert text == "shapes differ: rank 0: 4; ranks 1, 2: 5; a, b"
    assert differ(values={0: 4}, names=[]).values == {0: 4}


def test_an_error_is_the_same_after_pickling() -> None:
    import pickle

    row = WrongArgument.says("{parameter} is {got!r}")
    row._layer["row"] = row
    try:
        error = pickle.loads(pickle.dumps(row(parameter="x", got=3)))
    finally:
        del row._layer["row"]
    assert (type(error), str(error), error.code) == (WrongArgument, "x is 3", "row")
    assert error.facts == {"parameter": "x", "got": 3}


def test_a_fact_that_is_missing_does_not_hide_the_error() -> None:
    assert "{got}" in str(WrongArgument.says("{parameter} is {got}")(parameter="x"))


if __name__ == "__main__":
    print(shown(), end="")
