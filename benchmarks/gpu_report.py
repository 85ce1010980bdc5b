"""Run the benchmarks, tests and compute-sanitizer of one GPU, in parts, with one command and no network.

    python3 benchmarks/gpu_report.py --wheels               # with a network: fetch what the other needs
    python3 benchmarks/gpu_report.py                        # on the GPU's machine: build, run parts not done
    python3 benchmarks/gpu_report.py --minutes 9            # the same, as far as it gets in 9 minutes
    python3 benchmarks/gpu_report.py --part codec --again   # one part, whether done or not
    python benchmarks/gpu_report.py --shown FILE            # tables of a report.json; measures nothing

The folder --out keeps report.json, the record of each part that has ended, and report.log, the output of all
parts. docs/measured/gpu.json is such a report.json; docs/benchmarks.md describes its use. Only --shown needs
more than the standard library, because the program starts before anything is installed.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path

import gpu_parts
import gpu_prepared
import report
from gpu_parts import PARTS, ROOT, Part
from report import Record

OUT = ROOT / "build" / "gpu_report"
NOTHING = "Not measured on a GPU yet."
EMULATED = (
    "**Emulated**: that it runs, and that bytes are right, is all that this shows; its times mean nothing."
)
QUICK = "**Tiny sizes** (`--quick`): this shows only that the benchmark runs."
SHOWN = ("GPU", "driver", "CUDA", "torch", "python", "commit")
LAST_LINES = 12  # of a failed part's output


def read_records(out: Path) -> dict[str, Record]:
    return read_report(out / "report.json")


def read_report(file: Path) -> dict[str, Record]:
    return dict(report.read_json(file)) if file.exists() else {}


def to_do(chosen: argparse.Namespace) -> list[Part]:
    done = {} if chosen.again else read_records(chosen.out)
    return [part for part in PARTS if part.name in chosen.part and part.name not in done]


def table(records: dict[str, Record]) -> str:
    cells = []
    for part in PARTS:
        record = records.get(part.name)
        spent = f"{record['seconds']:.0f} s" if record else ""
        cells.append([part.name, part.tells, record["outcome"] if record else "", spent, f"{part.minutes:g}"])
    return report.table(["part", "what it tells", "outcome", "took", "minutes at most"], cells, left=3)


def measure(chosen: argparse.Namespace, python: Path, deadline: float) -> None:
    """Run the parts that are not done, in the table's order; record each as soon as it ends."""
    environment = gpu_prepared.environment_of(python)
    facts = gpu_prepared.facts(python, environment)
    print(report.machine_text(facts), flush=True)
    for number, part in enumerate(to_do(chosen)):
        if number and time.monotonic() + part.minutes * 60 > deadline:
            print(f"{part.name} may take {part.minutes:g} minutes, more than are left: call this again")
            return
        print(f"{part.name}: {part.tells}", flush=True)
        record = gpu_parts.run_part(part, python, environment, chosen.out / "report.log", chosen.quick)
        today = datetime.now(timezone.utc).date().isoformat()
        record |= {"quick": chosen.quick, "date": today, "facts": facts}
        report.write_json(chosen.out / "report.json", read_records(chosen.out) | {part.name: record})
        print(f"{part.name}: {record['outcome']}, {record['seconds']:.0f} s", flush=True)


# The records as Markdown


def section(records: Mapping[str, Record]) -> str:
    """Return Markdown: the missing parts, then every part that ran, in the table's order."""
    if not records:
        return NOTHING
    missing = [f"`{part.name}`" for part in PARTS if part.name not in records]
    texts = [f"Not measured on a GPU yet: {', '.join(missing)}."] if missing else []
    texts += [part_text(part, records[part.name]) for part in PARTS if part.name in records]
    return "\n\n".join(texts)


def part_text(part: Part, record: Record) -> str:
    facts = record["facts"]
    is_emulated = facts["GPU"].startswith("emulated")
    where = report.measured_on({name: facts[name] for name in SHOWN if name in facts})
    texts = [
        f"### On {'an emulated' if is_emulated else 'a'} GPU: {part.name}",
        f"{part.tells[0].upper()}{part.tells[1:]}: {record['outcome']}, {record['seconds']:.0f} s,"
        f" {record['date']}. {where}",
        *([EMULATED] if is_emulated else []),
        *([QUICK] if record["quick"] else []),
        *(tables(record["figures"]) if record["figures"] else []),
    ]
    if record["outcome"].startswith(("failed", "ended")):
        last = record["output"].splitlines()[-LAST_LINES:]
        texts += ["The last that it printed:", "\n".join(["```text", *last, "```"])]
    return "\n\n".join(texts)


def tables(figures: Record) -> list[str]:
    """Return the tables that the program prints of these figures."""
    import allreduce
    import codec_on_gpu
    import training_step

    kind = figures["benchmark"]
    if kind == "tests":
        counts = [f"{figures['passed']} passed", f"{len(figures['failed'])} failed"]
        skipped = "; ".join(sorted(set(figures["skipped"])))
        counts.append(f"{len(figures['skipped'])} skipped" + (f" ({skipped})" if skipped else ""))
        return [f"Tests: {', '.join(counts)}."]
    rows: list[Record] = figures["rows"]
    if kind == "codec on a GPU":
        bucket = codec_on_gpu.bucket_table(figures["bucket"])
        return [codec_on_gpu.table_of(rows), "ResNet-50's gradients as a bucket:", bucket]
    if kind == "training step":
        return [training_step.table_of(rows)]
    stages = allreduce.stage_table(rows)
    conclusions = "\n".join(f"* {line}" for line in allreduce.conclusions(rows))
    return [
        allreduce.gpu_table(rows),
        *(["Stages of one call:", stages] if stages else []),
        *([conclusions] if conclusions else []),
    ]


def arguments(words: list[str]) -> argparse.Namespace:
    parser = report.options("What one GPU can show, in parts, on from where they were.", "quick")
    option = parser.add_argument
    names = [part.name for part in PARTS]
    option("--out", type=Path, default=OUT, metavar="FOLDER", help="of records (default build/gpu_report)")
    option("--part", nargs="+", choices=names, default=names, metavar="NAME", help="only these (see --list)")
    option("--again", action="store_true", help="also what is done already")
    option("--minutes", type=float, default=float("inf"), help="begin no part that may end later, but one")
    option("--installed", action="store_true", help="build nothing: this Python has the package")
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--list", action="store_true", help="print the parts and how they have ended, no more")
    only.add_argument("--wheels", action="store_true", help="fetch what is carried into build/gpu_wheels")
    only.add_argument("--shown", type=Path, metavar="FILE", help="print the tables of a report.json, no more")
    chosen = parser.parse_args(words)
    chosen.out = chosen.out.resolve()
    return chosen


def do_parts(chosen: argparse.Namespace) -> None:
    """Build the package, run the parts, and print the tables with the Python that has the package."""
    deadline = time.monotonic() + chosen.minutes * 60
    chosen.out.mkdir(parents=True, exist_ok=True)
    if to_do(chosen):
        log = chosen.out / "report.log"
        python = Path(sys.executable) if chosen.installed else gpu_prepared.prepare(log)
        measure(chosen, python, deadline)
        subprocess.run([str(python), __file__, "--shown", str(chosen.out / "report.json")], check=True)


def carry_out(chosen: argparse.Namespace) -> int:
    if chosen.wheels:
        size = gpu_prepared.fetch_wheels()
        print(f"{size:.1f} MiB of {gpu_prepared.MOST_MIB:g} in {gpu_prepared.WHEELS}")
        return 0
    if chosen.shown:
        print(section(read_report(chosen.shown)))
        return 0
    if not chosen.list:
        do_parts(chosen)
    records = read_records(chosen.out)
    print(table(records))
    all_done = all(name in records and records[name]["outcome"] == "done" for name in chosen.part)
    return 0 if chosen.list or all_done else 1


def main(words: list[str]) -> int:
    # SIGTERM ends the running part with this program: SystemExit passes through every `finally`.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        return carry_out(arguments(words))
    except gpu_prepared.Unfit as why:
        raise SystemExit(f"gpu_report.py: {why}") from None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
