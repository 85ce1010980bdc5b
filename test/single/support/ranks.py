"""Ranks as threads of this process, so that tests of the core need no launcher."""

from __future__ import annotations

import functools
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest
from ml_dtypes import bfloat16
from numpy.typing import NDArray

from horovod import _native

sys.path.append(str(Path(__file__).resolve().parents[2]))  # inherited by processes that tests start

import busy

T = TypeVar("T")
TIME_LIMIT = 60.0  # seconds for a program of all ranks; more on a busy machine

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
WORLDS = [pytest.param(True, id="window"), pytest.param(False, id="exchange")]


def numbers(rank: int, count: int, dtype: Any, seed: int = 0) -> NDArray[Any]:
    """Values whose sums over 7 ranks differ with the order of summation if the dtype rounds."""
    return _numbers(rank, count, dtype, seed).copy()


@functools.lru_cache(maxsize=64)
def _numbers(rank: int, count: int, dtype: Any, seed: int) -> NDArray[Any]:
    rng = np.random.default_rng([seed, rank])
    if np.dtype(dtype) == np.bool_:
        return rng.integers(0, 2, count).astype(np.bool_)
    if np.issubdtype(dtype, np.integer):
        return rng.integers(0, 5, count).astype(dtype)
    return rng.standard_normal(count).astype(dtype)


def laid_out(xs: list[NDArray[Any]]) -> bytes:
    """Concatenate arrays as the core does: each begins at a multiple of 16 bytes."""
    everything = b""
    for x in xs:
        everything += bytes(-len(everything) % 16) + x.tobytes()
    return everything


def tensor(
    source: NDArray[Any],
    destination: NDArray[Any] | None = None,
    feedback: _native.Feedback | None = None,
) -> _native.Tensor:
    """The core's view of an array; without a destination the operation is in place."""
    out = source if destination is None else destination
    dtype = NUMBERS[source.dtype]
    return _native.Tensor(source.ctypes.data, out.ctypes.data, list(source.shape), dtype, feedback)


def source_only(x: NDArray[Any]) -> _native.Tensor:
    """The core's view of an array for an operation whose result the core allocates."""
    return _native.Tensor(x.ctypes.data, 0, list(x.shape), NUMBERS[x.dtype])


def received(result: _native.Result, like: NDArray[Any]) -> NDArray[Any]:
    """The result that the core allocated, as rows with the dtype and width of an array."""
    if result.nbytes == 0:
        return np.empty((0, *like.shape[1:]), like.dtype)
    return np.from_dlpack(result.buffer()).view(like.dtype).reshape(-1, *like.shape[1:])


def allreduce(
    engine: _native.Engine, name: str, x: NDArray[Any], process_set: int = 0, **reduction: Any
) -> NDArray[Any]:
    """A blocking out-of-place allreduce."""
    out = np.empty_like(x)
    engine.wait(engine.allreduce(name, [tensor(x, out)], _native.Reduction(**reduction), process_set))
    return out


def submit(engine: _native.Engine, name: str, x: NDArray[Any], process_set: int = 0, **reduction: Any) -> int:
    """Start an allreduce in place; return its handle."""
    return engine.allreduce(name, [tensor(x)], _native.Reduction(**reduction), process_set)


def add_set(engine: _native.Engine, *members: int) -> int:
    """Add a process set, as all ranks must; return its id."""
    return engine.wait(engine.add_process_set(list(members))).sizes[0]


def ends_within(engine: _native.Engine, handle: int, seconds: float = 20.0) -> bool:
    """Whether an operation ends within the time. Unlike wait(), it does not block in the core."""
    deadline = time.monotonic() + seconds
    while not engine.poll(handle) and time.monotonic() < deadline:
        time.sleep(0.001)
    return engine.poll(handle)


def predictable(algorithm: str = "auto") -> _native.Settings:
    """Settings with which the number of quantisations does not depend on fusion."""
    settings = _native.Settings()
    settings.deterministic = True
    settings.allreduce_algorithm = algorithm
    return settings


def on_ranks(
    size: int,
    program: Callable[[int, _native.Engine], Any],
    shares_memory: bool = True,
    settings: _native.Settings | Sequence[_native.Settings] | None = None,
    stepped: Collection[int] = (),
    hosts: Sequence[int] = (),
) -> list[Any]:
    """Run program(rank, engine) on `size` threads; return results by rank. Raises the first exception.

    settings: one for all ranks, or one for each.

    hosts: the number of each rank's host. If `shares_memory`, ranks of one host share memory.

    The engines of the ranks in `stepped` have no thread: their programs call step() themselves.
    """
    worlds = _native.local_worlds(size, shares_memory, list(hosts))

    def body(rank: int) -> Any:
        own = settings[rank] if isinstance(settings, Sequence) else settings or predictable()
        engine = _native.Engine(worlds[rank], own, rank not in stepped)
        try:
            return program(rank, engine)
        finally:
            engine.shutdown()

    return in_threads(size, body)


def in_threads(size: int, body: Callable[[int], T]) -> list[T]:
    """Run body(rank) on `size` threads; return results by rank. Raises the first exception."""
    results: dict[int, T] = {}
    errors: list[BaseException] = []

    def caught(rank: int) -> None:
        try:
            results[rank] = body(rank)
        except BaseException as error:  # raised again below, in the test's own thread
            errors.append(error)

    threads = [threading.Thread(target=caught, args=(rank,), daemon=True) for rank in range(size)]
    for thread in threads:
        thread.start()
    limit = busy.limit(TIME_LIMIT)
    for thread in threads:
        thread.join(max(0.0, limit - time.monotonic()))
    if errors:
        raise errors[0]
    assert not any(thread.is_alive() for thread in threads), f"a rank took more than {TIME_LIMIT} s"
    return [results[rank] for rank in range(size)]


def stepper(engine: _native.Engine, pause: float = 0.0) -> Callable[[int], _native.Result]:
    """A wait() for an engine without a thread, which steps the engine. `pause`: seconds between steps."""

    def completed(handle: int) -> _native.Result:
        while not engine.poll(handle):
            engine.step(1.0)
            time.sleep(pause)
        return engine.wait(handle)

    return completed


@contextmanager
def stepped_engines(size: int, settings: _native.Settings | None = None) -> Iterator[list[_native.Engine]]:
    """Engines without threads, whose clock is the argument of step()."""
    worlds = _native.local_worlds(size)
    engines = [_native.Engine(world, settings or _native.Settings(), start_thread=False) for world in worlds]
    yield engines
    for engine in engines:
        engine.shutdown()
