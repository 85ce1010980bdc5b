"""The last lines of a successful job: --compression without effect, and the cost of its sums.

They depend only on the ranks' notes (see `horovod.common.notes`).
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any, NamedTuple

from horovod.common.compressors import COMPRESSION, DDP_COMPRESSION

BY_FLAG, OF_DDP_BY_FLAG = "--compression", "--ddp --compression"
# Bytes of a job's sums below which no line is printed: if they were compressed, and if not.
LEAST_COMPRESSED, LEAST_PLAIN = 10**6, 10**8
_LEAST_SAVED = 1.05  # times fewer bytes; less counts as uncompressed
_UNITS = ("bytes", "kB", "MB", "GB", "TB", "PB")


class _Traffic(NamedTuple):
    """Totals of the ranks' traffic notes, in bytes and microseconds."""

    given: int = 0
    sent: int = 0
    waited: int = 0
    lasted: int = 0
    on_gpus: int = 0  # notes of tensors on GPUs


def asked(values: Mapping[str, Any], environment: Mapping[str, str]) -> str:
    """Return how compression was requested: the flag (also for the config file), or variables; "" if not.

    `environment`: the ranks' variables.
    """
    if values.get("compression", "none") != "none":
        return OF_DDP_BY_FLAG if values.get("ddp") else BY_FLAG
    names = (COMPRESSION, DDP_COMPRESSION)
    return " and ".join(n for n in names if environment.get(n, "").strip() not in ("", "none"))


class Closing:
    """Collects the notes of a job's ranks, and makes the job's last lines.

    `compression_asked`: the result of `asked`. `quiet`: only warnings are wanted.
    """

    def __init__(self, compression_asked: str = "", quiet: bool = False) -> None:
        self._asked = compression_asked
        self._quiet = quiet
        self._uses: set[str] = set()
        self._traffic = _Traffic()

    def hear(self, report: str) -> None:
        """Take a rank's report, which may be a note. ValueError if it is malformed."""
        kind, word, rest = [*report.split(" ", 2), "", ""][:3]
        if kind != "note":
            return
        if word == "uses":
            self._uses.add(rest)
        elif word == "traffic":
            _, *numbers, place = rest.split(" ")
            given, sent, waited, lasted = map(int, numbers)
            more = (given, sent, waited, lasted, place == "gpu")
            self._traffic = _Traffic(*map(operator.add, self._traffic, more))

    def lines(self) -> list[str]:
        found = [] if self._quiet else [self._cost()]
        return [line for line in [self._without_effect(), *found] if line]

    def _without_effect(self) -> str:
        words = self._asked.split(" and ")
        is_of_hvd = BY_FLAG in words or COMPRESSION in words
        if not self._asked or "ddp" in self._uses or (is_of_hvd and "hvd" in self._uses):
            return ""
        why, remedy = "no rank called hvd.init() or wrapped a model in DDP", ""
        if "hvd" in self._uses:
            why = "ranks called hvd.init(), and none wrapped a model in DDP"
            remedy = "leave out --ddp" if self._asked == OF_DDP_BY_FLAG else f"set {COMPRESSION}"
        elif self._asked == BY_FLAG:
            remedy = "for a script of torch.distributed, add --ddp"
        return f"warning: {self._asked} had no effect: {why}{remedy and '; '}{remedy}"

    def _cost(self) -> str:
        given, sent, waited, lasted, on_gpus = self._traffic
        fewer = given / max(1, sent)
        is_compressed = fewer >= _LEAST_SAVED
        if given < (LEAST_COMPRESSED if is_compressed else LEAST_PLAIN):
            return ""
        how = f"as {_size(sent)} ({fewer:.1f}x less)" if is_compressed else "uncompressed"
        line = f"gradients: {_size(given)} travelled {how}"
        if on_gpus or not lasted:  # a host cannot measure how long its GPUs wait
            return line
        return (
            f"{line}; ranks waited {min(100, round(100 * waited / lasted))} % of the time for communication"
        )


def _size(number: int) -> str:
    """Return bytes as text with two or three digits: 1.2 GB, 31 MB, 310 MB."""
    value, power = float(number), 0
    while value >= 999.5 and power < len(_UNITS) - 1:
        value, power = value / 1000, power + 1
    return f"{value:.0f} {_UNITS[power]}" if value >= 10 else f"{value:.1f} {_UNITS[power]}"
