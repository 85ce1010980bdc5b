"""The Python in docs/compression.md and docs/wire_format.md runs, and says what the pages say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from page_blocks import all_blocks, blocks_of, script

from horovod import _native as native

DOCS = Path(__file__).resolve().parents[3] / "docs"


@pytest.mark.parametrize(("name", "blocks"), [("compression.md", 12), ("wire_format.md", 6)])
def test_the_pages_python_runs(name: str, blocks: int, tmp_path: Path) -> None:
    pieces = [block for block in blocks_of(f"docs/{name}") if block.language == "python"]
    assert len(pieces) == blocks, "count the page's blocks here too, so that none is lost"
    path = tmp_path / name.replace(".md", ".py")
    path.write_text(script(pieces))
    # pytest's own limit is shorter, but for sanitizers, under which torch is slow.
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr


def test_the_table_of_formats_is_that_of_the_core() -> None:
    page = (DOCS / "wire_format.md").read_text()
    rows: dict[str, str] = {}
    for name in dict.fromkeys(row.format for row in native.codec_formats()):
        of_format = [row for row in native.codec_formats() if row.format == name]
        variants = ", ".join(filter(None, (row.variant for row in of_format)))
        bits, scale_bytes = of_format[0].bits, of_format[0].scale_bytes
        each = (name, variants, f"{bits}", f"{scale_bytes or ''}", f"{bits + scale_bytes * 8 / 128:g}")
        rows[name] = "|" + "|".join(f" {cell} " if cell else " " for cell in each) + "|"
    assert "\n".join(rows.values()) + "\n\n" in page


def test_a_false_statement_fails() -> None:
    page = "text\n```python\na = 1\n```\n\n```python\nassert a + 1 == 3\n```\n"
    code = script(all_blocks(page))
    assert code == "\n\na = 1\n\n\n\nassert a + 1 == 3\n"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode != 0
    assert "line 7" in done.stderr
