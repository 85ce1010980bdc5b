"""Runs random fault programs and judges them. As root, on hosts that it makes.

    python test/faults/run_faults.py --seeds 0-299 --resume faults.jsonl
    python test/faults/run_faults.py --replay 17

Each program is a line of JSON in the file: a run that was ended goes on where it was, as seeds with a line
are left out. A replay shows the program and all that its job printed. The exit code is 1 if a program was not
as it should be.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from fault_hosts import FaultHosts
from fault_judge import complaints, last_words
from fault_programs import program_of
from fault_runs import FaultRun, Observation

from horovod.made_hosts import why_not

Record = dict[str, Any]


def record_of(seed: int, hosts: FaultHosts) -> tuple[Record, Observation]:
    """Run a program: what to remember of it, and all that was seen."""
    program = program_of(seed)
    seen = FaultRun(program, hosts).run()
    began = min(seen.struck.values(), default=seen.started)
    return {
        "seed": seed,
        "faults": [fault.kind for fault in program.faults],
        "hosts": program.hosts,
        "complaints": complaints(program, seen),
        "code": seen.code,
        "said": last_words(seen.err),
        "seconds_to_fault": round(began - seen.started, 2),
        "seconds_after_fault": round(seen.ended - began, 2),
        "struck": {number: round(when - began, 3) for number, when in seen.struck.items()},
        "program": program.as_record(),
    }, seen


def run_seeds(seeds: Sequence[int], at_once: int, done: Callable[[Record], None]) -> None:
    """Run programs, several at once on hosts of their own. done: gets each record, one at a time."""
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
        with FaultHosts() as hosts:
            for seed in taken():
                record, _ = record_of(seed, hosts)
                with lock:
                    done(record)

    workers = min(at_once, len(seeds))
    with ThreadPoolExecutor(max(workers, 1)) as pool:
        for worker in [pool.submit(work) for _ in range(workers)]:
            worker.result()


def remembered(file: Path) -> list[Record]:
    """The records in a file; a last line that was not finished is none."""
    found = []
    for line in file.read_text().splitlines() if file.exists() else []:
        try:
            found.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return found


def shown(record: Record) -> str:
    faults = " then ".join(record["faults"])
    where = f"{'+'.join(map(str, record['hosts']))} ranks"
    head = f"seed {record['seed']}: {faults}, {where}, {record['seconds_after_fault']} s after the fault"
    return "\n  ".join([f"{head}: {'wrong' if record['complaints'] else 'right'}", *record["complaints"]])


def replay(seed: int) -> int:
    with FaultHosts() as hosts:
        record, seen = record_of(seed, hosts)
    print(json.dumps(record["program"], indent=1))
    print(f"--- standard output\n{seen.out}--- standard error\n{seen.err}---")
    if seen.processes:
        print("what ran when it had to be ended:", *seen.processes, sep="\n  ")
    print(shown(record), f"exit code {seen.code}; struck at {record['struck']}", sep="\n")
    return int(bool(record["complaints"]))


def seeds_in(text: str) -> list[int]:
    """ "3,7,10-12" """
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=seeds_in, default=range(300), metavar="0-299", help="as 3,7,10-12")
    parser.add_argument("--resume", type=Path, metavar="FILE", help="where results are, and are added")
    parser.add_argument("--at-once", type=int, default=2, metavar="N", help="programs at a time (2)")
    parser.add_argument(
        "--replay", type=int, metavar="SEED", help="run this one and show all that it printed"
    )
    chosen = parser.parse_args(words)
    if reason := why_not():
        parser.error(reason)
    if chosen.replay is not None:
        return replay(chosen.replay)
    records = remembered(chosen.resume) if chosen.resume else []
    wanted = set(chosen.seeds)
    records = [record for record in records if record["seed"] in wanted]
    known = {record["seed"] for record in records}

    def done(record: Record) -> None:
        records.append(record)
        print(shown(record), flush=True)
        if chosen.resume:
            with chosen.resume.open("a") as file:
                file.write(json.dumps(record) + "\n")

    run_seeds(sorted(wanted - known), chosen.at_once, done)
    wrong = sorted(record["seed"] for record in records if record["complaints"])
    print(f"{len(records)} programs, {len(wrong)} wrong{': ' if wrong else ''}{', '.join(map(str, wrong))}")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
