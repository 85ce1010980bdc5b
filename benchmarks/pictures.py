"""How the plots of benchmarks look: SVG that reads on a light and on a dark page alike.

The background is transparent, text and axes are of a middle grey, and the same results give the same bytes.
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
    """Figures are made and saved in it."""
    return pyplot.rc_context(STYLE)


def saved(figures: Mapping[str, Figure], folder: Path) -> list[Path]:
    """Writes each as <name>.svg; returns the paths."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, figure in figures.items():
        figure.savefig(folder / f"{name}.svg", transparent=True, metadata={"Date": None})
        pyplot.close(figure)
    return [folder / f"{name}.svg" for name in figures]
