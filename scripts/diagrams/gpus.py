"""The path of a gradient that a GPU has computed."""

from __future__ import annotations

from diagrams.drawing import SMALL, Drawing

COLUMN = 178
STAGES = ("encode", "copy to host", "reduce", "copy back", "decode")


def routes() -> Drawing:
    """The same five steps over NCCL and through the host, and the overlap of chunks in the second."""
    drawing = Drawing(
        "The two ways of a gradient on a GPU",
        "Left, over NCCL: the GPU encodes, NCCL carries codes to the GPU that owns the slice, whose kernel "
        "decodes, adds and encodes, NCCL carries results to all, and the GPU decodes. Right, through the "
        "host: the GPU encodes, codes are copied to memory that all ranks of the host share, the host adds "
        "them up, results are copied back, and the GPU decodes. Below, four chunks go through the five "
        "stages, one behind the other.",
        596,
    )
    x_nccl, x_host = 14, 208
    for x, name in ((x_nccl, "over NCCL"), (x_host, "through the host")):
        drawing.words(x + COLUMN / 2, 20, name, bold=True)
    by_gpu = "decode, add, encode:\none kernel of the\nslice's owner"
    by_host = "the host adds codes:\neach rank the slice\nthat it owns"
    rows = (
        (34, "gradient on the GPU", "gradient on the GPU", "pale_blue", "pale_blue"),
        (94, "encode: a kernel", "encode: a kernel", "pale_blue", "pale_blue"),
        (172, by_gpu, by_host, "pale_blue", "pale_orange"),
        (286, "decode: a kernel", "decode: a kernel", "pale_blue", "pale_blue"),
    )
    for y, left, right, left_fill, right_fill in rows:
        height = 62 if "\n" in left else 30
        drawing.box(x_nccl, y, COLUMN, height, left, left_fill)
        drawing.box(x_host, y, COLUMN, height, right, right_fill)
    wires = (
        (64, 94, "", ""),
        (124, 172, "NCCL: GPU to GPU", "PCIe, to shared memory"),
        (234, 286, "NCCL: to all GPUs", "PCIe, from shared memory"),
    )
    for begin, end, left, right in wires:
        for x, text in ((x_nccl, left), (x_host, right)):
            drawing.arrow((x + 16, begin), (x + 16, end), colour="accent" if text else "quiet")
            if text:
                middle = (begin + end) / 2
                drawing.words(x + 26, middle, text, anchor="start", colour="accent", size=SMALL)
    drawing.heading(352, "through the host, chunk by chunk")
    colours = ("pale_blue", "blue_2", "pale_orange", "blue_2", "pale_blue")
    for row, stage in enumerate(STAGES):
        top = 372 + row * 34
        drawing.words(12, top + 13, stage, anchor="start", size=SMALL)
        for chunk in range(4):
            drawing.box(104 + (row + chunk) * 35, top, 33, 26, str(chunk + 1), colours[row])
    drawing.arrow((104, 552), (386, 552))
    drawing.words(245, 566, "time: about that of the slowest stage", colour="quiet", size=SMALL)
    return drawing
