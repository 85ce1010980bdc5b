"""Tests here start horovodrun as test/parallel does, with rank programs of test/failures and benchmarks."""

import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path += [str(TESTS / "parallel"), str(TESTS / "failures"), str(TESTS.parent / "benchmarks")]
