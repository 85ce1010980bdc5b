"""The experiment report: report.html, report.md and plots/*.svg, in English or Chinese.

compose.py makes a `Document` with all texts, which is then written twice. The HTML page contains its style
and its pictures, needs neither network nor scripts, and follows light and dark mode. The Markdown links to
the pictures.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from horovod.lab import errors
from horovod.lab.environment import Environment
from horovod.lab.report import html, markdown
from horovod.lab.report.compose import compose
from horovod.lab.report.words import LANGUAGES, Words
from horovod.lab.results import Row
from horovod.lab.runs import Run

__all__ = ["LANGUAGES", "write"]


def write(
    folder: Path,
    runs: Sequence[Run],
    rows: Sequence[Row],
    environment: Environment,
    language: str = "en",
    command: str = "",
) -> list[Path]:
    """Write the report into `folder`, after removing older plots from its plots/.

    Args:
        folder: the report's folder.
        runs: the finished runs.
        rows: of `horovod.lab.results.table`, made of the runs.
        environment: of the runs.
        language: "en" or "zh".
        command: the lab's command line for the same runs.

    Returns:
        The files written.

    Raises:
        ValueError: there are no rows, or the language is unknown.
    """
    if not rows:
        raise errors.nothing_to_report()
    words = Words(language)
    document = compose(runs, rows, environment, folder, words)
    document = replace(document, command=command)
    plots = folder / "plots"
    plots.mkdir(parents=True, exist_ok=True)
    pictures = [*document.topology, *document.pictures]
    written = [plots / f"{picture.name}.svg" for picture in pictures]
    for old in set(plots.glob("*.svg")) - set(written):
        old.unlink()
    for path, picture in zip(written, pictures, strict=True):
        path.write_text(picture.svg, encoding="utf-8")
    page, text = folder / "report.html", folder / "report.md"
    page.write_text(html.page(document, words), encoding="utf-8")
    text.write_text(markdown.page(document, words), encoding="utf-8")
    return [page, text, *written]
