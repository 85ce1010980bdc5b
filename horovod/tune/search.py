"""Searches for the best configuration: a generator without I/O that requests blocks of steps.

    search = look(space, predicted, limits)
    seconds = None
    while True:                      # Tuner does this
        configuration = search.send(seconds)
        seconds = ...                # of a step, with that configuration

1. A model ranks all configurations, which takes no step. The candidates are its best, the defaults, and one
   step in each knob, as the model may not know all knobs.
2. Successive halving, by thirds: each candidate's blocks alternate with the incumbent's, and the best third
   stays.
3. The survivor duels the incumbent on fresh blocks, as the blocks that selected it are biased. It wins only
   if a bound on its gain proves it, so noise alone changes nothing.
4. Coordinate descent: neighbours in one knob after the other duel the incumbent, in longer strides while
   these win. Knobs that have moved come first, in the same direction. A configuration that looked faster
   without proof gets a longer duel before the search ends.

The seconds of a lost pair are never used again. The job runs with the incumbent whenever the search stops.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field

from horovod.tune.knobs import Configuration, Space
from horovod.tune.paired import Gain, gain_of

__all__ = [
    *("NO_NEIGHBOUR", "Duel", "Limits", "Result", "Search", "look"),
    *("ALGORITHM", "FUSION", "Gradients", "exposed_seconds", "predictor"),
]

Search = Generator[dict[str, str], float, "Result"]
NO_NEIGHBOUR = "no neighbour is faster"  # why a search ends by itself
_KEPT = 3  # one of so many candidates stays
_HOPELESS = 1.25  # times slower than the incumbent in its first pair: a candidate is dropped


@dataclass(frozen=True)
class Limits:
    """How much is tried. A block is some steps of one configuration."""

    blocks: int = 80
    candidates: int = 8
    fewest_pairs: int = 3  # of a duel, before it can be won
    most_pairs: int = 8
    worth: float = 0.01  # a smaller gain changes nothing


@dataclass(frozen=True)
class Duel:
    """A comparison of a challenger with the incumbent of that time, and its outcome."""

    incumbent: Configuration
    challenger: Configuration
    gain: Gain
    is_won: bool


@dataclass
class Result:
    """The outcome of the search."""

    best: dict[str, str]
    duels: list[Duel] = field(default_factory=list)
    blocks: int = 0
    why: str = ""  # why it stopped


class _Enough(Exception):
    """All blocks that may be tried have been."""


@dataclass
class _State:
    space: Space
    limits: Limits
    result: Result
    # lost to the incumbent
    refused: list[dict[str, str]] = field(default_factory=list)
    # of these, looked faster
    unproven: list[tuple[float, dict[str, str]]] = field(default_factory=list)

    def take_over(self, challenger: dict[str, str]) -> None:
        self.result.best, self.refused, self.unproven = challenger, [], []


def look(
    space: Space,
    predicted: Callable[[Configuration], float],
    limits: Limits = Limits(),
    result: Result | None = None,
) -> Search:
    """Yields configurations for a block of steps; receives the seconds of one of its steps.

    Args:
        predicted: a model's seconds of a step. Only their order counts. Equal predictions keep the space's
            order.
        result: is updated during the search, so that callers can report progress.

    Returns:
        The result, as the generator's value. The search starts with, and falls back to, the job's own
        settings.
    """
    state = _State(space, limits, result or Result(space.start))
    try:
        winner = yield from _halve(state, _candidates(space, predicted, limits))
        if winner is not None:
            yield from _duel(state, winner)
        yield from _descend(state)
        state.result.why = NO_NEIGHBOUR
    except _Enough:
        state.result.why = f"all {limits.blocks} blocks were used"
    return state.result


def _candidates(
    space: Space, predicted: Callable[[Configuration], float], limits: Limits
) -> list[dict[str, str]]:
    """Return the defaults, the model's best, and a step in each knob, which the model may not know."""
    # Of equal predictions the smallest change comes first, so that a gain has few causes.
    ranked = sorted(space.all(), key=lambda each: (_rounded(predicted(each)), space.changes(each)))
    better = [each for each in ranked if _rounded(predicted(each)) < _rounded(predicted(space.start))]
    steps = sorted(_steps(space), key=lambda each: _rounded(predicted(each)))
    chosen = [space.defaults()]
    for some, share in ((better, 2), (steps, 1), (ranked, 1)):
        for each in some:
            if each not in chosen and each != space.start and len(chosen) < limits.candidates // share:
                chosen.append(each)
    return [each for each in chosen if each != space.start]


def _steps(space: Space) -> list[dict[str, str]]:
    """Half-way up in each knob, then half-way down: a larger step shows more than a neighbour would."""
    ups, downs = [], []
    for knob in space.knobs:
        choices = space.choices(knob.name)
        at = choices.index(space.start[knob.name])
        ups += [{**space.start, knob.name: choices[-(-(at + len(choices) - 1) // 2)]}]
        downs += [{**space.start, knob.name: choices[at // 2]}]
    return [each for each in ups + downs if each != space.start]


def _rounded(seconds: float) -> float:
    """Round to two digits, the model's precision."""
    return float(f"{seconds:.1e}")


def _block(state: _State, configuration: dict[str, str]) -> Generator[dict[str, str], float, float]:
    if state.result.blocks >= state.limits.blocks:
        raise _Enough
    state.result.blocks += 1
    return (yield configuration)


def _halve(
    state: _State, candidates: list[dict[str, str]]
) -> Generator[dict[str, str], float, dict[str, str] | None]:
    """Return the remaining candidate; None if none looks faster than the incumbent."""
    spent: dict[int, list[tuple[float, float]]] = {number: [] for number in range(len(candidates))}
    alive, rounds = list(spent), 1
    while alive:
        for _ in range(rounds):
            for number in list(alive):
                before = yield from _block(state, state.result.best)
                pair = (before, (yield from _block(state, candidates[number])))
                spent[number].append(pair)
                if pair[1] > _HOPELESS * pair[0]:
                    alive.remove(number)
        alive = [number for number in alive if gain_of(spent[number]).ratio > 1]
        alive.sort(key=lambda number: gain_of(spent[number]).ratio, reverse=True)
        alive = alive[: math.ceil(len(alive) / _KEPT)]
        if len(alive) <= 1:
            break
        rounds *= 2
    return candidates[alive[0]] if alive else None


def _duel(
    state: _State, challenger: dict[str, str], once_more: bool = False
) -> Generator[dict[str, str], float, bool]:
    """Return whether the challenger wins, and replaces the incumbent. ``once_more``: its second duel."""
    pairs: list[tuple[float, float]] = []
    limits, incumbent = state.limits, state.result.best
    is_won = False
    try:
        while len(pairs) < (2 if once_more else 1) * limits.most_pairs:
            pair = yield from _pair(state, incumbent, challenger, len(pairs) % 2 == 1)
            pairs.append(pair)
            gain = gain_of(pairs, 0.995)
            if _is_hopeless(pairs):
                break
            if len(pairs) >= limits.fewest_pairs:
                is_won = gain.low > 1 and gain.ratio > 1 + limits.worth
                if is_won or gain.high < 1 + limits.worth or gain.ratio < 1:
                    break
    finally:
        if pairs:
            state.result.duels.append(Duel(incumbent, challenger, gain_of(pairs), is_won))
    if is_won:
        state.take_over(challenger)
        return True
    state.refused.append(challenger)
    if gain.ratio > 1 + limits.worth and not once_more:
        state.unproven.append((gain.ratio, challenger))
    return False


def _is_hopeless(pairs: list[tuple[float, float]]) -> bool:
    """Return whether it is far behind in the first pair, or behind in the first two: such rarely win."""
    ratios = [before / after for before, after in pairs]
    return ratios[0] < 1 / _HOPELESS if len(ratios) == 1 else len(ratios) == 2 and max(ratios) < 1


def _pair(
    state: _State, incumbent: dict[str, str], challenger: dict[str, str], challenger_first: bool
) -> Generator[dict[str, str], float, tuple[float, float]]:
    """Alternate which is first, so that a trend over time does not favour either."""
    if challenger_first:
        second = yield from _block(state, challenger)
        return (yield from _block(state, incumbent)), second
    first = yield from _block(state, incumbent)
    return first, (yield from _block(state, challenger))


def _descend(state: _State) -> Generator[dict[str, str], float, None]:
    """Search until no neighbour in any knob is faster. Knobs that have moved come first."""
    start, is_better = state.space.start, True
    while is_better:
        is_better, best = False, state.result.best
        for knob in sorted(state.space.knobs, key=lambda each: best[each.name] == start[each.name]):
            is_better |= yield from _along(state, knob.name)
        while state.unproven and not is_better:
            state.unproven.sort(key=lambda each: each[0])
            is_better = yield from _duel(state, state.unproven.pop()[1], once_more=True)


def _along(state: _State, name: str) -> Generator[dict[str, str], float, bool]:
    """Return whether a step in one knob has won. Strides double after each win, and halve after a loss."""
    has_won, stride = False, 1
    while stride:
        won = False
        for challenger in _onward(state, name, stride):
            if won := (yield from _duel(state, challenger)):
                break
        has_won |= won
        stride = stride * 2 if won else stride // 2 if has_won else 0
    return has_won


def _onward(state: _State, name: str, stride: int) -> list[dict[str, str]]:
    """Return neighbours that have not lost. If the knob has moved, those away from the start come first."""
    places = {text: place for place, text in enumerate(state.space.choices(name))}
    start, here = places[state.space.start[name]], places[state.result.best[name]]
    tried = [n for n in state.space.neighbours(state.result.best, name, stride) if n not in state.refused]
    return sorted(tried, key=lambda each: -abs(places[each[name]] - start)) if here != start else tried


# ---- a model of the seconds of a step ----------------------------------------------------------------------

FUSION, CYCLE, ALGORITHM = "HOROVOD_FUSION_THRESHOLD", "HOROVOD_CYCLE_TIME", "HOROVOD_ALLREDUCE_ALGORITHM"


@dataclass(frozen=True)
class Gradients:
    """A step's gradients: their bytes, in the order in which they become ready, and the pass' seconds."""

    sizes: Sequence[int]
    backward: float


def exposed_seconds(
    gradients: Gradients, threshold: int, cycle: float, of_bucket: Callable[[int], float], answer: float
) -> float:
    """Return the seconds of communication that the backward pass does not hide. Only their order counts.

    Gradients become ready during the backward pass, in proportion to their bytes. Ready gradients are
    collected for a cycle, fused up to the threshold, and sent bucket after bucket. The end of the pass
    flushes the rest. ``answer``: seconds for an agreement.
    """
    total = sum(gradients.sizes) or 1
    ready, so_far = [], 0
    for size in gradients.sizes:
        so_far += size
        ready.append(gradients.backward * so_far / total)
    free, position = 0.0, 0
    while position < len(ready):
        flush = min(gradients.backward, ready[position] + cycle)
        end = position + 1  # at least one: by rounding the last may be ready after the end of the pass
        while end < len(ready) and ready[end] <= flush:
            end += 1
        for bucket in _fused(gradients.sizes[position:end], threshold):
            free = max(free, flush + answer) + of_bucket(bucket)
        position = end
    return max(0.0, free - gradients.backward)


def _fused(sizes: Sequence[int], threshold: int) -> list[int]:
    """Return the bytes of buckets: neighbours together, up to the threshold; larger tensors alone."""
    buckets: list[int] = []
    for size in sizes:
        if buckets and buckets[-1] + size <= threshold:
            buckets[-1] += size
        else:
            buckets.append(size)
    return buckets


def predictor(
    gradients: Gradients, of_bucket: Callable[[int, str], float], answer: float
) -> Callable[[Configuration], float]:
    """Return the prediction for ``look``. Knobs that the model does not know change nothing.

    ``of_bucket``: the seconds of a bucket of so many bytes, by an algorithm.
    """
    of_bucket = functools.cache(of_bucket)

    @functools.cache
    def exposed(threshold: str, cycle: str, algorithm: str) -> float:
        def of_this(size: int) -> float:
            return of_bucket(size, algorithm)

        return exposed_seconds(gradients, int(threshold), float(cycle) / 1e3, of_this, answer)

    def seconds(configuration: Configuration) -> float:
        given = configuration.get
        return exposed(given(FUSION, str(128 << 20)), given(CYCLE, "1"), given(ALGORITHM, "auto"))

    return seconds
