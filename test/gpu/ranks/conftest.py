"""Every test in a rank starts together with the other ranks', with a GPU: a real or an emulated one."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2] / "parallel"))

from rank_fixtures import job, place, rank, size, together  # noqa: F401
