"""Pages in headless Chromium, and the faults that a reader sees: overlaps, cut text, pale text.

The tests of the report and of the documentation site share it; conftest.py has the fixture that opens pages.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image  # a dependency of matplotlib

PageAt = Callable[..., Any]  # the fixture page_at
Page = Any  # of Playwright, with `requests` and `complaints`, which page_at adds

CHROMIUM = Path(os.environ.get("HOROVOD_CHROMIUM", "/usr/bin/chromium"))
FLAGS = [  # for root, in a container without a network: Chromium then connects to nothing
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-dev-shm-usage"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]
TEXT_CONTRAST = 4.5  # WCAG 2.2, success criterion 1.4.3, level AA
COLOURS = 256
SCREENSHOTS = "HOROVOD_KEEP_SCREENSHOTS"
# Colours do not depend on the width, nor places on colours: CI tests each width and each scheme once.
WIDTHS_AND_SCHEMES = [
    (1280, "light"),
    (400, "dark"),
    pytest.param(1280, "dark", marks=pytest.mark.slow),
    pytest.param(400, "light", marks=pytest.mark.slow),
]


def missing() -> str:
    """Return the packages that this machine lacks for these tests; "" if none."""
    if not CHROMIUM.exists():
        return f"{CHROMIUM} does not exist: apt-get install chromium fonts-noto-cjk"
    try:
        import playwright.sync_api  # noqa: F401
    except ImportError:
        return "the Python package playwright is not installed: pip install playwright"
    return ""


# Visible boxes of text: a rectangle for each line of a text node, clipped by boxes that scroll.
TEXT_BOXES = """
() => {
  const boxes = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node; (node = walker.nextNode()); ) {
    const element = node.parentElement;
    if (!node.data.trim() || element.closest('script, style, title, desc')) continue;
    if (!element.checkVisibility({opacityProperty: true, visibilityProperty: true})) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    for (const r of range.getClientRects()) {
      let [left, right, top, bottom] = [r.left, r.right, r.top, r.bottom];
      for (let box = element; box; box = box.parentElement) {
        const style = getComputedStyle(box);
        if (style.clipPath !== 'none') [left, right] = [0, 0];
        if (style.overflowX === 'visible' || box === document.documentElement) continue;
        const b = box.getBoundingClientRect();
        [left, right] = [Math.max(left, b.left), Math.min(right, b.right)];
        [top, bottom] = [Math.max(top, b.top), Math.min(bottom, b.bottom)];
      }
      if (right - left > 1 && bottom - top > 1)
        boxes.push({left, right, top, bottom, text: node.data.trim().slice(0, 40),
                    stays: !!stuck(element)});
    }
  }
  return boxes;
  function stuck(element) {
    for (let box = element; box; box = box.parentElement)
      if (['sticky', 'fixed'].includes(getComputedStyle(box).position)) return box;
  }
}
"""

CLIPPED = """
() => {
  const found = [];
  const page = document.documentElement;
  if (page.scrollWidth > page.clientWidth)
    found.push(`the page is ${page.scrollWidth} wide and scrolls sideways in ${page.clientWidth}`);
  for (const element of document.body.querySelectorAll('*')) {
    const style = getComputedStyle(element);
    if (!element.checkVisibility() || style.clipPath !== 'none' || element.closest('svg')) continue;
    if (element.matches('.scroll') && ['auto', 'scroll'].includes(style.overflowX)) continue;
    const cuts = style.overflowX !== 'visible' || style.overflowY !== 'visible';
    const wide = element.scrollWidth - element.clientWidth;
    const high = element.scrollHeight - element.clientHeight;
    if (cuts && (wide > 1 || high > 1))
      found.push(`${element.tagName} is cut: ${element.textContent.trim().slice(0, 60)}`);
  }
  for (const text of document.body.querySelectorAll('svg text')) {
    const [t, s] = [text.getBoundingClientRect(), text.ownerSVGElement.getBoundingClientRect()];
    const outside = Math.max(s.left - t.left, t.right - s.right, s.top - t.top, t.bottom - s.bottom);
    if (t.width && outside > 1)
      found.push(`a picture cuts its text: ${text.textContent.trim()}`);
  }
  return found;
}
"""

PALE = """
(limit) => {
  const canvas = new OffscreenCanvas(1, 1).getContext('2d', {willReadFrequently: true});
  const rgba = (colour) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    return Array.from(canvas.getImageData(0, 0, 1, 1).data);
  };
  const luminance = ([r, g, b]) => {
    const linear = (c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    const [x, y, z] = [r, g, b].map((c) => linear(c / 255));
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const behind = (element) => {
    for (let box = element; box; box = box.parentElement) {
      const colour = rgba(getComputedStyle(box).backgroundColor);
      if (colour[3] === 255) return colour;
    }
    return rgba('Canvas');
  };
  const found = new Set();
  for (const element of document.body.querySelectorAll('*')) {
    const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    if (!own || !element.checkVisibility() || element.closest('title, desc, style, script')) continue;
    const style = getComputedStyle(element);
    const ink = rgba(element.closest('svg') ? style.fill : style.color);
    const [a, b] = [luminance(ink), luminance(behind(element))];
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (contrast < limit) found.add(`${contrast.toFixed(2)}: ${element.textContent.trim().slice(0, 60)}`);
  }
  return [...found];
}
"""


def overlaps(page: Any) -> list[str]:
    """Return pairs of visible texts that overlap, ignoring boxes that stay while others scroll."""
    boxes = sorted(page.evaluate(TEXT_BOXES), key=lambda box: box["top"])
    found = []
    for number, one in enumerate(boxes):
        for other in boxes[number + 1 :]:
            if other["top"] >= one["bottom"]:
                break
            across = min(one["right"], other["right"]) - max(one["left"], other["left"])
            down = min(one["bottom"], other["bottom"]) - max(one["top"], other["top"])
            height = min(one["bottom"] - one["top"], other["bottom"] - other["top"])
            # A line's box reaches a little into its neighbours' leading, and its letters end before the box
            # does.
            if across > 2 and down > 0.35 * height and not (one["stays"] or other["stays"]):
                found.append(f"{one['text']!r} and {other['text']!r}")
    return found


def clipped(page: Any) -> list[str]:
    """Return cut elements, texts beyond their picture, and whether the page scrolls sideways."""
    return list(page.evaluate(CLIPPED))


def pale(page: Any, limit: float = TEXT_CONTRAST) -> list[str]:
    """Return texts whose contrast with their background is below `limit` to 1."""
    return list(page.evaluate(PALE, limit))


def faults(page: Any) -> list[str]:
    """Return all faults that a reader sees, and the page's requests and complaints."""
    return [*overlaps(page), *clipped(page), *pale(page), *page.requests, *page.complaints]


def keep(picture: Path) -> None:
    """Save a screenshot in the folder that HOROVOD_KEEP_SCREENSHOTS names, if it is set.

    256 colours suffice for these pages, and halve the size.
    """
    folder = os.environ.get(SCREENSHOTS)
    if folder:
        Path(folder).mkdir(parents=True, exist_ok=True)
        with Image.open(picture) as image:
            few = image.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
        few.save(Path(folder) / picture.name, optimize=True)
