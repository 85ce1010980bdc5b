"""The style of the benchmarks' plots: SVG that is legible on light and dark pages.

The background is transparent, text and axes are middle grey, and equal results give equal bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path

import matplotlib

matplotlib.use("svg")  # no display

from matplotlib import pyplot
from matplotlib.figure import Figure

from horovod.drawing.palette import light

GREY = light("line")
OURS, HOROVOD, OTHERS, LIMIT = light("blue"), light("green"), GREY, light("orange")
STYLE = {
    "svg.fonttype": "none",
    "svg.hashsalt": "benchmarks",
    "font.size": 9,
    "text.color": GREY,
    "axes.labelcolor": GREY,
    "axes.edgecolor": GREY,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": GREY,
    "ytick.color": GREY,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "lines.linewidth": 1.2,
    "figure.constrained_layout.use": True,
}


def style() -> AbstractContextManager[None]:
    """Inside the block figures are made and saved in this style."""
    return pyplot.rc_context(STYLE)


def saved(figures: Mapping[str, Figure], folder: Path) -> list[Path]:
    """Write each figure as <name>.svg; return the paths."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, figure in figures.items():
        figure.savefig(folder / f"{name}.svg", transparent=True, metadata={"Date": None})
        pyplot.close(figure)
    return [folder / f"{name}.svg" for name in figures]
