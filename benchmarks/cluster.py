"""Measure allreduce and training between hosts at 1 Gbit/s: Horovod, MPI, gloo and DDP in one run.

    python benchmarks/cluster.py                                    # everything; about half an hour, as root
    python benchmarks/cluster.py --parts allreduce --hosts 2 --sizes 104857600 --only gloo bit8
    python benchmarks/cluster.py --out docs/measured/cluster.json --plots docs
    python benchmarks/cluster.py --shown docs/measured/cluster.json

Makes the hosts out of namespaces (horovod.made_hosts). docs/benchmarks.md defines every column.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

import report
from on_hosts import allreduce, training

from horovod.made_hosts import MadeHosts, why_not

PARTS = ("allreduce", "training", "scaling")
CONTENDERS = (*allreduce.RIVALS, *allreduce.OURS)
RANK_VARIABLES = ("HOROVOD_RANK", "OMPI_COMM_WORLD_RANK", "RANK")  # of horovodrun, mpirun and torch
RATIOS = (5.0, 1.0)  # of float32's time on the wire to computing, W/C


def rank(task_file: str) -> None:
    task = json.loads(Path(task_file).read_text())
    from on_hosts import ranks

    number = next(int(os.environ[name]) for name in RANK_VARIABLES if name in os.environ)
    if task.get("pinned"):
        ranks.pin(number)
    import torch

    torch.set_num_threads(1)
    world = ranks.meet(task["launcher"])
    part = allreduce if task["part"] == "allreduce" else training
    found = part.run(world, task)
    world.close()
    report.write_json(f"{task['results']}/rank-{world.rank}.json", found)


def arguments(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Allreduce and training between hosts made on this machine.")
    option = parser.add_argument
    option("--parts", nargs="+", choices=PARTS, default=list(PARTS), help="what to measure (default: all)")
    option("--hosts", type=int, nargs="+", default=[2, 4], metavar="N", help="numbers of hosts (default 2 4)")
    option("--rates", nargs="+", default=["1gbit"], help="of the cables (default 1gbit); training: the first")
    sizes = [100 << 20, 10 << 20, 1 << 20]
    option("--sizes", type=int, nargs="+", default=sizes, metavar="BYTES", help="of the tensor of a rank")
    option("--only", nargs="+", choices=CONTENDERS, default=list(CONTENDERS), help="contenders of allreduce")
    option("--trained", nargs="+", choices=(*training.RIVALS, *allreduce.OURS), help="contenders of training")
    option("--ratios", type=float, nargs="+", default=list(RATIOS), help="W/C of training (default 5 1)")
    option("--batch", type=int, help="of training, instead of those that --ratios ask for")
    option(
        "--rounds", type=int, default=3, help="jobs of each contender, in turn with the others' (default 3)"
    )
    option("--repeats", type=int, default=3, help="allreduces timed in each job (default 3)")
    option("--steps", type=int, default=2, help="training steps timed in each job (default 2)")
    option("--compute", type=float, default=0.4, help="seconds of an accelerator in scaling (default 0.4)")
    option("--link-seconds", type=float, default=2.0, help="of each measurement of the cables (default 2)")
    option("--limit", type=float, default=600.0, help="seconds after which a job is ended (default 600)")
    option("--out", default="", help="also write the figures to this JSON file")
    option("--plots", default="", help="also draw them as cluster_*.svg, into this folder")
    option("--shown", nargs="+", metavar="FILE", help="measure nothing: show what --out has written")
    option("--quick", action="store_true", help="tiny sizes and models, once: shows that it runs, no more")
    chosen = parser.parse_args(words)
    chosen.trained = chosen.trained or [*training.RIVALS, *allreduce.OURS]
    if chosen.quick:
        chosen.hosts, chosen.sizes, chosen.link_seconds = [2], [1 << 20], 0.2
        chosen.rounds, chosen.repeats, chosen.steps, chosen.compute, chosen.batch = 1, 1, 1, 0.01, 1
    if any(size < 4 or size % 4 for size in chosen.sizes):
        parser.error("--sizes are bytes of float32: multiples of 4, at least 4")
    if min(chosen.hosts) < 2:
        parser.error("--hosts: at least 2, as one host has nobody to send to")
    return chosen


def measure(chosen: argparse.Namespace, document: dict[str, Any]) -> None:
    """Add everything that the options request to the document, on hosts that exist as long as this takes.

    Each figure is in the document, and in the file that --out names, as soon as it is known.
    """
    from on_hosts import measure as measures

    with MadeHosts(max(chosen.hosts), rate=chosen.rates[0]) as hosts:
        bench = measures.Bench(hosts, chosen)

        def done(part: str, found: Any, what: str) -> None:
            document[part] += [found] if part == "training" else found  # training: a list for each batch
            document["links"] = bench.link_rows()
            if chosen.out:
                report.write_json(chosen.out, document)
            print(f"{part}, {what}: done", file=sys.stderr, flush=True)

        small = "-small" if chosen.quick else ""
        for count in sorted({2, *chosen.hosts}):
            bench.measure_link(count)
        if "training" in chosen.parts:
            task = {"model": f"vgg16{small}", "warm_up": 2, "pinned": True}
            asked = [chosen.batch] if chosen.batch else [None] * len(chosen.ratios)
            for batch, ratio in zip(asked, chosen.ratios, strict=False):
                own = {**task, "batch": batch or measures.batch_for(bench, 2, ratio, task)}
                rows = measures.training_rows(bench, 2, own, [training.ALONE, *chosen.trained])
                done("training", rows, f"batch of {own['batch']}")
        if "scaling" in chosen.parts:
            task = {"model": f"transformer{small}", "warm_up": 2, "compute": chosen.compute, "batch": 8}
            done("scaling", measures.training_rows(bench, 1, task, [training.ALONE]), "1 host")
            for count in chosen.hosts:
                done("scaling", measures.training_rows(bench, count, task, chosen.trained), f"{count} hosts")
        if "allreduce" in chosen.parts:
            for rate in chosen.rates:
                hosts.rate(rate)
                for count in chosen.hosts:
                    done("allreduce", measures.allreduce_rows(bench, count), f"{count} hosts, {rate}")


def main(words: list[str]) -> int:
    if words[:1] == ["--rank"]:
        rank(words[1])
        return 0
    chosen = arguments(words)
    if chosen.shown:
        document = joined([json.loads(Path(name).read_text()) for name in chosen.shown])
    else:
        reason = why_not()
        if reason:
            raise SystemExit(f"cluster.py: {reason}")
        document = {"benchmark": "cluster", "machine": report.machine(), "links": []}
        document |= {part: [] for part in PARTS}
        measure(chosen, document)
    publish(document, chosen)
    return 0


def joined(documents: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the figures of several runs as one document, with the machine of the first."""
    first, *others = documents
    for document in others:
        for part in ("links", *PARTS):
            first[part] += document[part]
    return first


def publish(document: dict[str, Any], chosen: argparse.Namespace) -> None:
    """Print the tables; write the plots and the JSON file that the options name."""
    from on_hosts import tables

    if chosen.plots:
        from on_hosts import plots

        plots.draw(document, chosen.plots)
    print(tables.text_of(document))
    if chosen.out:
        report.write_json(chosen.out, document)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
