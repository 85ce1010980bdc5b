"""docs/concepts.md prints what it shows; docs/assets has what scripts/draw_diagrams.py draws."""

from __future__ import annotations

import re
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from page_blocks import ROOT
from printing_page import check_page, run_alone

sys.path.append(str(ROOT / "scripts"))

from diagrams.drawing import WIDTH
from draw_diagrams import DIAGRAMS, FOLDER

SVG = "{http://www.w3.org/2000/svg}"


def test_the_page_prints_what_it_shows(tmp_path: Path) -> None:
    check_page("docs/concepts.md", 5, tmp_path, run_alone)


@pytest.mark.parametrize("name", DIAGRAMS)
def test_a_diagram_is_up_to_date(name: str) -> None:
    drawn = DIAGRAMS[name]().svg()
    assert (FOLDER / name).read_text(encoding="utf-8") == drawn, "run python scripts/draw_diagrams.py"


@pytest.mark.parametrize("name", DIAGRAMS)
def test_a_diagram_is_readable(name: str) -> None:
    """It has a description, type that is legible at 400 pixels, and colours for both schemes."""
    root = ElementTree.parse(FOLDER / name).getroot()
    title, description = root.find(f"{SVG}title"), root.find(f"{SVG}desc")
    assert title is not None and title.text and description is not None
    assert len(description.text or "") > 80
    width, height = map(int, root.attrib["viewBox"].split()[2:])
    assert width == WIDTH == 400
    for text in root.iter(f"{SVG}text"):
        assert float(text.attrib["font-size"]) >= 11, text.text
        assert 0 <= float(text.attrib["x"]) <= width and 0 < float(text.attrib["y"]) < height, text.text
    style = root.findtext(f"{SVG}style") or ""
    used = set(re.findall(r"var\(--(\w+)\)", ElementTree.tostring(root, encoding="unicode")))
    light, dark = style.split("prefers-color-scheme:dark")
    for colour in used:
        assert f"--{colour}:" in light and f"--{colour}:" in dark, colour


def test_every_diagram_is_on_a_page_with_words_in_its_place() -> None:
    pages = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "docs").rglob("*.md"))
    for name in DIAGRAMS:
        alternatives = re.findall(rf"!\[([^\]]*)\]\((?:\.\./)?assets/{name}\)", pages)
        assert alternatives, f"no page shows {name}"
        assert all(alternatives)
