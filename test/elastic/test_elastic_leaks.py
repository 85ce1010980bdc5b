"""A process that goes through many worlds holds no more after the last world than after the first ones."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from launching import horovodrun

PROGRAM = Path(__file__).with_name("resets_rank.py")
RESETS, WARM = 32, 10
KIB_ALLOWED = 150  # 22 resets held 15 to 40 KiB more


@pytest.mark.timeout(300)
@pytest.mark.parametrize("transport", ["auto", "tcp"])
def test_nothing_is_left_of_worlds(transport: str, tmp_path: Path) -> None:
    before = {path.name for path in Path("/dev/shm").iterdir()}
    words = ("-np", "2", "--min-np", "2", "-H", "127.0.0.1:1,127.0.0.2:1")
    command = (sys.executable, str(PROGRAM), str(tmp_path), str(RESETS))
    done = horovodrun(*words, *command, limit=280, HOROVOD_TRANSPORT=transport)
    assert done.returncode == 0, done.stderr
    for path in tmp_path.glob("held-*.json"):
        found = json.loads(path.read_text())
        assert found["resets"] == RESETS
        warm, last = found["held"][WARM], found["held"][-1]
        assert last["kib"] - warm["kib"] < KIB_ALLOWED, found["held"]
        for what in ("descriptors", "threads", "python_threads", "shared", "mappings"):
            assert last[what] <= warm[what] + (5 if what == "mappings" else 0), (what, found["held"])
    assert len(list(tmp_path.glob("held-*.json"))) == 2
    left = {path.name for path in Path("/dev/shm").iterdir()} - before
    assert not [name for name in left if "horovod" in name], left
