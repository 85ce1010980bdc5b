"""The path of a gradient from the backward pass to the optimizer: the common part, and the lanes."""

from __future__ import annotations

from typing import NamedTuple

from diagrams.drawing import SMALL, Drawing

WIDTH, LANE_WIDTH, HALF = 380, 120, 185
LANES = {"one host": 10, "several hosts": 140, "GPU": 270}  # left edge of each
LEFT = 10
FILLS = ("pale_blue", "pale_orange", "pale_green")
MIDDLES = tuple(x + LANE_WIDTH / 2 for x in LANES.values())
MIDDLE = LEFT + WIDTH / 2


class Stage(NamedTuple):
    """One row of boxes: its height, the text of each lane, and the carriers of bytes from there."""

    height: int
    texts: tuple[str, str, str]
    carried_by: tuple[str, ...] = ()


# For a script with Horovod, and for one with native DDP.
BEFORE = (
    "DistributedOptimizer:\nthe hook of a parameter",
    "DDP: a bucket for the hook,\nGroupReducer",
)
AFTER = ("HandleTable: its handle\nis done", "CompletionThread: its future\nis done")
OF_THE_ENGINE = (
    "Engine::submit: address, shape, codec;\na handle comes back, nothing is copied",
    "rank 0's Coordinator: when all have asked,\nits response says what goes together",
    "Executor, run_operation(): the Backend plans;\nplan_allreduce() chooses a route",
)
STAGES = (
    Stage(
        52,
        (
            "each rank encodes\nits gradient",
            "inside a host ranks\nadd up; a carrier\nencodes",
            "kernels encode",
        ),
        ("shared window", "messages\nof carriers", "NCCL, or\nPCIe to host"),
    ),
    Stage(
        52,
        (
            "each adds up its\nslice, encodes it",
            "carriers add up\nsums of hosts,\nencode them",
            "a kernel or the\nhost adds, encodes",
        ),
        ("shared window", "messages,\nthen window", "NCCL, or\nPCIe to GPU"),
    ),
    Stage(36, ("decode into\nthe gradient", "decode into\nthe gradient", "kernels\ndecode")),
)
LEGEND = (
    "orange: what carries bytes. Drawn is a route that scatters codes;",
    "one that gathers has one round, and everybody adds up all.",
    "Without a codec numbers travel as they are.",
)


def _box(drawing: Drawing, x: float, y: float, width: float, height: float, text: str, fill: str) -> None:
    """Draw a box with small type; a lane has space for 13 letters."""
    drawing.box(x, y, width, height, "", fill)
    drawing.words(x + width / 2, y + height / 2, text, size=SMALL)


def _arrows(drawing: Drawing, y: float, end: float, middles: tuple[float, ...]) -> None:
    for x in middles:
        drawing.arrow((x, y), (x, end))


def _two_boxes(drawing: Drawing, y: float, texts: tuple[str, str]) -> None:
    for x, text in zip((LEFT, LEFT + WIDTH - HALF), texts, strict=True):
        _box(drawing, x, y, HALF, 36, text, "plain")


def _to_the_backends(drawing: Drawing, y: float) -> float:
    """Draw the stages before bytes are made. Returns the top of the next box, as similar functions do."""
    _two_boxes(drawing, y, BEFORE)
    y += 36
    arrows_from: tuple[float, ...] = (LEFT + HALF / 2, LEFT + WIDTH - HALF / 2)
    for engine in OF_THE_ENGINE:
        _arrows(drawing, y, y + 13, arrows_from)
        _box(drawing, LEFT, y + 13, WIDTH, 36, engine, "plain")
        arrows_from = (MIDDLE,)
        y += 49
    on_cpu = (MIDDLES[0] + MIDDLES[1]) / 2
    _arrows(drawing, y, y + 13, (on_cpu, MIDDLES[2]))
    _box(drawing, LEFT, y + 13, LANES["GPU"] - LEFT - 10, 36, "CpuBackend", "plain")
    _box(drawing, LANES["GPU"], y + 13, LANE_WIDTH, 36, "NcclBackend,\nHostBackend", FILLS[2])
    y += 49
    _arrows(drawing, y, y + 13, (on_cpu, MIDDLES[2]))
    shared = "Layout, Steps, slices_of(): which bytes a message has,\nand who owns which slice"
    _box(drawing, LEFT, y + 13, WIDTH, 36, shared, "plain")
    return y + 49


def _over_the_wire(drawing: Drawing, y: float) -> float:
    _arrows(drawing, y, y + 13, MIDDLES)
    y += 13
    for stage in STAGES:
        for x, text, fill in zip(LANES.values(), stage.texts, FILLS, strict=True):
            _box(drawing, x, y, LANE_WIDTH, stage.height, text, fill)
        y += stage.height
        for x, text in zip(LANES.values(), stage.carried_by, strict=False):
            drawing.arrow((x + 8, y), (x + 8, y + 40), colour="accent")
            drawing.words(x + 16, y + 20, text, anchor="start", colour="accent", size=SMALL)
        y += 40 if stage.carried_by else 0
    return y


def way() -> Drawing:
    drawing = Drawing(
        "The way of a gradient",
        "From top to bottom. A gradient comes from the hook of a parameter, with a DistributedOptimizer, or "
        "in DDP's bucket. Then all is the engine's: submit, the response of rank 0, the executor that plans "
        "a route; the CPU's backend, or those of GPUs; the layout, the slices and the steps. In three lanes: "
        "on one host each rank encodes its gradient into the shared window, adds up its slice of it, and "
        "reads the others' slices. On several hosts ranks first add up inside their host, and carriers "
        "exchange codes by messages. On a GPU kernels encode and decode, and NCCL carries codes, or PCIe to "
        "the host, which adds them up. Last a handle is done, or DDP's future, and the optimizer takes its "
        "step.",
        690,
    )
    for (name, x), middle in zip(LANES.items(), MIDDLES, strict=True):
        assert x < middle
        drawing.words(middle, 16, name, bold=True, size=SMALL)
    y = _over_the_wire(drawing, _to_the_backends(drawing, 30))
    _arrows(drawing, y, y + 13, MIDDLES)
    _two_boxes(drawing, y + 13, AFTER)
    y += 49
    _arrows(drawing, y, y + 13, (LEFT + HALF / 2, LEFT + WIDTH - HALF / 2))
    _box(drawing, LEFT, y + 13, WIDTH, 28, "optimizer's step: the same bits on every rank", "plain")
    y += 41
    drawing.words(200, y + 28, "\n".join(LEGEND), colour="quiet", size=SMALL)
    return drawing
