"""Measure the allreduce of float32 on one host: Horovod under every compression, MPI and gloo, in one run.

    python benchmarks/allreduce.py                        # 2 and 4 ranks, 1 KB to 100 MB, about two minutes
    python benchmarks/allreduce.py --np 2 --sizes 25e6 --only MPI gloo none bit8 --out allreduce.json
    python benchmarks/allreduce.py --device cuda          # of tensors on GPUs, beside NCCL if it can be

Starts mpirun from this environment, once for each number of ranks. docs/benchmarks.md defines every column.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator

import gpus
import jobs
import report
import torch
from report import Record

SIZES = (1_000, 10_000, 100_000, 1_000_000, 10_000_000, 25_000_000, 100_000_000)
RIVALS = ("MPI", "gloo")
YARDSTICK = "memcpy"
NAMES = (*RIVALS, YARDSTICK, "none", "fp16", "bf16", "bit16", "bit8")
GPU_NAMES = ("NCCL", "gloo", YARDSTICK, "none", "bit16", "bit8", "int8")

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


def rank(task: Record) -> Record | None:
    import allreduce_worker

    return allreduce_worker.run(task)


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
