"""What compressors remember between steps: one state for each name that is reduced."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from horovod.torch.compression.contract import State

__all__ = ["Memory"]


class Memory:
    """The states of whoever reduces: an optimizer has one, by parameter name, and every job, for the rest."""

    def __init__(self) -> None:
        self._states: dict[str, dict[str, Any]] = {}
        self._owners: dict[str, Any] = {}

    def of(self, name: str, compressor: Any) -> State:
        """The state of a name, which begins anew when its compressor is another one than before."""
        if self._owners.setdefault(name, compressor) is not compressor:
            self._owners[name] = compressor
            self._states.pop(name, None)
        return self._states.setdefault(name, {})

    def clear(self) -> None:
        """Forget everything."""
        self._states.clear()
        self._owners.clear()

    def state_dict(self) -> dict[str, dict[str, Any]]:
        """Name -> what is remembered of it; names of which nothing is are left out."""
        return {name: dict(state) for name, state in self._states.items() if state}

    def load_state_dict(self, states: Mapping[str, Mapping[str, Any]]) -> None:
        """Remember what ``state_dict()`` returned, instead of what is remembered now."""
        self.clear()
        self._states.update((name, dict(state)) for name, state in states.items())
