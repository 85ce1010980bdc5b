"""Measure the engine's overhead: latency of a blocking call, negotiation rounds, processor time of a step.

    python benchmarks/engine.py                # 2 ranks, the 161 gradients of ResNet-50; about half a minute
    python benchmarks/engine.py --np 4 --out engine.json

docs/benchmarks.md defines every column.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

import launched
import report

sys.path.append(str(Path(__file__).resolve().parents[1] / "examples"))


def gradient_sizes() -> list[int]:
    """Return the number of elements of each of ResNet-50's gradients, in the order of a backward pass."""
    import resnet

    return [parameter.numel() for parameter in resnet.build("resnet50").parameters()][::-1]


def tables(document: dict[str, Any]) -> str:
    best = document["latency"][0]["seconds"]
    latency = [
        [
            row["contender"],
            report.time_text(row["seconds"]),
            f"{row['spread']:.0%}",
            f"{row['seconds'] / best:.2f}",
        ]
        for row in document["latency"]
    ]
    steps = [
        [
            "over 100 ms" if step["backward_seconds"] else "back to back",
            f"{step['rounds']:.1f}",
            f"{step['buckets']:.1f}",
            f"{step['steps_with_a_bucket_before_the_end']:.0%}",
            f"{step['cache_hits']:.0f}",
            f"{step['overhead_cpu_ms']:.2f} ms",
            f"{step['collective_cpu_ms']:.1f} ms",
        ]
        for step in document["steps"]
    ]
    headings = ["gradients", "rounds", "buckets", "early", "cache hits", "overhead", "collectives"]
    return "\n\n".join(
        [
            report.table(["4 bytes, blocking", "time", "spread", "x MPI"], latency),
            report.table(headings, steps),
        ]
    )


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Latency and overhead of the engine on this host.")
    option = parser.add_argument
    option("--np", type=int, default=2, metavar="N", help="number of ranks (default 2)")
    option("--rounds", type=int, default=200, help="bursts of 50 blocking calls (default 200)")
    option("--steps", type=int, default=50, help="steps of 161 gradients (default 50)")
    option("--limit", type=float, default=300.0, help="seconds after which the run is ended (default 300)")
    option("--out", default="", help="also write the figures to this JSON file")
    option("--quick", action="store_true", help="2 bursts and 2 steps: shows that it runs, no more")
    chosen = parser.parse_args(words)
    if chosen.quick:
        chosen.rounds = chosen.steps = 2
    if launched.RESULT in os.environ:
        import engine_worker

        engine_worker.run(gradient_sizes(), chosen.rounds, chosen.steps)
        return 0
    facts = report.machine()
    print(f"{chosen.np} ranks. {report.machine_text(facts)}", flush=True)
    document = launched.document_of(launched.horovodrun(chosen.np), __file__, words, chosen.limit, {})
    print(tables(document))
    if chosen.out:
        figures = {"benchmark": "engine", "machine": facts, "ranks": chosen.np} | document
        report.write_json(chosen.out, figures)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
