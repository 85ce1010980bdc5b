"""benchmarks/scaling.py of docs/benchmarks.md trains tiny models with every contender, at any speed."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import benchmark_runs
import pytest
from benchmark_runs import document

from horovod import made_hosts

pytest.importorskip("torch", reason="the benchmark trains with torch, which is not installed")

COMPRESSIONS = ["bit16", "bit8", "int8", "int4", "topk", "powersgd"]
EVERYONE = [
    *("serial", "DataParallel", "alone", "DDP", "DDP fp16", "DDP PowerSGD"),
    *(f"ddp.compress {name}" for name in COMPRESSIONS),
    *("ddp.compress bit8, may turn off", *(f"Horovod {name}" for name in COMPRESSIONS)),
]


def run(*words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    return benchmark_runs.run("scaling.py", "--quick", *words, limit=280, code=code)


def figures(path: Path, *words: str) -> dict[str, dict[str, Any]]:
    """Return the rows of the only job of these arguments, by contender."""
    done = run(*words, "--out", str(path))
    (job,) = document(path)["runs"]
    for row in job["rows"]:
        assert f"| {row['contender']} " in done.stdout
        workers = 1 if row["contender"] == "serial" else 2
        assert row["samples_per_second"] == pytest.approx(workers * job["batch"] / row["seconds"])
        assert row["linearity"] == pytest.approx(
            row["samples_per_second"] / job["rows"][0]["samples_per_second"] / workers
        )
    return {row["contender"]: row for row in job["rows"]}


@pytest.mark.timeout(300)  # some 30 s on two idle cores
def test_everyone_trains_in_two_processes_of_one_host(tmp_path: Path) -> None:
    rows = figures(tmp_path / "out.json", "--models", "vgg16")
    assert list(rows) == EVERYONE
    for name in COMPRESSIONS:
        # Both ways send the same bytes except overhead: packets, acknowledgements, sizes.
        assert rows[f"Horovod {name}"]["sent"] < rows["DDP"]["sent"]
        assert rows[f"ddp.compress {name}"]["sent"] < rows["DDP"]["sent"]
    assert rows["ddp.compress bit8"]["sent"] < 0.5 * rows["DDP"]["sent"]
    assert rows["ddp.compress bit8, may turn off"]["choice"].startswith("compression is o")
    assert rows["alone"]["sent"] < 0.1 * rows["DDP"]["sent"]


@pytest.mark.timeout(300)
def test_one_process_has_nobody_to_be_compared_with(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    run("--models", "mnist", "deeplabv3_resnet101", "--processes", "1", "--out", str(out))
    jobs = document(out)["runs"]
    assert [job["model"] for job in jobs] == ["mnist", "deeplabv3_resnet101"]
    for job in jobs:
        assert [row["contender"] for row in job["rows"]] == ["serial", "DataParallel"]
        assert job["rows"][0]["linearity"] == 1.0


@pytest.mark.timeout(300)
def test_hosts_that_are_made_for_it_and_a_ratio_that_cannot_be(tmp_path: Path) -> None:
    reason = made_hosts.why_not()
    if reason:
        pytest.skip(reason)
    ours = ["serial", "alone", "DDP", "ddp.compress bit8", "ddp.compress bit8, watched", "Horovod bit8"]
    buckets = ["--bucket-view", "--bucket-mb", "2"]
    rows = figures(tmp_path / "out.json", "--hosts", "2", *buckets, "--contenders", *ours)
    assert list(rows) == ours
    for way in ("ddp.compress", "Horovod"):
        assert rows[f"{way} bit8"]["sent"] < 0.5 * rows["DDP"]["sent"]
    wanted = ("--w-over-c", "100000", "--contenders", "alone")
    done = run("--hosts", "2", "--models", "mnist", *wanted, code=1)
    assert "no batch has a W/C within 0.3 of 100000; the nearest, 1, has" in done.stderr
