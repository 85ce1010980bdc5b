"""Draws the diagrams of docs/ into docs/assets; a test compares the files there with this script's output.

python scripts/draw_diagrams.py
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from diagrams import allreduces, formats, gpus, gradients, parallel
from diagrams.drawing import Drawing

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "assets"
DIAGRAMS: dict[str, Callable[[], Drawing]] = {
    "data_parallel_step.svg": parallel.data_parallel_step,
    "overlap.svg": parallel.overlap,
    "hierarchy.svg": parallel.hierarchy,
    "ring.svg": allreduces.ring,
    "scatter_gather.svg": allreduces.scatter_gather,
    "tree.svg": allreduces.tree,
    "float8_bits.svg": formats.float8_bits,
    "levels.svg": formats.levels,
    "compressed_gradient.svg": formats.compressed_gradient,
    "gpu_routes.svg": gpus.routes,
    "way_of_a_gradient.svg": gradients.way,
}

if __name__ == "__main__":
    for name, draw in DIAGRAMS.items():
        (FOLDER / name).write_text(draw().svg(), encoding="utf-8")
        print(FOLDER / name)
