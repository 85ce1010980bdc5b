"""Tables of benchmarks/scaling.py: its plan and its figures."""

from __future__ import annotations

from typing import Any

import report

from scaled import contenders, figures

Record = dict[str, Any]
LIMIT = 0.05  # the most that may_turn_off may cost, compared with plain DDP


def places(kind: str, count: int) -> str:
    """Return text: ("processes", 2) -> "2 processes"; 1 is "1 process"."""
    return f"{count} {kind}" if count > 1 else f"1 {'process' if kind == 'processes' else 'host'}"


def where(run: Record) -> str:
    rate = " of one host" if run["kind"] == "processes" else f", {run['rate']}"
    return places(run["kind"], run["count"]) + rate


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
    met = "met" if figures.is_near(run, run["ratio"]) else "NOT MET"
    return f" ({run['w_over_c']:g} ± {run['within']:g} asked: {met})"


def number(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)


def seconds_text(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else report.time_text(seconds)


def run_table(run: Record) -> str:
    """Return a table with a line for each contender."""
    headings = ["contender", "samples/s", "linearity", "x alone", "step", "spread", "MB sent"]
    headings += ["x DDP", "x DDP fp16"]
    lines = [
        [
            row["contender"],
            f"{row['samples_per_second']:.3g}",
            number(row["linearity"], ".2f"),
            number(row["times_alone"], ".2f"),
            seconds_text(row["seconds"]),
            f"{row['spread']:.0%}",
            f"{row['sent'] / report.MEGA:.1f}",
            number(row["times_ddp"], ".2f"),
            number(row["times_fp16"], ".2f"),
        ]
        for row in run["rows"]
    ]
    return report.table(headings, lines)


def family(run: Record) -> tuple[Any, ...]:
    """Return the key of a run's family: its runs differ only in the number of devices."""
    return (
        run["model"],
        run["kind"],
        run["rate"],
        run["w_over_c"],
        None if run["w_over_c"] else run["batch"],
    )


def families(runs: list[Record]) -> list[list[Record]]:
    """Return the runs of each family, in the order of their number of devices."""
    found: dict[tuple[Any, ...], list[Record]] = {}
    for run in sorted(runs, key=lambda run: run["count"]):
        found.setdefault(family(run), []).append(run)
    return list(found.values())


def matrix(runs: list[Record]) -> str:
    """Contenders down, numbers of devices across; a cell is samples per second, and linearity in brackets."""
    cells = {
        (
            row["contender"],
            run["count"],
        ): f"{row['samples_per_second']:.3g} ({number(row['linearity'], '.2f')})"
        for run in runs
        for row in run["rows"]
    }
    counts = [run["count"] for run in runs]
    names = dict.fromkeys(row["contender"] for run in runs for row in run["rows"])
    lines = [[name, *(cells.get((name, count), "") for count in counts)] for name in names]
    return report.table(["contender", *(places(runs[0]["kind"], count) for count in counts)], lines)


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


def run_section(run: Record) -> str:
    parts = [f"**{title(run)}**", run_table(run), *choices(run)]
    steps = run["steps"]
    load = f"load of the machine {run['load_before']:.2f} before, {run['load']:.2f} after"
    parts.append(f"{steps} timed step{'s' * (steps > 1)} of each contender; {load}.")
    return "\n\n".join(parts)


def text_of(document: Record) -> str:
    parts = [f"Measured on: {report.machine_text(document['machine'])}."]
    parts += [run_section(run) for run in document["runs"]]
    for runs in families(document["runs"]):
        if len(runs) > 1:
            first = runs[0]
            across = "one host" if first["kind"] == "processes" else f"hosts, {first['rate']}"
            parts.append(f"**{first['model']}, {across}: samples/s (linearity)**\n\n{matrix(runs)}")
    return "\n\n".join(parts)


def plan_table(jobs: list[Record]) -> str:
    """Return the plan: a line for each job, with the bytes and memory known before."""
    headings = ["model", "where", "batch", "gradients", "memory", "steps of each"]
    lines = [
        [
            job["model"],
            where(job),
            f"W/C of {job['w_over_c']:g}" if job["w_over_c"] else str(job["batch"]),
            f"{job['gradient_bytes'] / report.MEGA:.1f} MB",
            f"{job['memory'] / report.GIGA:.1f} GB",
            f"{job['warm_up']} + {job['rounds']} x {job['steps']}",
        ]
        for job in jobs
    ]
    said = [report.table(headings, lines, left=2)]
    for names in dict.fromkeys(tuple(job["contenders"]) for job in jobs):
        own = dict.fromkeys(where(job) for job in jobs if tuple(job["contenders"]) == names)
        said.append(f"{'; '.join(own)}: {', '.join(repr(name) for name in names)}")
    return "\n\n".join(said)
