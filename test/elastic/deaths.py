"""Elastic jobs in which workers are killed at chosen points: what they should come to, and what they did."""

from __future__ import annotations

import dataclasses
import itertools
import json
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from launching import horovodrun

RANK_PROGRAM = Path(__file__).with_name("elastic_rank.py")
RANKS = 4
POINTS = ("negotiation", "bulk", "step", "commit", "idle", "reset")
SAMPLES = 192  # of an epoch, as elastic_rank.py has it
DETERMINISTIC = {"HOROVOD_DETERMINISTIC": "1"}
LONG = 5.0  # seconds that a recovery takes for a reason only


@dataclass(frozen=True)
class Death:
    """Of the worker that began as this rank, at this point of the step after so many."""

    rank: int
    point: str
    step: int


@dataclass(frozen=True)
class Task:
    """What elastic_rank.py does."""

    folder: str
    deaths: tuple[Death, ...] = ()
    epochs: int = 3
    commit_every: int = 3
    pause: float = 0.05  # seconds before each step in which nothing happens
    compression: str = "bit8"
    resume: str = ""  # what a worker of another job kept when it began

    def written(self) -> str:
        path = Path(self.folder) / "task.json"
        path.write_text(json.dumps(dataclasses.asdict(self)))
        return str(path)


@dataclass
class Seen:
    """How a job ended, and what its workers wrote, in the order in which it happened."""

    code: int
    err: str
    notes: list[dict[str, Any]] = field(default_factory=list)

    def of(self, what: str) -> list[dict[str, Any]]:
        return [note for note in self.notes if note["what"] == what]


def program(number: int) -> tuple[Death, ...]:
    """Program 0, 1, ...: every rank dies at every point, then again, at other steps.

    A death in another's reset takes two: of the next rank in a step, then of this one as it recovers. A
    commit is made after every third step, so what dies there dies at such a one.
    """
    rank, point = number % RANKS, POINTS[number // RANKS % len(POINTS)]
    step = 4 + 3 * (number // (RANKS * len(POINTS))) % 9
    if point == "commit":
        return (Death(rank, point, 3 * (step // 3 + 1)),)
    if point == "reset":
        return (Death((rank + 1) % RANKS, "step", step), Death(rank, point, 3 * (step // 3)))
    return (Death(rank, point, step),)


def run(task: Task, ranks: int = RANKS, elastic: bool = True, limit: float = 90, **variables: str) -> Seen:
    """The job, each worker on a "host" of its own: one that fails takes its whole host along."""
    hosts = ",".join(f"127.0.0.{number + 1}:1" for number in range(ranks))
    words = ["--launcher", "tcp", "-np", str(ranks), *(["--min-np", "1", "-H", hosts] if elastic else [])]
    command = (sys.executable, str(RANK_PROGRAM), task.written())
    done = horovodrun(*words, *command, limit=limit, **DETERMINISTIC, **variables)
    return Seen(done.returncode, done.stderr, sorted(_notes(Path(task.folder)), key=lambda note: note["at"]))


def _notes(folder: Path) -> Iterator[dict[str, Any]]:
    for path in folder.glob("worker-*.jsonl"):
        for line in path.read_text().splitlines():
            yield json.loads(line)


def recovery(seen: Seen) -> float | None:
    """Seconds from the last death to the first step that the others finished together; None for none."""
    last = max((note["at"] for note in seen.of("dies")), default=None)
    died = {note["pid"] for note in seen.of("dies")}
    size = RANKS - len(died)
    later = [
        note["at"]
        for note in seen.of("step")
        if last is not None and note["at"] > last and note["size"] == size
    ]
    return min(later) - last if later and last is not None else None


def complaints(task: Task, seen: Seen) -> list[str]:
    """What is not as it should be, without the undisturbed job."""
    found = []
    if seen.code != 0:
        found.append(f"exit code {seen.code}: {seen.err[-2000:]}")
    dead = {death.rank for death in task.deaths}
    died = {note["start_rank"] for note in seen.of("dies")}
    if died != dead:
        found.append(f"ranks {sorted(died)} died where {sorted(dead)} should have")
    ends = seen.of("ends")
    if {note["start_rank"] for note in ends} != set(range(RANKS)) - dead:
        found.append(f"the end was reached by those that began as {[note['start_rank'] for note in ends]}")
    if len({(note["digest"], note["step"], note["size"]) for note in ends}) > 1:
        found.append(f"survivors differ: {ends}")
    if len({note["pid"] for note in seen.notes}) != RANKS:
        found.append("survivors did not go on in their own processes")
    if task.deaths and recovery(seen) is None:
        found.append("no step was finished after the last death")
    return found + unaccounted(seen)


def unaccounted(seen: Seen) -> list[str]:
    """Samples that an epoch lost. What was rolled back does not count: a step's last time does."""
    final: dict[tuple[int, int], list[dict[str, Any]]] = {}
    steps = sorted(seen.of("step"), key=lambda note: note["at"])
    for size_steps in steps:
        final.setdefault((size_steps["epoch"], size_steps["step"]), []).append(size_steps)
    trained: dict[int, set[int]] = {}
    for (epoch, _), notes in final.items():
        last_size = notes[-1]["size"]
        together = {note["rank"]: note for note in notes if note["size"] == last_size}
        for note in together.values():
            trained.setdefault(epoch, set()).update(note["samples"])
    return [
        f"epoch {epoch} lost {SAMPLES - len(samples)} samples"
        for epoch, samples in trained.items()
        if len(samples) != SAMPLES
    ]


def beside_an_undisturbed_job(task: Task, seen: Seen, folder: Path) -> list[str]:
    """The same bits as a job of the survivors' size that goes on from where they did?"""
    ends, began = seen.of("ends"), seen.of("begins")
    if not ends or not began:
        return []
    last = max((note for note in began if note["rank"] == 0), key=lambda note: note["at"])
    folder.mkdir(exist_ok=True)
    kept = str(Path(task.folder) / last["kept"])
    twin = dataclasses.replace(task, folder=str(folder), deaths=(), resume=kept, pause=0.0)
    undisturbed = run(twin, ranks=ends[0]["size"], elastic=False)
    digests = {note["digest"] for note in undisturbed.of("ends")}
    if undisturbed.code != 0 or digests != {ends[0]["digest"]}:
        return [
            f"undisturbed it ends with {digests} (code {undisturbed.code}), here with {ends[0]['digest']}"
        ]
    return []


def judged(number: int, folder: Path) -> dict[str, Any]:
    """Run a program beside its undisturbed twin: what to remember of it."""
    job = folder / f"program-{number}"
    job.mkdir(parents=True, exist_ok=True)
    task = Task(str(job), program(number))
    seen = run(task)
    found = complaints(task, seen) or beside_an_undisturbed_job(task, seen, job / "undisturbed")
    return {
        "number": number,
        "deaths": [dataclasses.asdict(death) for death in task.deaths],
        "recovery": recovery(seen),
        "complaints": found,
        "err": seen.err if found else "",
    }


def summary(records: Sequence[Mapping[str, Any]]) -> str:
    """Median and longest recovery, by the point at which the last worker died."""
    lines = []
    for point, group in itertools.groupby(
        sorted(records, key=lambda record: POINTS.index(record["deaths"][-1]["point"])),
        key=lambda record: record["deaths"][-1]["point"],
    ):
        times = [record["recovery"] for record in group if record["recovery"] is not None]
        said = f"{statistics.median(times):.2f} s, at most {max(times):.2f} s" if times else "never"
        lines.append(f"{point}: {len(times)} deaths, training went on after {said}")
    all_times = [record["recovery"] for record in records if record["recovery"] is not None]
    if all_times:
        lines.append(
            f"all: {len(all_times)}, {statistics.median(all_times):.2f} s, at most {max(all_times):.2f} s"
        )
    return "\n".join(lines)
