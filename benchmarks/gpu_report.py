"""Run the benchmarks, tests and compute-sanitizer of one GPU, in parts, with one command and no network.

    python3 benchmarks/gpu_report.py --wheels               # with a network: fetch what the other needs
    python3 benchmarks/gpu_report.py                        # on the GPU's machine: build, run parts not done
    python3 benchmarks/gpu_report.py --minutes 9            # the same, as far as it gets in 9 minutes
    python3 benchmarks/gpu_report.py --part codec --again   # one part, whether done or not
    python benchmarks/gpu_report.py --shown FILE            # tables of a report.json; measures nothing

The folder --out keeps report.json, the record of each part that has ended, and report.log, the output of all
parts. docs/measured/gpu.json is such a report.json; docs/benchmarks.md describes its use.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import time
from datetime import datetime, timezone
from pathlib import Path

import report
from on_gpus import parts, prepared
from on_gpus.parts import PARTS, ROOT, Part, Record

OUT = ROOT / "build" / "gpu_report"


def read_records(out: Path) -> dict[str, Record]:
    return read_report(out / "report.json")


def read_report(file: Path) -> dict[str, Record]:
    found: dict[str, Record] = json.loads(file.read_text()) if file.exists() else {}
    return found


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
    environment = prepared.environment_of(python)
    facts = prepared.facts(python, environment)
    print(report.machine_text(facts), flush=True)
    for number, part in enumerate(to_do(chosen)):
        if number and time.monotonic() + part.minutes * 60 > deadline:
            print(f"{part.name} may take {part.minutes:g} minutes, more than are left: call this again")
            return
        print(f"{part.name}: {part.tells}", flush=True)
        record = parts.run_part(part, python, environment, chosen.out / "report.log", chosen.quick)
        today = datetime.now(timezone.utc).date().isoformat()
        record |= {"quick": chosen.quick, "date": today, "facts": facts}
        report.write_json(str(chosen.out / "report.json"), read_records(chosen.out) | {part.name: record})
        print(f"{part.name}: {record['outcome']}, {record['seconds']:.0f} s", flush=True)


def arguments(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="What one GPU can show, in parts, on from where they were.")
    option = parser.add_argument
    names = [part.name for part in PARTS]
    option("--out", type=Path, default=OUT, metavar="FOLDER", help="of records (default build/gpu_report)")
    option("--part", nargs="+", choices=names, default=names, metavar="NAME", help="only these (see --list)")
    option("--again", action="store_true", help="also what is done already")
    option("--minutes", type=float, default=float("inf"), help="begin no part that may end later, but one")
    option("--installed", action="store_true", help="build nothing: this Python has the package")
    option("--quick", action="store_true", help="tiny sizes: shows that it runs, measures nothing")
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
        python = Path(sys.executable) if chosen.installed else prepared.prepare(chosen.out / "report.log")
        measure(chosen, python, deadline)
        subprocess.run([str(python), __file__, "--shown", str(chosen.out / "report.json")], check=True)


def carry_out(chosen: argparse.Namespace) -> int:
    if chosen.wheels:
        print(f"{prepared.fetch_wheels():.1f} MiB of {prepared.MOST_MIB:g} in {prepared.WHEELS}")
        return 0
    if chosen.shown:
        from on_gpus.section import section

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
    except prepared.Unfit as why:
        raise SystemExit(f"gpu_report.py: {why}") from None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
