"""The diagrams of docs/assets as a browser draws them: nothing overlaps, is cut or pale, light and dark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import browser
import pytest

ASSETS = Path(__file__).resolve().parents[2] / "docs" / "assets"
PAPER = "body{margin:0;background:#fff}@media(prefers-color-scheme:dark){body{background:#16191f}}"


def page_of(drawings: list[str], file: Path) -> Path:
    """All drawings below each other, each as wide as a telephone's window, or as its own size."""
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
