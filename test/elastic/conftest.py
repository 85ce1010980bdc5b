"""Tests here start horovodrun as those of test/parallel do, and workers that benchmarks have too."""

import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path += [str(TESTS / "parallel"), str(TESTS.parent / "benchmarks")]
