"""Workers of elastic jobs die, and the others go on in their processes; `run_deaths.py` does 100 of them."""

from __future__ import annotations

from pathlib import Path

import deaths
import pytest

SLICE = [0, 5, 10, 15, 16, 23]  # every point, every rank


@pytest.mark.timeout(240)
@pytest.mark.parametrize("number", SLICE)
def test_training_goes_on(number: int, tmp_path: Path) -> None:
    record = deaths.judged(number, tmp_path)
    assert record["complaints"] == [], record["err"]
