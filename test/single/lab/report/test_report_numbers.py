"""The format of numbers."""

from __future__ import annotations

import pytest

from horovod.lab.report import numbers
from horovod.lab.results import Figure


@pytest.mark.parametrize(
    ("mean", "spread", "text"),
    [
        (0.0, None, "0"),
        (0.012345, None, "0.0123"),
        (9.999, None, "10.00"),
        (12.345, None, "12.3"),
        (1234.5, None, "1234"),
        (12.345, 0.4, "12.3 ± 0.4"),
        (12.345, 0.04, "12.35 ± 0.04"),  # one decimal more, for the spread
        (12.345, 0.0004, "12.35 ± 0.00"),  # and not more than one
        (1234.5, 0.0, "1234 ± 0"),
    ],
)
def test_three_digits_and_what_the_spread_needs(mean: float, spread: float | None, text: str) -> None:
    assert numbers.plain(mean, spread) == text
    assert numbers.seconds(Figure(mean, spread)) == text


def test_units() -> None:
    assert numbers.seconds(Figure(1.5, None), "s") == "1.50\N{NO-BREAK SPACE}s"
    assert numbers.milliseconds(Figure(0.0125, 0.001)) == "12.5 ± 1.0"
    assert numbers.accuracy(Figure(0.98765, None)) == "98.77"  # decimal digits, as of 10,000 images
    assert numbers.byte_count(Figure(1_209_000, None)) == "1209"
    assert numbers.factor(Figure(3.9689, None)) == "3.97"
    assert numbers.percent(Figure(0.8764, None)) == "87.6"


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0"), (0.071, "0.071"), (0.001, "0.001"), (4.28e-6, "4.3 × 10⁻⁶"), (9.99e-12, "1.0 × 10⁻¹¹")],
)
def test_small_numbers_have_powers_of_ten(value: float, text: str) -> None:
    assert numbers.small(value) == text


@pytest.mark.parametrize(("share", "text"), [(-0.0214, "2.1"), (0.2666, "27"), (0.0, "0.0")])
def test_changes_are_without_sign(share: float, text: str) -> None:
    assert numbers.change(share) == f"{text}\N{NO-BREAK SPACE}%"
