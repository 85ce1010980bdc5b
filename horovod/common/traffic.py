"""A rank's bytes in the sums of a job, before and after compression: for horovodrun's last line.

Sums are allreduces and reduce-scatters: gradients, and whatever else a script has summed.
"""

from __future__ import annotations

import itertools
import threading

from horovod.common import belongings, notes, waiting

__all__ = ["NOBODYS", "Traffic", "of_this_job", "tell"]


class Traffic:
    """Of one job. Thread-safe.

    Attributes:
        given: bytes of tensors.
        sent: what a rank contributes of them to its exchange with others, as codes or as it is.
        is_on_gpu: a tensor was on a GPU, whose work nobody waits for on the host.
    """

    def __init__(self) -> None:
        self.given = self.sent = 0
        self.is_on_gpu = False
        self._lock = threading.Lock()

    def give(self, given: int, is_on_gpu: bool) -> None:
        """Tensors of so many bytes are about to be summed."""
        with self._lock:
            self.given += given
            self.is_on_gpu |= is_on_gpu

    def send(self, sent: int) -> None:
        """Of these, so many bytes travel."""
        with self._lock:
            self.sent += sent


NOBODYS = Traffic()  # of ranks that are alone: nothing travels, and nobody asks
_numbers = itertools.count(1)


def of_this_job(ranks: int | None) -> Traffic:
    """That of the job that the running code is a part of, where a sum of so many ranks is counted."""
    return belongings.own(Traffic) if ranks is not None and ranks > 1 else NOBODYS


def tell(seconds: float) -> None:
    """This process leaves the job, in which it was for so long: tell horovodrun."""
    traffic = belongings.own(Traffic)
    if traffic.given:
        waited, lasted = waiting.blocked_microseconds(), int(1e6 * seconds)
        place = "gpu" if traffic.is_on_gpu else "host"
        words = (next(_numbers), traffic.given, traffic.sent, waited, lasted, place)
        notes.tell_from_below(f"traffic {' '.join(map(str, words))}")
