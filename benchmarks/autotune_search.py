"""Compare the autotuner's search with others on simulated jobs whose true step times are known.

    python benchmarks/autotune_search.py
    pip install optuna && python benchmarks/autotune_search.py --contenders ours tpe random

Each contender may request a limited number of blocks of steps, whose seconds have noise and drift. It then
names one configuration. The table shows by how much that is slower than the best, and how often it is slower
than the start.
"""

from __future__ import annotations

import argparse
import itertools
import math
import random
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import report

from horovod.tune.knobs import Configuration, Knob, Space
from horovod.tune.search import Limits, look

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "test" / "single" / "support"))
import tune_landscapes as made
from tune_landscapes import ALGORITHM, CONNECTIONS, CYCLE, FUSION, MESSAGE, STEPS

Measure = Callable[[Configuration], float]
Job = tuple[list[Knob], dict[str, str], Callable[[Configuration], float]]
JOBS: dict[str, Job] = {
    "right defaults": ([FUSION, CYCLE], {}, made.ordinary),
    "both wrong": ([FUSION, CYCLE], made.WRONG, made.ordinary),
    "one connection on a slow link": ([FUSION, CYCLE, CONNECTIONS], {}, made.slow_link),
    "hosts 20 ms apart": ([FUSION, CYCLE, ALGORITHM, CONNECTIONS, MESSAGE, STEPS], {}, made.far_away),
}


def noisy(seconds: Callable[[Configuration], float], noise: float, seed: int) -> Measure:
    """Return a function that measures a block of a configuration, with new noise each time."""
    draw, drift = random.Random(seed), 0.0

    def measure(configuration: Configuration) -> float:
        nonlocal drift
        drift = 0.9 * drift + draw.gauss(0, 0.3 * noise)
        return seconds(configuration) * math.exp(drift + draw.gauss(0, noise))

    return measure


def ours(space: Space, measure: Measure, blocks: int, seed: int) -> Configuration:
    """Search with a model without prior knowledge, as the others have none."""
    search = look(space, lambda configuration: 0.0, Limits(blocks=blocks))
    configuration = next(search)
    while True:
        try:
            configuration = search.send(measure(configuration))
        except StopIteration as over:
            return dict(over.value.best)


def at_random(space: Space, measure: Measure, blocks: int, seed: int) -> Configuration:
    """Return the fastest of random configurations, each measured once."""
    draw, every = random.Random(seed), space.all()
    tried = [space.start, *(draw.choice(every) for _ in range(blocks - 1))]
    return min(tried, key=measure)


def tpe(space: Space, measure: Measure, blocks: int, seed: int) -> Configuration:
    """Search with optuna's tree-structured Parzen estimator, which begins with the job's given settings."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed))
    study.enqueue_trial(dict(space.start))

    def objective(trial: Any) -> float:
        return measure(
            {k.name: trial.suggest_categorical(k.name, space.choices(k.name)) for k in space.knobs}
        )

    study.optimize(objective, n_trials=blocks)
    return dict(study.best_params)


CONTENDERS = {"ours": ours, "random": at_random, "tpe": tpe}


def row(name: str, contender: str, noise: float, words: argparse.Namespace) -> report.Record:
    knobs, start, seconds = JOBS[name]
    space = Space(knobs, start)
    best, began = made.best_of(space, seconds), seconds(space.start)
    found = []
    for seed in range(words.seeds):
        chosen = CONTENDERS[contender](space, noisy(seconds, noise, seed), words.blocks, seed)
        found.append(seconds(chosen))
    worse = sum(each > 1.01 * began for each in found) / len(found)
    ratios = sorted(each / best for each in found)
    row = {"job": name, "noise": noise, "contender": contender, "worse": worse}
    return row | {"median": statistics.median(ratios), "of nine": ratios[int(0.9 * len(ratios))]}


COLUMNS: report.Columns = {
    "job": "{job}",
    "noise of a block": "{noise:.0%}",
    "contender": "{contender}",
    "median over best": "{median:.3f}x",
    "of 9 in 10 at most": "{of nine:.3f}x",
    "slower than the start": "{worse:.0%}",
}


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description="The autotuner's search beside others, on made jobs.")
    parser.add_argument("--contenders", nargs="+", choices=CONTENDERS, default=["ours", "random"])
    parser.add_argument("--noise", nargs="+", type=float, default=[0.02, 0.08], help="standard deviations")
    parser.add_argument("--blocks", type=int, default=77, help="that each may ask for (default 77)")
    parser.add_argument("--seeds", type=int, default=40)
    chosen = parser.parse_args(words)
    every = itertools.product(JOBS, chosen.noise, chosen.contenders)
    rows = [row(name, contender, noise, chosen) for name, noise, contender in every]
    print(report.table_of(rows, COLUMNS, left=3))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
