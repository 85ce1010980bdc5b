"""A rank's bytes in the sums of a job, before and after compression: for horovodrun's last line.

Sums are allreduces and reduce-scatters, of gradients and of any other tensors.
"""

from __future__ import annotations

import itertools
import threading

from horovod.common import belongings, notes, waiting


class Traffic:
    """The bytes of one job. Thread-safe."""

    def __init__(self) -> None:
        self.given = 0  # bytes of tensors
        self.sent = 0  # bytes that the rank contributes to its exchange with others, as codes or uncompressed
        self.is_on_gpu = False  # a tensor was on a GPU, for whose work the host does not wait
        self._lock = threading.Lock()

    def give(self, given: int, is_on_gpu: bool) -> None:
        """Count tensors of so many bytes that are about to be summed."""
        with self._lock:
            self.given += given
            self.is_on_gpu |= is_on_gpu

    def send(self, sent: int) -> None:
        """Count bytes that are sent for them."""
        with self._lock:
            self.sent += sent


NOBODYS = Traffic()  # of ranks that are alone, which send nothing
_numbers = itertools.count(1)


def of_this_job(ranks: int | None) -> Traffic:
    """The traffic of the running code's job, for a sum over so many ranks; NOBODYS for one rank or None."""
    return belongings.own(Traffic) if ranks is not None and ranks > 1 else NOBODYS


def tell(seconds: float) -> None:
    """Report to horovodrun that this process leaves the job after so many seconds."""
    traffic = belongings.own(Traffic)
    if traffic.given:
        waited, lasted = waiting.blocked_microseconds(), int(1e6 * seconds)
        place = "gpu" if traffic.is_on_gpu else "host"
        words = (next(_numbers), traffic.given, traffic.sent, waited, lasted, place)
        notes.tell_from_below(f"traffic {' '.join(map(str, words))}")
