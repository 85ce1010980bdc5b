"""The report in a browser: in both languages, on wide and narrow screens, light, dark and printed."""

from __future__ import annotations

import sys
from pathlib import Path

import browser
import pytest
from browser import PageAt

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "single" / "support"))

from lab_samples import MADE_HOSTS, sample_environment, sample_host, sample_runs

from horovod.lab.report import LANGUAGES, write
from horovod.lab.results import table

COMMAND = "python -m horovod.lab --np 1 2 4 --compression none bit16 bit8 --epochs 3 --seeds 3"


@pytest.fixture(scope="module", params=LANGUAGES)
def report(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report as `make lab` writes it, on two cores."""
    folder = tmp_path_factory.mktemp(request.param)
    runs = sample_runs(folder, seeds=3, epochs=3)
    environment = sample_environment(language=request.param)
    write(folder, runs, table(runs), environment, request.param, command=COMMAND)
    return folder


@pytest.fixture(scope="module")
def crowded_report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report with many places and hosts, long names, absent figures, and a warning."""
    folder = tmp_path_factory.mktemp("crowded")
    compressions = ("bit16", "bit8", "int8", "int4:rotation=hadamard,levels=lloyd,error_feedback=1")
    runs = sample_runs(folder, compressions, seeds=3, epochs=5, places=("memory", MADE_HOSTS))
    hosts = (sample_host("node1"), sample_host("a-long-name." * 8 + "example.org"))
    write(folder, runs[1:], table(runs[1:]), sample_environment(*hosts), "zh", command=COMMAND)
    return folder


@pytest.mark.parametrize(("width", "scheme"), browser.WIDTHS_AND_SCHEMES)
def test_nothing_is_broken(report: Path, page_at: PageAt, width: int, scheme: str, tmp_path: Path) -> None:
    page = page_at(report / "report.html", width, scheme)
    assert browser.faults(page) == []
    language = page.evaluate("document.documentElement.lang")
    picture = tmp_path / f"report{'' if language == 'en' else '_zh'}_{width}_{scheme}.png"
    page.screenshot(path=picture, full_page=True)
    if language == "en" or (width, scheme) == (1280, "light"):
        browser.keep(picture)
    wide = (
        "[...document.querySelectorAll('.scroll')].filter((box) => box.scrollWidth > box.clientWidth).length"
    )
    # Tables are whole; on a phone the command scrolls.
    assert page.evaluate(wide) == (0 if width > 1000 else 1)
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (background == "rgb(247, 248, 249)") == (scheme == "light")


@pytest.mark.parametrize("width", [1280, 400])
def test_nothing_is_broken_where_there_is_much(crowded_report: Path, page_at: PageAt, width: int) -> None:
    page = page_at(crowded_report / "report.html", width, "dark")
    assert browser.faults(page) == []
    assert page.locator(".warning li").count() == 1


def test_it_prints_on_white_and_cuts_no_table(report: Path, page_at: PageAt) -> None:
    page = page_at(report / "report.html", 700, "dark")  # about A4 without its margins, at 96 pixels an inch
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert browser.faults(page) == []
    assert page.pdf(prefer_css_page_size=True).startswith(b"%PDF")


def test_plots_alone_can_be_read(report: Path, page_at: PageAt) -> None:
    """The plots beside report.md have a background, whatever the page's is."""
    for path in sorted((report / "plots").glob("*.svg")):
        page = page_at(path, 600, "dark")
        if path.stem != "topology":  # it has its own light and dark style
            assert page.evaluate("document.querySelector('rect.paper').getAttribute('fill')") == "#ffffff"
        assert page.requests == page.complaints == []
