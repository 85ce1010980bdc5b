"""The tests in ranks/ are collected inside a rank only, and each rank reports how its session ended."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "parallel"))

from rank_reports import collect_ignore_glob, pytest_sessionfinish

__all__ = ["collect_ignore_glob", "pytest_sessionfinish"]
