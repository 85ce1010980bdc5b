"""How numbers are written: here and nowhere else, so that the page, the Markdown and the text always agree."""

from __future__ import annotations

import math

from horovod.lab.results import Figure

__all__ = ["MISSING", "accuracy", "byte_count", "factor", "milliseconds", "percent", "plain", "seconds"]

MISSING = "–"
DIGITS = 3  # significant ones


def plain(mean: float, spread: float | None = None, unit: str = "", decimals: int | None = None) -> str:
    """`12.3`, or `12.3 ± 0.4 ms`. Decimals follow from the mean, and are more where the spread would be 0."""
    if decimals is None:
        decimals = decimals_of(mean, DIGITS)
    if spread:
        decimals = min(max(decimals, decimals_of(spread, 1)), decimals + 3)
    text = f"{mean:.{decimals}f}"
    if spread is not None:
        text += f" ± {spread:.{decimals}f}"
    return f"{text} {unit}" if unit else text


def decimals_of(value: float, digits: int) -> int:
    """How many decimals show `digits` significant ones; 0 for large values."""
    if value == 0:
        return 0
    return max(0, digits - 1 - math.floor(math.log10(abs(value))))


def seconds(figure: Figure, unit: str = "") -> str:
    return plain(figure.mean, figure.spread, unit)


def milliseconds(figure: Figure, unit: str = "") -> str:
    return scaled(figure, 1e3, unit)


def percent(figure: Figure, unit: str = "", decimals: int = 0) -> str:
    return scaled(figure, 100, unit, decimals)


def accuracy(figure: Figure, unit: str = "") -> str:
    """In percent with two decimals: one image of MNIST's 10,000."""
    return scaled(figure, 100, unit, 2)


def factor(figure: Figure, unit: str = "") -> str:
    return scaled(figure, 1, unit, 2)


def byte_count(figure: Figure, unit: str = "") -> str:
    """In kilobytes of 1000 bytes."""
    return scaled(figure, 1e-3, unit)


def scaled(figure: Figure, by: float, unit: str, decimals: int | None = None) -> str:
    spread = None if figure.spread is None else figure.spread * by
    return plain(figure.mean * by, spread, unit, decimals)
