"""Check that the lab never reports noise as a benefit: run labs while a busy loop starts and stops.

    python benchmarks/lab_under_load.py --labs 20      # half an hour of two cores

Each lab compares bit8 with none between two ranks of this host, which exchange 10 KB through shared memory in
each step. Compression can save no time there, so "paid" is wrong. --out keeps finished labs, which are not
run again. The exit code is 1 if a result was wrong. test/single/lab/test_lab_under_load.py simulates 1000
labs.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

import jobs

from horovod.lab.logs import read
from horovod.lab.report.comparison import Conclusion, Pair, pairs, saved
from horovod.lab.results import table

ROOT = Path(__file__).resolve().parents[1]
LONGEST = 8.0  # seconds of a busy or a quiet period
OPTIONS = ["--np", "2", "--compression", "none", "bit8", "--epochs", "10", "--seeds", "3"]
SCRIPT = ["--script", "my_train.py", "--", "--width", "512"]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--labs", type=int, default=20, help="how many")
    parser.add_argument("--first", type=int, default=1, help="number of the first")
    parser.add_argument("--out", type=Path, default=Path("lab-under-load"))
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    (script,) = re.findall(
        r"^```python\n(.*?)^```", (ROOT / "docs" / "lab.md").read_text(), re.DOTALL | re.MULTILINE
    )
    (given.out / "my_train.py").write_text(script)
    print("| lab | others, % | less time | interval | conclusion |\n|---:|---|---:|---|---|")
    found = []
    for number in range(given.first, given.first + given.labs):
        out = given.out / f"lab-{number:02}"
        if not (out / "report.md").exists():
            with jobs.busy_loop(0, LONGEST, number):
                do(given.out, out.name)
        found.append(judged(out))
        print(row(number, found[-1]), flush=True)
    wrong = sum(pair.conclusion is Conclusion.PAID for pair in found)
    by_means = sum(by_means_it_paid(pair) for pair in found)
    print(f"\npaid: {wrong} of {len(found)} labs. Of means alone, {by_means} show more than 5 % less time.")
    return 1 if wrong else 0


def do(folder: Path, name: str) -> None:
    words = [sys.executable, "-m", "horovod.lab", *OPTIONS, "--out", name, *SCRIPT]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{name} failed with exit code {done.returncode}:\n{done.stdout}{done.stderr}")


def judged(out: Path) -> Pair:
    """Return the pair of runs that the lab's report compares."""
    folders = [path for path in sorted((out / "runs").iterdir()) if "~" not in path.name]
    (pair,) = pairs(table([read(path) for path in folders]))
    return pair


def by_means_it_paid(pair: Pair) -> bool:
    return pair.compressed.training_seconds.mean < 0.95 * pair.plain.training_seconds.mean


def row(number: int, pair: Pair) -> str:
    shares = [f"{100 * run.load.during:.0f}" for each in (pair.plain, pair.compressed) for run in each.runs]
    low, high = (max(-999.0, 100 * saved(end)) for end in (pair.time.low, pair.time.high))
    compared = f"{low:.0f} to {high:.0f} %, {pair.time.seeds} seeds"
    interval = compared if pair.time.seeds > 1 else f"{pair.time.seeds} seeds"
    means = 1 - pair.compressed.training_seconds.mean / pair.plain.training_seconds.mean
    return f"| {number} | {' '.join(shares)} | {100 * means:.0f} % | {interval} | {pair.conclusion.value} |"


if __name__ == "__main__":
    sys.exit(main())
