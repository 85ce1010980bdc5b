"""Tests here start horovodrun as those of test/parallel do, and ranks of test/failures and of benchmarks."""

import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path += [str(TESTS / "parallel"), str(TESTS / "failures"), str(TESTS.parent / "benchmarks")]
