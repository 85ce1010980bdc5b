"""Emulated GPUs: a worker dies in an operation over NCCL; the others abort and make a new communicator."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from launching import horovodrun

TEST = Path(__file__).resolve().parents[1]
sys.path.append(str(TEST))

from emulated_cuda import build as emulation  # noqa: E402

PROGRAM = Path(__file__).with_name("gpu_rank.py")


@pytest.mark.timeout(400)
def test_communicators_are_made_again(tmp_path: Path) -> None:
    emulated = {
        "HOROVOD_TEST_EMULATED_GPU": str(emulation.library_path()),
        "HOROVOD_NCCL_LIBRARY": str(emulation.nccl_path()),
        "EMULATED_CUDA_DEVICES": "4",
        "EMULATED_CUDA_ANY_MEMORY": "1",  # torch's tensors are in host memory
        "HOROVOD_GPU_TRANSPORT": "nccl",
        "PYTHONPATH": os.pathsep.join([str(TEST / "parallel"), os.environ.get("PYTHONPATH", "")]),
    }
    hosts = ",".join(f"127.0.0.{number + 1}:1" for number in range(3))
    words = ("-np", "3", "--min-np", "2", "--blacklist", "host", "-H", hosts)
    command = (sys.executable, str(PROGRAM), str(tmp_path))
    done = horovodrun(*words, *command, limit=300, **emulated)
    assert done.returncode == 0, done.stderr
    assert "host 127.0.0.2 was killed by signal 9 (SIGKILL)" in done.stderr
    found = [json.loads(path.read_text()) for path in sorted(tmp_path.glob("ended-*.json"))]
    assert len(found) == 2, done.stderr
    for one in found:
        assert (one["resets"], one["losses"]) == (11, 1) and one["gpu_operations"] > 0
        communicators, *others = zip(*one["held"], strict=True)
        assert set(communicators) == {1}, one["held"]
        for counts in others:
            assert counts[-1] <= counts[4], one["held"]
