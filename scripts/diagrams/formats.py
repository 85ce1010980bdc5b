"""Numbers as bits, and the path of a gradient through a codec."""

from __future__ import annotations

from diagrams.drawing import SMALL, Drawing

BIT = 11.6
FORMATS = (  # name, exponent bits, mantissa bits, text with the range
    ("float32", 8, 23, "8 exponent, 23 mantissa bits; to 3.4·10³⁸"),
    ("bfloat16", 8, 7, "8 + 7; float32 cut short"),
    ("half", 5, 10, "5 + 10; to 65504"),
    ("E5M2", 5, 2, "5 + 2; to 57344"),
    ("E4M3", 4, 3, "4 + 3; to 448"),
)


def float8_bits() -> Drawing:
    drawing = Drawing(
        "Floating-point numbers as bits, and a block of bit8",
        "Rows of bits of float32, bfloat16, half, E5M2 and E4M3: one sign bit, then exponent bits, then "
        "mantissa bits. Below: a block of bit8, which is one scale byte for 128 elements of one byte each.",
        432,
    )
    for number, (name, exponent, mantissa, about) in enumerate(FORMATS):
        top = 14 + number * 54
        drawing.words(14, top + 6, name, anchor="start", bold=True)
        drawing.words(90, top + 6, about, anchor="start", colour="quiet", size=SMALL)
        for bit in range(1 + exponent + mantissa):
            fill = "pale_pink" if bit == 0 else "pale_orange" if bit <= exponent else "pale_blue"
            drawing.cell(14 + bit * BIT, top + 18, BIT, 20, "", fill)
    for x, fill, name in (
        (14, "pale_pink", "sign"),
        (84, "pale_orange", "exponent"),
        (184, "pale_blue", "mantissa"),
    ):
        drawing.cell(x, 286, 14, 14, "", fill)
        drawing.words(x + 20, 293, name, anchor="start", size=SMALL)
    drawing.heading(328, "a block of bit8: 129 bytes for 128 elements")
    drawing.cell(14, 346, 84, 32, "scale 2ᵏ", "pale_green")
    for element, label in enumerate(("code 0", "code 1", "…", "code 127")):
        drawing.cell(110 + element * 69, 346, 69, 32, label, "plain")
    drawing.words(56, 396, "one byte\n(E8M0)", colour="quiet", size=SMALL)
    drawing.words(
        247, 396, "a byte (E4M3) for each element:\nvalue = code's value · 2ᵏ", colour="quiet", size=SMALL
    )
    return drawing


def compressed_gradient() -> Drawing:
    drawing = Drawing(
        "The way of a compressed gradient",
        "A float32 gradient plus the residual of the last step is encoded to about a byte per element and "
        "sent. Contributions are decoded and added in float32 in rank order. With three or more ranks the "
        "sum of each slice is encoded once more and sent to all. What encoding lost becomes the residual.",
        462,
    )
    x, width = 14, 250
    middle = x + width / 2
    rows = (
        (14, 30, "gradient: float32, 4 bytes each", "pale_blue"),
        (66, 30, "+ residual of the last step", "pale_green"),
        (118, 30, "encode: 1.008 bytes each", "pale_orange"),
        (188, 44, "decode all contributions,\nadd in float32, in rank order", "pale_blue"),
        (254, 30, "encode the sum of a slice", "pale_orange"),
        (324, 30, "decode: float32", "pale_blue"),
        (376, 30, "/ n, then optimizer.step()", "plain"),
    )
    for y, height, label, fill in rows:
        drawing.box(x, y, width, height, label, fill)
    arrows = ((44, 66, 0), (96, 118, 0), (148, 188, 1), (232, 254, 0), (284, 324, 1), (354, 376, 0))
    for y, end, wire in arrows:
        drawing.arrow((middle, y), (middle, end), colour="accent" if wire else "quiet")
        if wire:
            drawing.words(middle + 12, (y + end) / 2 - 2, "the wire", anchor="start", colour="accent")
    drawing.line((264, 133), (294, 133), dashed=True)
    drawing.arrow((294, 133), (294, 81), (264, 81), dashed=True)
    drawing.words(300, 107, "what was lost:\nfor the next\nstep", anchor="start", colour="quiet", size=SMALL)
    drawing.line((272, 254), (278, 254), (278, 354), (272, 354))
    drawing.words(
        286,
        304,
        "only with three\nor more ranks\n(scatter routes)",
        anchor="start",
        colour="quiet",
        size=SMALL,
    )
    notes = "Residuals: with error_feedback=True.\nEvery rank decodes the same bytes."
    drawing.words(200, 434, notes, colour="quiet", size=SMALL)
    return drawing


def e4m3_values() -> list[float]:
    """All non-negative numbers of E4M3, as fractions of the largest."""
    values = [m / 8 * 2.0**-6 for m in range(8)]
    values += [(1 + m / 8) * 2.0 ** (e - 7) for e in range(1, 16) for m in range(8) if (e, m) != (15, 7)]
    return [value / 448 for value in values]


def levels() -> Drawing:
    drawing = Drawing(
        "Which values a code can have",
        "Three lines from zero to a block's largest element. int4 has seven steps of equal width above zero, "
        "int8 127 of equal width; E4M3 has 126, wide near the largest element and dense towards zero.",
        222,
    )
    rows = (
        ("int4: 7 equal steps", [i / 7 for i in range(8)]),
        ("int8: 127 equal steps", [i / 127 for i in range(128)]),
        ("E4M3: 126 steps, finer towards zero", e4m3_values()),
    )
    for number, (name, values) in enumerate(rows):
        base = 52 + number * 62
        drawing.heading(base - 32, name)
        drawing.line((14, base), (386, base))
        for value in values:
            drawing.line((14 + 372 * value, base - 16), (14 + 372 * value, base), colour="accent")
    drawing.words(14, 200, "0", anchor="start", colour="quiet", size=SMALL)
    drawing.words(386, 200, "largest element of the block", anchor="end", colour="quiet", size=SMALL)
    return drawing
