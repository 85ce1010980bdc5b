"""Start labs in tests, with a script that starts fast, and with horovodrun's launcher."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import launching

# Takes part in the lab without PyTorch, whose import takes seconds; its arguments choose its behaviour.
SCRIPT = """
import argparse, json, os, sys, time

parser = argparse.ArgumentParser()
for name, kind in {"epochs": int, "seed": int, "log-file": str, "pause": float}.items():
    parser.add_argument(f"--{name}", type=kind, default=0.0)
for way in ("fail", "lie", "forget"):
    parser.add_argument(f"--{way}", nargs="*", default=[], help="in runs of this many ranks and seed, as 2,1")
args = parser.parse_args()
ranks = int(os.environ.get("HOROVOD_SIZE", 1))
me = f"{ranks},{args.seed}"
if os.environ.get("HOROVOD_RANK", "0") == "0":
    facts = {"dataset": "d", "compression": os.environ.get("HOROVOD_COMPRESSION", "none")}
    facts |= {"ranks": 7 if me in args.lie else ranks, "seed": args.seed}
    with open(args.log_file, "w", buffering=1) as log:
        def write(event, epoch, **values):
            print(json.dumps({"event": event, **facts, "epoch": epoch, **values}), file=log)
        for epoch in range(1, args.epochs + 1):
            for step in range(1, 4):
                time.sleep(args.pause)
                times = {"seconds": 0.1 * step / ranks, "wait_seconds": 0.01 * (ranks > 1)}
                write("step", epoch, step=step, steps=3, loss=1 / step, **times)
            write("epoch", epoch, loss=0.5, accuracy=0.9)
        if me not in args.forget:
            write("final", args.epochs, checksum="c", identical=True, bytes_sent=10)
if me in args.fail:
    print("the data is gone")  # on every rank: who fails first ends the others
    sys.exit(3)
"""


def write_script(folder: Path) -> Path:
    script = folder / "train.py"
    script.write_text(SCRIPT)
    return script


def start(folder: Path, *words: str, mark: str = "lab", before: Sequence[str] = ()) -> subprocess.Popen[str]:
    """Start a lab in `folder`. before: the words of a command that starts it."""
    return subprocess.Popen(
        [*before, sys.executable, "-m", "horovod.lab", *words],
        cwd=folder,
        env=launching.environment(mark),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def done(folder: Path, *words: str, code: int = 0, limit: float = 280) -> str:
    """Return the output of a lab that runs to its end."""
    process = start(folder, *words)
    try:
        said, _ = process.communicate(timeout=limit)
    finally:
        process.kill()
    assert process.returncode == code, said
    return said


def logs(out: Path) -> dict[str, list[dict[str, Any]]]:
    return {
        path.parent.name: [json.loads(line) for line in path.read_text().splitlines()]
        for path in sorted(out.glob("runs/*/log.jsonl"))
    }
