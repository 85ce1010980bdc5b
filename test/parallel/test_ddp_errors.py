"""The errors of native DDP name the process group and its timeout, and no part of hvd's API."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from ddp_jobs import run_separately

ROOT = Path(__file__).resolve().parents[2]
Said = Callable[..., list[str]]

PROGRAM = """
import datetime, os, sys, time
import torch, torch.distributed as dist
from horovod.common import membership
from horovod.common.exceptions import HorovodInternalError
from horovod.torch.compression import Compression, Rules, resolved
from horovod.torch.ddp.reducer import GroupReducer
from horovod.torch.reduction import Gradient, Reduction

how = sys.argv[1]
rank = int(os.environ["RANK"])
limit = datetime.timedelta(seconds=60 if how == "longer" and rank == 1 else 3)
dist.init_process_group("gloo", timeout=limit)
group = dist.new_group(timeout=datetime.timedelta(seconds=4.5)) if how == "group" else None
compressor = resolved(Compression.bit8)

def reduce(reducer, name):
    reducer.start([Gradient(name, torch.ones(5000), compressor)]).wait()

try:
    if how == "absent" and rank == 1:
        time.sleep(7)
        sys.exit()
    if how == "formed":
        def fail(*args):
            raise HorovodInternalError("no luck")
        membership.Membership._enter = fail
    reducer = GroupReducer(Reduction(Rules("none")), group)
    reduce(reducer, "first")
    if how == "child":
        child = os.fork()
        if child == 0:
            for _ in range(2):
                try:
                    reduce(reducer, "first")
                except HorovodInternalError as error:
                    print(error, flush=True)
            os._exit(0)
        os.waitpid(child, 0)
    if how in ("stall", "group", "longer") and rank == 1:
        time.sleep(6)
    reduce(reducer, "second")
    print("ends well", flush=True)
    os._exit(0)
except Exception as error:
    print(f"{type(error).__name__}: {error}", flush=True)
    os._exit(7)
"""


@pytest.fixture
def said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Said:
    """Run the program with two ranks; return each rank's output, which must not name hvd's API."""
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))

    def run(how: str, **env: str) -> list[str]:
        texts = [each.stdout for each in run_separately(2, [sys.executable, str(script), how], env=env)]
        assert not any("hvd." in text for text in texts), texts
        return texts

    return run


@pytest.mark.parametrize(
    ("how", "limit"),
    [
        ("stall", "init_process_group(timeout=timedelta(seconds=3))"),
        ("group", "new_group(timeout=timedelta(seconds=4.5))"),
    ],
)
def test_a_late_rank_ends_the_job_as_the_groups_timeout_asks(how: str, limit: str, said: Said) -> None:
    first, _ = said(how)
    assert "1!: [allreduce.second]" in first and f"The job ends, as {limit} asks (ranks with !)." in first
    assert "HOROVOD_" not in first


def test_what_the_environment_asks_for_is_called_by_its_name(said: Said) -> None:
    asks = {"HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "2", "HOROVOD_STALL_CHECK_TIME_SECONDS": "1"}
    assert "The job ends, as HOROVOD_STALL_SHUTDOWN_TIME_SECONDS=2 asks" in said("stall", **asks)[0]


def test_without_warnings_the_groups_timeout_counts(said: Said) -> None:
    first, _ = said(
        "stall",
        HOROVOD_STALL_CHECK_DISABLE="1",
        HOROVOD_STALL_SHUTDOWN_TIME_SECONDS="1",
        HOROVOD_LOG_LEVEL="info",
    )
    assert (
        "1!: [allreduce.second]" in first
        and "as init_process_group(timeout=timedelta(seconds=3)) asks" in first
    )
    assert first.count("some ranks wait for others") <= 2  # the error, in the log and in the exception


def test_of_different_timeouts_the_longest_counts(said: Said) -> None:
    assert all(text.endswith("ends well\n") for text in said("longer"))


def test_a_rank_that_does_not_come(said: Said) -> None:
    assert said("absent")[0] == (
        "CannotStart: rank 1 of 2 did not come to the process group's store within 3 s; do these processes "
        "run, and does each make the same calls with this process group, as ddp.compress()? Where they may "
        "come later, give init_process_group() or new_group() a longer timeout=\n"
    )


def test_a_job_that_cannot_be_formed(said: Said) -> None:
    wanted = "CannotStart: forming a job of the process group failed: no luck\n"
    texts = said("formed")  # if one ends sooner, torch also logs an error of its store
    assert len(texts) == 2 and all(wanted in text for text in texts), texts


def test_a_forked_child_of_a_rank(said: Said) -> None:
    for rank, text in enumerate(said("child")):
        *refusals, last = text.splitlines()
        assert last == "ends well" and len(refusals) == 2, text
        told = f" was forked by rank {rank}; no gradient can be reduced in it. Leave backward() to"
        assert all(told in refusal for refusal in refusals), text
