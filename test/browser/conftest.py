"""Opens pages in one headless Chromium per session; skips, saying why, where there is none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import browser
import pytest
from browser import PageAt


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    lacking = browser.missing()
    if lacking:
        pytest.skip(lacking)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=str(browser.CHROMIUM), args=browser.FLAGS)
        yield running
        running.close()


@pytest.fixture
def page_at(chromium: Any) -> Iterator[PageAt]:
    """page_at(url_or_path, width, scheme) -> page, without a network for files.

    The page has two further attributes: `requests`, the addresses that it asked for beside its own, and
    `complaints`, what the console said of errors.
    """
    opened = []

    def open_page(url_or_path: str | Path, width: int = 1280, scheme: str = "light") -> Any:
        text = str(url_or_path)
        url = text if "://" in text else Path(text).resolve().as_uri()
        context = chromium.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme, offline=url.startswith("file:")
        )
        opened.append(context)
        page = context.new_page()
        page.requests, page.complaints = [], []
        page.on("request", lambda request: page.requests.append(request.url))
        page.on("pageerror", lambda error: page.complaints.append(str(error)))
        page.on("console", lambda said: said.type == "error" and page.complaints.append(said.text))
        page.goto(url)
        page.requests.remove(url)
        return page

    yield open_page
    for context in opened:
        context.close()
