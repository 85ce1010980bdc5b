"""Measure the effect of compression on accuracy: train MNIST with each one, on 2 and 4 ranks.

    python benchmarks/mnist_accuracy.py --out runs/mnist_accuracy.jsonl

Every run is examples/pytorch_mnist_compress.py under horovodrun, which also checks that all ranks end with
bit-identical parameters. --out keeps finished runs, one JSON line each, which are not run again: an
interrupted matrix continues. The table at the end averages over seeds.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from report import table

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


def key(record: dict[str, Any]) -> Run:
    return record["compression"], record["ranks"], record["seed"], record["epoch"]


def finished_runs(out: Path) -> dict[Run, dict[str, Any]]:
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


def train(run: Run, allow_digits: bool, time_limit: float) -> dict[str, Any]:
    """Do one run; return the final record of its log."""
    compression, ranks, seed, epochs = run
    beside = shutil.which("horovodrun", path=str(Path(sys.executable).parent))
    command = [beside or "horovodrun", "-np", str(ranks)]
    command += [sys.executable, str(SCRIPT), "--epochs", str(epochs), "--seed", str(seed), "--no-cuda"]
    command += [] if compression == "none" else [f"--{compression}-allreduce"]
    command += ["--allow-digits"] if allow_digits else []
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log.jsonl"
        ended = subprocess.run(
            [*command, "--log-file", str(log)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=time_limit,
            check=False,
        )
        lines = log.read_text().splitlines() if log.exists() else []
    final = json.loads(lines[-1]) if lines else {}
    if final.get("event") != "final":
        sys.exit(f"{' '.join(command)} ended with {ended.returncode}:\n{ended.stdout}")
    record: dict[str, Any] = final
    return record


def rows(records: list[dict[str, Any]]) -> Iterator[list[str]]:
    """Yield a row per number of ranks and compression, over all seeds."""
    groups: dict[tuple[int, str], list[dict[str, Any]]] = {}
    for record in records:
        groups.setdefault((record["ranks"], record["compression"]), []).append(record)
    for (ranks, compression), group in groups.items():
        accuracies = [100 * record["accuracy"] for record in group]
        # "change" compares with the first requested compression at the same number of ranks.
        first = next(groups[other] for other in groups if other[0] == ranks)
        difference = mean(accuracies) - mean(100 * record["accuracy"] for record in first)
        yield [
            f"{ranks}",
            compression,
            f"{mean(accuracies):.2f}",
            f"{difference:+.2f}",
            f"{stdev(accuracies):.2f}" if len(accuracies) > 1 else "-",
            " ".join(f"{accuracy:.2f}" for accuracy in accuracies),
            f"{1e3 * mean(record['seconds'] for record in group):.1f}",
            "yes" if all(record["identical"] for record in group) else "NO",
        ]


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
    headings = ["ranks", "compression", "mean", "change", "st. dev.", "seeds", "ms/step", "bit-identical"]
    print(table(headings, list(rows(records)), left=2))
    if not all(record["identical"] for record in records):
        sys.exit("some run ended with parameters that differ between ranks")


if __name__ == "__main__":
    main()
