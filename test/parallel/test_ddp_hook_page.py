"""The Python of docs/ddp.md that is about the hook is one script, which runs with one rank and with two."""

import re
from pathlib import Path

import pytest
from ddp_jobs import run_torchrun
from page_blocks import blocks

SECTIONS = {"In one line": 5, "What is kept between steps": 3, "When compression does not pay": 1}


@pytest.mark.parametrize("np", [1, 2])
def test_the_sections_about_the_hook_run(np: int, tmp_path: Path) -> None:
    path = tmp_path / "page.py"
    pieces: list[str] = []
    for title, count in SECTIONS.items():
        found = blocks("docs/ddp.md", "python", title)
        assert len(found) == count, f"count the blocks of {title!r} here too, so that none is lost"
        pieces += found
    folder = f"import os\nos.chdir({str(tmp_path)!r})\n"
    path.write_text(folder + "\n".join(pieces) + "\ndist.destroy_process_group()\n")
    done = run_torchrun(np, [str(path)], timeout=100)
    assert done.returncode == 0, done.stdout
    # The log's line, and what each rank prints, perhaps in another's line; one rank has nothing to measure.
    said = re.findall(r"compression is (?:on|off): a step takes [\d.]+ ms with it and", done.stdout)
    assert len(said) == (1 + np if np > 1 else 0), done.stdout
