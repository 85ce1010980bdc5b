"""The compressors' state between steps: one for each name that is reduced."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import torch

from horovod.torch.compression.configured import short_name
from horovod.torch.compression.contract import State


class Memory:
    """The compressors' states, by name. An optimizer has one for its parameters, a job one for the rest."""

    def __init__(self) -> None:
        self._states: dict[str, dict[str, Any]] = {}
        self._owners: dict[str, Any] = {}
        self._loaded: set[str] = set()  # names whose states came from a checkpoint, and are in host memory

    def of(self, name: str, compressor: Any, tensor: torch.Tensor | None = None) -> State:
        """Return the state of a name; empty at first, and when its compressor changes.

        A state from a checkpoint is moved to the device of ``tensor``, with a warning if it does not suit it.
        """
        if name in self._loaded:
            self._loaded.discard(name)
            if tensor is not None:
                _warn_of_misfit(name, compressor, tensor, self._states[name])
            device = torch.device("cpu") if tensor is None else tensor.device
            self._states[name] = _moved(self._states[name], device)
        if self._owners.setdefault(name, compressor) is not compressor:
            self._owners[name] = compressor
            self._states.pop(name, None)
        return self._states.setdefault(name, {})

    def state_dict(self) -> dict[str, dict[str, Any]]:
        """Return name -> state, with tensors in host memory, without empty states."""
        return {name: _moved(state, torch.device("cpu")) for name, state in self._states.items() if state}

    def load_state_dict(self, states: Mapping[str, Mapping[str, Any]]) -> None:
        """Replace all states by those that ``state_dict()`` returned."""
        self._owners.clear()
        self._states = {name: dict(state) for name, state in states.items()}
        self._loaded = set(states)


def _warn_of_misfit(name: str, compressor: Any, tensor: torch.Tensor, state: State) -> None:
    misfit = getattr(compressor, "misfit", None)
    if misfit is not None and (why := misfit(tensor.shape, state)):
        warnings.warn(
            f"What {short_name(compressor)} remembers of {name!r} in the checkpoint does not fit: {why}. It "
            "begins anew.",
            stacklevel=2,
        )


def _moved(state: Mapping[str, Any], device: torch.device) -> dict[str, Any]:
    return {
        key: value.to(device) if isinstance(value, torch.Tensor) else value for key, value in state.items()
    }
