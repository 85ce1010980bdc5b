"""How the best configuration is looked for: a pure generator that asks for blocks of steps and is told how
long they took.

    search = look(space, predicted, limits)
    seconds = None
    while True:                      # Tuner does this
        configuration = search.send(seconds)
        seconds = ...                # of a step, with that configuration

1. A model ranks all configurations, which takes no step. Its best, the defaults, and one step in each knob,
   of which a model may know nothing, are the candidates.
2. Successive halving, by thirds: each candidate's blocks stand between blocks of the incumbent, and the
   best third goes on.
3. The survivor duels the incumbent on fresh blocks, as those that chose it flatter it. It takes over only if
   a bound on its gain says so: a noisy machine crowns nobody.
4. Coordinate descent: neighbours in one knob after the other duel the incumbent, in longer strides while
   these win. What has moved already is first, onward. Who looked faster without a proof gets a longer duel
   before the search ends.

The seconds of a lost pair are never used again, and the incumbent is what the job runs with whenever it
stops.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from dataclasses import dataclass, field

from horovod.tune.knobs import Configuration, Space
from horovod.tune.paired import Gain, gain_of

__all__ = ["NO_NEIGHBOUR", "Duel", "Limits", "Result", "Search", "look"]

Search = Generator[dict[str, str], float, "Result"]
NO_NEIGHBOUR = "no neighbour is faster"  # why a search ends by itself
_KEPT = 3  # one of so many candidates goes on
_HOPELESS = 1.25  # times as slow as the incumbent in its first pair: a candidate is dropped


@dataclass(frozen=True)
class Limits:
    """How much is tried. A block is some steps of one configuration."""

    blocks: int = 80
    candidates: int = 8
    fewest_pairs: int = 3  # of a duel, before anybody wins
    most_pairs: int = 8
    worth: float = 0.01  # gain below which nothing is changed


@dataclass(frozen=True)
class Duel:
    """One comparison: what was compared with the incumbent of that time, and what came out."""

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
    why: str = ""  # it stopped


class _Enough(Exception):
    """All blocks that may be tried have been."""


@dataclass
class _State:
    space: Space
    limits: Limits
    result: Result
    refused: list[dict[str, str]] = field(default_factory=list)  # that have lost to the incumbent
    unproven: list[tuple[float, dict[str, str]]] = field(default_factory=list)  # of these, who looked faster

    def take_over(self, challenger: dict[str, str]) -> None:
        self.result.best, self.refused, self.unproven = challenger, [], []


def look(
    space: Space,
    predicted: Callable[[Configuration], float],
    limits: Limits = Limits(),
    result: Result | None = None,
) -> Search:
    """Yields configurations to run a block of steps with; is sent the seconds of one of its steps.

    Args:
        predicted: a model's seconds of a step; only their order counts. What it thinks alike stays in the
            space's order.
        result: where what is found stands from the beginning, for who wants to see how far it is.

    Returns:
        The result, as the generator's value. It begins with, and falls back to, what the job was given.
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
    """The defaults, what the model likes best, and a step in each knob, of which it may know nothing."""
    # What the model thinks alike differs by as little as possible: then a gain has few causes.
    ranked = sorted(space.all(), key=lambda each: (_rounded(predicted(each)), space.changes(each)))
    better = [each for each in ranked if _rounded(predicted(each)) < _rounded(predicted(space.start))]
    steps = sorted(_steps(space), key=lambda each: _rounded(predicted(each)))
    chosen = [space.defaults()]
    for some, most in (
        (better, limits.candidates // 2),
        (steps, limits.candidates),
        (ranked, limits.candidates),
    ):
        for each in some:
            if each not in chosen and each != space.start and len(chosen) < most:
                chosen.append(each)
    return [each for each in chosen if each != space.start]


def _steps(space: Space) -> list[dict[str, str]]:
    """Half-way up in each knob, then half-way down: what matters shows more there than beside the start."""
    ups, downs = [], []
    for knob in space.knobs:
        choices = space.choices(knob.name)
        at = choices.index(space.start[knob.name])
        ups += [{**space.start, knob.name: choices[-(-(at + len(choices) - 1) // 2)]}]
        downs += [{**space.start, knob.name: choices[at // 2]}]
    return [each for each in ups + downs if each != space.start]


def _rounded(seconds: float) -> float:
    """To two digits: a model knows no more."""
    return float(f"{seconds:.1e}")


def _block(state: _State, configuration: dict[str, str]) -> Generator[dict[str, str], float, float]:
    if state.result.blocks >= state.limits.blocks:
        raise _Enough
    state.result.blocks += 1
    return (yield configuration)


def _halve(
    state: _State, candidates: list[dict[str, str]]
) -> Generator[dict[str, str], float, dict[str, str] | None]:
    """The remaining candidate; None if none looks faster than the incumbent."""
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
        if len(alive) <= 1:
            break
        alive, rounds = alive[: math.ceil(len(alive) / _KEPT)], rounds * 2
        if len(alive) == 1:
            break
    return candidates[alive[0]] if alive else None


def _duel(
    state: _State, challenger: dict[str, str], once_more: bool = False
) -> Generator[dict[str, str], float, bool]:
    """Whether the challenger is faster, which then is the incumbent. ``once_more``: it looked so before."""
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
    """Far behind in the first pair, or behind in the first two: who is worth much seldom is."""
    ratios = [before / after for before, after in pairs]
    return ratios[0] < 1 / _HOPELESS if len(ratios) == 1 else len(ratios) == 2 and max(ratios) < 1


def _pair(
    state: _State, incumbent: dict[str, str], challenger: dict[str, str], challenger_first: bool
) -> Generator[dict[str, str], float, tuple[float, float]]:
    """In turns another is first: what grows with time is nobody's fault."""
    if challenger_first:
        second = yield from _block(state, challenger)
        return (yield from _block(state, incumbent)), second
    first = yield from _block(state, incumbent)
    return first, (yield from _block(state, challenger))


def _descend(state: _State) -> Generator[dict[str, str], float, None]:
    """Until no neighbour in any knob is faster. First come knobs that have moved: they may go further."""
    start, is_better = state.space.start, True
    while is_better:
        is_better, best = False, state.result.best
        for knob in sorted(state.space.knobs, key=lambda each: best[each.name] == start[each.name]):
            is_better |= yield from _along(state, knob.name)
        while state.unproven and not is_better:
            state.unproven.sort(key=lambda each: each[0])
            is_better = yield from _duel(state, state.unproven.pop()[1], once_more=True)


def _along(state: _State, name: str) -> Generator[dict[str, str], float, bool]:
    """Whether a step in one knob has won; then it goes on in strides twice as long, and back to one."""
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
    """Neighbours that have not lost: first those that lead away from the start, where the knob has moved."""
    places = {text: place for place, text in enumerate(state.space.choices(name))}
    start, here = places[state.space.start[name]], places[state.result.best[name]]
    tried = [n for n in state.space.neighbours(state.result.best, name, stride) if n not in state.refused]
    return sorted(tried, key=lambda each: -abs(places[each[name]] - start)) if here != start else tried
