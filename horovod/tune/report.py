"""The results of a tuning for users: a table, and the same as data."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from horovod.tune.knobs import Configuration, Space
from horovod.tune.paired import Gain
from horovod.tune.search import Duel, Result

__all__ = ["as_data", "gain_in", "overall", "so_far", "table"]


def overall(duels: Sequence[Duel]) -> Gain | None:
    """Return the combined gain of all duels that were won; None if there are none.

    Each was measured on its own blocks, so gains multiply, and the widths of their intervals add in
    quadrature.
    """
    won = [duel.gain for duel in duels if duel.is_won]
    if not won:
        return None
    middle = sum(math.log(gain.ratio) for gain in won)
    below = math.sqrt(sum(math.log(gain.ratio / gain.low) ** 2 for gain in won))
    above = math.sqrt(sum(math.log(gain.high / gain.ratio) ** 2 for gain in won))
    pairs = min(gain.pairs for gain in won)
    return Gain(math.exp(middle), math.exp(middle - below), math.exp(middle + above), pairs)


def _of_knob(name: str, result: Result) -> Gain | None:
    return overall([duel for duel in result.duels if duel.challenger[name] != duel.incumbent[name]])


def table(space: Space, result: Result, steps: int) -> str:
    """Return a table: setting, default, start of the search, choice, and the measured gain."""
    rows = [("setting", "default", "began with", "chosen", "gain (95 %)")]
    defaults, start = space.defaults(), space.start
    for knob in space.knobs:
        gain = _of_knob(knob.name, result)
        chosen = result.best[knob.name]
        said = str(gain) if gain is not None and chosen != start[knob.name] else "-"
        rows.append((knob.name, defaults[knob.name], start[knob.name], chosen, said))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [
        "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
    return "\n".join([*lines, _summary(result, steps)])


def _summary(result: Result, steps: int) -> str:
    gain = overall(result.duels)
    if gain is None:
        return f"{steps} steps of trials: nothing was faster than what the job began with ({result.why})"
    return f"{steps} steps of trials: {gain} in all ({result.why})"


def so_far(result: Result) -> str:
    """Return the gain of a running search, and its changes."""
    gain = overall(result.duels)
    if gain is None:
        return "nothing faster was found yet"
    began = next(duel.incumbent for duel in result.duels if duel.is_won)
    changed = [f"{name}={text}" for name, text in result.best.items() if text != began[name]]
    return f"{gain} so far, by {', '.join(changed)}"


def gain_in(figures: Mapping[str, Any]) -> list[float] | None:
    """Return a stored gain: the ratio and the ends of its interval; None if it is not valid."""
    gain = figures.get("gain")
    numbers = gain if isinstance(gain, list) and len(gain) == 3 else []
    is_one = bool(numbers) and all(type(each) in (int, float) and abs(each) < 1e9 for each in numbers)
    return numbers if is_one else None


def as_data(space: Space, settings: Configuration, figures: Mapping[str, Any]) -> dict[str, Any]:
    """Return the data of ``hvd.tuning()`` and of the log file."""
    return {"settings": dict(settings), "defaults": space.defaults(), **figures}
