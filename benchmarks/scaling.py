"""Measure samples per second and linearity of native DDP, our compressions under it, and Horovod's API.

    python benchmarks/scaling.py --models resnet50 mnist --processes 1 2 4    # of this host
    python benchmarks/scaling.py --models vgg16 --hosts 2 --rate 1gbit --w-over-c 2.6   # made hosts: as root
    python benchmarks/scaling.py --hosts 2 4 --list                           # what would run
    python benchmarks/scaling.py --shown docs/measured/scaling.json --plots docs

docs/benchmarks.md defines every column.
"""

from __future__ import annotations

import argparse
import os
import sys
from statistics import median

import contenders
import figures
import jobs
import report
import scaling_worker
import tables
import trained_models
from report import Record

BATCHES = {"resnet50": 8, "vgg16": 2, "deeplabv3_resnet101": 2, "transformer": 4, "mnist": 64}


def arguments(words: list[str]) -> argparse.Namespace:
    common = "rounds limit link-seconds out plots list shown quick"
    about = "Scaling of DDP, compressed DDP and Horovod's API."
    parser = report.options(about, common, rounds=5, limit=7200.0)
    option = parser.add_argument
    option("--models", nargs="+", choices=trained_models.MODELS, default=["vgg16"], help="default: vgg16")
    option("--processes", type=int, nargs="+", default=[2], metavar="N", help="of this host (default 2)")
    option("--hosts", type=int, nargs="+", default=[], metavar="N", help="instead: one process on each of N")
    option("--rate", default="1gbit", help="of the hosts' cables (default 1gbit)")
    some = list(contenders.TRAINED)
    both = f"ours, each by both ways (default: {' '.join(some)})"
    option("--compressions", nargs="+", default=some, help=both)
    option("--contenders", nargs="+", default=[], metavar="NAME", help="only these, as --list names them")
    option("--batch", type=int, help="samples per step and process (default: by the model)")
    option("--w-over-c", type=float, metavar="X", help="choose the batch that has this W/C")
    within = "of --w-over-c must W/C be, or nothing is measured (0.3)"
    option("--within", type=float, default=0.3, help=within)
    option("--picture", type=int, metavar="PIXELS", help="side of the pictures (default: by the model)")
    option("--bucket-view", action="store_true", help="all of DDP's with gradient_as_bucket_view=True")
    option("--bucket-mb", type=float, metavar="MB", help="all of DDP's with this bucket_cap_mb (default 25)")
    option("--steps", type=int, default=2, help="steps timed in each visit (default 2)")
    option("--warm-up", type=int, default=2, help="steps off the clock before the first round (default 2)")
    option("--minutes", type=float, default=60.0, help="begin no round that would end later (default 60)")
    chosen = parser.parse_args(words)
    if chosen.quick:
        chosen.rounds, chosen.steps, chosen.link_seconds = 1, 1, 0.2
    chosen.contenders = chosen.contenders or contenders.everyone(chosen.compressions)
    check(parser, chosen)
    return chosen


def check(parser: argparse.ArgumentParser, chosen: argparse.Namespace) -> None:
    """End the program with the reason if a requested job is impossible."""
    counts = [chosen.rounds, chosen.steps, chosen.warm_up, chosen.batch or 1]
    if min(*chosen.processes, *chosen.hosts, *counts) < 1:
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
    shared = ("bucket_view", "bucket_mb", "picture", "rounds", "steps", "warm_up", "minutes", "within")
    planned = []
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
            planned.append(job | {name: getattr(chosen, name) for name in shared})
    return planned


def measure(chosen: argparse.Namespace, document: Record) -> None:
    """Run the plan. Each job's figures are in the document, and in --out's file, as soon as it is done."""
    planned = plan(chosen)
    with jobs.place_of(max(chosen.hosts, default=0), chosen.rate, "scaling.py") as place:
        for task in planned:
            if task["memory"] > report.available_memory():
                lacking = f"{task['memory'] / report.GIGA:.1f} GB, and this machine has less left"
                raise SystemExit(f"scaling.py: {tables.where(task)} need {lacking}: name fewer --contenders")
            document["runs"].append(run_job(place, task, chosen))
            report.write_json(chosen.out, document)
            said = f"{task['model']}, {tables.where(task)}: done"
            print(said, file=sys.stderr, flush=True)


def run_job(place: jobs.Place, task: Record, chosen: argparse.Namespace) -> Record:
    """Return one job's figures; measure the wire before and after it. SystemExit if W/C cannot be reached."""
    count, load, is_here = task["count"], os.getloadavg()[0], task["kind"] == "processes"
    rates = [jobs.payload_rate(place, count, chosen.link_seconds)] if count > 1 else [0.0]
    own = task | {"device": "lo" if is_here else jobs.DEVICE, "bytes_per_second": rates[0]}
    ranks = [count] if is_here else [1] * count
    documents = jobs.run(place, ranks, "horovodrun", __file__, own, chosen.limit)
    first = documents[0]
    if not first["contenders"]:
        raise SystemExit(f"scaling.py: {task['model']}, {tables.where(task)}: {not_near(first, task)}")
    if count > 1:
        rates.append(jobs.payload_rate(place, count, chosen.link_seconds))
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


def main(words: list[str]) -> int:
    if jobs.ran_as_rank(words, scaling_worker.run):
        return 0
    chosen = arguments(words)
    if chosen.list:
        print(tables.plan_text(plan(chosen)))
        return 0
    if chosen.shown:
        documents = [report.read_json(name) for name in chosen.shown]
        document = documents[0] | {"runs": [run for each in documents for run in each["runs"]]}
    else:
        document = {"benchmark": "scaling", "machine": report.machine(), "runs": []}
        measure(chosen, document)
    if chosen.plots:
        import plots

        plots.draw_scaling(document, chosen.plots)
    print(tables.scaling_text(document))
    report.write_json(chosen.out, document)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
