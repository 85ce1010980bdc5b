"""Runs random training scripts and checks that no rank hangs, ranks agree, and one process computes the same.

    python test/single/support/random_scripts.py --seed 17 --ranks 3    one script, with all details
    python test/single/support/random_scripts.py --seeds 0-199          many, one line for each failure

random_scripts_program.py draws the scripts; random_scripts_rank.py is one rank. Ranks are threads here, and
processes in test/parallel/ranks/test_random_scripts.py.
"""

from __future__ import annotations

import argparse
import collections
import importlib
import os
import threading
import time

import torch
from random_scripts_program import Program, drawn, shown
from random_scripts_rank import Outcome, Script, ended
from random_scripts_twin import Twin

import horovod.torch as hvd
from horovod import _native as native
from horovod.common import jobs

__all__ = [
    "DEADLINE", "HANGS", "fault_of", "hanging", "import_all", "in_threads", "outcome_of", "ranks_of",
    "report",
]  # fmt: skip

DEADLINE = 60.0  # seconds; a script takes about 0.1 s
GRACE = 5.0  # seconds for other ranks to fail like the first


HANGS, WRAPPING = "it hangs", "wrapping"
# Traits with which all ranks may end with one error that says what to do; other programs must succeed.
MAY_BE_REFUSED = {"amp without waiting", "equal names"}


def ranks_of(seed: int) -> int:
    return 2 + seed % 3


def in_threads(program: Program, deadline: float = DEADLINE) -> list[Outcome]:
    """Run a program with threads as ranks; return the outcome of each."""
    import_all()
    worlds = native.local_worlds(program.ranks)
    members = [jobs.Job(lambda settings, ranks, world=world: world) for world in worlds]  # type: ignore[misc]
    outcomes: dict[int, Outcome] = {}
    scripts: dict[int, Script] = {}
    has_ended, may_leave = threading.Condition(), threading.Event()

    def run(rank: int) -> None:
        with members[rank].entered():
            outcome = outcome_of(program, rank, scripts)
            with has_ended:
                outcomes.setdefault(rank, outcome)
                has_ended.notify()
            may_leave.wait()  # a rank that leaves would end a hang of others
            hvd.shutdown()

    threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(program.ranks)]
    for thread in threads:
        thread.start()
    with has_ended:
        _wait(has_ended, outcomes, program.ranks, deadline)
        for rank in set(range(program.ranks)) - set(outcomes):
            outcomes[rank] = hanging(scripts.get(rank))
    may_leave.set()
    for member in members:
        member.run(hvd.shutdown)  # raises an error in ranks that hang
    for thread in threads:
        thread.join(10)
    return [outcomes[rank] for rank in range(program.ranks)]


def import_all() -> None:
    """Import modules that the first optimizer loads: it takes seconds, and threads would block each other."""
    importlib.import_module("torch._dynamo.config")
    torch.optim.AdamW([torch.zeros(1)])


def outcome_of(program: Program, rank: int, scripts: dict[int, Script]) -> Outcome:
    """Run a rank in a new job and return its outcome."""
    try:
        hvd.init()
        scripts[rank] = Script(program, rank)
    except Exception as error:
        return ended(error, WRAPPING)
    return scripts[rank].run()


def _wait(has_ended: threading.Condition, outcomes: dict[int, Outcome], ranks: int, deadline: float) -> None:
    """Wait for all ranks, or only GRACE seconds after one has failed: the others then fail too, or hang."""

    def all_have() -> bool:
        return len(outcomes) == ranks

    has_ended.wait_for(lambda: all_have() or any(each.error for each in outcomes.values()), deadline)
    if any(each.error for each in outcomes.values()):
        has_ended.wait_for(all_have, min(GRACE, deadline))


def hanging(script: Script | None) -> Outcome:
    """The outcome of a rank that has not ended."""
    at = script.at if script else WRAPPING
    return Outcome(error=(HANGS, (), at), text=f"hangs: {at}")


def fault_of(program: Program, outcomes: list[Outcome], compares: bool = True) -> str:
    """The fault in words, or "". ``compares``: compare with the result of one process, too."""
    fault = _different_ends(outcomes)
    if fault or outcomes[0].error:
        may_be = MAY_BE_REFUSED & set(program.traits())
        return fault or ("" if may_be else f"refused: {outcomes[0].text}")
    difference = _first_difference(outcomes)
    if difference or not compares or not program.mirrored():
        return difference
    twin = Twin(program, 0).run()
    if twin.error:
        return f"one process ends with {twin.text}"
    return _beyond_rounding(max(outcomes, key=lambda outcome: len(outcome.seen)), twin)


def _different_ends(outcomes: list[Outcome]) -> str:
    errors = [outcome.error for outcome in outcomes]
    if any(error and error[0] == HANGS for error in errors):
        return "a hang: " + _each([outcome.text or "is at its end" for outcome in outcomes])
    if len({error and error[:2] for error in errors}) > 1:
        return "different ends: " + _each([outcome.text or "is fine" for outcome in outcomes])
    return ""


def _each(texts: list[str]) -> str:
    return "; ".join(f"rank {rank} {text}" for rank, text in enumerate(texts))


def _first_difference(outcomes: list[Outcome]) -> str:
    """The first difference between ranks: tensors that two ranks have seen must have the same bits."""
    for moment in max(outcomes, key=lambda outcome: len(outcome.seen)).seen:
        having = [outcome.seen[moment] for outcome in outcomes if moment in outcome.seen]
        for other in having[1:]:
            for name, tensor in other.items():
                if not _same(tensor, having[0][name]):
                    return f"ranks differ: {moment}, {name}"
    return ""


def _same(one: torch.Tensor | None, other: torch.Tensor | None) -> bool:
    if one is None or other is None:
        return one is other
    return bool(((one == other) | (one.isnan() & other.isnan())).all())


def _beyond_rounding(outcome: Outcome, twin: Outcome) -> str:
    for moment, tensors in outcome.seen.items():
        for name, tensor in tensors.items():
            want = twin.seen[moment][name]
            zeros = torch.zeros(())
            got = zeros if tensor is None else tensor
            want = zeros if want is None else want
            if not torch.allclose(got.double(), want.double(), rtol=1e-3, atol=1e-5, equal_nan=True):
                if not want.isfinite().all():
                    continue  # after an overflow an unused gradient is absent, or 0 times NaN
                off = float((got - want).abs().max())
                return f"not as in one process: {moment}, {name}, off by {off:.2g}"
    return ""


def replay(program: Program) -> str:
    return f"python test/single/support/random_scripts.py --seed {program.seed} --ranks {program.ranks}"


def report(program: Program, outcomes: list[Outcome], fault: str) -> str:
    """All facts for a reader who did not see the run."""
    texts = _each([outcome.text or "fine" for outcome in outcomes])
    return (
        f"{fault}\n{texts}\ntraits: {', '.join(program.traits()) or 'none'}\n"
        f"{shown(program)}\nonce more: {replay(program)}"
    )


def main() -> None:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--ranks", type=int, help="without it, as the test has: 2 to 4, by the seed")
    parser.add_argument("--seeds", help="FIRST-LAST")
    parser.add_argument("--deadline", type=float, default=DEADLINE, help="seconds for a script")
    arguments = parser.parse_args()
    first, _, last = (arguments.seeds or str(arguments.seed)).partition("-")
    count: collections.Counter[str] = collections.Counter()
    begin = time.monotonic()
    for seed in range(int(first), int(last or first) + 1):
        program = drawn(seed, arguments.ranks or ranks_of(seed))
        outcomes = in_threads(program, arguments.deadline)
        fault = fault_of(program, outcomes)
        refusal = "" if fault or not outcomes[0].error else f"refused: {outcomes[0].text}"
        count["faults" if fault else "refused" if refusal else "fine"] += 1
        count["compared with one process"] += program.mirrored()
        if arguments.seeds is None:
            print(report(program, outcomes, fault or refusal or "nothing is wrong"))
        elif fault or refusal:
            print(f"{seed} ({program.ranks} ranks) {program.traits()}: {fault or refusal}", flush=True)
    print(dict(count), f"{time.monotonic() - begin:.1f} s", flush=True)
    os._exit(count["faults"] > 0)  # a normal exit would wait for the threads of hanging ranks


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
