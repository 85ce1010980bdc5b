"""Arithmetic of cluster.py and scaling.py: from the ranks' times to rates, linearity and W/C."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any

import contenders
import report
from report import Record

PICTURE_STEP = 16  # pixels


class WrongResult(Exception):
    """Ranks ended with different parameters or bytes, or a sum was wrong."""


def slowest(samples: Iterable[Sequence[float]]) -> list[float]:
    """Return the slowest rank's figure of each repetition, from the ranks' lists."""
    return [max(together) for together in zip(*samples, strict=True)]


def typical(samples: list[float], sent: list[float]) -> Record:
    """Return the part of all rows: the median of seconds, their spread, and the median of bytes sent."""
    about = {"samples": samples, "seconds": median(samples), "spread": report.spread(samples)}
    return about | {"sent": median(sent)}


def same_everywhere(digests: Iterable[int], what: str, ends: str) -> None:
    if len(set(digests)) != 1:
        raise WrongResult(f"{what}: the ranks ended with different {ends}")


def wire_seconds(parameters: int, count: int, bytes_per_second: float) -> float:
    """Return W: the least seconds of float32 gradients on the wire, 2(n-1)/n of them from each of n."""
    return 4 * parameters * 2 * (count - 1) / count / bytes_per_second if bytes_per_second else 0.0


def linearity(rate: float, alone: float, count: int) -> float:
    """Return samples per second of `count` devices over `count` times those of one."""
    return rate / alone / count


def batch_for(seconds: list[float], unit: int, wire: float, ratio: float) -> tuple[int, float]:
    """Return the batch whose W/C is nearest to `ratio`, and that W/C.

    `seconds` are C at batches of `unit` and of 2 `unit`; C is taken as linear in the batch, which is a
    multiple of `unit`.
    """
    once = 2 * seconds[0] - seconds[1]
    each = max(seconds[1] - seconds[0], 1e-6)
    near = max(1, int((wire / ratio - once) / each))
    count, found = min(
        ((count, wire / max(once + each * count, 1e-9)) for count in (near, near + 1)),
        key=lambda pair: abs(pair[1] - ratio),
    )
    return count * unit, found


def picture_for(seconds: list[float], wire: float, ratio: float, picture: int) -> tuple[int, int]:
    """Return a batch, and a side of pictures near `picture`, whose W/C would be about `ratio`.

    `seconds` are C at batches of 1 and 2 with `picture`. The time of a sample is proportional to its pixels.
    """
    once = 2 * seconds[0] - seconds[1]
    each = max(seconds[1] - seconds[0], 1e-6)
    pixels = max(wire / ratio - once, 0.0) / each  # of all samples, in units of a sample with `picture`
    size = max(1, round(pixels))
    return size, max(PICTURE_STEP, round(picture * (pixels / size) ** 0.5 / PICTURE_STEP) * PICTURE_STEP)


def is_near(task: Record, found: float | None) -> bool:
    """Return whether a W/C is near the requested one, if one was requested."""
    asked: float | None = task["w_over_c"]
    return asked is None or (found is not None and abs(found - asked) <= task["within"])


def run_of(documents: list[Record], task: Record) -> Record:
    """Return the figures of one job of scaling.py: the task's, W and C, and a row for each contender.

    `documents` are the processes', in rank order. Raises WrongResult.
    """
    first, count = documents[0], int(task["count"])
    names = list(first["contenders"])
    rows = [row_of(name, [document["contenders"][name] for document in documents], task) for name in names]
    for row in rows:
        workers = count if row["contender"] != contenders.SERIAL else 1
        row["choice"] = first["choices"].get(row["contender"], "")
        row["samples_per_second"] = workers * first["batch"] / row["seconds"]
    compare(rows, count)
    steps = {row["contender"]: row["seconds"] for row in rows}
    serial = steps.get(contenders.SERIAL)
    compute = steps.get(contenders.ALONE, serial)
    wire = wire_seconds(first["parameters"], count, task["bytes_per_second"])
    asked = ("kind", "count", "rate", "model", "w_over_c", "within", "bytes_per_second")
    about: Record = {name: task[name] for name in (*asked, "bucket_view", "bucket_mb")}
    about |= {name: first[name] for name in ("batch", "parameters", "load")}
    about |= {"steps": len(rows[0]["samples"]), "wire": wire, "compute": compute}
    about |= {"ratio": wire / compute if compute else None, "serial_ratio": wire / serial if serial else None}
    return about | {"rows": rows}


def row_of(name: str, visits: list[Record], task: Record) -> Record:
    """Return a contender's row: the slowest process' time of each step, and the median."""
    if contenders.trains_in_all(name) and name != contenders.ALONE:
        what = f"{name}, {task['model']}, {task['count']} {task['kind']}"
        for digests in zip(*(visit["digests"] for visit in visits), strict=True):
            same_everywhere(digests, what, "parameters")
    samples = slowest(visit["seconds"] for visit in visits if visit["seconds"])
    return {"contender": name} | typical(samples, slowest(visit["sent"] for visit in visits))


def compare(rows: list[Record], count: int) -> None:
    """Add to each row its linearity, and the ratio of its rate to alone's, DDP's, and DDP's with fp16."""
    rates: dict[str, Any] = {row["contender"]: row["samples_per_second"] for row in rows}
    compared = {"times_alone": contenders.ALONE, "times_ddp": "DDP", "times_fp16": "DDP fp16"}
    one = rates.get(contenders.SERIAL)
    for row in rows:
        own = row["samples_per_second"]
        used = 1 if row["contender"] == contenders.SERIAL else count
        row["linearity"] = linearity(own, one, used) if one else None
        row |= {key: own / rates[other] if other in rates else None for key, other in compared.items()}
