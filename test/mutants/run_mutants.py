"""Check that `make test` catches mutants: random changes of one place in the sources. As root.

    python test/mutants/run_mutants.py --count 200 --resume build/mutants.jsonl

A mutant is caught when a test fails that passes without it, or takes much longer. A survey with coverage.py
and gcov records which test files reach each line; the other files cannot notice the mutant and are not run.
The tests most specific to the source come first; after --seconds of them a mutant counts as survived.

Each mutant is a line of JSON: an interrupted run continues. Mutants are drawn from Python and from the files
of the core that the ordinary build compiles, in proportion to the lines that can be changed. The exit code is
1 below --enough.
"""

from __future__ import annotations

import argparse
import difflib
import json
import math
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mutants import Mutation, drawn, is_valid, lines_of_statement, mutated
from workshop import PASSED, ROOT, Survey, Workshop, survey_of

CAUGHT, SURVIVED, UNREACHED, NONE = "caught", "survived", "unreached", "does not build"


def sources_of(tree: Path, survey: Survey) -> dict[str, str]:
    """Return the sources that can be changed: files that the build compiled or Python can import."""
    paths = [*tree.glob("horovod/**/*.py"), *tree.glob("horovod/native/**/*.cc")]
    names = [str(path.relative_to(tree)) for path in paths]
    return {
        name: (tree / name).read_text() for name in names if name.endswith(".py") or name in survey.reached
    }


def tried(
    mutation: Mutation, source: str, workshop: Workshop, survey: Survey, seconds: float
) -> dict[str, Any]:
    """Return the mutant's result; the workshop is unchanged afterwards."""
    began = time.monotonic()
    changed = mutated(mutation, source)
    difference = list(difflib.unified_diff(source.splitlines(), changed.splitlines(), n=0, lineterm=""))[3:]
    record: dict[str, Any] = {**mutation.as_record(), "difference": difference, "end": UNREACHED}
    if not is_valid(mutation, changed):
        return {**record, "end": NONE, "said": "no Python"}
    tests = survey.tests_of(mutation.path, lines_of_statement(mutation.path, source, mutation.line))
    if not tests:
        return record
    path = workshop.tree / mutation.path
    is_built = not mutation.path.endswith(".py")
    path.write_text(changed)
    try:
        if is_built and (why := workshop.build()):
            return {**record, "end": NONE, "said": why[-300:]}
        record |= {"end": SURVIVED, "tests": len(tests), "untried": 0}
        until = time.monotonic() + seconds
        for number, test in enumerate(tests):
            if time.monotonic() > until:
                return {**record, "untried": len(tests) - number}
            code, said = workshop.test(test, 60 + 3 * survey.seconds[test])
            if code not in PASSED:
                return {**record, "end": CAUGHT, "by": test, "code": code, "said": said[-300:]}
        return record
    finally:
        record["seconds"] = round(time.monotonic() - began, 1)
        path.write_text(source)
        if is_built and (why := workshop.build()):
            raise RuntimeError(f"the tree does not build any more: {why}")


def numbered(mutations: Iterator[Mutation], known: dict[int, dict[str, Any]], count: int) -> Iterator[Any]:
    """Yield numbered mutations to try, until `count` have a result that counts."""
    for number, mutation in enumerate(mutations):
        if sum(record["end"] != NONE for record in list(known.values())) >= count:
            return
        if number not in known:
            yield number, mutation


def run(arguments: argparse.Namespace) -> dict[int, dict[str, Any]]:
    build = ROOT / "build" / "mutants"
    survey = survey_of(build, arguments.at_once)
    lines = arguments.resume.read_text().splitlines() if arguments.resume.exists() else []
    known: dict[int, dict[str, Any]] = {record["number"]: record for record in map(json.loads, lines)}
    shops = [Workshop(build / f"tree{number}") for number in range(arguments.at_once)]
    sources = sources_of(shops[0].tree, survey)
    left = numbered(drawn(sources, arguments.seed), known, arguments.count)
    lock = threading.Lock()

    def work(shop: Workshop) -> None:
        while True:
            with lock:
                number, mutation = next(left, (-1, None))
            if mutation is None:
                return
            end = tried(mutation, sources[mutation.path], shop, survey, arguments.seconds)
            record = {"number": number, **end}
            with lock, arguments.resume.open("a") as file:
                known[number] = record
                print(json.dumps(record), file=file, flush=True)
                print(
                    f"{number}: {record['end']}  {mutation.path}:{mutation.line}  {record['difference']}",
                    flush=True,
                )

    threads = [threading.Thread(target=work, args=[shop]) for shop in shops]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return known


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--at-once", type=int, default=2, help="trees that are worked in side by side")
    parser.add_argument(
        "--resume", type=Path, required=True, metavar="FILE", help="a line of JSON for each mutant"
    )
    parser.add_argument("--seconds", type=float, default=math.inf, help="of tests for each mutant")
    parser.add_argument("--enough", type=float, default=0.9, help="the share to be caught")
    arguments = parser.parse_args()
    records = [record for record in run(arguments).values() if record["end"] != NONE]
    caught = sum(record["end"] == CAUGHT for record in records)
    print(f"{caught} of {len(records)} mutants caught ({caught / len(records):.1%})")
    return int(caught < arguments.enough * len(records))


if __name__ == "__main__":
    sys.exit(main())
