"""Run random programs of failure and judge them. As root, on hosts that it makes.

    python test/failures/run_failures.py --seeds 0-299 --resume fixed.jsonl
    python test/failures/run_failures.py --kind elastic --seeds 0-99
    python test/failures/run_failures.py --kind soak --seeds 1 --events 200 --minutes 20
    python test/failures/run_failures.py --replay 17

A fixed job should end at once and give the reason. Workers of an elastic job die at chosen points, and the
others train on. A soak is one long elastic job whose workers and hosts are struck. Each program is a line of
JSON in the file: an interrupted run continues, because programs with a line are left out. A replay shows a
program, and everything that its job printed. The exit code is 1 if a job was not right.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from failure_judge import complaints, last_words, recoveries
from failure_places import Place, loopback, made
from failure_programs import POINTS, Program, elastic_program, fixed_program, soak_program
from failure_runner import Seen, run
from survival import notes as judged

from horovod.made_hosts import why_not

Record = dict[str, Any]
# Workers start all the time, and importing torch's compiler takes half of the processor time.
LEAN_TORCH = Path(__file__).resolve().parents[1] / "lean_torch"


@dataclass(frozen=True)
class Series:
    """The source of programs of a kind. events, seconds: of a soak. on_loopback: no made hosts."""

    kind: str = "fixed"
    events: int = 200
    seconds: float = 1200
    on_loopback: bool = False
    keep: Path | None = None

    def program_of(self, seed: int) -> Program:
        if self.kind == "soak":
            return soak_program(seed, self.events, self.seconds)
        return fixed_program(seed) if self.kind == "fixed" else elastic_program(seed)

    def place(self) -> AbstractContextManager[Place]:
        """Return the hosts of jobs; elastic jobs need no made hosts, as their workers strike themselves."""
        if self.on_loopback or self.kind == "elastic":
            return loopback()
        return made(2 if self.kind == "fixed" else 3)

    def record_of(self, seed: int, place: Place) -> tuple[Record, Seen]:
        """Run a program: return its record, and all observations."""
        program = self.program_of(seed)
        seen = run(program, place, self.keep)
        record = {
            "kind": self.kind,
            "seed": seed,
            "hosts": program.hosts,
            "complaints": complaints(program, seen),
            "code": seen.code,
            "said": last_words(seen.err),
            "program": program.as_record(),
        }
        return record | (_of_a_soak(seen) if self.kind == "soak" else _of_events(program, seen)), seen


def _of_events(program: Program, seen: Seen) -> Record:
    began = min(seen.struck.values(), default=seen.started)
    return {
        "events": [f"{event.kind} in {event.moment.phase}" for event in program.events],
        "seconds_to_event": round(began - seen.started, 2),
        "seconds_after_event": round(seen.ended - began, 2),
        "struck": {number: round(when - began, 3) for number, when in seen.struck.items()},
        "recoveries": recoveries(seen) if program.kind == "elastic" else {},
    }


def _of_a_soak(seen: Seen) -> Record:
    notes = seen.notes.all()
    lives = {
        worker: max((note.get("resets", 0) for note in own), default=0)
        for worker, own in seen.notes.by_worker.items()
    }
    oldest = max(lives, key=lambda worker: lives[worker], default="")
    ends = [note["held"] for note in seen.notes.by_worker.get(oldest, ()) if note["what"] == "epoch"]
    return {
        "events": seen.happened,
        "kinds": Counter(event.split()[1] for event in seen.happened),
        "workers": len(seen.notes.by_worker),
        "worlds": len({note["world"] for note in notes if note["what"] == "begins"}),
        "epochs": judged.epochs(notes),
        "steps": max((note["step"] for note in notes if note["what"] == "step"), default=0),
        "longest_pauses": [round(pause, 2) for pause in judged.pauses(notes)[-5:]],
        "most_resets_of_a_process": lives.get(oldest, 0),
        "it_held": [ends[0], ends[len(ends) // 2], ends[-1]] if ends else [],
        "others_held": {who: [held[0], held[-1]] for who, held in seen.held.items()},
    }


def run_seeds(series: Series, seeds: Sequence[int], at_once: int, done: Callable[[Record], None]) -> None:
    """Run programs, several at once in separate places. done: receives each record, one at a time."""
    left = iter(seeds)
    lock = threading.Lock()

    def taken() -> Iterator[int]:
        while True:
            with lock:
                seed = next(left, None)
            if seed is None:
                return
            yield seed

    def work() -> None:
        with series.place() as place:
            for seed in taken():
                record, _ = series.record_of(seed, place)
                with lock:
                    done(record)

    workers = min(at_once, len(seeds))
    with ThreadPoolExecutor(max(workers, 1)) as pool:
        for worker in [pool.submit(work) for _ in range(workers)]:
            worker.result()


def remembered(file: Path) -> list[Record]:
    """Return the records in a file; an incomplete last line is ignored."""
    found = []
    for line in file.read_text().splitlines() if file.exists() else []:
        try:
            found.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return found


def shown(record: Record) -> str:
    if record["kind"] == "soak":
        figures = {name: record[name] for name in list(record)[list(record).index("kinds") :]}
        head = f"seed {record['seed']}: {len(record['events'])} events, {json.dumps(figures)}"
    else:
        where = f"{'+'.join(map(str, record['hosts']))} ranks"
        after = f"{record['seconds_after_event']} s after the event"
        head = f"seed {record['seed']}: {' then '.join(record['events'])}, {where}, {after}"
    return "\n  ".join([f"{head}: {'wrong' if record['complaints'] else 'right'}", *record["complaints"]])


def summary(records: Sequence[Record]) -> str:
    """Return a summary of elastic jobs: median and longest recovery, by the point at which workers died."""
    times: dict[str, list[float]] = {}
    for record in records:
        for number, seconds in record.get("recoveries", {}).items():
            point = record["program"]["events"][int(number)]["moment"]["phase"]
            times.setdefault(point, []).append(seconds or float("inf"))
    every = [seconds for one in times.values() for seconds in one]
    return "".join(
        f"{point}: {len(own)} deaths, training went on after {statistics.median(own):.2f} s, at most "
        f"{max(own):.2f} s\n"
        for point, own in [(point, times[point]) for point in POINTS if point in times]
        + ([("all", every)] if every else [])
    )


def replay(series: Series, seed: int) -> int:
    with series.place() as place:
        record, seen = series.record_of(seed, place)
    print(json.dumps(record["program"], indent=1))
    print(f"--- standard output\n{seen.out}--- standard error\n{seen.err}---")
    if seen.processes:
        print("what ran when it had to be ended:", *seen.processes, sep="\n  ")
    print(shown(record), f"exit code {seen.code}; {record.get('struck', record['events'])}", sep="\n")
    return int(bool(record["complaints"]))


def seeds_in(text: str) -> list[int]:
    """Parse "3,7,10-12"."""
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


def options(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kind", choices=("fixed", "elastic", "soak"), default="fixed")
    parser.add_argument("--seeds", type=seeds_in, default=range(300), metavar="0-299", help="as 3,7,10-12")
    parser.add_argument("--resume", type=Path, metavar="FILE", help="where results are, and are added")
    parser.add_argument("--at-once", type=int, metavar="N", help="programs at a time: 2 fixed ones, else 1")
    parser.add_argument(
        "--replay", type=int, metavar="SEED", help="run this one and show all that it printed"
    )
    parser.add_argument("--events", type=int, default=200, help="of a soak (200)")
    parser.add_argument("--minutes", type=float, default=20, help="for all of a soak's events (20)")
    parser.add_argument(
        "--loopback", action="store_true", help="a soak's hosts are names of this machine: no root"
    )
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="for all that a job wrote")
    chosen = parser.parse_args(words)
    reason = why_not()
    if reason and not (chosen.kind == "elastic" or (chosen.kind == "soak" and chosen.loopback)):
        parser.error(f"{reason}; --kind elastic and soak --loopback need no made hosts")
    return chosen


def main(words: Sequence[str]) -> int:
    chosen = options(words)
    os.environ["PYTHONPATH"] = os.pathsep.join([str(LEAN_TORCH), os.environ.get("PYTHONPATH", "")])
    series = Series(chosen.kind, chosen.events, 60 * chosen.minutes, chosen.loopback, chosen.keep)
    if chosen.replay is not None:
        return replay(series, chosen.replay)
    wanted = set(chosen.seeds)
    records = [
        record
        for record in (remembered(chosen.resume) if chosen.resume else [])
        if record["seed"] in wanted and record["kind"] == series.kind
    ]

    def done(record: Record) -> None:
        records.append(record)
        print(shown(record), flush=True)
        if chosen.resume:
            with chosen.resume.open("a") as file:
                file.write(json.dumps(record) + "\n")

    at_once = chosen.at_once or (2 if series.kind == "fixed" else 1)
    run_seeds(series, sorted(wanted - {record["seed"] for record in records}), at_once, done)
    print(summary(records), end="")
    wrong = sorted(record["seed"] for record in records if record["complaints"])
    print(f"{len(records)} programs, {len(wrong)} wrong{': ' if wrong else ''}{', '.join(map(str, wrong))}")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
