"""A page whose Python prints, and whose ```text blocks say what: `check_page` runs it and compares.

All ```python blocks of a page are one script. A ```text block right after one (blank lines between them do
not count) is all that this block prints; a block without one prints nothing.
"""

from __future__ import annotations

import math
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import NamedTuple

from rank_jobs import run_ranks

ROOT = Path(__file__).resolve().parents[2]
MARK = "-- block"  # printed before each block, so that outputs can be told apart
_BLOCK = re.compile(r"^```python\n(.*?)^```\n(?:\s*^```text\n(.*?)^```)?", re.MULTILINE | re.DOTALL)


_RANK_0_PRINTS = """import os
if os.environ.get("OMPI_COMM_WORLD_RANK", os.environ.get("PMI_RANK", "0")) != "0":
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # no new sys.stdout: nobody would close it
"""


class Block(NamedTuple):
    code: str
    shown: str  # what the page says that it prints


def blocks(document: str) -> list[Block]:
    return [Block(*found) for found in _BLOCK.findall((ROOT / document).read_text(encoding="utf-8"))]


def script(pieces: list[Block]) -> str:
    return _RANK_0_PRINTS + "\n".join(
        f"print('{MARK} {number}')\n{piece.code}" for number, piece in enumerate(pieces)
    )


def check_page(
    document: str,
    count: int,
    folder: Path,
    run: Callable[[Path], CompletedProcess[str]],
    tolerance: float = 0.0,
) -> CompletedProcess[str]:
    """Fails unless the page has `count` blocks and each prints what the page shows.

    run: runs the script and returns what it printed; of several ranks, rank 0 alone prints.
    tolerance: by which part numbers may differ, or by a twentieth of it in all. Trainings end elsewhere
        on other processors.
    """
    pieces = blocks(document)
    assert len(pieces) == count, "count the page's blocks here too, so that none is lost"
    path = folder / f"{Path(document).stem}.py"
    path.write_text(script(pieces), encoding="utf-8")
    done = run(path)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr or ''}"
    printed, said = _without_ours(done.stdout)
    shown = [_without_ours(piece.shown) for piece in pieces]
    outputs = re.split(rf"^{MARK} \d+\n", printed, flags=re.MULTILINE)[1:]
    for number, (output, (text, _)) in enumerate(zip(outputs, shown, strict=True)):
        assert is_shown(output, text, tolerance), (
            f"{document}: block {number} prints\n{output}\nand the page says\n{text}"
        )
    ours = "".join(lines for _, lines in shown)
    assert is_shown(said, ours, tolerance), f"{document}: horovod says\n{said}\nand the page says\n{ours}"
    return done


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


def _without_ours(text: str) -> tuple[str, str]:
    """A text and, apart, horovod's own lines: standard error, which mpirun forwards at another time."""
    lines = text.splitlines(keepends=True)
    ours = [line for line in lines if line.startswith("horovod: ")]
    return "".join(line for line in lines if line not in ours), "".join(ours)


def run_alone(path: Path) -> CompletedProcess[str]:
    """The script in one process; a warning is an error."""
    return subprocess.run(
        [sys.executable, "-W", "error", str(path)], capture_output=True, text=True, check=False, timeout=100
    )


def run_with_two_ranks(path: Path) -> CompletedProcess[str]:
    """The script on two ranks; a warning is an error."""
    return run_ranks(2, [sys.executable, "-W", "error", str(path)], timeout=250)
