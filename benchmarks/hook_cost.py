"""Measure the cost of hooks and step() on the training thread, per gradient, beside another checkout.

    python benchmarks/hook_cost.py ../older       a checkout, with its core built

Each contender is a process with a model of many small parameters; one thread makes the requests of both ranks
(test/single/support/mirrored_job.py). The figure is its CPU time in backward(), step() and zero_grad(), the
least of some steps. The processes take turns. This checkout has two processes: their difference is noise.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from contextlib import ExitStack
from pathlib import Path

from jobs import Answers
from report import interval

GRADIENTS, STEPS = 200, 20
HERE = Path(__file__).resolve().parents[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("other", type=Path, nargs="?", help="a checkout to compare with")
    parser.add_argument("--rounds", type=int, default=61, help="turns of each contender (61)")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        return work()
    if not options.other or not list(options.other.glob("horovod/_native*.so")):
        parser.error("name a checkout whose core is built: python setup.py build_ext --inplace")
    with ExitStack() as stack:
        checkouts = (options.other.resolve(), HERE, HERE)
        workers = [stack.enter_context(worker_of(checkout)) for checkout in checkouts]
        rounds = [[worker.to("go") for worker in workers] for _ in range(options.rounds)]
    there, here, _ = map(statistics.median, zip(*rounds, strict=True))
    print(f"per gradient, CPU time of the thread: {here:.2f} us here, {there:.2f} us in {options.other}")
    print(f"here - there: {shown([row[1] - row[0] for row in rounds])}")
    print(f"here - here:  {shown([row[1] - row[2] for row in rounds])} (noise)")


def shown(differences: list[float]) -> str:
    low, high = interval(differences)
    return f"{statistics.median(differences):+.2f} us [{low:+.2f}, {high:+.2f}]"


def worker_of(checkout: Path) -> Answers:
    own = {**os.environ, "PYTHONPATH": str(checkout), "OMP_NUM_THREADS": "1"}
    return Answers(str(checkout), [str(Path(__file__).resolve()), "--worker"], env=own, cwd=checkout)


def work() -> None:
    """Run as a contender: answer each line of input with the microseconds per gradient of some steps."""
    sys.path += ["test/single/support", "test/single"]  # the latter in an older checkout
    import torch
    from mirrored_job import mirrored_job

    import horovod.torch as hvd

    torch.set_num_threads(1)
    with mirrored_job(2):
        weights = [torch.nn.Parameter(torch.zeros(4)) for _ in range(GRADIENTS)]
        named = [(f"weight{i}", weight) for i, weight in enumerate(weights)]
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(weights, lr=0.1), named)
        for _ in sys.stdin:
            steps = []
            for _ in range(STEPS):
                loss = torch.stack([weight.sum() for weight in weights]).sum()
                begin = time.thread_time()
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                steps.append(time.thread_time() - begin)
            print(min(steps) / GRADIENTS * 1e6, flush=True)


if __name__ == "__main__":
    main()
