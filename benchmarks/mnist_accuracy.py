"""Measure the effect of compression on accuracy: train MNIST with each one, on 2 and 4 ranks.

    python benchmarks/mnist_accuracy.py --out runs/mnist_accuracy.jsonl

Every run is examples/pytorch_mnist_compress.py under horovodrun, which also checks that all ranks end with
bit-identical parameters. --out keeps finished runs, one JSON line each, which are not run again: an
interrupted matrix continues. The table at the end averages over seeds.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from itertools import product
from pathlib import Path
from statistics import mean, stdev

import report
from report import Record

ROOT = Path(__file__).resolve().parents[1]
SCRIPT = ROOT / "examples" / "pytorch_mnist_compress.py"
COMPRESSIONS = ["none", "bit16", "bit8"]
Run = tuple[str, int, int, int]  # compression, ranks, seed, epochs


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Accuracy on MNIST by compression and number of ranks.")
    parser.add_argument("--out", type=Path, default=ROOT / "runs" / "mnist_accuracy.jsonl")
    parser.add_argument("--compressions", nargs="+", default=COMPRESSIONS, choices=[*COMPRESSIONS, "fp16"])
    parser.add_argument("--ranks", nargs="+", type=int, default=[2, 4])
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--allow-digits", action="store_true", help="try it without MNIST; proves nothing")
    parser.add_argument("--time-limit", type=float, default=900, help="seconds for one run")
    return parser.parse_args()


def key(record: Record) -> Run:
    return record["compression"], record["ranks"], record["seed"], record["epoch"]


def finished_runs(out: Path) -> dict[Run, Record]:
    """Return the records in `out`, without a line that an interruption cut short."""
    records = {}
    for line in out.read_text().splitlines() if out.exists() else []:
        try:
            record = json.loads(line)
        except json.JSONDecodeError:
            print(f"{out}: skipping a line that is no JSON: {line[:60]}", file=sys.stderr)
            continue
        records[key(record)] = record
    return records


def train(run: Run, allow_digits: bool, time_limit: float) -> Record:
    """Do one run; return the final record of its log."""
    compression, ranks, seed, epochs = run
    command = [sys.executable, "-m", "horovod.runner", "-np", str(ranks)]
    command += [sys.executable, str(SCRIPT), "--epochs", str(epochs), "--seed", str(seed), "--no-cuda"]
    command += [] if compression == "none" else [f"--{compression}-allreduce"]
    command += ["--allow-digits"] if allow_digits else []
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log.jsonl"
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        ended = subprocess.run([*command, "--log-file", str(log)], timeout=time_limit, check=False, **pipes)
        lines = log.read_text().splitlines() if log.exists() else []
    final = json.loads(lines[-1]) if lines else {}
    if final.get("event") != "final":
        sys.exit(f"{' '.join(command)} ended with {ended.returncode}:\n{ended.stdout}")
    return dict(final)


COLUMNS: report.Columns = {
    "ranks": "{ranks}",
    "compression": "{compression}",
    "mean": "{mean:.2f}",
    "change": "{change:+.2f}",
    "st. dev.": lambda row: f"{stdev(row['accuracies']):.2f}" if len(row["accuracies"]) > 1 else "-",
    "seeds": lambda row: " ".join(f"{accuracy:.2f}" for accuracy in row["accuracies"]),
    "ms/step": "{milliseconds:.1f}",
    "bit-identical": lambda row: "yes" if row["identical"] else "NO",
}


def rows_of(records: list[Record]) -> list[Record]:
    """Return a row per number of ranks and compression, over all seeds.

    "change" compares with the first requested compression at the same number of ranks.
    """
    groups: dict[tuple[int, str], list[Record]] = {}
    for record in records:
        groups.setdefault((record["ranks"], record["compression"]), []).append(record)
    rows: list[Record] = []
    first: dict[int, float] = {}
    for (ranks, compression), group in groups.items():
        row: Record = {"ranks": ranks, "compression": compression}
        row["identical"] = all(record["identical"] for record in group)
        row["accuracies"] = [100 * record["accuracy"] for record in group]
        row["mean"] = mean(row["accuracies"])
        row["change"] = row["mean"] - first.setdefault(ranks, row["mean"])
        rows.append(row | {"milliseconds": 1e3 * mean(record["seconds"] for record in group)})
    return rows


def main() -> None:
    args = parse_arguments()
    args.out.parent.mkdir(parents=True, exist_ok=True)
    done = finished_runs(args.out)
    wanted: list[Run] = [
        (compression, ranks, seed, args.epochs)
        for ranks, compression, seed in product(args.ranks, args.compressions, args.seeds)
    ]
    for number, run in enumerate(wanted, start=1):
        if run in done:
            continue
        done[run] = train(run, args.allow_digits, args.time_limit)
        with args.out.open("a") as stream:
            stream.write(json.dumps(done[run]) + "\n")
        compression, ranks, seed, _ = run
        accuracy = f"{100 * done[run]['accuracy']:.2f} %"
        print(f"{number}/{len(wanted)}: {compression}, {ranks} ranks, seed {seed}: {accuracy}", flush=True)
    records = [done[run] for run in wanted]
    datasets = " and ".join(sorted({record["dataset"] for record in records}))
    print(f"\nTest accuracy in % on {datasets} after {args.epochs} epochs, {len(args.seeds)} seeds:\n")
    print(report.table_of(rows_of(records), COLUMNS, left=2))
    if not all(record["identical"] for record in records):
        sys.exit("some run ended with parameters that differ between ranks")


if __name__ == "__main__":
    main()
