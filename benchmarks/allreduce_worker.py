"""One rank of benchmarks/allreduce.py: checks every contender's sum, then times all contenders in turn."""

from __future__ import annotations

import math
import os
import time
import traceback
from statistics import median
from typing import Any

import contenders
import gpus
import numpy as np
import report
import torch
from contenders import COMPRESSIONS, RIVALS, YARDSTICK, Call, Tensors
from mpi4py import MPI
from report import Record

MODES = ("in_place", "out_of_place")
WARM_UP = 3  # calls of each kind before timing: they fill pages, the response cache and gloo's connections
IDLE_SECONDS = 0.5
MOST_CALLS, BURST_BYTES = 20, 20_000_000
STAGED_CALLS = 5


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


class Size:
    """All contenders' calls on the tensors of one size. The constructor checks every sum."""

    def __init__(self, size: int, worlds: dict[str, Any], comm: MPI.Comm, place: gpus.Place) -> None:
        self.size, self.count, self.comm, self.place = size, size // 4, comm, place
        # fill_ writes every page, so that no contender pays for the first touch.
        self.tensors = Tensors(*(torch.empty(self.count, device=place.device).fill_(0.0) for _ in range(3)))
        self.calls: dict[str, dict[str, Call]] = {}
        for name, world in worlds.items():
            self.calls[name] = dict(zip(MODES, world.sums(name, self.tensors), strict=True))
        checked = [name for name in self.calls if name != YARDSTICK]
        for name in checked:
            self._check(name)
        self.tensors.source.copy_(torch.from_numpy(contenders.normal(comm.rank, self.count)))
        self.errors = dict.fromkeys(self.calls, 0.0) | {name: self._error(name) for name in checked}
        self.burst = max(1, min(MOST_CALLS, BURST_BYTES // size))

    def _check(self, name: str) -> None:
        """Check both calls on data whose sum is exact. Collective: all ranks raise if one saw a wrong sum."""
        comm, tensors = self.comm, self.tensors
        expected = torch.zeros(self.count)
        for rank in range(comm.size):
            expected += integers(self.count, rank, comm.size)
        tensors.source.copy_(integers(self.count, comm.rank, comm.size))
        for mode, call in self.calls[name].items():
            tensors.work.copy_(tensors.source)
            tensors.target.zero_()
            result = call().cpu()
            wrong = torch.nonzero((result - expected).abs() > tolerance(name, comm.size))
            said = ""
            if len(wrong):
                at = int(wrong[0])
                said = (
                    f"rank {comm.rank}: {name} {mode} of {self.count} elements: {len(wrong)} are wrong, "
                    f"the first at {at}: {float(result[at])} instead of {float(expected[at])}"
                )
            seen = [text for text in comm.allgather(said) if text]
            if seen:
                raise WrongResult("; ".join(seen))

    def _error(self, name: str) -> float:
        """Return the NMSE of a sum of N(0,1) data against float64. Raise unless ranks hold equal bytes."""
        comm = self.comm
        exact = self.tensors.source.cpu().numpy().astype(np.float64)
        comm.Allreduce(MPI.IN_PLACE, exact, MPI.SUM)
        self.tensors.work.copy_(self.tensors.source)
        result = self.calls[name]["in_place"]().cpu().numpy()
        first = comm.bcast(result.tobytes())
        differing = [rank for rank, same in enumerate(comm.allgather(result.tobytes() == first)) if not same]
        if differing:
            raise WrongResult(f"ranks {differing} ended with other bytes than rank 0")
        return float(np.square(result - exact).sum() / np.square(exact).sum())

    def _once(self, call: Call) -> float:
        """Return this rank's seconds per call: a burst after fresh data, an untimed call and a barrier.

        As in nccl-tests, calls of small sizes are timed in bursts: their time then includes neither the
        caches that the previous contender left behind nor a barrier that spins on every core. Large sizes
        are timed one by one.
        """
        result = call()
        self.tensors.work.copy_(self.tensors.source)
        self.place.synchronize()
        self.comm.Barrier()
        begin = time.perf_counter()
        for _ in range(self.burst):
            result = call()
        self.place.synchronize()
        elapsed = time.perf_counter() - begin
        del result
        return elapsed / self.burst

    def measure(self, rounds: int) -> np.ndarray[Any, Any]:
        """Return the seconds of the slowest rank by [contender, mode, round]."""
        names = list(self.calls)
        seconds = np.zeros((len(names), len(MODES), rounds))
        for number, name in report.in_turn(names, rounds):
            for column, mode in enumerate(MODES):
                seconds[names.index(name), column, number] = self._once(self.calls[name][mode])
        self.comm.Allreduce(MPI.IN_PLACE, seconds, MPI.MAX)
        return seconds

    def stages(self, name: str) -> dict[str, float] | None:
        """Return the seconds of one call by stage, of the slowest rank; "whole" is the pipeline's.

        Only Horovod's contenders that took the host's route have stages.
        """
        if name not in COMPRESSIONS or not self.place.is_gpu:
            return None
        before = gpus.settled(self.place)
        for _ in range(STAGED_CALLS):
            self.calls[name]["in_place"]()
        after = gpus.settled(self.place)
        own = np.array([(after[each] - before[each]) / STAGED_CALLS / 1e6 for each in gpus.STAGES.values()])
        self.comm.Allreduce(MPI.IN_PLACE, own, MPI.MAX)
        return dict(zip(gpus.STAGES, own.tolist(), strict=True)) if own[-1] > 0 else None

    def records(self, budget: float, fewest: int, most: int) -> list[Record]:
        """Warm up and time all for about `budget` seconds; return a record per contender and mode."""
        warm = float(self.measure(WARM_UP)[:, :, -1].sum())  # equal on all ranks
        rounds = max(fewest, min(most, math.ceil(budget / max((1 + self.burst) * warm, 1e-9))))
        found = self.measure(rounds)
        records = []
        for name, seconds in zip(self.calls, found.tolist(), strict=True):
            stages = self.stages(name)
            for mode, samples in zip(MODES, seconds, strict=True):
                typical = median(samples)
                records.append(
                    {
                        "bytes": self.size,
                        "contender": name,
                        "mode": mode,
                        "seconds": typical,
                        "fastest": min(samples),
                        "spread": report.spread(samples),
                        "rounds": rounds,
                        "algbw_gb_per_s": self.size / typical / report.GIGA,
                        "nmse": self.errors[name],
                        "stages": stages,
                    }
                )
        return records


def worlds_of(names: list[str], store: str, comm: MPI.Comm) -> dict[str, Any]:
    """Return each contender's world, in the order of the tables; import horovod only if it takes part."""
    ours = [name for name in COMPRESSIONS if name in names]
    horovod = contenders.HorovodWorld() if ours else None
    found: dict[str, Any] = {}
    for name in (each for each in (*RIVALS, YARDSTICK) if each in names):
        if name == "MPI":
            found[name] = contenders.MpiWorld()
        elif name == YARDSTICK:
            found[name] = contenders.CopyWorld()
        else:
            meeting = {"init_method": f"file://{store}", "rank": comm.rank, "world_size": comm.size}
            found[name] = contenders.TorchWorld(name.lower(), **meeting)
    return found | dict.fromkeys(ours, horovod)


def idle_share(comm: MPI.Comm) -> float:
    """Return processor time over wall time of the busiest rank while all contenders are open but idle."""
    comm.Barrier()
    before = time.process_time()
    time.sleep(IDLE_SECONDS)
    share = (time.process_time() - before) / IDLE_SECONDS
    return float(comm.allreduce(share, MPI.MAX))


def run(task: Record) -> Record | None:
    """Measure on this rank; return the facts and records."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    comm = MPI.COMM_WORLD.Dup()
    torch.set_num_threads(1)
    torch.set_num_interop_threads(1)
    try:
        local_rank = comm.Split_type(MPI.COMM_TYPE_SHARED).rank
        place = gpus.open_place(comm.rank, local_rank) if task["device"] == "cuda" else gpus.CPU
        worlds = worlds_of(task["only"], f"{task['results']}/store", comm)
        idle = idle_share(comm)
        rows: list[Record] = []
        for size in task["sizes"]:
            rows += Size(size, worlds, comm, place).records(task["seconds"], *task["rounds"])
        library = MPI.Get_library_version().split(",")[0].strip("\x00 \n")
        facts = {"torch": torch.__version__, "mpi": library, "idle processor share": f"{idle:.1%}"}
        # In the order of opening, the groups of torch after their first.
        for world in dict.fromkeys(worlds.values()):
            world.close()
        return {"facts": facts | place.facts, "rows": rows}
    except BaseException:
        # One rank's exception would leave the others waiting for it forever.
        traceback.print_exc()
        MPI.COMM_WORLD.Abort(1)
        return None
