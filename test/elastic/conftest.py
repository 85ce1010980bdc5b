"""Tests here start horovodrun as those of test/parallel do."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "parallel"))
