"""Allreduce between hosts: one rank's measurements, and the bytes that the cables must carry."""

from __future__ import annotations

import time
import zlib
from typing import Any

import numpy as np
import torch

from on_hosts.ranks import Call, Ranks, bytes_sent

RIVALS = {"MPI": "mpirun", "MPI, 2 links": "mpirun, 2 links", "gloo": "torch", "gloo half": "torch"}
OURS = ("none", "bit16", "bit8", "int8", "int4")
CHECKED = 1 << 20  # elements at the start of each tensor that are compared with NumPy's sum


def normal(rank: int, count: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Return N(0,1) data that differs on every rank."""
    return np.random.default_rng([17, rank]).standard_normal(count, dtype=np.float32)


def encoded_bytes(contender: str, count: int) -> int:
    """Return the bytes that `count` float32 elements take on the wire."""
    import horovod.torch as hvd

    if contender in OURS and contender != "none":
        return int(getattr(hvd.Compression, contender).codec.encoded_bytes(count))
    return count * (2 if contender == "gloo half" else 4)


def bytes_needed(contender: str, count: int, hosts: int) -> float:
    """Return the bytes that the best route sends from each host: one rank per host, `count` float32 elements.

    Between two hosts each sends all of its data once. Among n hosts each sends its contribution to the shards
    of the others, and to all hosts the sum of its own shard: 2(n-1)/n of the tensor, which is the same for n
    = 2.
    """
    return encoded_bytes(contender, count) * 2 * (hosts - 1) / hosts


class NotTheSame(Exception):
    """An out-of-place call returned another sum than the in-place call."""


def run(ranks: Ranks, task: dict[str, Any]) -> list[dict[str, Any]]:
    """Measure on one rank: `repeats` timed calls of every contender at every size, in turn.

    Returns a record per contender and size: seconds and bytes sent of each call, a digest of the sum, the
    NMSE of its beginning, and the seconds of as many out-of-place calls, each made after an in-place call.
    """
    records = []
    for size in task["sizes"]:
        count = size // 4
        source = torch.from_numpy(normal(ranks.rank, count))
        work = torch.empty(count).fill_(0.0)
        calls = {name: ranks.sums(name, work, source) for name in task["contenders"]}
        kinds = ("seconds", "sent", "seconds_out_of_place")
        found = {name: {"contender": name, "bytes": size} | {kind: [] for kind in kinds} for name in calls}
        for number in range(task["warm_up"] + task["repeats"]):
            for name, (in_place, out_of_place) in calls.items():
                work.copy_(source)
                elapsed, sent, _ = timed(ranks, in_place)
                if number == 0:
                    found[name] |= judged(work, ranks.size)
                if number >= task["warm_up"]:
                    found[name]["seconds"].append(elapsed)
                    found[name]["sent"].append(sent)
                if out_of_place is None:
                    continue
                elapsed, _, total = timed(ranks, out_of_place)
                if number == 0 and not torch.equal(total, work):
                    raise NotTheSame(f"rank {ranks.rank}: {name}, {size} bytes")
                del total  # the next call may use its memory
                if number >= task["warm_up"]:
                    found[name]["seconds_out_of_place"].append(elapsed)
        records += found.values()
    return records


def timed(ranks: Ranks, call: Call) -> tuple[float, int, Any]:
    """Return seconds and bytes sent of a call that all ranks make at the same moment, and its result."""
    ranks.barrier()
    before, begin = bytes_sent(), time.perf_counter()
    result = call()
    elapsed = time.perf_counter() - begin
    ranks.barrier()  # all bytes of this call have arrived
    return elapsed, bytes_sent() - before, result


def judged(total: torch.Tensor, ranks: int) -> dict[str, Any]:
    """Return the NMSE against NumPy's sum in float64, and a digest to compare ranks by."""
    ours = total.numpy()[:CHECKED]
    # The generator gives the same beginning for any length.
    exact = np.sum([normal(rank, len(ours)).astype(np.float64) for rank in range(ranks)], axis=0)
    error = np.square(ours - exact).sum() / np.square(exact).sum()
    return {"nmse": float(error), "digest": zlib.crc32(total.numpy().data)}
