"""benchmarks/codec.py --device cuda: the kernels' speed beside the GPU's own copies of as many bytes."""

from __future__ import annotations

import argparse
from statistics import median
from typing import Any

import report

from on_gpus.codec_cases import Case, Operation, Tensors, most_copied
from on_gpus.device import Gpu

SIZES_MB = (16.0, 64.0, 256.0, 1024.0)
# Part of the copy's speed, from LARGE bytes of elements on.
WANTED = {"encode": 0.85, "decode": 0.85, "reduce 4 to codes": 0.80}
WANTED_CODECS = ("bit8/128", "int8/128")
LARGE = 256 * report.MEGA
WANTED_BUCKET = 1.3  # limit of the time, over that of one tensor of as many bytes
BURST_BYTES, MOST_CALLS = 1 << 30, 20

Record = dict[str, Any]


def measure(gpu: Gpu, operations: list[Operation], rounds: int, most_calls: int) -> None:
    """Time every operation and right after it its copy, once per round, in a rotating order.

    The first round is a warm-up and does not count.
    """
    for number in range(rounds + 1):
        shift = number % len(operations)
        for operation in operations[shift:] + operations[:shift]:
            calls = max(1, min(most_calls, BURST_BYTES // max(operation.nbytes, 1)))
            own, copy = gpu.seconds(operation.run, calls), gpu.seconds(operation.copy, calls)
            if number:
                operation.seconds.append(own)
                operation.copy_seconds.append(copy)


def record(operation: Operation, codec: str, size: int, tensors: int) -> Record:
    seconds, copy = median(operation.seconds), median(operation.copy_seconds)
    wanted = WANTED.get(operation.name) if codec in WANTED_CODECS and size >= LARGE and tensors == 1 else None
    return {
        "codec": codec,
        "operation": operation.name,
        "bytes": size,
        "tensors": tensors,
        "moved": operation.nbytes,
        "seconds": seconds,
        "spread": report.spread(operation.seconds),
        "gb_per_s": operation.nbytes / seconds / report.GIGA,
        "copy_gb_per_s": operation.nbytes / copy / report.GIGA,
        "copy_spread": report.spread(operation.copy_seconds),
        "versus_copy": copy / seconds,
        "wanted": wanted,
    }


def rows_of(gpu: Gpu, count_lists: list[list[int]], chosen: argparse.Namespace) -> list[Record]:
    """Return records of each codec on each list of tensors; the lists are timed together, round by round."""
    layouts = [Tensors(gpu, counts, chosen.dtype, chosen.seed) for counts in count_lists]
    longest = max(map(most_copied, layouts))
    copy_from, copy_to = gpu.allocate(longest), gpu.allocate(longest)
    rows = []
    for codec in chosen.codecs:
        sets = [Case(tensors, codec).operations(copy_from, copy_to) for tensors in layouts]
        everything = [operation for operations in sets for operation in operations]
        measure(gpu, everything, chosen.rounds, 1 if chosen.quick else MOST_CALLS)
        for tensors, operations in zip(layouts, sets, strict=True):
            size = sum(tensors.counts) * tensors.numpy_dtype.itemsize
            rows += [record(operation, codec, size, len(tensors.counts)) for operation in operations]
    return rows


def bucket_counts(quick: bool) -> list[int]:
    """Return the number of elements of ResNet-50's 161 gradients; `quick` shortens each of them."""
    from engine import gradient_sizes

    return [max(1, count // 5000) for count in gradient_sizes()] if quick else gradient_sizes()


def table_of(rows: list[Record]) -> str:
    headings = ["size", "codec", "operation", "time", "spread", "GB/s", "copy", "spread", "/ copy", "wanted"]
    cells = []
    for row in rows:
        cells.append(
            [
                report.size_text(row["bytes"]),
                row["codec"],
                row["operation"],
                report.time_text(row["seconds"]),
                f"{row['spread']:.0%}",
                f"{row['gb_per_s']:.0f}",
                f"{row['copy_gb_per_s']:.0f}",
                f"{row['copy_spread']:.0%}",
                f"{row['versus_copy']:.2f}",
                "" if row["wanted"] is None else f"{row['wanted']:.2f}",
            ]
        )
    return report.table(headings, cells, left=3)


def bucket_table(rows: list[Record]) -> str:
    """Return rows of a list of tensors beside the rows of one tensor with as many elements."""
    one = {(row["codec"], row["operation"]): row for row in rows if row["tensors"] == 1}
    cells = []
    for row in rows:
        if row["tensors"] > 1:
            whole = one[row["codec"], row["operation"]]
            cells.append(
                [
                    row["codec"],
                    row["operation"],
                    report.time_text(row["seconds"]),
                    f"{row['spread']:.0%}",
                    report.time_text(whole["seconds"]),
                    f"{row['seconds'] / whole['seconds']:.2f}",
                    f"{WANTED_BUCKET:.2f}",
                ]
            )
    count = max(row["tensors"] for row in rows)
    headings = ["codec", "operation", f"{count} tensors", "spread", "one tensor", "times as long", "at most"]
    return report.table(headings, cells, left=2)


def main(chosen: argparse.Namespace) -> int:
    gpu = Gpu("codec.py", 0)
    facts = report.machine() | gpu.facts()
    print(f"{chosen.dtype} N(0,1), median of {chosen.rounds} rounds by the GPU's own clock.")
    print("All bytes are compared with the CPU codec's before anything is timed. GB/s counts what is read")
    print("and written; copy is one inside the GPU's memory of as many bytes, right after each kernel;")
    print("/ copy = its time over the kernel's; wanted = what that should be at least.")
    print(report.machine_text(facts), flush=True)
    size = 4 if chosen.dtype == "float32" else 2
    rows: list[Record] = []
    for megabytes in chosen.size_mb:
        found = rows_of(gpu, [[int(megabytes * report.MEGA) // size]], chosen)
        print(table_of(found), flush=True)
        rows += found
    counts = bucket_counts(chosen.quick)
    bucket = rows_of(gpu, [counts, [sum(counts)]], chosen)
    whole = report.size_text(sum(counts) * size)
    print(f"\nThe gradients of ResNet-50, {whole}, as a bucket and as one tensor")
    print(bucket_table(bucket))
    after = gpu.facts()
    print(f"\nAfterwards: {report.machine_text(after)}")
    if chosen.out:
        settings = {"rounds": chosen.rounds, "seed": chosen.seed, "dtype": chosen.dtype}
        about = {"benchmark": "codec on a GPU", "machine": facts, "afterwards": after, "settings": settings}
        report.write_json(chosen.out, about | {"rows": rows, "bucket": bucket})
    return 0
