"""The runs of pages, from their comments `<!-- runs` in YAML, which neither readers nor the site see.

    files: {train.py: README.md}      written if a command has the name; a run may have more files
    blur: [['\\d+ us', 'N us']]        patterns, and their substitutes in compared output
    python: {test_friends.py: 0-2}    the test that runs blocks of Python that are in no file below
    same as: [README.md]              all commands and all Python are those of these pages
    runs:
    - command: 'train\\.py'            each that matches (`whole`: each block; `together`: all as one), or
      each: '`(--\\w+)` is refused'    each match in the page, or neither, if it shows none
      type: '{0} --max-steps 2'       in place of {0}, the command or the match; {1} is the first group
      edit: [[old, new]]              replacements in the typed text
      by: test_friends.py             this runs it; `because` if it names neither page nor command
      exit: 0                         or another code, or `fails`
      prints, never                   patterns for standard error and output together; {pattern: count}
      only: '...'                     the pattern of all of standard output
      like: 1                         `prints` is in the page's ```text block 1 too
      says: '0:2'                     line 2 of its ```text block 0 is printed; HOST is this host's name
      alike: ['loss (.*)', 0.01, 0.1] these numbers agree by that part, and with the page's by the other
      shown: [0]                      these ```text blocks are in the output; `exactly: 0`: it is all
      near: 0.01                      numbers may differ by that part, or by a twentieth of it in all
      blocks: true                    each block of Python prints the ```text block after it, or nothing
      writes: {file: pattern}, draws: {file: kept}, leaves: [files]
      files, blur, env, needs, limit, marks, place, imports (from the folder), gpu (an emulated one)

A file is the page's Python as one script (`all`), blocks of it by number (`3`, `0-2`) or section (`## DDP`),
or another page's (`README.md 0`), a ```language block, `link FOLDER`, or a text that begins with #!. {of,
edit, before, after} changes one; {all} in it is the page's Python.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import launching
import page_blocks
import pytest
import yaml
from page_blocks import METADATA, ROOT, Block, blocks_of, text_of

OF_A_PAGE = {"files", "blur", "python", "same as", "runs"}
OF_A_RUN = {
    *("command", "whole", "together", "each", "type", "edit", "by", "because", "files", "blur", "env"),
    *("needs", "limit", "marks", "place", "imports", "gpu", "exit", "prints", "never", "only", "says"),
    *("alike", "like", "shown", "exactly", "near", "blocks", "writes", "draws", "leaves"),
}
MARK = "-- block"  # printed before each block, to separate the outputs
RANK_0_PRINTS = """import os
if next(filter(None, map(os.environ.get, ("HOROVOD_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK"))), "0") != "0":
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # no new sys.stdout: nobody would close it
"""


class Run(NamedTuple):
    page: str
    command: str  # on the page, or its match there; "" if it shows neither
    line: str  # the typed line
    groups: tuple[str, ...]
    row: dict[str, Any]

    def says(self, key: str, default: Any = None) -> Any:
        return self.row.get(key, default)

    def filled(self, text: str) -> str:
        """Fill in the groups of the match, as literal parts of a regular expression."""
        for number, group in enumerate(self.groups):
            text = text.replace(f"{{{number}}}", re.escape(group))
        return text


def pages() -> list[str]:
    files = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [str(file.relative_to(ROOT)) for file in files]


@cache
def metadata(page: str) -> dict[str, Any]:
    found = METADATA.search((ROOT / page).read_text(encoding="utf-8"))
    data: dict[str, Any] = yaml.safe_load(found[1]) if found else {}
    unknown = {*data} - OF_A_PAGE | {key for row in data.get("runs", []) for key in row} - OF_A_RUN
    assert not unknown, f"{page}: {unknown}"
    return data


def listed(value: Any) -> list[Any]:
    return [] if value is None else value if isinstance(value, list) else [value]


def runs_of(page: str) -> Iterator[Run]:
    for row in metadata(page).get("runs", []):
        found = [("",)] if "command" not in row and "each" not in row else [*_matches(page, row)]
        assert found, f"{page}: nothing there matches {row}"
        for groups in found:
            typed = row.get("type", "{0}")
            for number, group in enumerate(groups):
                typed = typed.replace(f"{{{number}}}", (group or "").strip())
            for old, new in row.get("edit", []):
                assert old in typed, f"{page}: {old} is not in {typed}"
                typed = typed.replace(old, new)
            yield Run(page, groups[0], typed, groups, row)


def _matches(page: str, row: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    """Yield each match with its groups."""
    if "each" in row:
        matches: Iterator[re.Match[str]] = re.finditer(row["each"], text_of(page), re.MULTILINE)
        yield from ((match[0], *match.groups()) for match in matches)
        return
    shown = page_blocks.blocks(page, "sh") if row.get("whole") else page_blocks.commands(page)
    found = [(each, *match.groups("")) for each in shown if (match := re.search(row["command"], each))]
    yield from [("\n".join(["set -e", *(each for each, *_ in found)]),)] if row.get("together") else found


def files_of(run: Run) -> dict[str, str]:
    """Return name -> text, or "link FOLDER"."""
    for_all = {
        name: source for name, source in metadata(run.page).get("files", {}).items() if name in run.line
    }
    sources = {**for_all, **run.says("files", {})}
    printing = run.says("blocks", False)
    return {name: _file(run.page, source, printing) for name, source in sources.items()}


def _file(page: str, source: Any, printing: bool = False) -> str:
    if isinstance(source, dict):
        text = _file(page, source["of"], printing)
        for old, new in source.get("edit", []):
            put = new.replace("{all}", _file(page, "all"))
            text, count = re.subn(old, lambda _, put=put: put, text, flags=re.MULTILINE)  # type: ignore[misc]
            assert count, f"{page}: {source['of']} has no {old}"
        return f"{source.get('before', '')}\n{text}\n{source.get('after', '')}\n"
    if str(source).startswith(("#!", "link ")):
        return str(source)
    if str(source).startswith("```"):
        (block,) = page_blocks.blocks(page, source[3:])
        return block
    document, _, which = str(source).rpartition(".md")
    pieces = python_blocks(f"{document}.md" if document else page, which.strip() or "all")
    if not printing:
        return page_blocks.script(pieces)
    return f"exec({RANK_0_PRINTS!r})" + page_blocks.script(pieces, f"print('{MARK} #')")


def python_blocks(page: str, which: str) -> list[Block]:
    if which.startswith("## "):
        found = [piece for title in which[3:].split(" ## ") for piece in blocks_of(page, title)]
        return [block for block in found if block.language == "python"]
    found = [block for block in blocks_of(page) if block.language == "python"]
    if which == "all":
        return found
    first, _, last = which.partition("-")
    return found[int(first) : int(last or first) + 1]


def python_used(page: str) -> set[int]:
    """Return the lines of the blocks of Python in some file of a run, or in another test."""
    data, used = metadata(page), set[int]()
    rows = [{"files": data.get("python", {})}, data, *data.get("runs", [])]
    for source in [source for row in rows for source in row.get("files", {}).values()]:
        which = source["of"] if isinstance(source, dict) else source
        which = "all" if "{all}" in str(source) else which
        if re.fullmatch(r"all|\d+(-\d+)?|## .*", str(which)):
            used |= {block.line for block in python_blocks(page, str(which))}
    return used


def write(run: Run, folder: Path) -> None:
    for name, text in files_of(run).items():
        if text.startswith("link "):
            (folder / name).symlink_to(ROOT / text[5:])
        else:
            (folder / name).write_text(text, encoding="utf-8")
            (folder / name).chmod(0o755 if text.startswith("#!") else 0o644)


def with_places(text: str, folder: Path) -> str:
    """Replace the names that only a run knows."""
    text = text.replace("{port}", str(launching.free_port()))
    return text.replace("{folder}", str(folder)).replace("{pid}", str(os.getpid()))


# Checks of the output


def blurred(run: Run, text: str) -> str:
    for old, new in [*metadata(run.page).get("blur", []), *run.says("blur", [])]:
        text = re.sub(old, new, text, flags=re.MULTILINE)
    return text


def is_shown(output: str, shown: str, tolerance: float) -> bool:
    if not tolerance:
        return output == shown
    number = r"\d+\.\d+"
    pairs = zip(re.findall(number, output), re.findall(number, shown), strict=False)
    is_near = all(
        math.isclose(float(one), float(other), rel_tol=tolerance, abs_tol=tolerance / 20)
        for one, other in pairs
    )
    return is_near and re.sub(number, "#", output) == re.sub(number, "#", shown)


def check(run: Run, code: int, stdout: str, stderr: str, folder: Path) -> None:
    """Fail unless it ended and printed as the page and its metadata specify."""
    output = stderr + stdout
    wanted, said = run.says("exit", 0), f"{run.page}: {run.line}\n{output}"
    assert (code != 0) if wanted == "fails" else code == wanted, f"exit code {code} of {said}"
    _check_patterns(run, output, said)
    if "only" in run.row:
        assert re.fullmatch(run.filled(run.row["only"]), stdout), said
    _check_shown(run, output, said)
    if run.says("blocks"):
        _check_blocks(run, output)
    _check_files(run, folder)


def _check_shown(run: Run, output: str, said: str) -> None:
    """Compare with the ```text blocks of the page."""
    shown = page_blocks.blocks(run.page, "text")
    if "says" in run.row:
        block, line = map(int, run.row["says"].split(":"))
        told = shown[block].splitlines()[line].replace("HOST", os.uname().nodename)
        assert blurred(run, told) in blurred(run, output), said
    if "like" in run.row:
        _check_patterns(run, shown[run.row["like"]], f"{run.page}, block {run.row['like']}")
    if "alike" in run.row:
        pattern, near, near_page = run.row["alike"]
        first, *others = map(float, re.findall(pattern, output))
        on_page = [float(each) for text in shown for each in re.findall(pattern, text)]
        assert others and all(math.isclose(first, each, rel_tol=near) for each in others), said
        assert on_page and all(math.isclose(first, each, rel_tol=near_page) for each in on_page), said
    for number in listed(run.says("shown")):
        assert blurred(run, shown[number]) in blurred(run, output), said
    if "exactly" in run.row:
        told = shown[run.row["exactly"]]
        assert is_shown(blurred(run, output), blurred(run, told), run.says("near", 0)), said


def _check_files(run: Run, folder: Path) -> None:
    for name, pattern in run.says("writes", {}).items():
        assert re.search(pattern, (folder / name).read_text(encoding="utf-8")), name
    for name, kept in run.says("draws", {}).items():
        file, part = kept if isinstance(kept, list) else (kept, r"(?s).*")
        drawn, there = (re.findall(part, path.read_text()) for path in (folder / name, ROOT / file))
        assert drawn == there, f"{file} has changed: copy {folder / name} to it"
    if "leaves" in run.row:
        assert sorted(path.name for path in folder.iterdir() if path.name != "bin") == run.row["leaves"]


def _check_patterns(run: Run, output: str, said: str) -> None:
    prints = run.says("prints", [])
    counts = prints if isinstance(prints, dict) else dict.fromkeys(listed(prints))
    for pattern, count in counts.items():
        found = len(re.findall(run.filled(pattern), output, re.MULTILINE))
        assert found == count if count is not None else found, f"{found} times {pattern} in {said}"
    for pattern in listed(run.says("never")):
        assert not re.search(pattern, output, re.MULTILINE), f"{pattern} in {said}"


def _check_blocks(run: Run, output: str) -> None:
    """Check that each block of Python prints the ```text block right after it, or nothing."""
    found, near = blocks_of(run.page), run.says("near", 0)
    pieces = [block for block in found if block.language == "python"]
    printed, said = _without_ours(output)
    shown = [_without_ours(_shown_after(piece, found)) for piece in pieces]
    outputs = re.split(rf"^{MARK} \d+\n", printed, flags=re.MULTILINE)[1:]
    for piece, text, (told, _) in zip(pieces, outputs, shown, strict=True):
        assert is_shown(text, told, near), (
            f"{run.page}:{piece.line}: this block prints\n{text}\nand the page says\n{told}"
        )
    ours = "".join(lines for _, lines in shown)
    assert is_shown(said, ours, near), f"{run.page}: horovod says\n{said}\nand the page says\n{ours}"


def _shown_after(piece: Block, found: list[Block]) -> str:
    after = found[found.index(piece) + 1 :][:1]
    return "".join(block.body for block in after if block.language == "text" and block.is_next)


def _without_ours(text: str) -> tuple[str, str]:
    """Return a text without horovod's lines, and these lines: standard error has no fixed place."""
    lines = text.splitlines(keepends=True)
    ours = [line for line in lines if line.startswith("horovod: ")]
    return "".join(line for line in lines if line not in ours), "".join(ours)


# Runs of all pages


def together(place: str) -> list[Any]:
    """Return parameters for pytest: lists of runs with equal commands, one of which is run for all."""
    same: dict[Any, list[Run]] = {}
    for page in pages():
        for run in runs_of(page):
            if "by" not in run.row and run.says("place", "here") == place:
                rest = {key: run.says(key) for key in ("env", "imports", "gpu", "blocks")}
                same.setdefault((run.line, repr(sorted(files_of(run).items())), repr(rest)), []).append(run)
    return [_parameter(runs) for runs in same.values()]


def _parameter(runs: list[Run]) -> Any:
    names = "+".join(dict.fromkeys(Path(run.page).with_suffix("").name for run in runs))
    marks = {mark for run in runs for mark in listed(run.says("marks"))}
    marks -= {"slow"} if any("slow" not in listed(run.says("marks")) for run in runs) else set()
    limit = max(run.says("limit", 100) for run in runs)
    return pytest.param(
        runs,
        id=f"{names}: {runs[0].line}"[:100].strip(),
        marks=[*(getattr(pytest.mark, mark) for mark in sorted(marks)), pytest.mark.timeout(limit + 50)],
    )
