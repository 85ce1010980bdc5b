"""The only functions that format numbers, so that page, Markdown and sentences agree."""

from __future__ import annotations

import math

from horovod.lab.results import Figure

NO_BREAK = "\N{NO-BREAK SPACE}"  # keeps a number and its unit on one line
# The functions that templates call.
FORMATS = ("accuracy", "change", "factor", "milliseconds", "percent", "plain", "seconds", "share", "small")
MISSING = "–"
DIGITS = 3  # significant digits


def plain(mean: float, spread: float | None = None, unit: str = "", decimals: int | None = None) -> str:
    """`12.3`, or `12.3 ± 0.4 ms`. The mean decides the decimals; the spread may add one."""
    if decimals is None:
        decimals = decimals_of(mean, DIGITS)
    if spread:
        decimals = min(max(decimals, decimals_of(spread, 1)), decimals + 1)
    text = f"{mean:.{decimals}f}"
    if spread is not None:
        text += f" ± {spread:.{decimals}f}"
    return f"{text}{NO_BREAK}{unit}" if unit else text


def decimals_of(value: float, digits: int) -> int:
    """The number of decimals that shows `digits` significant digits; 0 for large values."""
    if value == 0:
        return 0
    return max(0, digits - 1 - math.floor(math.log10(abs(value))))


def scaled(figure: Figure, by: float, unit: str, decimals: int | None = None) -> str:
    figure = figure.times(by)
    return plain(figure.mean, figure.spread, unit, decimals)


def seconds(figure: Figure, unit: str = "") -> str:
    return scaled(figure, 1, unit)


def milliseconds(figure: Figure, unit: str = "") -> str:
    return scaled(figure, 1e3, unit)


def percent(figure: Figure, unit: str = "") -> str:
    return scaled(figure, 100, unit, 1)


def accuracy(figure: Figure, unit: str = "") -> str:
    """In percent with two decimals, the resolution of MNIST's 10,000 test images."""
    return scaled(figure, 100, unit, 2)


def factor(figure: Figure, unit: str = "") -> str:
    return scaled(figure, 1, unit, 2)


def byte_count(figure: Figure) -> str:
    """In kilobytes of 1000 bytes."""
    return scaled(figure, 1e-3, "")


def change(share: float, most: float = math.inf) -> str:
    """A relative change without its sign: 3.4 %, 27 %. One of `most` or more has only that bound."""
    if abs(share) >= most:
        return f"> {100 * most} %"
    return plain(100 * abs(share), None, "%", 1 if abs(share) < 0.1 else 0)


def share(value: float, form: str = ".0f") -> str:
    """A share in percent: 36 %."""
    return f"{100 * value:{form}} %"


def small(value: float) -> str:
    """Two digits: 0.071, or 4.3 × 10⁻⁶ for values below 0.001."""
    if value == 0 or value >= 0.001:
        return f"{value:.2g}"
    digits, power = f"{value:.1e}".split("e")
    return f"{digits} × 10{superscript(int(power))}"


def superscript(number: int) -> str:
    return str(number).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


def gibibytes(number: int | None) -> str:
    """A size of memory; "" if unknown."""
    return "" if number is None else plain(number / 2**30, None, "GiB")
