"""Measure training steps of ResNet-50 and a transformer under every compression: samples/s, cost of sums.

    python benchmarks/training_step.py                            # 2 ranks on the CPU; some minutes
    python benchmarks/training_step.py --device cuda --np 4       # ranks share GPUs if there are fewer
    python benchmarks/training_step.py --models transformer --compressions none bit8 --out step.json

docs/benchmarks.md defines every column.
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any

import launched
import report

MODELS = ("resnet50", "transformer")
COMPRESSIONS = ("none", "fp16", "bf16", "bit16", "bit8", "int8", "int4")
ALONE = "alone"  # each rank alone: the time of a step without communication

Row = dict[str, Any]


def table_of(rows: list[Row]) -> str:
    headings = ["model", "gradients", "batch", "contender", "samples/s", "step", "spread"]
    headings += ["communication", "hidden", "x none", "checks"]
    plain = {row["model"]: row["seconds"] for row in rows if row["contender"] == "none"}
    cells = []
    for row in rows:
        uncompressed = plain.get(row["model"])
        is_alone = row["contender"] == ALONE
        cells.append(
            [
                row["model"],
                f"{row['gradient_bytes'] / report.MEGA:.1f} MB",
                str(row["batch"]),
                row["contender"],
                f"{row['samples_per_second']:.3g}",
                report.time_text(row["seconds"]),
                f"{row['spread']:.0%}",
                "" if is_alone else signed(row["added"]),
                "" if is_alone or row["hidden"] is None else f"{row['hidden']:.0%}",
                "" if is_alone or uncompressed is None else f"{uncompressed / row['seconds']:.2f}",
                "" if is_alone else f"{row['check_seconds'] / row['seconds']:.3%}",
            ]
        )
    return report.table(headings, cells, left=4)


def signed(seconds: float) -> str:
    return ("-" if seconds < 0 else "") + report.time_text(abs(seconds))


def add_communication(rows: list[Row]) -> None:
    """Add the time that communication adds to a step, and the part of collectives that computing hides."""
    alone = {row["model"]: row["seconds"] for row in rows if row["contender"] == ALONE}
    for row in rows:
        row["added"] = row["seconds"] - alone[row["model"]]
        collectives = row["collective_seconds"]
        row["hidden"] = min(1.0, max(0.0, 1 - row["added"] / collectives)) if collectives else None


def arguments(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Training steps under every compression.")
    option = parser.add_argument
    option("--np", type=int, default=2, metavar="N", help="number of ranks on this host (default 2)")
    option("--device", choices=["cpu", "cuda"], default="cpu", help="where to train (default cpu)")
    transports = ["auto", "nccl", "host"]
    option("--transport", choices=transports, default="", help="HOROVOD_GPU_TRANSPORT, with --device cuda")
    option("--models", nargs="+", choices=MODELS, default=list(MODELS), help="what to train (default: both)")
    some = ["none", "bit16", "bit8", "int8"]
    option("--compressions", nargs="+", choices=COMPRESSIONS, default=some, help=f"default: {' '.join(some)}")
    option("--batch", type=int, default=8, help="samples per step and rank (default 8)")
    option("--wait-in-step", action="store_true", help="also without waiting at the end of backward()")
    option("--amp", action="store_true", help="compute in bfloat16 where torch.autocast does")
    option("--steps", type=int, default=2, help="steps timed as one (default 2)")
    option("--rounds", type=int, default=7, help="timings of each contender, in turn (default 7)")
    option("--limit", type=float, default=3600.0, help="seconds after which the run is ended (default 3600)")
    option("--out", default="", help="also write the figures to this JSON file")
    option("--quick", action="store_true", help="tiny models, one round: shows that it runs, no more")
    chosen = parser.parse_args(words)
    if chosen.quick:
        chosen.batch, chosen.steps, chosen.rounds = 2, 1, 1
    if min(chosen.np, chosen.batch, chosen.steps, chosen.rounds) < 1:
        parser.error("--np, --batch, --steps and --rounds are at least 1")
    if chosen.transport and chosen.device == "cpu":
        parser.error("--transport goes with --device cuda")
    return chosen


def main(words: list[str]) -> int:
    chosen = arguments(words)
    if launched.RESULT in os.environ:
        import training_step_worker

        training_step_worker.run(chosen, os.environ[launched.RESULT])
        return 0
    if chosen.device == "cuda":
        from on_gpus.place import why_no_gpu

        why = why_no_gpu()
        if why:
            raise SystemExit(f"training_step.py: --device cuda has no GPU to train on: {why}")
    facts = report.machine()
    print(f"{chosen.np} ranks, contenders in turn; the slowest rank, median of {chosen.rounds} rounds;")
    print("communication = what it adds to the step of ranks that train each alone; hidden = part of the")
    print("time in collectives that adds nothing; x none = steps per second over those without compression;")
    print("checks = thread time of checks that nobody changes gradients while they are reduced, of a step's.")
    print(report.machine_text(facts), flush=True)
    settings = {"HOROVOD_GPU_TRANSPORT": chosen.transport} if chosen.transport else {}
    launcher = launched.horovodrun(chosen.np)
    document = launched.document_of(launcher, __file__, words, chosen.limit, settings)
    add_communication(document["rows"])
    print(report.machine_text(document["facts"]))
    print(table_of(document["rows"]))
    if chosen.out:
        about = {"benchmark": "training step", "machine": facts, "settings": vars(chosen)}
        report.write_json(chosen.out, about | document)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
