"""Measure the allreduce of float32 on one host: Horovod under every compression, MPI and gloo, in one run.

    python benchmarks/allreduce.py                        # 2 and 4 ranks, 1 KB to 100 MB, about two minutes
    python benchmarks/allreduce.py --np 2 --sizes 25e6 --only MPI gloo none bit8 --out allreduce.json
    python benchmarks/allreduce.py --device cuda          # of tensors on GPUs, beside NCCL if it can be

Starts mpirun from this environment, once for each number of ranks. docs/benchmarks.md defines every column.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
import traceback
import zlib
from collections.abc import Iterator
from statistics import median
from typing import Any

import contenders
import gpus
import jobs
import numpy as np
import report
import tables
import torch
from contenders import COMPRESSIONS, YARDSTICK, Call, Tensors
from report import Record

SIZES = (1_000, 10_000, 100_000, 1_000_000, 10_000_000, 25_000_000, 100_000_000)
RIVALS = ("MPI", "gloo")
NAMES = (*RIVALS, YARDSTICK, "none", "fp16", "bf16", "bit16", "bit8")
GPU_NAMES = ("NCCL", "gloo", YARDSTICK, "none", "bit16", "bit8", "int8")
MODES = ("in_place", "out_of_place")
WARM_UP = 3  # calls of each kind before timing: they fill pages, the response cache and gloo's connections
IDLE_SECONDS = 0.5
MOST_CALLS, BURST_BYTES = 20, 20_000_000
STAGED_CALLS = 5

# Aims of the way through the host, on a GPU
SLOWEST_RATIO = 1.3  # the whole pipeline over its slowest stage, at most
COMPRESSED_RATIO = 1 / 3  # bit8 over uncompressed, at most
JUDGED = {"ranks": 4, "transport": "host", "bytes": 100_000_000, "mode": "in_place"}
STAGES = [stage for stage in gpus.STAGES if stage != "whole"]

INTRODUCTION = {
    "cpu": """\
Allreduce of N(0,1) float32 on one host, contenders interleaved; time = slowest rank, median;
algbw = bytes per rank / time in GB/s; x best = speed-up over the better of MPI and gloo;
/ memcpy = multiple of the time in which all ranks copy as many bytes at the same moment.""",
    "cuda": """\
Allreduce of N(0,1) float32 on GPUs, contenders interleaved; time = slowest rank, median, until
the GPU is done; algbw = bytes per rank / time in GB/s; / none = multiple of the uncompressed
time by the same transport, HOROVOD_GPU_TRANSPORT's; NCCL and gloo are torch.distributed's.""",
}
COLUMNS: report.Columns = {
    "ranks": "{ranks}",
    "size": "{bytes:size}",
    "contender": "{contender}",
    "in place": "{seconds:time}",
    "spread": "{spread:.0%}",
    "algbw": "{algbw_gb_per_s:.3g}",
    "x best": "{versus_best:.2f}",
    "/ memcpy": "{versus_memcpy:.2f}",
    "out of place": "{out_of_place[seconds]:time}",
    "x best#": "{out_of_place[versus_best]:.2f}",
    "NMSE": "{nmse:.1e}",
}
GPU_COLUMNS: report.Columns = {
    "ranks": "{ranks}",
    "transport": "{transport}",
    "size": "{bytes:size}",
    "contender": "{contender}",
    "in place": "{seconds:time}",
    "spread": "{spread:.0%}",
    "algbw": "{algbw_gb_per_s:.3g}",
    "/ none": "{versus_none:.2f}",
    "NMSE": "{nmse:.1e}",
}
STAGE_COLUMNS: report.Columns = {
    "ranks": "{ranks}",
    "size": "{bytes:size}",
    "contender": "{contender}",
    **{stage: f"{{stages[{stage}]:time}}" for stage in gpus.STAGES},
    "slowest": lambda row: max(STAGES, key=row["stages"].__getitem__),
    "whole / slowest": lambda row: f"{over_slowest(row):.2f}",
}


def index_of(rows: list[Record]) -> dict[tuple[int, str, str], Record]:
    return {(row["bytes"], row["contender"], row["mode"]): row for row in rows}


def add_ratios(rows: list[Record]) -> None:
    """Add the speed-up over the better rival, and the time over memcpy's, at equal size and mode."""
    index = index_of(rows)
    for row in rows:
        size, mode = row["bytes"], row["mode"]
        copy = index.get((size, YARDSTICK, mode))
        rivals = [index[size, name, mode]["seconds"] for name in RIVALS if (size, name, mode) in index]
        row["versus_memcpy"] = row["seconds"] / copy["seconds"] if copy else None
        row["versus_best"] = min(rivals) / row["seconds"] if rivals else None


def table_of(rows: list[Record]) -> str:
    """Return a table of one run, with a line for each size and contender."""
    index = index_of(rows)
    shown = [
        row | {"out_of_place": index[row["bytes"], row["contender"], "out_of_place"]}
        for row in rows
        if row["mode"] == "in_place"
    ]
    return report.table_of(shown, COLUMNS, left=3)


def gpu_table(rows: list[Record]) -> str:
    in_place = [dict(row) for row in rows if row["mode"] == "in_place"]
    plain = {key(row): row["seconds"] for row in in_place if row["contender"] == "none"}
    for row in in_place:
        row["versus_none"] = row["seconds"] / plain[key(row)] if key(row) in plain else None
    return report.table_of(in_place, GPU_COLUMNS, left=4)


def key(row: Record) -> tuple[int, str, int]:
    return row["ranks"], row["transport"], row["bytes"]


def stage_table(rows: list[Record]) -> str:
    """Return a table of the stages of allreduces through the host, and the whole over the slowest stage."""
    shown = [row for row in rows if row["mode"] == "in_place" and row["stages"]]
    return report.table_of(shown, STAGE_COLUMNS, left=3) if shown else ""


def over_slowest(row: Record) -> float:
    return float(row["stages"]["whole"] / max(row["stages"][stage] for stage in STAGES))


def conclusions(rows: list[Record]) -> list[str]:
    """Return whether compression through the host meets its aims, as far as this run measured it."""
    there = {row["contender"]: row for row in rows if JUDGED.items() <= row.items()}
    if not {"none", "bit8"} <= there.keys():
        return []
    codec = there["bit8"]
    ratio = codec["seconds"] / there["none"]["seconds"]
    said = [f"bit8 over none, 4 ranks, 100 MB, through the host: {ratio:.2f}; wanted {COMPRESSED_RATIO:.2f}"]
    if codec["stages"]:
        whole = f"{over_slowest(codec):.2f}; wanted {SLOWEST_RATIO:.2f}"
        said.append(f"its pipeline over its slowest stage: {whole}")
    return said


def arguments(words: list[str]) -> argparse.Namespace:
    about = "Allreduce beside MPI_Allreduce and gloo on this host."
    parser = report.options(about, "device limit out quick", limit=600.0)
    option = parser.add_argument
    option("--np", type=int, nargs="+", default=[2, 4], metavar="N", help="numbers of ranks (default 2 4)")
    option("--sizes", type=float, nargs="+", default=list(SIZES), metavar="BYTES", help="bytes per rank")
    everybody = sorted({*NAMES, *GPU_NAMES})
    option("--only", nargs="+", choices=everybody, help="contenders (default: all)")
    transports = ["auto", "nccl", "host"]
    option("--transports", nargs="+", choices=transports, help="with --device cuda: HOROVOD_GPU_TRANSPORT")
    option("--seconds", type=float, default=8.0, help="time to spend on each size (default 8)")
    option("--rounds", type=int, nargs=2, default=[11, 301], metavar=("FEWEST", "MOST"), help="per size")
    chosen = parser.parse_args(words)
    if chosen.quick:
        chosen.sizes, chosen.rounds = [1_000, 100_000], [2, 2]
    possible = GPU_NAMES if chosen.device == "cuda" else NAMES
    chosen.only = chosen.only or list(possible)
    strangers = [name for name in chosen.only if name not in possible]
    if strangers:
        parser.error(f"--only: {', '.join(strangers)} cannot be had with --device {chosen.device}")
    if chosen.transports and chosen.device == "cpu":
        parser.error("--transports goes with --device cuda")
    chosen.sizes = [int(size) for size in chosen.sizes]
    if any(size < 4 or size % 4 for size in chosen.sizes):
        parser.error("--sizes are bytes of float32: multiples of 4, at least 4")
    if chosen.rounds[0] < 1 or chosen.rounds[1] < chosen.rounds[0]:
        parser.error("--rounds takes the fewest and the most rounds per size: 1 <= FEWEST <= MOST")
    return chosen


def runs(chosen: argparse.Namespace) -> Iterator[tuple[Record, Record]]:
    """Yield facts and the document of the ranks for each number of ranks, and on GPUs each transport."""
    on_gpu = chosen.device == "cuda"
    for ranks in chosen.np:
        # NCCL requires that every rank has its own GPU.
        has_own = on_gpu and torch.cuda.is_available() and torch.cuda.device_count() >= ranks
        has_nccl = has_own and torch.distributed.is_nccl_available()
        only = [name for name in chosen.only if name != "NCCL" or has_nccl]
        usual = ["nccl", "host"] if has_own else ["host"]
        for transport in chosen.transports or usual if on_gpu else [""]:
            settings = {"HOROVOD_GPU_TRANSPORT": transport} if transport else {}
            task = {**vars(chosen), "only": only}
            about = {"ranks": ranks} | ({"transport": transport} if transport else {})
            yield about, jobs.run_here(ranks, __file__, task, "mpirun", **settings)


# In a rank: it checks every contender's sum, then times all contenders in turn


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

    def __init__(self, size: int, worlds: dict[str, Any], comm: Any, place: gpus.Place) -> None:
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
        exact = contenders.exact_sum(comm.size, self.count)
        self.errors = dict.fromkeys(self.calls, 0.0) | {name: self._error(name, exact) for name in checked}
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
            if seen := [text for text in comm.allgather(said) if text]:
                raise tables.WrongResult("; ".join(seen))

    def _error(self, name: str, exact: np.ndarray[Any, Any]) -> float:
        """Return the NMSE of a sum of N(0,1) data. Raise unless ranks hold equal bytes."""
        self.tensors.work.copy_(self.tensors.source)
        result = self.calls[name]["in_place"]().cpu().numpy()
        tables.same_everywhere(self.comm.allgather(zlib.crc32(result.data)), name, "bytes")
        return contenders.nmse(exact, result)

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
        return self._slowest(seconds)

    def _slowest(self, seconds: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return np.max(self.comm.allgather(seconds), axis=0)

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
        found = self._slowest(own).tolist()
        return dict(zip(gpus.STAGES, found, strict=True)) if found[-1] > 0 else None

    def records(self, budget: float, fewest: int, most: int) -> list[Record]:
        """Warm up and time all for about `budget` seconds; return a record per contender and mode."""
        warm = float(self.measure(WARM_UP)[:, :, -1].sum())  # equal on all ranks
        rounds = max(fewest, min(most, math.ceil(budget / max((1 + self.burst) * warm, 1e-9))))
        found = self.measure(rounds)
        records = []
        for name, seconds in zip(self.calls, found.tolist(), strict=True):
            about = {"bytes": self.size, "contender": name, "nmse": self.errors[name]}
            about |= {"stages": self.stages(name), "rounds": rounds}
            for mode, samples in zip(MODES, seconds, strict=True):
                typical, spread = median(samples), report.spread(samples)
                times = {"seconds": typical, "fastest": min(samples), "spread": spread}
                algbw = {"algbw_gb_per_s": self.size / typical / report.GIGA}
                records.append({**about, "mode": mode, **times, **algbw})
        return records


def worlds_of(names: list[str], store: str, comm: Any) -> dict[str, Any]:
    """Return each contender's world, in the order of the tables; import horovod only if it takes part."""
    ours = [name for name in COMPRESSIONS if name in names]
    horovod = contenders.HorovodWorld() if ours else None
    found: dict[str, Any] = {}
    for name in (each for each in (*contenders.RIVALS, YARDSTICK) if each in names):
        if name == "MPI":
            found[name] = contenders.MpiWorld()
        elif name == YARDSTICK:
            found[name] = contenders.CopyWorld()
        else:
            meeting = {"init_method": f"file://{store}", "rank": comm.rank, "world_size": comm.size}
            found[name] = contenders.TorchWorld(name.lower(), **meeting)
    return found | dict.fromkeys(ours, horovod)


def idle_share(comm: Any) -> float:
    """Return processor time over wall time of the busiest rank while all contenders are open but idle."""
    comm.Barrier()
    before = time.process_time()
    time.sleep(IDLE_SECONDS)
    return max(comm.allgather((time.process_time() - before) / IDLE_SECONDS))


def rank(task: Record) -> Record | None:
    """Measure on this rank; return the facts and records."""
    from mpi4py import MPI  # begins MPI

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


def main(words: list[str]) -> int:
    if jobs.ran_as_rank(words, rank):
        return 0
    chosen = arguments(words)
    on_gpu = chosen.device == "cuda"
    if on_gpu:
        gpus.require("allreduce.py", "measure")
    facts = report.machine()
    print(f"{INTRODUCTION[chosen.device]}\n{report.machine_text(facts)}", flush=True)
    document: Record = {"benchmark": "allreduce on GPUs" if on_gpu else "allreduce", "machine": facts}
    document |= {"runs": [], "rows": []}
    for about, found in runs(chosen):
        rows, own = [row | about for row in found["rows"]], found["facts"]
        print(f"\n{about['ranks']} ranks; {report.machine_text(own)}")
        if on_gpu:
            print(gpu_table(rows), flush=True)
            if stages := stage_table(rows):
                print(f"\nStages of the way through the host, of one call, the slowest rank's\n{stages}")
        else:
            add_ratios(rows)
            spreads = sorted(row["spread"] for row in rows)
            own |= {"spread": f"{spreads[len(spreads) // 2]:.0%} in the middle, {spreads[-1]:.0%} at worst"}
            print(table_of(rows), flush=True)
        document["runs"].append(about | own)
        document["rows"] += rows
    for line in conclusions(document["rows"]) if on_gpu else ():
        print(line)
    report.write_json(chosen.out, document)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
