"""Several GroupReducers in one process, over all ranks and over subsets."""

from __future__ import annotations

import contextlib
import gc
import json
import threading
import time
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from reducer_cases import assert_same_bits, buckets, engines_make, named, new_reducer, reduced

from horovod.torch.ddp.reducer import GroupReducer
from horovod.torch.reduce_ops import Average
from horovod.torch.reduction import Gradient


def completers() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "horovod-ddp-completion"}


def engines() -> int:
    count = 0
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):  # it has just ended
            count += (task / "comm").read_text().strip() == "horovod-engine"
    return count


def test_two_reducers_may_be_used_in_turns(rank: int, size: int) -> None:
    """The two models of a GAN do this: also from two threads, and each has its own order."""
    first, second = new_reducer(), new_reducer(algorithm="scatter")
    steps = [buckets(size, step=step) for step in range(6)]
    wanted = {
        "auto": engines_make(steps, named("bit8"), Average, "auto"),
        "scatter": engines_make(steps, named("bit8"), Average, "scatter"),
    }
    got: dict[str, list[list[torch.Tensor]]] = {"auto": [], "scatter": []}

    def train(reducer: GroupReducer, algorithm: str) -> None:
        for step, ranks in enumerate(steps):
            time.sleep(0.003 * ((rank + step) % 3))
            got[algorithm].append(reduced(reducer, ranks[rank], named("bit8")))

    other = threading.Thread(target=train, args=(second, "scatter"))
    other.start()
    train(first, "auto")
    other.join()
    for algorithm in got:
        for step in range(6):
            assert_same_bits(got[algorithm][step], wanted[algorithm][step], f"{algorithm}, step {step}")
    second.close()
    first.close()


def test_some_ranks_have_reducers_of_their_own(rank: int, size: int) -> None:
    """Halves of the job, made at different times and in different numbers; then all ranks again."""
    halves = [list(range(size // 2)), list(range(size // 2, size))]
    groups = [dist.new_group(half) if half else None for half in halves]
    mine = int(rank >= size // 2)
    members = halves[mine]
    for _ in range(1 + mine):
        reducer = new_reducer(groups[mine])
        assert (reducer.rank, reducer.size) == (members.index(rank), len(members))
        ranks = buckets(size)
        own = [ranks[member] for member in members]
        wanted = engines_make([own], named("int8"), Average, "auto")[0]
        assert_same_bits(reduced(reducer, ranks[rank], named("int8")), wanted)
        reducer.close()
    everybody = new_reducer()
    wanted = engines_make([buckets(size)], named("int8"), Average, "auto")[0]
    assert_same_bits(reduced(everybody, buckets(size)[rank], named("int8")), wanted)
    everybody.close()
    for group in groups:
        if group is not None and rank in dist.get_process_group_ranks(group):
            dist.destroy_process_group(group)


def test_a_reducer_that_is_forgotten_ends_its_thread(rank: int, size: int) -> None:
    gc.collect()
    before, engines_before = completers(), engines()
    reducer = new_reducer()
    x = torch.full((50, 60), float(rank))
    future = reducer.start([Gradient("x", x, named("bit8"))])
    own = completers() - before
    assert len(own) == 1
    del reducer
    future.wait()
    gc.collect()
    for thread in own:
        thread.join(20)
        assert not thread.is_alive()
    assert engines() <= engines_before


def test_each_job_has_a_timeline_of_its_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, rank: int, size: int
) -> None:
    monkeypatch.setenv("HOROVOD_TIMELINE", str(tmp_path / "trace.json"))
    reducers = [new_reducer(), new_reducer()]
    for reducer in reducers:
        reduced(reducer, buckets(size)[rank], named("bit8"))
    for reducer in reducers:
        reducer.close()
    files = sorted(tmp_path.glob("trace.ddp*.json"))
    assert len(files) == (2 if rank == 0 else 0)
    for file in files:
        names = {event.get("args", {}).get("name") for event in json.loads(file.read_text())}
        assert size == 1 or "allreduce.g0" in names
