"""The results of a tuning for users: a table, and the same as data."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from horovod.tune.knobs import Configuration, Space
from horovod.tune.paired import Gain
from horovod.tune.search import Duel, Result

__all__ = ["as_data", "gain_in", "overall", "so_far", "table", "taken", "when"]


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


def table(space: Space, result: Result, steps: int) -> str:
    """Return a table: setting, default, start of the search, choice, and the measured gain."""
    rows = [("setting", "default", "began with", "chosen", "gain (95 %)")]
    defaults, start = space.defaults(), space.start
    for knob in space.knobs:
        name = knob.name
        gain = overall([duel for duel in result.duels if duel.challenger[name] != duel.incumbent[name]])
        said = str(gain) if gain is not None and result.best[name] != start[name] else "-"
        rows.append((name, defaults[name], start[name], result.best[name], said))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    gain = overall(result.duels)
    found = "nothing was faster than what the job began with" if gain is None else f"{gain} in all"
    return "\n".join([*lines, f"{steps} steps of trials: {found} ({result.why})"])


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


def when(figures: Mapping[str, Any]) -> str:
    """Return "on 2026-11-29"; "before", if the record does not say when."""
    date = figures.get("date")
    return f"on {date}" if isinstance(date, str) and re.fullmatch(r"[\d-]{10}", date) else "before"


def taken(start: Configuration, settings: Configuration, figures: Mapping[str, Any]) -> str:
    """Return the line about settings that a job takes from a record; ``start`` are the given ones."""
    changed = ", ".join(f"{name}={text}" for name, text in settings.items() if text != start[name])
    gain = gain_in(figures)
    how = f", {gain[0]:.2f}x as fast" if changed and gain is not None else ""
    what = f"took {changed}, found" if changed else "goes on with its own settings, the best that were found"
    return f"tuning: {what} {when(figures)}{how}; nothing is tried"


def as_data(space: Space, settings: Configuration, figures: Mapping[str, Any]) -> dict[str, Any]:
    """Return the data of ``hvd.tuning()`` and of the log file."""
    return {"settings": dict(settings), "defaults": space.defaults(), **figures}
