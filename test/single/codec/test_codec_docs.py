"""Runs the Python code of docs/wire_format.md and checks the tables there and in docs/compression.md."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from page_blocks import all_blocks, blocks_of, script

import horovod.torch as hvd
from horovod import _native as native

DOCS = Path(__file__).resolve().parents[3] / "docs"


def test_the_pages_python_runs(tmp_path: Path) -> None:
    pieces = [block for block in blocks_of("docs/wire_format.md") if block.language == "python"]
    assert len(pieces) == 4, "count the page's blocks here too, so that none is lost"
    path = tmp_path / "wire_format.py"
    path.write_text(script(pieces))
    # pytest's own limit is shorter except with sanitizers, under which torch is slow.
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


def rows_of(section: str) -> dict[str, list[str]]:
    """The cells after each compressor's name, in the first table of a section of docs/compression.md."""
    text = (DOCS / "compression.md").read_text().partition(f"\n## {section}\n")[2]
    table = re.search(r"(^\|.*\n)+", text, re.MULTILINE)
    assert table, section
    rows = re.findall(r"^\| `(\w.*?)` \| (.*) \|$", table[0], re.MULTILINE)
    return {name: [cell.strip() for cell in re.split(r"(?<!\\)\|", rest)] for name, rest in rows}


def lost(name: str, x: torch.Tensor) -> tuple[float, float]:
    """The NMSE of one encoding, and its bits per element."""
    compression = eval(f"Compression.{name}", {"Compression": hvd.Compression})
    codes, ctx = compression.compress(x)
    error = compression.decompress(codes, ctx) - x
    return float(error.square().sum() / x.square().sum()), codes.nbytes * 8 / x.numel()


def distributions() -> list[torch.Tensor]:
    """The inputs of the table of errors, in the order of its columns."""
    random = np.random.default_rng(1)
    normal = random.standard_normal(100_000)
    all_ = [normal, random.laplace(size=100_000), random.uniform(-1, 1, 100_000), normal**3]
    return [torch.from_numpy(each.astype(np.float32)) for each in all_]


def test_the_table_of_errors_is_as_measured() -> None:
    rows = rows_of("How large the error is")
    assert len(rows) == 8
    columns = distributions()
    for name, (_bound, *said) in rows.items():
        for x, cell in zip(columns, said, strict=True):
            assert lost(name, x)[0] == pytest.approx(float(cell), rel=0.05), (name, cell)


def test_the_table_of_compressors_is_as_measured() -> None:
    rows = rows_of("Which one")
    number = re.compile(r"[\d.e-]+")
    measured = {name: row for name, row in rows.items() if name != "none" and number.fullmatch(row[1])}
    assert len(measured) == 8
    torch.manual_seed(0)
    x = torch.randn(1000, 1000)
    for name, (bits, nmse, *_) in measured.items():
        assert lost(name, x) == pytest.approx((float(nmse), float(bits)), rel=0.05), name
    for name, said in (("fp16", 4e-8), ("bf16", 3e-6)):
        assert lost(name, x)[0] == pytest.approx(said, rel=0.1)


def test_what_the_page_says_of_block_sizes_and_small_numbers() -> None:
    normal = distributions()[0]
    for name, x, nmse in (
        ("bit8(block_size=32)", normal, 7.0e-4),
        ("bit8(block_size=1024)", normal, 7.0e-4),
        ("int8(block_size=32)", normal, 2.9e-5),
        ("int4(block_size=32)", normal, 9.4e-3),
        ("bit16", normal * 1e-6, 3.0e-4),
        ("bit8", normal * 1e-6, 7.1e-4),
    ):
        assert lost(name, x)[0] == pytest.approx(nmse, rel=0.05), name


def test_a_false_statement_fails() -> None:
    page = "text\n```python\na = 1\n```\n\n```python\nassert a + 1 == 3\n```\n"
    code = script(all_blocks(page))
    assert code == "\n\na = 1\n\n\n\nassert a + 1 == 3\n"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode != 0
    assert "line 7" in done.stderr
