"""One rank of benchmarks/allreduce.py: checks every contender's sum, then times all contenders in turn."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
import report
import torch
from contenders import COMPRESSIONS, YARDSTICK, Bound, Contender, Tensors, open_contenders
from mpi4py import MPI
from on_gpus.place import CPU, Place, open_place
from on_gpus.stages import stages_of

MODES = ("in_place", "out_of_place")
WARM_UP = 3  # calls of each kind before timing: they fill pages, the response cache and gloo's connections
IDLE_SECONDS = 0.5
MOST_CALLS, BURST_BYTES = 20, 20_000_000


class WrongResult(Exception):
    """A contender returned a wrong sum."""


def integers(count: int, rank: int, size: int) -> torch.Tensor:
    """Return small integers whose sum over ranks every compression represents exactly.

    E4M3 has four significant bits and power-of-two scales, so integers up to 16 are exact; bfloat16 and half
    have more bits. Values lie in -limit..limit with size * limit <= 16; ranks beyond 16 contribute zeros.
    """
    limit = max(1, min(2, 16 // size))
    if rank >= 16:
        return torch.zeros(count)
    # 7 and 3 are prime to 5 and 3, so neighbouring elements and ranks differ: a shifted or swapped piece is
    # noticed.
    place = np.arange(count, dtype=np.int64)
    pattern = (place * 7 + place // 1021 + rank * 3) % (2 * limit + 1) - limit
    return torch.from_numpy(pattern.astype(np.float32))


def tolerance(name: str, size: int) -> float:
    """Return the largest error allowed in a sum of `integers`.

    int8's step is 1/127 of a block's largest element: each contribution, and the sum, loses at most half a
    step. Other sums are off by at least 1 if they are wrong.
    """
    return 2 * size * max(1, min(2, 16 // size)) / 127 if name == "int8" else 0.0


def make_tensors(count: int, place: Place) -> Tensors:
    # fill_ writes every page, so that no contender pays for the first touch.
    return Tensors(*(torch.empty(count, device=place.device).fill_(0.0) for _ in range(3)))


def normal(count: int, rank: int) -> torch.Tensor:
    """Return N(0,1) data that differs on every rank."""
    values = np.random.default_rng([17, rank]).standard_normal(count, dtype=np.float32)
    return torch.from_numpy(values)


def check(contender: Contender, bound: Bound, tensors: Tensors, comm: MPI.Comm) -> None:
    """Check both calls on data whose sum is exact. Collective: all ranks raise if one saw a wrong sum."""
    count = tensors.work.numel()
    expected = torch.zeros(count)
    for rank in range(comm.size):
        expected += integers(count, rank, comm.size)
    tensors.source.copy_(integers(count, comm.rank, comm.size))
    for mode in MODES:
        tensors.work.copy_(tensors.source)
        tensors.target.zero_()
        result = getattr(bound, mode)().cpu()
        wrong = torch.nonzero((result - expected).abs() > tolerance(contender.name, comm.size))
        report_here = ""
        if len(wrong):
            at = int(wrong[0])
            report_here = (
                f"rank {comm.rank}: {contender.name} {mode} of {count} elements: {len(wrong)} are wrong, "
                f"the first at {at}: {float(result[at])} instead of {float(expected[at])}"
            )
        seen = [text for text in comm.allgather(report_here) if text]
        if seen:
            raise WrongResult("; ".join(seen))


def error(bound: Bound, tensors: Tensors, comm: MPI.Comm) -> float:
    """Return the NMSE of a sum of N(0,1) data against float64. Raise unless all ranks hold equal bytes."""
    exact = tensors.source.cpu().numpy().astype(np.float64)
    comm.Allreduce(MPI.IN_PLACE, exact, MPI.SUM)
    tensors.work.copy_(tensors.source)
    result = bound.in_place().cpu().numpy()
    first = comm.bcast(result.tobytes())
    differing = [rank for rank, same in enumerate(comm.allgather(result.tobytes() == first)) if not same]
    if differing:
        raise WrongResult(f"ranks {differing} ended with other bytes than rank 0")
    return float(np.square(result - exact).sum() / np.square(exact).sum())


def once(bound: Bound, mode: str, tensors: Tensors, comm: MPI.Comm, place: Place) -> float:
    """Return this rank's seconds per call: a burst of calls after fresh data, an untimed call and a barrier.

    As in nccl-tests, calls of small sizes are timed in bursts: their time then includes neither the caches
    that the previous contender left behind nor a barrier that spins on every core. Large sizes are timed one
    by one.
    """
    call = getattr(bound, mode)
    result = call()
    tensors.work.copy_(tensors.source)
    calls = calls_per_burst(4 * tensors.work.numel())
    place.synchronize()
    comm.Barrier()
    begin = time.perf_counter()
    for _ in range(calls):
        result = call()
    place.synchronize()
    elapsed = time.perf_counter() - begin
    del result
    return elapsed / calls


def calls_per_burst(size: int) -> int:
    return max(1, min(MOST_CALLS, BURST_BYTES // max(size, 1)))


def measure(
    bounds: list[Bound], tensors: Tensors, comm: MPI.Comm, place: Place, rounds: int
) -> np.ndarray[Any, Any]:
    """Return the seconds of the slowest rank by [contender, mode, round].

    All contenders run once per round, in a rotating order.
    """
    seconds = np.zeros((len(bounds), len(MODES), rounds))
    for number in range(rounds):
        for turn in range(len(bounds)):
            which = (turn + number) % len(bounds)
            for column, mode in enumerate(MODES):
                seconds[which, column, number] = once(bounds[which], mode, tensors, comm, place)
    comm.Allreduce(MPI.IN_PLACE, seconds, MPI.MAX)
    return seconds


def rounds_for(round_seconds: float, budget: float, limits: tuple[int, int]) -> int:
    """Return as many rounds as fit the budget, within limits; equal on all ranks because round_seconds is."""
    fewest, most = limits
    return max(fewest, min(most, math.ceil(budget / max(round_seconds, 1e-9))))


def measure_size(
    size: int, contenders: list[Contender], comm: MPI.Comm, plan: Plan, place: Place
) -> list[dict[str, Any]]:
    """Check, warm up and time all on `size` bytes of float32; return a record per contender and mode."""
    count = size // 4
    tensors = make_tensors(count, place)
    bounds = [contender.bind(tensors) for contender in contenders]
    for contender, bound in zip(contenders, bounds, strict=True):
        if contender.name != YARDSTICK:
            check(contender, bound, tensors, comm)
    tensors.source.copy_(normal(count, comm.rank))
    errors = [
        0.0 if contender.name == YARDSTICK else error(bound, tensors, comm)
        for contender, bound in zip(contenders, bounds, strict=True)
    ]
    warm = measure(bounds, tensors, comm, place, WARM_UP)
    calls = 1 + calls_per_burst(size)
    rounds = rounds_for(calls * float(warm[:, :, -1].sum()), plan.budget, plan.limits)
    seconds = measure(bounds, tensors, comm, place, rounds)
    stages = stages_of(contenders, bounds, comm, place) if place.is_gpu else {}
    records = []
    for which, contender in enumerate(contenders):
        for column, mode in enumerate(MODES):
            samples = seconds[which, column].tolist()
            typical = median(samples)
            records.append(
                {
                    "ranks": comm.size,
                    "bytes": size,
                    "contender": contender.name,
                    "mode": mode,
                    "seconds": typical,
                    "fastest": min(samples),
                    "spread": report.spread(samples),
                    "rounds": rounds,
                    "algbw_gb_per_s": size / typical / report.GIGA,
                    "nmse": errors[which],
                    "stages": stages.get(contender.name),
                }
            )
    return records


def idle_share(comm: MPI.Comm) -> float:
    """Return processor time over wall time of the busiest rank while all contenders are open but idle."""
    comm.Barrier()
    before = time.process_time()
    time.sleep(IDLE_SECONDS)
    share = (time.process_time() - before) / IDLE_SECONDS
    return float(comm.allreduce(share, MPI.MAX))


@dataclass(frozen=True)
class Plan:
    """The measurements: contenders, seconds for each size, and limits of the number of rounds."""

    names: list[str]
    sizes: list[int]
    budget: float
    limits: tuple[int, int]
    device: str = "cpu"


def run(plan: Plan, result_path: str) -> None:
    """Measure on this rank. Rank 0 writes the records to `result_path`; the launcher makes the tables."""
    comm = MPI.COMM_WORLD.Dup()
    torch.set_num_threads(1)
    torch.set_num_interop_threads(1)
    ours = [name for name in plan.names if name in COMPRESSIONS]
    try:
        local_rank = comm.Split_type(MPI.COMM_TYPE_SHARED).rank
        place = open_place(comm.rank, local_rank) if plan.device == "cuda" else CPU
        if ours:
            import horovod.torch as hvd

            hvd.init()
        contenders = open_contenders(plan.names, comm)
        idle = idle_share(comm)
        records: list[dict[str, Any]] = []
        for size in plan.sizes:
            records += measure_size(size, contenders, comm, plan, place)
        if comm.rank == 0:
            library = MPI.Get_library_version().split(",")[0].strip("\x00 \n")
            facts = {"torch": torch.__version__, "mpi": library, "idle processor share": f"{idle:.1%}"}
            report.write_json(result_path, {"facts": facts | place.facts, "rows": records})
        for contender in contenders:
            contender.close()
        if ours:
            hvd.shutdown()
    except BaseException:
        # One rank's exception would leave the others waiting for it forever.
        import traceback

        traceback.print_exc()
        MPI.COMM_WORLD.Abort(1)
