"""The way of a gradient from the backward pass to the optimizer: what lanes share, where they part."""

from __future__ import annotations

from typing import NamedTuple

from diagrams.drawing import SMALL, Drawing

WIDTH, LANE_WIDTH = 380, 92
LANES = {"one host": 10, "several hosts": 106, "GPU": 202, "DDP": 298}  # where each begins
LEFT, ENGINE_WIDTH = 10, 284  # the first three lanes have the engine
FILLS = ("rank0", "rank1", "rank2", "rank3")
MIDDLES = tuple(x + LANE_WIDTH / 2 for x in LANES.values())
ENGINE_MIDDLE = LEFT + ENGINE_WIDTH / 2


class Stage(NamedTuple):
    """One row of boxes: how high, what of each lane is in it, and what carries bytes from there."""

    height: int
    texts: tuple[str, str, str, str]
    carried_by: tuple[str, ...] = ()


OF_THE_ENGINE = (  # and of DDP beside it
    (
        "Engine::submit: address, shape, codec;\na handle comes back, nothing is copied",
        "DDP's hook,\nDDP's bucket",
    ),
    (
        "rank 0's Coordinator: when all have asked,\nits verdict says what goes together",
        "GroupReducer:\nDDP's order",
    ),
    (
        "Executor, carry_out(): the Backend plans;\nplan_allreduce() chooses a route",
        "route: by the\nrank count",
    ),
)
STAGES = (
    Stage(
        66,
        (
            "each rank\nencodes its\ngradient",
            "inside a host\nranks add up;\na carrier\nencodes",
            "kernels\nencode",
            "a thread or\na stream\nencodes",
        ),
        ("shared\nwindow", "messages\nof carriers", "NCCL, or\nPCIe to host", "torch's gloo\nor NCCL"),
    ),
    Stage(
        52,
        (
            "each adds up\nits slice,\nencodes it",
            "carriers add\nsums of hosts,\nencode them",
            "a kernel, or\nthe host, adds\nand encodes",
            "each adds up\nits slice,\nencodes it",
        ),
        ("shared\nwindow", "messages,\nthen window", "NCCL, or\nPCIe to GPU", "torch's gloo\nor NCCL"),
    ),
    Stage(
        36,
        (
            "decode into\nthe gradient",
            "decode into\nthe gradient",
            "kernels\ndecode",
            "decode into\nthe bucket",
        ),
    ),
)
LEGEND = (
    "orange: what carries bytes. Drawn is a route that scatters codes;",
    "one that gathers has one round, and everybody adds up all.",
    "Without a codec numbers travel as they are.",
)


def _box(drawing: Drawing, x: float, y: float, width: float, height: float, text: str, fill: str) -> None:
    """A box with small type, of which a lane has room for some 13 letters."""
    drawing.box(x, y, width, height, "", fill)
    drawing.words(x + width / 2, y + height / 2, text, size=SMALL)


def _arrows(drawing: Drawing, y: float, end: float, middles: tuple[float, ...]) -> None:
    for x in middles:
        drawing.arrow((x, y), (x, end))


def _to_the_backends(drawing: Drawing, y: float) -> float:
    """What comes before bytes are made; returns where the next box begins, as all of these."""
    _box(drawing, LEFT, y, WIDTH, 28, "backward: autograd calls the hook of a parameter", "plain")
    y += 28
    for engine, ddp in OF_THE_ENGINE:
        _arrows(drawing, y, y + 13, (ENGINE_MIDDLE, MIDDLES[3]))
        _box(drawing, LEFT, y + 13, ENGINE_WIDTH, 36, engine, "plain")
        _box(drawing, LANES["DDP"], y + 13, LANE_WIDTH, 36, ddp, FILLS[3])
        y += 49
    on_cpu = (MIDDLES[0] + MIDDLES[1]) / 2
    _arrows(drawing, y, y + 13, (on_cpu, *MIDDLES[2:]))
    _box(drawing, LEFT, y + 13, LANES["GPU"] - LEFT - 4, 36, "CpuBackend", "plain")
    _box(drawing, LANES["GPU"], y + 13, LANE_WIDTH, 36, "NcclBackend,\nHostBackend", FILLS[2])
    _box(drawing, LANES["DDP"], y + 13, LANE_WIDTH, 36, "HostCourier,\nStreamCourier", FILLS[3])
    y += 49
    _arrows(drawing, y, y + 13, (on_cpu, *MIDDLES[2:]))
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
        "From top to bottom, in four lanes: one host, several hosts, GPU, and DDP. All begin with the "
        "hook that autograd calls. The first three share the engine: submit, the verdict of rank 0, the "
        "executor that plans a route. Then the CPU's backend, or those of GPUs, take over. DDP has a "
        "hook, a bucket and an order of its own, and couriers. All lanes share the layout, the slices and "
        "the steps. On one host each rank encodes its gradient into the shared window, adds up its slice "
        "of it, and reads the others' slices. On several hosts ranks first add up inside their host, and "
        "carriers exchange codes by messages. On a GPU kernels encode and decode, and NCCL carries codes, "
        "or PCIe to the host, which adds them up. Under DDP torch's groups carry them. Last a handle or a "
        "future is done, and the optimizer takes its step.",
        694,
    )
    for (name, x), middle in zip(LANES.items(), MIDDLES, strict=True):
        assert x < middle
        drawing.words(middle, 16, name, bold=True, size=SMALL)
    y = _over_the_wire(drawing, _to_the_backends(drawing, 30))
    _arrows(drawing, y, y + 13, MIDDLES)
    done = "HandleTable: done, and backward() goes on;\non a GPU as soon as all is enqueued"
    _box(drawing, LEFT, y + 13, ENGINE_WIDTH, 36, done, "plain")
    _box(drawing, LANES["DDP"], y + 13, LANE_WIDTH, 36, "its future\nis done", FILLS[3])
    y += 49
    _arrows(drawing, y, y + 13, (ENGINE_MIDDLE, MIDDLES[3]))
    _box(drawing, LEFT, y + 13, WIDTH, 28, "optimizer's step: the same bits on every rank", "plain")
    y += 41
    drawing.words(200, y + 28, "\n".join(LEGEND), colour="quiet", size=SMALL)
    return drawing
