"""The measurements: runs the contenders' jobs in turn, in rounds, and combines their ranks' figures."""

from __future__ import annotations

import sys
import time
from argparse import Namespace
from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import report

from horovod.made_hosts import MadeHosts
from on_hosts import allreduce, jobs, links, training

Record = dict[str, Any]


class WrongResult(Exception):
    """Ranks ended with different bytes, or a sum was wrong."""


# The NMSE of a correct sum lies well below, that of a wrong sum is near 1.
WORST_ERROR = 0.05


@dataclass
class Bench:
    """The hosts, the number of measurements, and the payload rate of cables by (rate, number of hosts)."""

    hosts: MadeHosts
    chosen: Namespace
    link_samples: dict[tuple[str, int], list[float]] = field(default_factory=dict)

    def measure_link(self, count: int) -> None:
        rate = links.payload_rate(self.hosts, count, self.chosen.link_seconds)
        self.link_samples.setdefault((self.hosts.rate_limit, count), []).append(rate)

    def link(self, count: int) -> float:
        """Return bytes per second and direction, measured in this run."""
        return median(self.link_samples[self.hosts.rate_limit, count])

    def link_rows(self) -> list[Record]:
        return [
            {
                "rate": rate,
                "hosts": count,
                "bytes_per_second": median(samples),
                "spread": report.spread(samples),
            }
            for (rate, count), samples in self.link_samples.items()
        ]

    def job(self, count: int, launcher: str, task: Record) -> list[Any]:
        begin = time.monotonic()
        documents = jobs.run(self.hosts, count, launcher, task, self.chosen.limit)
        what = task.get("contender") or ", ".join(task["contenders"])
        said = f"  {what} on {count} hosts: {time.monotonic() - begin:.0f} s"
        print(said, file=sys.stderr, flush=True)
        return documents


def same_everywhere(digests: Iterable[int], what: str) -> None:
    if len(set(digests)) != 1:
        raise WrongResult(f"{what}: the ranks ended with different bytes")


def slowest(samples: list[list[float]]) -> list[float]:
    """Return the slowest rank's figure of each repetition, from the ranks' lists."""
    return [max(together) for together in zip(*samples, strict=True)]


def allreduce_rows(bench: Bench, count: int) -> list[Record]:
    """Measure every contender at every size on `count` hosts, at the present rate; return a record each."""
    chosen = bench.chosen
    groups: dict[str, list[str]] = {}
    for contender in chosen.only:
        groups.setdefault(allreduce.RIVALS.get(contender, "horovodrun"), []).append(contender)
    task = {"part": "allreduce", "sizes": chosen.sizes, "warm_up": 2, "repeats": chosen.repeats}
    found: dict[tuple[int, str], Record] = {}
    launchers = list(groups)
    bench.measure_link(count)
    for number in range(chosen.rounds):
        for place in range(len(launchers)):
            launcher = launchers[(place + number) % len(launchers)]
            documents = bench.job(count, launcher, {**task, "contenders": groups[launcher]})
            for records in zip(*documents, strict=True):
                add_samples(found, records)
        bench.measure_link(count)
    return [finished(bench, count, row) for _, row in sorted(found.items(), key=lambda item: -item[0][0])]


def add_samples(found: dict[tuple[int, str], Record], records: tuple[Record, ...]) -> None:
    """Add one contender's records of all ranks at one size, from one job."""
    first = records[0]
    what = f"{first['contender']}, {first['bytes']} bytes"
    same_everywhere((record["digest"] for record in records), what)
    if not first["nmse"] < WORST_ERROR:
        raise WrongResult(f"{what}: the sum has an NMSE of {first['nmse']:.2g}")
    row = found.setdefault(
        (first["bytes"], first["contender"]),
        {name: first[name] for name in ("bytes", "contender", "nmse")}
        | {"samples": [], "sent": [], "out_of_place_samples": []},
    )
    row["samples"] += slowest([record["seconds"] for record in records])
    row["sent"] += slowest([record["sent"] for record in records])
    row["out_of_place_samples"] += slowest([record["seconds_out_of_place"] for record in records])


def finished(bench: Bench, count: int, row: Record) -> Record:
    needed = allreduce.bytes_needed(row["contender"], row["bytes"] // 4, count)
    seconds, apart = median(row["samples"]), row["out_of_place_samples"]
    return row | {
        "rate": bench.hosts.rate_limit,
        "hosts": count,
        "seconds": seconds,
        "spread": report.spread(row["samples"]),
        "needed": needed,
        "sent": median(row["sent"]),
        "limit": needed / bench.link(count),
        "times_limit": seconds * bench.link(count) / needed,
        "out_of_place": median(apart) / seconds if apart else None,
    }


def training_rows(bench: Bench, count: int, task: Record, contenders: list[str]) -> list[Record]:
    """Measure one training step under every contender; return a record each."""
    samples: dict[str, Record] = {}
    for number in range(bench.chosen.rounds):
        for place in range(len(contenders)):
            contender = contenders[(place + number) % len(contenders)]
            own = {**task, "part": "training", "contender": contender, "steps": bench.chosen.steps}
            documents = bench.job(count, training.launcher_of(contender), own)
            if contender != training.ALONE:
                same_everywhere((document["digest"] for document in documents), contender)
            row = samples.setdefault(contender, {"samples": [], "sent": []})
            row["samples"] += slowest([document["seconds"] for document in documents])
            row["sent"] += slowest([document["sent"] for document in documents])
            row["parameters"] = documents[0]["parameters"]
    return [steps_row(bench, count, task, name, samples) for name in contenders if name in samples]


def wire_seconds(bench: Bench, count: int, parameters: int) -> float:
    """Return the least seconds that float32 gradients take on the cables."""
    return 4 * parameters * 2 * (count - 1) / count / bench.link(count) if count > 1 else 0.0


def steps_row(bench: Bench, count: int, task: Record, name: str, samples: dict[str, Record]) -> Record:
    row, seconds = samples[name], median(samples[name]["samples"])
    return row | {
        "contender": name,
        "model": task["model"],
        "batch": task["batch"],
        "rate": bench.hosts.rate_limit,
        "hosts": count,
        "seconds": seconds,
        "spread": report.spread(row["samples"]),
        "sent": median(row["sent"]),
        "samples_per_second": count * task["batch"] / seconds,
        "wire": wire_seconds(bench, count, row["parameters"]),
    }


def batch_for(bench: Bench, count: int, ratio: float, task: Record) -> int:
    """Return the batch with which computing gradients takes 1/`ratio` of their float32 time on the wire."""

    def alone(batch: int) -> tuple[float, int]:
        own = {**task, "part": "training", "contender": training.ALONE, "batch": batch, "steps": 3}
        documents = bench.job(count, training.launcher_of(training.ALONE), own)
        seconds = median(slowest([document["seconds"] for document in documents]))
        return seconds, documents[0]["parameters"]

    (one, parameters), (two, _) = alone(1), alone(2)
    each = max(two - one, 1e-3)  # the rest, mainly the optimizer's part, does not depend on the batch
    wanted = wire_seconds(bench, count, parameters) / ratio
    return max(1, round(1 + (wanted - one) / each))
