"""A histogram, on a logarithmic scale, of each codec's errors of single elements."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from horovod.lab.report.codec_errors import CodecError
from horovod.lab.report.curves import legend_columns
from horovod.lab.report.names import Names
from horovod.lab.report.numbers import small, superscript
from horovod.lab.report.palette import DASHES, shade
from horovod.lab.report.words import Words

__all__ = ["draw_errors"]

SMALLEST, LARGEST = -7, 1  # powers of ten; the outermost bins include errors outside
BINS = 64


def draw_errors(errors: Sequence[CodecError], names: Names, words: Words) -> Figure:
    figure = Figure(figsize=(4.9, 3.7), layout="constrained")
    axes = figure.add_subplot()
    edges = np.logspace(SMALLEST, LARGEST, BINS + 1)
    for number, error in enumerate(errors):
        counts, _ = np.histogram(np.clip(error.relative, edges[0], edges[-1]), edges)
        axes.stairs(
            100 * counts / error.relative.size,
            edges,
            color=shade(error.compression, names),
            linestyle=DASHES[number % len(DASHES)],
            linewidth=1.6,
            label=f"{names.algorithm(error.compression)}: NMSE {small(error.nmse)}",
        )
    axes.set_xscale("log")
    ticks = range(SMALLEST, LARGEST, 2)
    axes.set_xticks([10.0**power for power in ticks], labels=[f"10{superscript(power)}" for power in ticks])
    axes.minorticks_off()
    axes.set_ylim(bottom=0)
    axes.set_title(words("share_axis"))
    axes.set_xlabel(words("relative_error_axis"))
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=legend_columns(labels))
    return figure
