"""Benchmarks of GPUs on the emulated GPU: bytes and sums are right, tables complete. Speed is never checked.

The commands of docs/benchmarks.md must be valid for the programs.
"""

from __future__ import annotations

import importlib
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import page_blocks
import pytest
import torch
from benchmark_runs import BENCHMARKS, cells, document, run
from gpu_jobs import emulated_gpus
from page_blocks import ROOT
from rank_jobs import mpirun

from horovod.runner import command_line

sys.path += [str(Path(__file__).resolve().parents[1]), str(BENCHMARKS)]

import codec_on_gpu
import gpu_report
from emulated_cuda import build as emulation

CODECS = ["bit8/128", "int8/128/stochastic", "int4/128/hadamard/lloyd", "bit16"]
LIMIT = 200.0  # seconds: threads of the host run kernels
NO_GPU = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")


@pytest.fixture(scope="module")
def emulated() -> dict[str, str]:
    """Return the environment of ranks whose tensors count as those of emulated GPUs."""
    mpirun()
    return {**emulated_gpus(), "BENCHMARK_PLACE": "emulated_place"}


@pytest.mark.timeout(LIMIT + 30)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_codec_compares_bytes_and_copies(dtype: str, tmp_path: Path) -> None:
    out = tmp_path / "codec.json"
    words = ["--device", "cuda", "--quick", "--dtype", dtype, "--out", str(out), "--codecs", *CODECS]
    library = str(emulation.library_path())
    done = run("codec.py", *words, limit=LIMIT, BENCHMARK_DEVICE_LIBRARY=library)
    found_there = document(out)
    operations = ["encode", "decode", "reduce 4 to codes", "reduce 4 to elements"]
    found = [(row["codec"], row["operation"]) for row in found_there["rows"]]
    assert found == [(codec, operation) for codec in CODECS for operation in operations]
    assert len(cells(done.stdout)) == 2 * len(found)  # then the bucket's, one line for each of these
    count = int(0.1e6) // (4 if dtype == "float32" else 2)
    for row in found_there["rows"]:
        assert row["seconds"] > 0 and row["copy_gb_per_s"] > 0
        if (row["codec"], row["operation"]) == ("bit16", "encode"):
            assert row["moved"] == count * (2 + row["bytes"] // count)
    assert {row["tensors"] for row in found_there["bucket"]} == {1, 161}
    assert found_there["machine"]["driver"]


def test_codec_refuses_wrong_bytes() -> None:
    right = torch.arange(8, dtype=torch.uint8).numpy()
    wrong = right.copy()
    wrong[5] = 0
    codec_on_gpu.compare("encode", right, right)
    said = r"1 of 8 bytes differ .* the first at 5: 0 instead of 5"
    with pytest.raises(codec_on_gpu.WrongBytes, match=said):
        codec_on_gpu.compare("encode", wrong, right)


@NO_GPU
@pytest.mark.parametrize("script", ["codec.py", "allreduce.py", "training_step.py"])
def test_without_a_gpu_they_say_so(script: str) -> None:
    done = run(script, "--device", "cuda", "--quick", code=1)
    assert f"{script}: --device cuda has no GPU to " in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.timeout(LIMIT + 30)
@pytest.mark.parametrize(("ranks", "transport"), [(2, "nccl"), (4, "host")])
def test_allreduce_checks_and_times(
    ranks: int, transport: str, emulated: dict[str, str], tmp_path: Path
) -> None:
    out = tmp_path / "allreduce.json"
    words = ["--device", "cuda", "--quick", "--np", str(ranks), "--transports", transport, "--out", str(out)]
    shared = {"HOROVOD_TEST_SHARED_GPU": "1"} if transport == "host" else {}
    done = run("allreduce.py", *words, limit=LIMIT, **emulated, **shared)
    rows = document(out)["rows"]
    everybody = ["gloo", "memcpy", "none", "bit16", "bit8", "int8"]
    in_place = [row for row in rows if row["mode"] == "in_place"]
    assert [(row["bytes"], row["contender"]) for row in in_place] == [
        (size, name) for size in (1000, 100_000) for name in everybody
    ]
    for row in rows:
        assert row["seconds"] > 0 and row["transport"] == transport
        assert row["nmse"] < (1.6e-3 if row["contender"] in ("bit8", "int8") else 1e-5)
    staged = [row["contender"] for row in in_place if row["bytes"] == 100_000 and row["stages"]]
    assert staged == ([] if transport == "nccl" else ["none", "bit16", "bit8", "int8"])
    assert ("whole / slowest" in done.stdout) == (transport == "host")


@pytest.mark.timeout(LIMIT + 30)
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_training_steps(device: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    out = tmp_path / "step.json"
    settings = request.getfixturevalue("emulated") if device == "cuda" else {}
    words = ["--quick", "--device", device, "--out", str(out), "--compressions", "none", "bit8"]
    done = run("training_step.py", *words, limit=LIMIT, **settings)
    rows = document(out)["rows"]
    contenders = ["alone", "none", "bit8"]
    assert [(row["model"], row["contender"]) for row in rows] == [
        (model, name) for model in ("small resnet50", "small transformer") for name in contenders
    ]
    assert len(cells(done.stdout)) == len(rows)
    for row in rows:
        assert row["seconds"] > 0 and row["samples_per_second"] > 0
        if row["contender"] != "alone":  # it has at most a barrier's time
            assert row["collective_seconds"] > 0


def commands() -> list[str]:
    """Return the commands of docs/benchmarks.md for GPUs."""
    lines = page_blocks.commands("docs/benchmarks.md", "On GPUs")
    return [line.partition("  #")[0].strip() for line in lines]


@pytest.mark.parametrize("command", commands())
def test_a_command_that_needs_a_gpu_is_understood(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    words = shlex.split(command)
    if words[0] == "horovodrun":
        at = words.index("python") + 1
        assert (ROOT / words[at]).is_file()
        command_line.parse(words[1:])
        return
    if words[0] == "make":
        words += ["-n", "--no-print-directory"]
        dry = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
        program, *options = shlex.split(dry.stdout)[1:]
        assert program == "benchmarks/gpu_report.py"
        assert gpu_report.arguments(options).part
        return
    assert words[0] == "python" and (ROOT / words[1]).is_file()
    monkeypatch.chdir(BENCHMARKS)
    program: Any = importlib.import_module(Path(words[1]).stem)
    assert program.arguments(words[2:]).device == "cuda"
