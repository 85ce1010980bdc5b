"""The harness finds faults: each page here has one fault, or none."""

from __future__ import annotations

from pathlib import Path

import browser
import pytest
from browser import PageAt

PAGE = """<!DOCTYPE html><html lang="en"><link rel="icon" href="data:,">
<body style="background: #fff">{}</body></html>"""
FINE = (
    "<p>one</p><p>two</p><div class='scroll' style='overflow-x: auto'><p style='width: 3000px'>wide</p></div>"
)


def opened(page_at: PageAt, folder: Path, body: str) -> browser.Page:
    path = folder / "page.html"
    path.write_text(PAGE.format(body))
    return page_at(path, 400, "light")


def test_a_page_in_order(page_at: PageAt, tmp_path: Path) -> None:
    assert browser.faults(opened(page_at, tmp_path, FINE)) == []


@pytest.mark.parametrize(
    "body",
    [
        "<p>one line</p><p style='margin-top: -2em'>and another</p>",
        "<svg><text x='20' y='30'>one line</text><text x='24' y='30'>and another</text></svg>",
    ],
)
def test_texts_upon_each_other(page_at: PageAt, tmp_path: Path, body: str) -> None:
    page = opened(page_at, tmp_path, body)
    assert browser.overlaps(page) == browser.faults(page) == ["'one line' and 'and another'"]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("<p style='width: 500px'>wide</p>", "scrolls sideways"),
        ("<div style='overflow: hidden; height: 1em; width: 4em'>much too long</div>", "DIV is cut"),
        (
            "<svg width='50' height='20'><text x='30' y='15'>leaves</text></svg>",
            "a picture cuts its text: leaves",
        ),
    ],
)
def test_what_is_cut(page_at: PageAt, tmp_path: Path, body: str, said: str) -> None:
    page = opened(page_at, tmp_path, body)
    (found,) = browser.clipped(page)
    assert said in found and found in browser.faults(page)


@pytest.mark.parametrize(("colour", "is_pale"), [("#777777", True), ("#767676", False)])
def test_pale_text(page_at: PageAt, tmp_path: Path, colour: str, is_pale: bool) -> None:
    """#767676 is WCAG's own example: the palest grey on white with 4.5 to 1."""
    page = opened(page_at, tmp_path, f"<p style='color: {colour}'>text</p>")
    assert bool(browser.pale(page)) == bool(browser.faults(page)) == is_pale


def test_requests_and_errors_are_noted(page_at: PageAt, tmp_path: Path) -> None:
    page = opened(
        page_at, tmp_path, "<img src='missing.png' alt=''><script>throw new Error('broken')</script>"
    )
    assert [Path(asked).name for asked in page.requests] == ["missing.png"]
    assert any("broken" in text for text in page.complaints)
    assert {*page.requests, *page.complaints} <= {*browser.faults(page)}
