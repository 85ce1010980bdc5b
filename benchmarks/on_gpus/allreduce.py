"""benchmarks/allreduce.py --device cuda: the allreduce of tensors on GPUs, over NCCL and through the host."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import report
import torch

from on_gpus import place

SLOWEST_RATIO = 1.3  # the whole pipeline over its slowest stage, at most
COMPRESSED_RATIO = 1 / 3  # bit8 over uncompressed, through the host, at most
JUDGED = {"codec": "bit8", "bytes": 100_000_000, "ranks": 4}
STAGES = ("encode", "copy to host", "reduce", "copy back", "decode")

Row = dict[str, Any]


def transports(chosen: argparse.Namespace, ranks: int) -> list[str]:
    """Return the contenders, with NCCL only if every rank has its own GPU, as NCCL requires."""
    if chosen.transports:
        return list(chosen.transports)
    has_own = torch.cuda.is_available() and torch.cuda.device_count() >= ranks
    return ["nccl", "host"] if has_own else ["host"]


def words_for(words: list[str], chosen: argparse.Namespace, ranks: int) -> list[str]:
    """Return the ranks' command line, without NCCL if ranks share a GPU or torch has no NCCL."""
    has_own = torch.cuda.is_available() and torch.cuda.device_count() >= ranks
    has_nccl = has_own and torch.distributed.is_nccl_available()
    only = [name for name in chosen.only if name != "NCCL" or has_nccl]
    return [*words, "--only", *only]


def table_of(rows: list[Row]) -> str:
    headings = ["ranks", "transport", "size", "contender", "in place", "spread", "algbw", "/ none", "NMSE"]
    in_place = [row for row in rows if row["mode"] == "in_place"]
    plain = {key(row): row["seconds"] for row in in_place if row["contender"] == "none"}
    cells = []
    for row in in_place:
        uncompressed = plain.get(key(row))
        cells.append(
            [
                str(row["ranks"]),
                row["transport"],
                report.size_text(row["bytes"]),
                row["contender"],
                report.time_text(row["seconds"]),
                f"{row['spread']:.0%}",
                f"{row['algbw_gb_per_s']:.3g}",
                "" if uncompressed is None else f"{row['seconds'] / uncompressed:.2f}",
                f"{row['nmse']:.1e}",
            ]
        )
    return report.table(headings, cells, left=4)


def key(row: Row) -> tuple[int, str, int]:
    return row["ranks"], row["transport"], row["bytes"]


def stage_table(rows: list[Row]) -> str:
    """Return a table of the stages of allreduces through the host, and the whole over the slowest stage."""
    cells = []
    for row in rows:
        stages = row["stages"]
        if row["mode"] == "in_place" and stages:
            slowest = max(STAGES, key=lambda stage: float(stages[stage]))
            times = [report.time_text(stages[stage]) for stage in (*STAGES, "whole")]
            ratio = stages["whole"] / stages[slowest]
            about = [str(row["ranks"]), report.size_text(row["bytes"]), row["contender"]]
            cells.append([*about, *times, slowest, f"{ratio:.2f}"])
    headings = ["ranks", "size", "contender", *STAGES, "whole", "slowest", "whole / slowest"]
    return report.table(headings, cells, left=3) if cells else ""


def conclusions(rows: list[Row]) -> list[str]:
    """Return whether compression through the host meets its goals, as far as this run measured it."""
    there = {
        row["contender"]: row
        for row in rows
        if (row["transport"], row["mode"]) == ("host", "in_place")
        and (row["ranks"], row["bytes"]) == (JUDGED["ranks"], JUDGED["bytes"])
    }
    if not {"none", JUDGED["codec"]} <= there.keys():
        return []
    codec = there[str(JUDGED["codec"])]
    ratio = codec["seconds"] / there["none"]["seconds"]
    said = [f"bit8 over none, 4 ranks, 100 MB, through the host: {ratio:.2f}; wanted {COMPRESSED_RATIO:.2f}"]
    if codec["stages"]:
        slowest = max(codec["stages"][stage] for stage in STAGES)
        said.append(f"its pipeline over its slowest stage: {codec['stages']['whole'] / slowest:.2f}")
        said[-1] += f"; wanted {SLOWEST_RATIO:.2f}"
    return said


def main(chosen: argparse.Namespace, words: list[str], launch: Callable[..., dict[str, Any]]) -> int:
    """Run the benchmark. `launch` is allreduce.py's function that runs the ranks."""
    why = place.why_no_gpu()
    if why:
        raise SystemExit(f"allreduce.py: --device cuda has no GPU to measure: {why}")
    facts = report.machine()
    print("Allreduce of N(0,1) float32 on GPUs, contenders interleaved; time = slowest rank, median, until")
    print("the GPU is done; algbw = bytes per rank / time in GB/s; / none = multiple of the uncompressed")
    print("time by the same transport, HOROVOD_GPU_TRANSPORT's; NCCL and gloo are torch.distributed's.")
    print(report.machine_text(facts), flush=True)
    rows: list[Row] = []
    runs = []
    for ranks in chosen.np:
        for transport in transports(chosen, ranks):
            settings = {"HOROVOD_GPU_TRANSPORT": transport}
            document = launch(ranks, words_for(words, chosen, ranks), chosen.limit, settings)
            found = [row | {"transport": transport} for row in document["rows"]]
            rows += found
            runs.append({"ranks": ranks, "transport": transport} | document["facts"])
            print(f"\n{ranks} ranks; {report.machine_text(document['facts'])}")
            print(table_of(found), flush=True)
            stages = stage_table(found)
            if stages:
                print("\nStages of the way through the host, of one call, the slowest rank's")
                print(stages, flush=True)
    for line in conclusions(rows):
        print(line)
    if chosen.out:
        figures = {"benchmark": "allreduce on GPUs", "machine": facts, "runs": runs, "rows": rows}
        report.write_json(chosen.out, figures)
    return 0
