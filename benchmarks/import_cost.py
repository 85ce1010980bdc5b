"""Measure the time and memory of `import horovod.torch` beyond `import torch`, over many fresh processes.

    python benchmarks/import_cost.py                 # 21 processes, some seconds each
    python benchmarks/import_cost.py --processes 51 --out import.json

docs/benchmarks.md defines every column.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from itertools import pairwise
from statistics import median

import report
from report import Record

GOALS = {"time": 50.0, "processor time": 50.0, "memory": 30.0}  # at most: ms, ms, MB
CONTENDERS = ("torch", "horovod.torch")
# torch imports an installed horovod's entry point: it is switched off there and run here, as it is our cost.
IMPORTS = """
import json, time
def now():
    pages = int(open("/proc/self/statm").read().split()[1])
    return time.perf_counter() * 1e3, time.process_time() * 1e3, pages * PAGE / 1e6
PAGE = __import__("os").sysconf("SC_PAGE_SIZE")
begin = now()
import torch
between = now()
import horovod.torch_autoload
horovod.torch_autoload.load()
import horovod.torch
print(json.dumps([begin, between, now()]))
"""
COLUMNS: report.Columns = {
    "import": "{import}",
    "adds": "{measure}",
    "median": lambda row: f"{row['median']:.1f} {unit_of(row)}",
    "95 % interval": "{low:.1f} to {high:.1f}",
    "at most": lambda row: "" if row["goal"] is None else f"{row['goal']:g} {unit_of(row)}",
}


def unit_of(row: Record) -> str:
    return "MB" if row["measure"] == "memory" else "ms"


def once() -> dict[str, list[float]]:
    """Return the ms, ms of processor time and MB that each import adds, in a separate process."""
    # An empty value: Python then keeps its compiled files, as pip does when it installs.
    settings = os.environ | {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "PYTHONDONTWRITEBYTECODE": ""}
    command = [sys.executable, "-c", IMPORTS]
    done = subprocess.run(command, env=settings, stdout=subprocess.PIPE, text=True, check=True)
    spans = pairwise(json.loads(done.stdout))
    added = [[after - before for before, after in zip(*span, strict=True)] for span in spans]
    return dict(zip(CONTENDERS, added, strict=True))


def rows_of(rounds: Sequence[dict[str, list[float]]]) -> list[Record]:
    rows: list[Record] = []
    for name in CONTENDERS:
        for number, (measure, goal) in enumerate(GOALS.items()):
            samples = [each[name][number] for each in rounds]
            low, high = report.interval(samples)
            found = {"import": name, "measure": measure, "median": median(samples), "low": low, "high": high}
            rows.append(found | {"goal": goal if name == CONTENDERS[-1] else None, "samples": samples})
    return rows


def conclusion(row: Record) -> str:
    """Return whether the whole interval meets or misses the goal; otherwise the result is open."""
    if row["low"] > row["goal"]:
        return "missed"
    return "met" if row["high"] <= row["goal"] else "undecided: measure longer, or on a machine that idles"


def main(words: list[str]) -> int:
    parser = report.options("Time and memory of import horovod.torch beyond torch's.", "out quick")
    parser.add_argument("--processes", type=int, default=21, help="fresh ones, after a first (default 21)")
    chosen = parser.parse_args(words)
    count = 2 if chosen.quick else chosen.processes
    if count < 1:
        parser.error("--processes is at least 1")
    facts = report.machine()
    print(report.machine_text(facts), flush=True)
    once()  # not measured: it loads files into the page cache and compiles Python's
    rows = rows_of([once() for _ in range(count)])
    print(report.table_of(rows, COLUMNS, left=2))
    for row in rows:
        if row["goal"] is not None:
            print(f"{row['import']}, {row['measure']}: {conclusion(row)}")
    report.write_json(chosen.out, {"benchmark": "import", "machine": facts, "rows": rows})
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
