"""Measure samples per second and linearity of native DDP, our compressions under it, and Horovod's API.

    python benchmarks/scaling.py --models resnet50 mnist --processes 1 2 4    # of this host
    python benchmarks/scaling.py --models vgg16 --hosts 2 --rate 1gbit --w-over-c 2.6   # made hosts: as root
    python benchmarks/scaling.py --hosts 2 4 --list                           # what would run
    python benchmarks/scaling.py --shown docs/measured/scaling.json --plots docs

docs/benchmarks.md defines every column.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from statistics import median
from typing import Any

import report
import trained_models
from scaled import contenders, figures, places, tables

Record = dict[str, Any]
BATCHES = {"resnet50": 8, "vgg16": 2, "deeplabv3_resnet101": 2, "transformer": 4, "mnist": 64}


def rank(task_file: str) -> None:
    from scaled import worker

    task = json.loads(Path(task_file).read_text())
    found = worker.run(task)
    number = found.pop("rank")
    report.write_json(f"{task['results']}/rank-{number}.json", found)


def arguments(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Scaling of DDP, compressed DDP and Horovod's API.")
    option = parser.add_argument
    option("--models", nargs="+", choices=trained_models.MODELS, default=["vgg16"], help="default: vgg16")
    option("--processes", type=int, nargs="+", default=[2], metavar="N", help="of this host (default 2)")
    option("--hosts", type=int, nargs="+", default=[], metavar="N", help="instead: one process on each of N")
    option("--rate", default="1gbit", help="of the hosts' cables (default 1gbit)")
    some = list(contenders.COMPRESSIONS)
    option(
        "--compressions", nargs="+", default=some, help=f"ours, each by both ways (default: {' '.join(some)})"
    )
    option("--contenders", nargs="+", default=[], metavar="NAME", help="only these, as --list names them")
    option("--batch", type=int, help="samples per step and process (default: by the model)")
    option("--w-over-c", type=float, metavar="X", help="choose the batch that has this W/C")
    option(
        "--within", type=float, default=0.3, help="of --w-over-c must W/C be, or nothing is measured (0.3)"
    )
    option("--picture", type=int, metavar="PIXELS", help="side of the pictures (default: by the model)")
    option("--bucket-view", action="store_true", help="all of DDP's with gradient_as_bucket_view=True")
    option("--bucket-mb", type=float, metavar="MB", help="all of DDP's with this bucket_cap_mb (default 25)")
    option("--rounds", type=int, default=5, help="visits of each contender, in turn (default 5)")
    option("--steps", type=int, default=2, help="steps timed in each visit (default 2)")
    option("--warm-up", type=int, default=2, help="steps off the clock before the first round (default 2)")
    option("--minutes", type=float, default=60.0, help="begin no round that would end later (default 60)")
    option("--limit", type=float, default=7200.0, help="seconds after which a job is ended (default 7200)")
    option("--link-seconds", type=float, default=2.0, help="of each measurement of the wire (default 2)")
    option("--out", default="", help="also write the figures to this JSON file")
    option("--plots", default="", help="also draw them as scaling.svg, into this folder")
    option("--list", action="store_true", help="print what would run, and run nothing")
    option("--shown", nargs="+", metavar="FILE", help="measure nothing: show what --out has written")
    option("--quick", action="store_true", help="tiny models, one round: shows that it runs, no more")
    chosen = parser.parse_args(words)
    if chosen.quick:
        chosen.rounds, chosen.steps, chosen.link_seconds = 1, 1, 0.2
    chosen.contenders = chosen.contenders or contenders.everyone(chosen.compressions)
    check(parser, chosen)
    return chosen


def check(parser: argparse.ArgumentParser, chosen: argparse.Namespace) -> None:
    """End the program with the reason if a requested job is impossible."""
    counts = [
        *chosen.processes,
        *chosen.hosts,
        chosen.rounds,
        chosen.steps,
        chosen.warm_up,
        chosen.batch or 1,
    ]
    if min(counts) < 1:
        parser.error("--processes, --hosts, --rounds, --steps, --warm-up and --batch are at least 1")
    if chosen.bucket_mb is not None and chosen.bucket_mb <= 0:
        parser.error("--bucket-mb is above 0")
    if chosen.batch and chosen.w_over_c:
        parser.error("--batch and --w-over-c: one chooses the batch, the other is it")
    if chosen.w_over_c is not None and chosen.w_over_c <= 0:
        parser.error("--w-over-c is above 0")
    wrong = list(filter(None, map(contenders.why_not, chosen.contenders)))
    if wrong:
        parser.error("; ".join(wrong))


def plan(chosen: argparse.Namespace) -> list[Record]:
    """Return the tasks of the jobs, in the order in which they run."""
    kind = "hosts" if chosen.hosts else "processes"
    jobs = []
    for model in chosen.models:
        size = 4 * trained_models.parameter_count(model, chosen.quick)
        for count in chosen.hosts or chosen.processes:
            names = contenders.in_place(chosen.contenders, kind, count)
            if not names:
                continue
            kept = 3 + sum(map(contenders.copies_kept, names))  # gradients, and parameters twice
            job = {"model": model, "kind": kind, "count": count, "contenders": names, "gradient_bytes": size}
            job |= {"rate": chosen.rate if chosen.hosts else "memory", "memory": count * kept * size}
            job |= {"batch": chosen.batch or (2 if chosen.quick else BATCHES[model]), "small": chosen.quick}
            job["w_over_c"] = chosen.w_over_c if count > 1 else None
            job |= {"bucket_view": chosen.bucket_view, "bucket_mb": chosen.bucket_mb}
            for name in ("picture", "rounds", "steps", "warm_up", "minutes", "within"):
                job[name] = getattr(chosen, name)
            jobs.append(job)
    return jobs


def measure(chosen: argparse.Namespace, document: Record) -> None:
    """Run the plan. Each job's figures are in the document, and in --out's file, as soon as it is done."""
    jobs = plan(chosen)
    with places.opened(max(chosen.hosts, default=0), chosen.rate) as place:
        for task in jobs:
            if task["memory"] > report.available_memory():
                lacking = f"{task['memory'] / report.GIGA:.1f} GB, and this machine has less left"
                raise SystemExit(f"scaling.py: {tables.where(task)} need {lacking}: name fewer --contenders")
            document["runs"].append(run_job(place, task, chosen))
            if chosen.out:
                report.write_json(chosen.out, document)
            said = f"{task['model']}, {tables.where(task)}: done"
            print(said, file=sys.stderr, flush=True)


def run_job(place: places.Place, task: Record, chosen: argparse.Namespace) -> Record:
    """Return one job's figures; measure the wire before and after it. SystemExit if W/C cannot be reached."""
    count, load = task["count"], os.getloadavg()[0]
    rates = [place.payload_rate(count, chosen.link_seconds)] if count > 1 else [0.0]
    own = task | {"device": place.device, "bytes_per_second": rates[0]}
    documents = place.run(count, own, chosen.limit)
    first = documents[0]
    if not first["contenders"]:
        raise SystemExit(f"scaling.py: {task['model']}, {tables.where(task)}: {not_near(first, task)}")
    if count > 1:
        rates.append(place.payload_rate(count, chosen.link_seconds))
    return figures.run_of(documents, own | {"bytes_per_second": median(rates)}) | {"load_before": load}


def not_near(found: Record, task: Record) -> str:
    """Return the message of a job that found no batch for the requested W/C."""
    said = (
        f"no batch has a W/C within {task['within']:g} of {task['w_over_c']:g}; "
        f"the nearest, {found['batch']}, has {found['expected']:.2f}"
    )
    if "suggested" not in found:
        return f"{said}. Try another --rate"
    size, picture = found["suggested"]
    return f"{said}. With --picture {picture} a batch of {size} should have it"


def publish(document: Record, chosen: argparse.Namespace) -> None:
    """Print the tables; write the plots and the JSON file that the options name."""
    if chosen.plots:
        from scaled import plots

        plots.draw(document, chosen.plots)
    print(tables.text_of(document))
    if chosen.out:
        report.write_json(chosen.out, document)


def main(words: list[str]) -> int:
    if words[:1] == ["--rank"]:
        rank(words[1])
        return 0
    chosen = arguments(words)
    if chosen.list:
        print(tables.plan_table(plan(chosen)))
        return 0
    if chosen.shown:
        documents = [json.loads(Path(name).read_text()) for name in chosen.shown]
        document = documents[0] | {"runs": [run for each in documents for run in each["runs"]]}
    else:
        from horovod.made_hosts import why_not

        reason = why_not() if chosen.hosts else ""
        if reason:
            raise SystemExit(f"scaling.py: {reason}")
        document = {"benchmark": "scaling", "machine": report.machine(), "runs": []}
        measure(chosen, document)
    publish(document, chosen)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
