"""The key-value store by way of which a job's ranks meet. The driver has it; it does no I/O."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from horovod.runner import errors

_MOST_BYTES = 256 << 20  # of all keys and values

Waiter = TypeVar("Waiter")


class KeyValueStore(Generic[Waiter]):
    """Values under keys, and who waits for one. A waiter is whatever its owner knows it by."""

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._bytes = 0
        self._values: dict[str, str] = {}
        self._waiting: dict[str, list[Waiter]] = {}

    def set(self, key: str, value: str) -> list[Waiter]:
        """Returns who has waited for it. ValueError where there is no room."""
        more = len(key) + len(value) - self._size(key)
        if self._bytes + more > self._most_bytes:
            raise errors.store_full(key=key, bytes=self._bytes)
        self._bytes += more
        self._values[key] = value
        return self._waiting.pop(key, [])

    def get(self, key: str, waiter: Waiter) -> str | None:
        """The value; None where it is not there: then `set` returns the waiter."""
        if key not in self._values:
            self._waiting.setdefault(key, []).append(waiter)
        return self._values.get(key)

    def check(self, keys: Sequence[str]) -> bool:
        """Whether all are there."""
        return all(key in self._values for key in keys)

    def delete(self, key: str) -> bool:
        """Whether it was there."""
        self._bytes -= self._size(key)
        return self._values.pop(key, None) is not None

    def clear(self) -> None:
        """Without values and waiters."""
        self._values, self._waiting, self._bytes = {}, {}, 0

    def forget(self, is_gone: Callable[[Waiter], bool]) -> list[Waiter]:
        """Those of whom it is true wait no more, and are returned."""
        found = [one for them in self._waiting.values() for one in them if is_gone(one)]
        left = {key: [one for one in them if not is_gone(one)] for key, them in self._waiting.items()}
        self._waiting = {key: them for key, them in left.items() if them}
        return found

    def _size(self, key: str) -> int:
        return len(key) + len(self._values[key]) if key in self._values else 0
