"""One headless Chromium and one built site for all tests here, which are skipped if the machine has none."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import browser
import pytest
from browser import PageAt

ROOT = Path(__file__).resolve().parents[2]
NEEDED = ("mkdocs", "material", "mkdocstrings")  # packages of the extra `docs`


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The documentation site, built like `make docs`: any warning is an error."""
    for package in NEEDED:
        pytest.importorskip(package, reason=f"{package} is not installed: pip install 'horovod[docs]'")
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


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
    """page_at(url_or_path, width, scheme) -> page; files have no network.

    The page has two more attributes: `requests`, the addresses that it requested besides its own, and
    `complaints`, the errors on its console.
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
