"""Logs of runs as scripts write them, for tests that corrupt or compare them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from horovod.lab import folders, load
from horovod.lab.runs import Plan

Record = dict[str, Any]
QUIET = load.Load(0.0, 0.01, 0.0)


def plan(ranks: int = 2, compression: str = "bit8", seed: int = 1, **more: Any) -> Plan:
    return Plan("train.py", ranks, "none" if ranks == 1 else compression, seed, **{"epochs": 2, **more})


def records(of: Plan, steps: int = 3, seconds: float = 0.5, bytes_sent: int = 1200) -> list[Record]:
    """A valid log; every step, epoch and run has different numbers."""
    facts = {"dataset": "d", "compression": of.compression, "ranks": of.ranks, "seed": of.seed}
    found: list[Record] = []
    for epoch in range(1, of.epochs + 1):
        for step in range(1, steps + 1):
            number = (epoch - 1) * steps + step
            times = {"seconds": seconds + 0.01 * number, "wait_seconds": 0.001 * number}
            place = {"epoch": epoch, "step": step, "steps": steps}
            found.append({"event": "step", **facts, **place, **times, "loss": 2.0 / number + 0.1 * of.seed})
        tested = {"loss": 0.5 / epoch, "accuracy": 0.9 + 0.01 * epoch + 0.001 * of.seed}
        found.append({"event": "epoch", **facts, "epoch": epoch, **tested})
    ending = {"checksum": "c0ffee", "identical": True}
    if of.ranks > 1:
        ending |= {"bytes_sent": bytes_sent}
    return [*found, {"event": "final", **facts, "epoch": of.epochs, **ending}]


def written(out: Path, of: Plan, found: list[Record], others: load.Load = QUIET) -> Path:
    """Create the folder of a run with this log."""
    folder = folders.prepare(out, of)
    (folder / folders.LOG).write_text("".join(json.dumps(record) + "\n" for record in found))
    (folder / folders.LOAD).write_text(load.to_json(others))
    return folder
