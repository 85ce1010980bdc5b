"""The documentation site in a browser, opened from disk: wide and narrow, light and dark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import browser
import pytest
from browser import PageAt

# One or two of each kind: text, wide tables, plots, long messages, drawings, the reference, Chinese.
PAGES = ["index", "configuration", "compatibility", "benchmarks", "troubleshooting", "topology", "concepts"]
PAGES += ["api/torch", "zh/lab_guide"]
TABLES_ARE_BOXED = """
() => [...document.querySelectorAll('.md-typeset table:not([class])')].every(
  table => table.closest('.md-typeset__scrollwrap'))
"""
# Boxes that scroll visibly: tables, code, and the columns beside the text.
SCROLLING = ".md-typeset__scrollwrap, pre > code, .md-sidebar__scrollwrap, .md-tabs, .md-header__title"

pytestmark = pytest.mark.timeout(300)  # the first test builds the site


def assert_whole(page: Any) -> None:
    page.wait_for_function(TABLES_ARE_BOXED, timeout=200_000)  # the theme's script boxes them
    page.evaluate(
        "boxes => document.querySelectorAll(boxes).forEach(box => box.classList.add('scroll'))", SCROLLING
    )
    assert browser.overlaps(page) == []
    assert [cut for cut in browser.clipped(page) if "is cut" not in cut] == []
    assert page.evaluate(CUT_IN_THE_TEXT) == []
    assert [request for request in page.requests if not request.startswith(("file:", "data:"))] == []
    assert page.complaints == []


# The theme hides some of its parts on purpose (labels, the closed search); in the text nothing may be cut.
CUT_IN_THE_TEXT = """
() => [...document.querySelectorAll('.md-content *')].filter(element => {
  const style = getComputedStyle(element);
  const cuts = style.overflowX !== 'visible' || style.overflowY !== 'visible';
  const wide = element.scrollWidth - element.clientWidth, high = element.scrollHeight - element.clientHeight;
  return element.checkVisibility() && cuts && Math.max(wide, high) > 1 && !element.closest('svg, .scroll');
}).map(element => `${element.tagName} is cut: ${element.textContent.trim().slice(0, 60)}`)
"""
ONLY_THE_TEXT = "document.body.replaceChildren(document.querySelector('.md-content'))"


@pytest.mark.parametrize(("width", "scheme"), browser.WIDTHS_AND_SCHEMES)
@pytest.mark.parametrize("name", PAGES)
def test_nothing_is_broken(
    site: Path, page_at: PageAt, name: str, width: int, scheme: str, tmp_path: Path
) -> None:
    page = page_at(site / f"{name}.html", width, scheme)
    assert_whole(page)
    is_dark = page.evaluate("getComputedStyle(document.body).colorScheme") == "dark"
    assert is_dark == (scheme == "dark")
    if name == "index":
        picture = tmp_path / f"site_{width}_{scheme}.png"
        page.screenshot(path=picture)
        browser.keep(picture)
    page.evaluate(ONLY_THE_TEXT)
    assert browser.pale(page) == []


# Tables and pictures wider than the text, with their width and first words; and pages that scroll sideways.
TOO_WIDE = """
tables => {
  const {scrollWidth, clientWidth} = document.documentElement;
  const found = scrollWidth > clientWidth ? [`the page: ${scrollWidth} px in ${clientWidth}`] : [];
  const boxes = [...document.querySelectorAll('.md-typeset img'), ...document.querySelectorAll(tables)];
  for (const box of boxes) {
    const room = box.closest('.md-content').clientWidth;
    const wide = Math.max(box.scrollWidth, box.getBoundingClientRect().width);
    if (wide > room + 1 || box.scrollWidth > box.clientWidth + 1)
      found.push(`${wide} px in ${room}: ${box.src || box.textContent.trim().slice(0, 60)}`);
  }
  return found;
}
"""
BOXES_OF_TABLES = ".md-typeset__scrollwrap"


def test_no_page_is_wider_than_its_window(site: Path, page_at: PageAt) -> None:
    """On a telephone a wide table may scroll in its box; on a desktop none has to."""
    page = page_at(site / "index.html")
    pages = [path for path in sorted(site.rglob("*.html")) if "source" not in path.relative_to(site).parts]
    assert len(pages) > 30
    too_wide = []
    for path in pages:
        page.set_viewport_size({"width": 1280, "height": 900})
        page.goto(path.as_uri())
        page.wait_for_function(TABLES_ARE_BOXED, timeout=200_000)
        too_wide += [f"{path.name} on a desk, {found}" for found in page.evaluate(TOO_WIDE, BOXES_OF_TABLES)]
        page.set_viewport_size({"width": 400, "height": 900})
        too_wide += [f"{path.name} on a telephone, {found}" for found in page.evaluate(TOO_WIDE, "none")]
    assert too_wide == []


def test_a_table_that_is_too_wide_is_found(site: Path, page_at: PageAt) -> None:
    page = page_at(site / "ddp.html", 1280)
    page.wait_for_function(TABLES_ARE_BOXED, timeout=200_000)
    page.add_style_tag(content=".md-typeset td { min-width: 20rem !important }")
    assert page.evaluate(TOO_WIDE, BOXES_OF_TABLES) != []
    page.add_style_tag(content=".md-content { min-width: 100rem }")
    assert page.evaluate(TOO_WIDE, "none")[0].startswith("the page: ")


def test_the_switch_between_light_and_dark(site: Path, page_at: PageAt) -> None:
    page = page_at(site / "index.html", 1280, "light")
    page.get_by_title("Switch to dark").click()
    assert page.evaluate("document.body.dataset.mdColorScheme") == "slate"


def test_the_search_finds_a_page_without_a_server(site: Path, page_at: PageAt) -> None:
    page = page_at(site / "index.html", 1280, "light")
    page.get_by_placeholder("Search").press_sequentially("stall inspector")
    page.locator(".md-search-result__link").first.wait_for(timeout=200_000)  # it reads the index first
    found = page.locator(".md-search-result__link").evaluate_all("links => links.map(link => link.href)")
    assert any("observability.html" in link for link in found)
    assert page.complaints == []
