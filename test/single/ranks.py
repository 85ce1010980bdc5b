"""Ranks as threads of this process: what a test of the core needs instead of a launcher."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from ml_dtypes import bfloat16
from numpy.typing import NDArray

from horovod import _native

TIME_LIMIT = 60.0  # seconds for a whole program of all ranks

DTYPES: dict[str, tuple[int, Any]] = {
    "uint8": (0, np.uint8),
    "int8": (1, np.int8),
    "int16": (2, np.int16),
    "int32": (3, np.int32),
    "int64": (4, np.int64),
    "float16": (5, np.float16),
    "float32": (6, np.float32),
    "float64": (7, np.float64),
    "bool": (8, np.bool_),
    "bfloat16": (9, bfloat16),
}
NUMBERS = {np.dtype(numpy_type): number for number, numpy_type in DTYPES.values()}
AVERAGE, SUM, ADASUM, MIN, MAX, PRODUCT = range(6)


def tensor(source: NDArray[Any], destination: NDArray[Any] | None = None) -> _native.Tensor:
    """The core's view of an array; without a destination the operation is in place."""
    out = source if destination is None else destination
    return _native.Tensor(source.ctypes.data, out.ctypes.data, list(source.shape), NUMBERS[source.dtype])


def allreduce(engine: _native.Engine, name: str, x: NDArray[Any], **reduction: Any) -> NDArray[Any]:
    """A blocking out-of-place allreduce."""
    out = np.empty_like(x)
    engine.wait(engine.allreduce(name, [tensor(x, out)], _native.Reduction(**reduction)))
    return out


def on_ranks(
    size: int,
    program: Callable[[int, _native.Engine], Any],
    shares_memory: bool = True,
    settings: _native.Settings | None = None,
) -> list[Any]:
    """Runs program(rank, engine) on `size` threads; results by rank. The first exception is raised here."""
    worlds = _native.local_worlds(size, shares_memory)
    results: list[Any] = [None] * size
    errors: list[BaseException] = []

    def body(rank: int) -> None:
        engine = _native.Engine(worlds[rank], settings or _native.Settings())
        try:
            results[rank] = program(rank, engine)
        except BaseException as error:  # raised again below, in the test's own thread
            errors.append(error)
        finally:
            engine.shutdown()

    threads = [threading.Thread(target=body, args=(rank,), daemon=True) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIME_LIMIT)
    if errors:
        raise errors[0]
    assert not any(thread.is_alive() for thread in threads), "a rank did not finish in time"
    return results


@contextmanager
def stepped_engines(size: int, settings: _native.Settings | None = None) -> Iterator[list[_native.Engine]]:
    """Engines without threads, whose clock is the argument of step()."""
    worlds = _native.local_worlds(size)
    engines = [_native.Engine(world, settings or _native.Settings(), start_thread=False) for world in worlds]
    yield engines
    for engine in engines:
        engine.shutdown()
