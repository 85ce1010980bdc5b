"""All plots of a report, each a figure: curves by epoch and time for each place, bars, codecs."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure

from horovod.lab.report import bars, curves, svg
from horovod.lab.report.codec_errors import CodecError
from horovod.lab.report.document import Picture
from horovod.lab.report.histogram import draw_errors
from horovod.lab.report.names import Names
from horovod.lab.report.palette import FAINT, INK, LINE
from horovod.lab.report.tuning import draw_tuning, tuned_runs
from horovod.lab.report.words import Words
from horovod.lab.results import Row
from horovod.lab.runs import SERIAL

__all__ = ["pictures"]

STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "horovod.lab",  # the same data gives the same bytes
    "text.parse_math": False,  # a dollar sign in a script's name does not begin a formula
    "font.family": "DejaVu Sans",  # comes with matplotlib, so text measures the same on every machine
    "font.size": 9.5,
    "axes.titlesize": 9.5,
    "axes.titlelocation": "left",
    "axes.labelsize": 9.5,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "legend.fontsize": 9,
    "legend.frameon": False,
    "legend.handlelength": 2.4,
    "text.color": INK,
    "axes.labelcolor": INK,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.color": LINE,
    "ytick.color": LINE,
    "axes.edgecolor": LINE,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": FAINT,
    "grid.linewidth": 0.7,
    "lines.linewidth": 1.6,
    "lines.markersize": 4.5,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
}
Draw = Callable[[], Figure]


def pictures(rows: Sequence[Row], errors: Sequence[CodecError], names: Names, words: Words) -> list[Picture]:
    made = []
    for number, place in enumerate(names.places, 1):
        here = [row for row in rows if row.place == place or row.algorithm == SERIAL]
        suffix = f"_{number}" if len(names.places) > 1 else ""
        for name, draw in curves.DRAWN.items():
            title = words(f"{name}_title")
            if suffix:
                title = words("title_at", title=title, place=names.place(place))
            drawing = partial(draw, here, names, words)
            made.append(picture(name + suffix, title, words(f"{name}_caption"), drawing))
    for name, draw in bars.DRAWN.items():
        drawing = partial(draw, rows, names, words)
        made.append(picture(name, words(f"{name}_title"), words(f"{name}_caption"), drawing))
    for number, (row, run) in enumerate(tuned_runs(rows), 1):
        title = words("tuning_title", row=names.series(row), place=names.place(row.place))
        changed = words.listed(list(run.tuned)) if run.tuned else words("tuning_changed_nothing")
        caption = words("tuning_caption", changed=changed)
        made.append(picture(f"tuning_{number}", title, caption, partial(draw_tuning, run, words)))
    if errors:
        drawing = partial(draw_errors, errors, names, words)
        made.append(picture("codecs", words("codecs_title"), words("codecs_caption"), drawing))
    return made


def picture(name: str, title: str, caption: str, draw: Draw) -> Picture:
    with rc_context(STYLE), warnings.catch_warnings():
        # DejaVu Sans has no Chinese glyphs. The reader's browser draws the text, with fonts that have them.
        warnings.filterwarnings("ignore", "Glyph .* missing from", UserWarning)
        drawn = svg.standalone(draw(), name, title, caption)
    return Picture(name, title, caption, drawn)
