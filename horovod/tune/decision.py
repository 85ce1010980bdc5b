"""Rank 0's decision for all ranks: a few lines of text, which the core carries in a response."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from horovod.tune import errors

__all__ = ["PHASES", "Decision"]

# What a job does: steps that do not count; trials; what was found, while it is watched; nothing any more.
PHASES = ("warming up", "searching", "watching", "off")
_VARIABLE = "HOROVOD_"


@dataclass(frozen=True)
class Decision:
    """The settings from now on, and after how many steps ranks hear again.

    Lines ``HOROVOD_...=text`` are settings, which the core reads too and takes where they are its own. The
    others are between tuners.
    """

    phase: str
    next_in: int
    settings: Mapping[str, str] = field(default_factory=dict)

    def to_text(self) -> str:
        lines = [f"phase={self.phase}", f"next_in={self.next_in}"]
        return "\n".join([*lines, *(f"{name}={text}" for name, text in self.settings.items())])

    @staticmethod
    def from_text(text: str) -> Decision:
        """ValueError where it is not what ``to_text`` writes."""
        pairs = dict(line.split("=", 1) for line in text.split("\n") if "=" in line)
        settings = {name: value for name, value in pairs.items() if name.startswith(_VARIABLE)}
        try:
            phase, next_in = pairs["phase"], int(pairs["next_in"])
        except (KeyError, ValueError):
            raise errors.no_decision(got=text) from None
        if phase not in PHASES or next_in < 1:
            raise errors.no_decision(got=text)
        return Decision(phase, next_in, settings)
