"""Simulated jobs for tests of the tuner: knobs, the true seconds of a step per configuration, and noise."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

from horovod.tune.knobs import Configuration, Knob, Space
from horovod.tune.search import Limits, Result, look

FUSION = Knob(
    "HOROVOD_FUSION_THRESHOLD",
    ("0", "65536", "1048576", "4194304", "16777216", "67108864", "134217728"),
    "134217728",
)
CYCLE = Knob("HOROVOD_CYCLE_TIME", ("0.1", "0.25", "0.5", "1", "2", "5", "10", "20"), "1")
CONNECTIONS = Knob("HOROVOD_TCP_CONNECTIONS", ("1", "2", "4", "8"), "1")
ALGORITHM = Knob("HOROVOD_ALLREDUCE_ALGORITHM", ("auto", "gather", "scatter"), "auto")
MESSAGE = Knob("HOROVOD_MESSAGE_KB", ("16", "32", "48", "64", "128"), "48")
STEPS = Knob("HOROVOD_STEPS_UNDER_WAY", ("2", "4", "8", "16"), "8")
ORDINARY = Limits()
WRONG = {FUSION.name: "1024", CYCLE.name: "50"}  # neither is among the choices


def ordinary(configuration: Configuration) -> float:
    """The defaults are within 2 % of the best; small thresholds and long cycles are slow."""
    threshold, cycle = float(configuration[FUSION.name]) + 1024, float(configuration[CYCLE.name])
    many = 0.2 if threshold < 3000 else 0.05 * (math.log(threshold / 3e7) / 10) ** 2
    return 0.1 + many + 0.006 * math.log(cycle / 0.7) ** 2 + cycle / 1000


def slow_link(configuration: Configuration) -> float:
    """A link on which one connection gets a third of the speed: the default is wrong."""
    return ordinary(configuration) + 0.3 / min(4, int(configuration[CONNECTIONS.name]))


def far_away(configuration: Configuration) -> float:
    """Hosts 20 ms apart, with six settings: more connections help much, some others a little."""
    step = 0.121 + 0.06 / min(4, int(configuration[CONNECTIONS.name]))
    step -= 0.004 * (math.log2(float(configuration[MESSAGE.name])) - 5) / 2
    return step + (0.02 if configuration[ALGORITHM.name] == "scatter" else 0.0)


def best_of(space: Space, seconds: Callable[[Configuration], float]) -> float:
    return min(map(seconds, space.all()))


def searched(
    space: Space,
    seconds: Callable[[Configuration], float],
    noise: float,
    seed: int,
    predicted: Callable[[Configuration], float] | None = None,
    disturbed: range = range(0),
    limits: Limits = ORDINARY,
) -> Result:
    """A search on a machine with noise of this standard deviation, and slow drift. In `disturbed` blocks
    another program uses between 0 and 100 % of one of two cores."""
    draw = random.Random(seed)
    search = look(space, predicted or seconds, limits)
    configuration, drift, block = next(search), 0.0, 0
    while True:
        drift = 0.9 * drift + draw.gauss(0, 0.3 * noise)
        slower = 1 + draw.random() if block in disturbed else 1.0
        block += 1
        try:
            configuration = search.send(
                slower * seconds(configuration) * math.exp(drift + draw.gauss(0, noise))
            )
        except StopIteration as over:
            assert over.value.blocks == block
            return over.value
