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

import page_blocks
from page_blocks import Block, blocks_of
from rank_jobs import run_ranks

MARK = "-- block"  # printed before each block, so that outputs can be told apart
_RANK_0_PRINTS = """import os
if os.environ.get("OMPI_COMM_WORLD_RANK", os.environ.get("PMI_RANK", "0")) != "0":
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # no new sys.stdout: nobody would close it
"""


def script(pieces: list[Block]) -> str:
    code = page_blocks.script(pieces, f"print('{MARK} #')")
    assert code.startswith("\n"), "the first line of a page is its title"
    return f"exec({_RANK_0_PRINTS!r})" + code


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
    found = blocks_of(document)
    pieces = [block for block in found if block.language == "python"]
    assert len(pieces) == count, "count the page's blocks here too, so that none is lost"
    path = folder / f"{Path(document).stem}.py"
    path.write_text(script(pieces), encoding="utf-8")
    done = run(path)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr or ''}"
    printed, said = _without_ours(done.stdout)
    shown = [_without_ours(_shown_after(piece, found)) for piece in pieces]
    outputs = re.split(rf"^{MARK} \d+\n", printed, flags=re.MULTILINE)[1:]
    for piece, output, (text, _) in zip(pieces, outputs, shown, strict=True):
        assert is_shown(output, text, tolerance), (
            f"{document}:{piece.line}: this block prints\n{output}\nand the page says\n{text}"
        )
    ours = "".join(lines for _, lines in shown)
    assert is_shown(said, ours, tolerance), f"{document}: horovod says\n{said}\nand the page says\n{ours}"
    return done


def _shown_after(piece: Block, found: list[Block]) -> str:
    """What the page says that a block prints."""
    after = found[found.index(piece) + 1 :][:1]
    return "".join(block.body for block in after if block.language == "text" and block.is_next)


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
