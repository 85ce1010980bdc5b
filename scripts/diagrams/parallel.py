"""Parallel work of a job's ranks: a step, its timeline, hosts."""

from __future__ import annotations

from diagrams.drawing import RANKS, SMALL, Drawing

LEFT, RIGHT, COLUMN = 14, 208, 178  # two columns


def data_parallel_step() -> Drawing:
    drawing = Drawing(
        "One step of data-parallel training",
        "Two ranks hold the same weights. Each computes a gradient on its own batch. An allreduce gives both "
        "the average of the two gradients, both take the same step, and their weights are the same again.",
        374,
    )
    drawing.words(LEFT + COLUMN / 2, 18, "rank 0", bold=True)
    drawing.words(RIGHT + COLUMN / 2, 18, "rank 1", bold=True)
    for x, rank in ((LEFT, 0), (RIGHT, 1)):
        fill = RANKS[rank]
        middle = x + COLUMN / 2
        drawing.box(x, 34, COLUMN, 30, "weights w")
        drawing.arrow((middle, 64), (middle, 82))
        drawing.box(x, 82, COLUMN, 44, f"its own batch {rank}:\nforward, backward", fill)
        drawing.arrow((middle, 126), (middle, 144))
        drawing.box(x, 144, COLUMN, 30, f"gradient g{'₀₁'[rank]}", fill)
        drawing.arrow((middle, 174), (middle, 196), colour="accent")
        drawing.arrow((middle, 244), (middle, 266), colour="accent")
        drawing.box(x, 266, COLUMN, 30, "w ← w − η · g")
        drawing.arrow((middle, 296), (middle, 314))
        drawing.box(x, 314, COLUMN, 30, "weights w")
    both = "allreduce: both ranks get\nthe average g = (g₀ + g₁) / 2"
    drawing.box(LEFT, 196, RIGHT + COLUMN - LEFT, 48, both)
    drawing.words(200, 360, "the same bits on both ranks", colour="quiet", size=SMALL)
    return drawing


def overlap() -> Drawing:
    drawing = Drawing(
        "Communication behind the backward pass",
        "Three timelines of a step. First: communication begins when the backward pass has ended, and the "
        "step takes their sum. Second: each gradient is sent when it is known, and only the rest of the "
        "communication is waited for. Third: gradients are compressed, and hardly anything is left over.",
        326,
    )
    rows = (
        ("one after the other", ((202, 54), (256, 54), (310, 54)), 364),
        ("with overlap", ((118, 54), (172, 54), (226, 54)), 280),
        ("with overlap and compression", ((118, 18), (160, 18), (202, 18)), 220),
    )
    for number, (name, sends, end) in enumerate(rows):
        top = 28 + number * 92
        drawing.heading(top - 8, name)
        drawing.box(14, top + 6, 60, 26, "forward")
        for part in range(3):
            drawing.box(76 + part * 42, top + 6, 40, 26, f"b{'₃₂₁'[part]}", "pale_blue")
        for part, (x, width) in enumerate(sends):
            drawing.box(x, top + 38, width - 2, 26, "" if width < 20 else f"g{'₃₂₁'[part]}", "pale_orange")
        drawing.line((end, top), (end, top + 70), colour="accent")
        drawing.words(end + 5, top + 16, "step", anchor="start", colour="accent", size=SMALL)
    drawing.box(14, 292, 14, 14, "", "pale_blue")
    drawing.words(34, 299, "backward of layers 3, 2, 1", anchor="start", size=SMALL)
    drawing.box(206, 292, 14, 14, "", "pale_orange")
    drawing.words(226, 299, "gradient on the wire", anchor="start", size=SMALL)
    return drawing


def hierarchy() -> Drawing:
    drawing = Drawing(
        "Allreduce over hosts with two ranks each",
        "Two hosts with two ranks each. First each rank sums its slice of the host's gradients in shared "
        "memory. Then carriers of the same slice exchange their sums over the network, compressed. Last each "
        "rank reads the slice that the other rank of its host has carried.",
        356,
    )
    hosts = ((14, "host A", 0), (216, "host B", 2))
    for x, name, first in hosts:
        drawing.box(x, 30, 170, 270, "")
        drawing.words(x + 85, 18, name, bold=True)
        for local in (0, 1):
            left, fill = x + 10 + local * 80, RANKS[local]
            drawing.words(left + 35, 44, f"rank {first + local}")
            drawing.cell(left, 56, 35, 24, "a", "pale_blue")
            drawing.cell(left + 35, 56, 35, 24, "b", "pale_orange")
            drawing.arrow((left + 35, 112), (left + 35, 138))
            drawing.box(left, 138, 70, 26, f"Σ {'ab'[local]}", fill)
            drawing.box(left, 200, 70, 26, f"Σ Σ {'ab'[local]}", fill)
            drawing.arrow((left + 35, 226), (left + 35, 250))
        drawing.box(x + 10, 88, 150, 24, "shared memory", "paper")
        drawing.box(x + 10, 250, 150, 24, "shared memory", "paper")
        drawing.words(x + 85, 287, "all read Σ Σ a and Σ Σ b", size=SMALL)
    for y, start, end in ((176, 59, 261), (188, 139, 341)):
        left, right = start, end
        drawing.line((left, 164), (left, y), colour="accent")
        drawing.line((left, y), (right, y), colour="accent")
        drawing.line((right, y), (right, 164), colour="accent")
        drawing.arrow((left, y), (left, 200), colour="accent")
        drawing.arrow((right, y), (right, 200), colour="accent")
    drawing.words(200, 316, "orange: the network, codes travel there", colour="accent", size=SMALL)
    drawing.words(
        200, 336, "Inside a host all is exact: memory is faster than any codec.", colour="quiet", size=SMALL
    )
    return drawing
