"""Whether a process of a soak held more and more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from survival.notes import Notes

# How much more a process may hold late than early in its life, in worlds of one size.
SLACK = {"memory": 24 << 20, "descriptors": 4, "threads": 2, "shared": 4}
FEWEST = 6  # measurements early, and as many late, below which nothing is said


def growth(measured: Sequence[Mapping[str, int]]) -> dict[str, int]:
    """By how much the least of the last third is more than the most of the first; {} of too few."""
    third = len(measured) // 3
    if third < FEWEST:
        return {}
    first, last = measured[:third], measured[-third:]
    return {what: min(m[what] for m in last) - max(m[what] for m in first) for what in measured[0]}


def leaks(who: str, measured: Sequence[Mapping[str, int]]) -> list[str]:
    """What a process held more and more of."""
    grown = growth(measured)
    return [f"{who} holds {grown[what]} more {what}" for what in grown if grown[what] > SLACK[what]]


def leaks_of_workers(notes: Notes) -> list[str]:
    """Compared in worlds of the same size, as others need other numbers of connections."""
    found = []
    for worker, own in notes.by_worker.items():
        ends = [note for note in own if note["what"] == "epoch"]
        for size in sorted({note["size"] for note in ends}):
            measured = [note["held"] for note in ends if note["size"] == size]
            found += leaks(f"{worker}, in worlds of {size},", measured)
    return found
