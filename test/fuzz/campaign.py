"""Give a parser corrupted inputs, and check its contract: see README.md."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import resource
import signal
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from mutations import Spoiler

from horovod.common.sentences import Explained

SEED = 1
MOST_SECONDS = 10.0  # processor time for one input: sanitizers slow down, and machines differ
MOST_MEMORY = 256 << 20  # bytes beyond the memory at the start of the inputs
IS_SANITIZED = hasattr(ctypes.CDLL(None), "__asan_init") or hasattr(ctypes.CDLL(None), "__tsan_init")
BEGUN = Path(__file__).resolve().parents[2] / "build" / "fuzz"


@dataclass(frozen=True)
class Target:
    """A parser of data from outside.

    `parse` returns any value, or raises one of `errors`, of exactly that type or of a kind with facts; its
    AssertionError reports that the value it returned is wrong. `share`: its number of inputs, in proportion
    to other targets.
    """

    name: str
    samples: Sequence[bytes]
    parse: Callable[[bytes], object]
    errors: tuple[type[BaseException], ...]
    share: float
    is_json: bool = False

    def input(self, number: int, seed: int = SEED) -> bytes:
        return Spoiler(self.samples, self.is_json).input(f"{self.name} {seed} {number}")


class ContractBroken(AssertionError):
    """A parser broke its contract; the message says how to give it that input again."""


class _TookTooLong(BaseException):
    pass


def check(target: Target, data: bytes, what: str) -> bool:
    """Give a parser an input; return whether it accepted it. ContractBroken names the input with `what`."""
    try:
        target.parse(data)
        return True
    except target.errors as error:
        if type(error) in target.errors or isinstance(error, Explained):
            return False
        broken: BaseException = error
    except (Exception, _TookTooLong) as error:
        broken = error
    raise ContractBroken(
        f"{target.name}: {type(broken).__name__}: {str(broken)[:500]}\n{what}\n"
        f"input, in hex: {data[:4096].hex()}"
    ) from broken


def run(target: Target, count: int, seed: int = SEED, first: int = 0) -> int:
    """Give a parser `count` inputs; return how many of them it accepted."""
    taken = 0
    with _limits(), _begun(target.name) as begun:
        for number in range(first, first + count):
            begun(seed, number)
            data = target.input(number, seed)
            signal.setitimer(signal.ITIMER_VIRTUAL, MOST_SECONDS)
            again = f"again: python test/fuzz/replay.py '{target.name}' {number} --seed {seed}"
            taken += check(target, data, again)
    return taken


def last_begun(name: str) -> tuple[int, int] | None:
    """Return (seed, number) of the last input that was begun: the input in which a process died."""
    path = BEGUN / name
    return struct.unpack("<QQ", path.read_bytes()[:16]) if path.exists() else None


@contextlib.contextmanager
def _begun(name: str) -> Iterator[Callable[[int, int], None]]:
    BEGUN.mkdir(parents=True, exist_ok=True)
    with (BEGUN / name).open("w+b") as file:
        file.truncate(mmap.PAGESIZE)
        with mmap.mmap(file.fileno(), mmap.PAGESIZE) as memory:
            yield lambda seed, number: struct.pack_into("<QQ", memory, 0, seed, number)


@contextlib.contextmanager
def _limits() -> Iterator[None]:
    """Limit the block: too much time raises _TookTooLong, too much memory MemoryError or std::bad_alloc."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise _TookTooLong(f"more than {MOST_SECONDS:g} s of processor time")

    before = signal.signal(signal.SIGVTALRM, interrupt)
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    if not IS_SANITIZED:  # a sanitizer maps terabytes, and has its own limit for one allocation
        used = int(Path("/proc/self/statm").read_text().split()[0]) * mmap.PAGESIZE
        resource.setrlimit(resource.RLIMIT_AS, (used + MOST_MEMORY, hard))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
