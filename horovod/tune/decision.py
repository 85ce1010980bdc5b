"""Rank 0's decision for all ranks: a few lines of text, which the core carries in a response."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from horovod.tune import errors

__all__ = ["PHASES", "Decision"]

# The phases of a job: steps that do not count; trials; observation of the result; no tuning.
PHASES = ("warming up", "searching", "watching", "off")
_VARIABLE = "HOROVOD_"


@dataclass(frozen=True)
class Decision:
    """The settings from now on, and the number of steps until the next decision.

    Lines ``HOROVOD_...=text`` are settings. The core reads them too, and applies its own. The other lines are
    for tuners.
    """

    phase: str
    next_in: int
    settings: Mapping[str, str] = field(default_factory=dict)

    def to_text(self) -> str:
        lines = [f"phase={self.phase}", f"next_in={self.next_in}"]
        return "\n".join([*lines, *(f"{name}={text}" for name, text in self.settings.items())])

    @staticmethod
    def from_text(text: str) -> Decision:
        """Parse what ``to_text`` returns. ValueError for other text."""
        pairs = dict(line.split("=", 1) for line in text.split("\n") if "=" in line)
        settings = {name: value for name, value in pairs.items() if name.startswith(_VARIABLE)}
        try:
            phase, next_in = pairs["phase"], int(pairs["next_in"])
        except (KeyError, ValueError):
            raise errors.no_decision(got=text) from None
        if phase not in PHASES or next_in < 1:
            raise errors.no_decision(got=text)
        return Decision(phase, next_in, settings)
