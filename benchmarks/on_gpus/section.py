"""A section of Markdown about figures measured on a GPU, from gpu_report.py's records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import report
import training_step

from on_gpus import allreduce, codec
from on_gpus.parts import PARTS, Part, Record

NOTHING = "Not measured on a GPU yet."
EMULATED = (
    "**Emulated**: that it runs, and that bytes are right, is all that this shows; its times mean nothing."
)
QUICK = "**Tiny sizes**, those of `--quick`: that it runs is all that this shows."
SHOWN = ("GPU", "driver", "CUDA", "torch", "python", "commit")
LAST_LINES = 12  # of a failed part's output


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
    where = report.machine_text({name: facts[name] for name in SHOWN if name in facts})
    texts = [
        f"### On {'an emulated' if is_emulated else 'a'} GPU: {part.name}",
        f"{part.tells[0].upper()}{part.tells[1:]}: {record['outcome']}, {record['seconds']:.0f} s,"
        f" {record['date']}. Measured on: {where}.",
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
    kind = figures["benchmark"]
    if kind == "tests":
        counts = [f"{figures['passed']} passed", f"{len(figures['failed'])} failed"]
        skipped = "; ".join(sorted(set(figures["skipped"])))
        counts.append(f"{len(figures['skipped'])} skipped" + (f" ({skipped})" if skipped else ""))
        return [f"Tests: {', '.join(counts)}."]
    rows: list[dict[str, Any]] = figures["rows"]
    if kind == "codec on a GPU":
        return [
            codec.table_of(rows),
            "ResNet-50's gradients as a bucket:",
            codec.bucket_table(figures["bucket"]),
        ]
    if kind == "training step":
        return [training_step.table_of(rows)]
    stages = allreduce.stage_table(rows)
    conclusions = [f"* {line}" for line in allreduce.conclusions(rows)]
    texts = [allreduce.table_of(rows), *(["Stages of one call:", stages] if stages else [])]
    return [*texts, *(["\n".join(conclusions)] if conclusions else [])]
