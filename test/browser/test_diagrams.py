"""The diagrams of docs/assets in a browser, light and dark: no text overlaps, is cut or is pale."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import browser
import pytest

ASSETS = Path(__file__).resolve().parents[2] / "docs" / "assets"
PAPER = "body{margin:0;background:#fff}@media(prefers-color-scheme:dark){body{background:#16191f}}"


def page_of(drawings: list[str], file: Path) -> Path:
    """Write a page of all drawings, one below the other, as wide as a telephone or in their own size."""
    widths = "svg{display:block;width:100%;max-width:600px;height:auto}"
    file.write_text(
        f"<!doctype html><meta charset=utf-8><style>{PAPER}{widths}</style>{''.join(drawings)}",
        encoding="utf-8",
    )
    return file


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1280])
def test_diagrams_are_legible(page_at: Any, tmp_path: Path, width: int, scheme: str) -> None:
    drawings = [path.read_text(encoding="utf-8") for path in sorted(ASSETS.glob("*.svg"))]
    assert len(drawings) >= 9
    page = page_at(page_of(drawings, tmp_path / "diagrams.html"), width, scheme)
    picture = tmp_path / f"diagrams_{width}_{scheme}.png"
    page.screenshot(path=str(picture), full_page=True)
    browser.keep(picture)
    assert page.locator("svg").count() == len(drawings)
    assert browser.faults(page) == []
