"""The documentation site builds without a warning, and each of its pages is complete and needs no network."""

from __future__ import annotations

import posixpath
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
import yaml

import horovod.common.exceptions
import horovod.made_hosts
import horovod.torch

pytestmark = pytest.mark.timeout(300)  # the first test builds the site
ROOT = Path(__file__).resolve().parents[2]
SOURCE_OF = {"link": "href", "script": "src", "img": "src", "iframe": "src", "source": "src", "video": "src"}


class Parsed(HTMLParser):
    """The parts of a page that the tests check: links, resources, anchors, title, description, headings."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.anchors: set[str] = set()
        self.description = self.title = self.language = ""
        self._in_title = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        self._in_title = tag == "title"
        if tag == "html":
            self.language = given.get("lang", "")
        elif tag == "a" and "href" in given:
            self.links.append(given["href"])
        elif tag == "meta" and given.get("name") == "description":
            self.description = given.get("content", "")
        elif tag in SOURCE_OF and SOURCE_OF[tag] in given:
            self.loaded.append(given[SOURCE_OF[tag]])

    def handle_data(self, data: str) -> None:
        if self._in_title:
            self.title += data.strip()


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[str, Parsed]:
    """Return path in the site -> page, except for the page about errors, whose links are absolute."""
    found = {str(path.relative_to(site)): Parsed(path.read_text()) for path in site.rglob("*.html")}
    del found["404.html"]
    return found


def test_links_and_anchors_lead_somewhere(site: Path, pages: dict[str, Parsed]) -> None:
    wrong = []
    for name, page in pages.items():
        for link in page.links:
            target = urlsplit(link)
            if target.scheme or link == "#":
                continue
            path = unquote(target.path) or posixpath.basename(name)
            path = posixpath.normpath(posixpath.join(posixpath.dirname(name), path))
            path = f"{path}/index.html".removeprefix("./") if (site / path).is_dir() else path
            if not (site / path).is_file():
                wrong.append(f"{name}: {link}: no such file")
            elif target.fragment and unquote(target.fragment) not in pages[path].anchors:
                wrong.append(f"{name}: {link}: no such anchor")
    assert not wrong


def test_nothing_is_loaded_from_elsewhere(site: Path, pages: dict[str, Parsed]) -> None:
    for name, page in pages.items():
        for link in page.loaded:
            target = urlsplit(link)
            assert not target.scheme and not target.netloc, f"{name} loads {link}"
            path = posixpath.normpath(posixpath.join(posixpath.dirname(name), unquote(target.path)))
            assert (site / path).exists(), f"{name} loads {link}, which is not there"
    for style in site.rglob("*.css"):
        assert "@import" not in style.read_text() and "url(http" not in style.read_text(), style


def test_every_page_has_a_title_and_a_description(pages: dict[str, Parsed]) -> None:
    for name, page in pages.items():
        assert page.title, name
        assert len(page.description) > 20, f"{name}: its first paragraph is to say what it is about"
        assert page.language == ("zh" if name.startswith("zh/") else "en"), name
    repeated = [
        text for text, times in Counter(page.description for page in pages.values()).items() if times > 1
    ]
    copies = {page.description for name, page in pages.items() if name.startswith("source/")}
    assert set(repeated) <= copies


def in_navigation(entry: Any) -> list[str]:
    if isinstance(entry, str):
        return [entry]
    values = entry.values() if isinstance(entry, dict) else entry
    return [page for value in values for page in in_navigation(value)]


def test_every_page_is_in_the_navigation_once() -> None:
    text = (ROOT / "mkdocs.yml").read_text()
    listed = in_navigation(yaml.safe_load(text[text.index("\nnav:") :])["nav"])
    docs = ROOT / "docs"
    assert sorted(listed) == sorted(str(path.relative_to(docs)) for path in docs.rglob("*.md"))


@pytest.mark.parametrize(
    ("page", "names"),
    [
        ("api/torch.html", horovod.torch.__all__),
        ("api/made_hosts.html", horovod.made_hosts.__all__),
        ("api/exceptions.html", horovod.common.exceptions.__all__),
        ("api/run.html", ["run"]),
        ("api/lab.html", ["Recorder"]),
    ],
)
def test_every_public_name_is_in_the_reference(page: str, names: list[str], pages: dict[str, Parsed]) -> None:
    """Each name ends an anchor, on this page or on a page about its subject that this one links to."""
    near = [page, *(f"api/{link}" for link in pages[page].links if f"api/{link}" in pages)]
    described = {anchor.rpartition(".")[2] for each in near for anchor in pages[each].anchors}
    operations = {"Average", "Sum", "Adasum", "Min", "Max", "Product"}  # plain numbers, under one heading
    assert set(names) - operations <= described
    if operations <= set(names):
        assert "reduce-operations" in pages[page].anchors


def test_what_pages_link_to_is_in_the_site(site: Path) -> None:
    copied = (site / "source" / "examples" / "pytorch_ddp.py.html").read_text()
    assert "DistributedDataParallel" in copied
    assert 'href="../running.html"' in (site / "source" / "README.md.html").read_text()


def test_search_works_from_disk(site: Path) -> None:
    assert (site / "search" / "search_index.js").read_text().startswith("var __index = {")
