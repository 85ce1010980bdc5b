"""The rank that horovodrun blames when reports come from several hosts in any order; the input of rank 0."""

import hashlib
import random
import sys
from pathlib import Path

import pytest
from rig import ROOT, Cluster

PROGRAM = str(ROOT / "test" / "parallel" / "blame.py")


@pytest.mark.parametrize(
    ("who", "before", "deed", "code", "said"),
    [
        (2, "", "raise SystemExit(3)", 3, "on host t2 exited with code 3"),
        (2, "", "os._exit(0)", 1, "on host t2 ended with code 0 before the others were done with it"),
        (2, "sys.exit(0)", "", 1, "on host t2 ended with code 0 before hvd.init(), and rank"),
        (0, "", "sys.exit(0)", (1, 14), "on host t1 ended"),
    ],
)
def test_whoever_was_first_is_blamed(
    cluster: Cluster, who: int, before: str, deed: str, code: int | tuple[int, ...], said: str
) -> None:
    words = [sys.executable, PROGRAM, str(who), before, deed]
    result = cluster.horovodrun("-np", "3", "-H", "t1:2,t2:1", *words, limit=120)
    last = result.stderr.splitlines()[-1]
    assert last.startswith(f"horovodrun: rank {who} {said}"), result.stderr
    assert last.endswith("; the other ranks were ended")
    assert result.returncode in (code if isinstance(code, tuple) else (code,))


def test_standard_input_of_a_rank_elsewhere(cluster: Cluster, tmp_path: Path) -> None:
    data = random.Random(0).randbytes(500_001)
    (tmp_path / "data").write_bytes(data)
    script = f'"$0" -m horovod.runner -np 1 -H t2:1 md5sum < {tmp_path}/data'
    result = cluster.run("t1", ["sh", "-c", script, sys.executable], limit=120)
    assert result.stdout == f"[0]<stdout>:{hashlib.md5(data).hexdigest()}  -\n", result.stderr
