"""The topology picture in a browser: texts apart, complete and legible, wide and narrow, light and dark."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from browser import faults

SINGLE = Path(__file__).resolve().parents[1] / "single"
sys.path += [str(SINGLE / "drawing"), str(SINGLE / "support")]
import test_topology_drawing as drawings  # noqa: E402 -- of that folder


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1280])
def test_texts_can_be_read(page_at, tmp_path: Path, width: int, scheme: str) -> None:
    """Write all pictures on one page, inline as in a report."""
    pictures = [drawings.picture(name, f"picture{number}") for number, name in enumerate(drawings.PICTURES)]
    file = tmp_path / "page.html"
    file.write_text(f"<!doctype html><meta charset='utf-8'><body style='margin:0'>{''.join(pictures)}</body>")
    page = page_at(file, width, scheme)
    assert faults(page) == []
    texts = "[...document.querySelectorAll('text')]"
    sizes = page.evaluate(f"{texts}.map(t => t.getAttribute('font-size') * t.getScreenCTM().a)")
    assert min(sizes) >= 9.9  # pixels
