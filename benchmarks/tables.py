"""Arithmetic and tables of cluster.py and scaling.py: from the ranks' times to rates, linearity and W/C."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any

import contenders
import report
from report import Record

LIMIT = 0.05  # the most that may_turn_off may cost, compared with plain DDP
MEBI = 1 << 20
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


# Texts of both


def size_text(size: int) -> str:
    return f"{size // MEBI} MiB" if size % MEBI == 0 else report.size_text(size)


def seconds_text(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else report.time_text(seconds)


def places(kind: str, count: int) -> str:
    """Return text: ("processes", 2) -> "2 processes"; 1 is "1 process"."""
    return f"{count} {kind}" if count > 1 else f"1 {'process' if kind == 'processes' else 'host'}"


def where(row: Record) -> str:
    """Return text: the number of hosts and the rate of their cables, or the number of processes."""
    if "hosts" in row:  # a row of cluster.py
        return f"{places('hosts', row['hosts'])}, {row['rate']}"
    rate = " of one host" if row["kind"] == "processes" else f", {row['rate']}"
    return places(row["kind"], row["count"]) + rate


def matrix(cells: Mapping[tuple[str, int], str], kind: str) -> str:
    """Return a table of cells by contender, down, and by number of devices, across."""
    counts = sorted({count for _, count in cells})
    names = dict.fromkeys(name for name, _ in cells)
    lines = [[name, *(cells.get((name, count), "") for count in counts)] for name in names]
    return report.table(["contender", *(places(kind, count) for count in counts)], lines)


def with_titles(machine: Record, parts: list[tuple[str, str]]) -> str:
    return "\n\n".join([report.measured_on(machine), *(f"**{title}**\n\n{text}" for title, text in parts)])


# cluster.py

LINKS: report.Columns = {
    "cables": where,
    "TCP payload, MB/s": "{bytes_per_second:MB}",
    "spread": "{spread:.1%}",
}
SUMS: report.Columns = {
    "cables": where,
    "size": lambda row: size_text(row["bytes"]),
    "contender": "{contender}",
    "time": "{seconds:time}",
    "spread": "{spread:.0%}",
    "limit": "{limit:time}",
    "x limit": "{times_limit:.2f}",
    "out / in place": lambda row: "" if row.get("out_of_place") is None else f"{row['out_of_place']:.2f}",
    "sent / needed": lambda row: f"{row['sent'] / row['needed']:.2f}",
    "NMSE": "{nmse:.1e}",
}
STEPS: report.Columns = {
    "contender": "{contender}",
    "samples/s": "{samples_per_second:.3g}",
    "step": "{seconds:.2f} s",
    "spread": "{spread:.0%}",
    "MB sent": "{sent:MB}",
    "x DDP": "{times_ddp:.2f}",
    "x DDP fp16": "{times_fp16:.2f}",
}


def computing(rows: list[Record]) -> float:
    """Return the seconds of a step without communication."""
    return next(float(row["seconds"]) for row in rows if row["contender"] == contenders.ALONE)


def training_part(rows: list[Record]) -> tuple[str, str]:
    """Return the title and the table of training steps."""
    first, compute = rows[0], computing(rows)
    title = (
        f"{first['model']}, {first['parameters'] / 1e6:.1f} M parameters, {where(first)}, batch of "
        f"{first['batch']} on each: compute C = {compute:.2f} s, float32 on the wire "
        f"W = {first['wire']:.2f} s, W/C = {first['wire'] / compute:.1f}"
    )
    shown = [dict(row) for row in rows]
    compare(shown, first["hosts"])
    return title, report.table_of(shown, STEPS)


def efficiencies(rows: list[Record]) -> dict[tuple[str, int], float]:
    """Return, by contender and hosts, samples per second over as many times those of one host alone."""
    (alone,) = (row for row in rows if row["contender"] == contenders.ALONE)
    one = alone["samples_per_second"]
    return {
        (row["contender"], row["hosts"]): row["samples_per_second"] / row["hosts"] / one for row in rows
    }


def scaling_part(rows: list[Record]) -> tuple[str, str]:
    """Return the title, and a table of samples per second, with the efficiency in brackets."""
    first, found = rows[0], efficiencies(rows)
    title = (
        f"Scaling of a {first['model']}, {first['parameters'] / 1e6:.1f} M parameters, {first['rate']}: "
        f"samples/s (efficiency); computing is {first['seconds']:.2f} s of waiting, as for an accelerator"
    )
    texts = {
        key: f"{row['samples_per_second']:.1f} ({found[key]:.0%})"
        for key, row in zip(found, rows, strict=True)
    }
    return title, matrix(texts, "hosts")


def cluster_text(document: Record) -> str:
    parts = [("What the cables carry", report.table_of(document["links"], LINKS))]
    if document["allreduce"]:
        sums = report.table_of(document["allreduce"], SUMS, left=3)
        parts.append(("Allreduce of float32 in place, one rank per host", sums))
    parts += [training_part(rows) for rows in document["training"]]
    parts += [scaling_part(document["scaling"])] if document["scaling"] else []
    return with_titles(document["machine"], parts)


# scaling.py

TRAINED: report.Columns = {
    "contender": "{contender}",
    "samples/s": "{samples_per_second:.3g}",
    "linearity": "{linearity:.2f}",
    "x alone": "{times_alone:.2f}",
    "step": lambda row: seconds_text(row["seconds"]),
    "spread": "{spread:.0%}",
    "MB sent": "{sent:MB}",
    "x DDP": "{times_ddp:.2f}",
    "x DDP fp16": "{times_fp16:.2f}",
}
PLAN: report.Columns = {
    "model": "{model}",
    "where": where,
    "batch": lambda job: f"W/C of {job['w_over_c']:g}" if job["w_over_c"] else str(job["batch"]),
    "gradients": "{gradient_bytes:MB} MB",
    "memory": lambda job: f"{job['memory'] / report.GIGA:.1f} GB",
    "steps of each": "{warm_up} + {rounds} x {steps}",
}


def title(run: Record) -> str:
    batch = f"batch of {run['batch']}{' on each' if run['count'] > 1 else ''}"
    said = f"{run['model']}, {run['parameters'] / 1e6:.1f} M parameters, {where(run)}, {batch}"
    if run["bucket_view"]:
        said += ", gradient_as_bucket_view"
    if run["bucket_mb"]:
        said += f", bucket_cap_mb = {run['bucket_mb']:g}"
    if run["compute"] is None or run["count"] == 1:
        return said
    said += f": compute C = {run['compute']:.3g} s, float32 on the wire W = {run['wire']:.3g} s"
    said += f", W/C = {run['ratio']:.2f}{asked(run)}"
    if run["serial_ratio"] in (None, run["ratio"]):  # serial did not run, or serial's step is C
        return said
    return f"{said} (with serial's step as C: {run['serial_ratio']:.2f})"


def asked(run: Record) -> str:
    """Return text: the requested W/C, and whether it is met."""
    if run["w_over_c"] is None:
        return ""
    met = "met" if is_near(run, run["ratio"]) else "NOT MET"
    return f" ({run['w_over_c']:g} ± {run['within']:g} asked: {met})"


def families(runs: list[Record]) -> list[list[Record]]:
    """Return the runs that differ only in the number of devices, in its order."""
    found: dict[tuple[Any, ...], list[Record]] = {}
    for run in sorted(runs, key=lambda run: run["count"]):
        batch = None if run["w_over_c"] else run["batch"]
        key = (run["model"], run["kind"], run["rate"], run["w_over_c"], batch)
        found.setdefault(key, []).append(run)
    return list(found.values())


def family_part(runs: list[Record]) -> tuple[str, str]:
    """Return the title, and a table of samples per second, with the linearity in brackets."""
    first = runs[0]
    across = "one host" if first["kind"] == "processes" else f"hosts, {first['rate']}"
    texts = {
        (row["contender"], run["count"]): f"{row['samples_per_second']:.3g} ({linearity_text(row)})"
        for run in runs
        for row in run["rows"]
    }
    return f"{first['model']}, {across}: samples/s (linearity)", matrix(texts, first["kind"])


def linearity_text(row: Record) -> str:
    return "" if row["linearity"] is None else f"{row['linearity']:.2f}"


def choices(run: Record) -> list[str]:
    """Return lines about contenders that may turn compression off: their choice and its cost beside DDP."""
    said = []
    for row in run["rows"]:
        if row["choice"]:
            said.append(f"{row['contender']}: {row['choice']}")
        if row["contender"].endswith(contenders.MAY_TURN_OFF) and row["times_ddp"] is not None:
            slower = 1 / row["times_ddp"] - 1
            met = "met" if slower <= LIMIT else "NOT MET"
            beside = f"{abs(slower):.1%} {'slower' if slower > 0 else 'faster'} than DDP"
            said.append(f"{row['contender']}: {beside} (at most {LIMIT:.0%} slower asked: {met})")
    return said


def run_part(run: Record) -> tuple[str, str]:
    steps = run["steps"]
    load = f"load of the machine {run['load_before']:.2f} before, {run['load']:.2f} after"
    ends = f"{steps} timed step{'s' * (steps > 1)} of each contender; {load}."
    return title(run), "\n\n".join([report.table_of(run["rows"], TRAINED), *choices(run), ends])


def scaling_text(document: Record) -> str:
    runs = document["runs"]
    parts = [run_part(run) for run in runs] + [family_part(own) for own in families(runs) if len(own) > 1]
    return with_titles(document["machine"], parts)


def plan_text(jobs: list[Record]) -> str:
    """Return the plan: a line for each job, with the bytes and memory known before."""
    said = [report.table_of(jobs, PLAN, left=2)]
    for names in dict.fromkeys(tuple(job["contenders"]) for job in jobs):
        own = dict.fromkeys(where(job) for job in jobs if tuple(job["contenders"]) == names)
        said.append(f"{'; '.join(own)}: {', '.join(repr(name) for name in names)}")
    return "\n\n".join(said)
