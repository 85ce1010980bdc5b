"""The Python in docs/compression.md and docs/wire_format.md runs, and says what the pages say."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from horovod import _native as native

DOCS = Path(__file__).resolve().parents[2] / "docs"


def runnable(page: str) -> str:
    """The page's python blocks, all else blanked out, so that line numbers in errors are the page's."""
    lines, inside = [], False
    for line in page.splitlines():
        if line.startswith("```"):
            inside = line == "```python"
            lines.append("")
        else:
            lines.append(line if inside else "")
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(("name", "blocks"), [("compression.md", 12), ("wire_format.md", 6)])
def test_the_pages_python_runs(name: str, blocks: int, tmp_path: Path) -> None:
    page = (DOCS / name).read_text()
    assert page.count("\n```python\n") == blocks, "count the page's blocks here too, so that none is lost"
    script = tmp_path / name.replace(".md", ".py")
    script.write_text(runnable(page))
    # pytest's own limit is shorter, but for sanitizers, under which torch is slow.
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=500)
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
    page = "text\n```python\nassert 1 + 1 == 3\n```\n"
    assert runnable(page) == "\n\nassert 1 + 1 == 3\n\n"
    done = subprocess.run([sys.executable, "-c", runnable(page)], capture_output=True, text=True, timeout=60)
    assert done.returncode != 0
    assert "line 3" in done.stderr


@pytest.mark.parametrize("name", ["compression.md", "wire_format.md"])
def test_links_between_pages_lead_somewhere(name: str) -> None:
    targets = re.findall(r"\]\(([^)#]+)", (DOCS / name).read_text())
    assert targets
    assert [target for target in targets if not (DOCS / target).exists()] == []
