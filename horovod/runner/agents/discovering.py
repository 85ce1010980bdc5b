"""The process that looks for hosts, beside a driver: see `elastic.discover`."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from horovod.runner.agents.streams import read, start
from horovod.runner.elastic import discover

__all__ = ["Discovering"]


class Discovering:
    """`descriptor`: readable when there is news; -1 when it is gone."""

    def __init__(self, script: str, slots: int) -> None:
        self.descriptor, end = os.pipe()
        words = [sys.executable, "-I", "-S", discover.__file__, str(slots), script]
        nothing = os.open(os.devnull, os.O_RDONLY)
        start(words, os.environb, (nothing, end, 2))
        os.close(nothing)
        os.close(end)
        os.set_blocking(self.descriptor, False)
        self._rest = b""

    def news(self) -> list[dict[str, Any]]:
        """What it has written since: {"hosts": {name: slots}} or {"say": sentence}. When it is gone, hosts
        stay as they are.
        """
        data = read(self.descriptor)
        if data == b"":
            self.close()
            return [{"say": "the process that looks for hosts has ended; hosts stay as they are"}]
        *lines, self._rest = (self._rest + (data or b"")).split(b"\n")
        return [json.loads(line) for line in lines]

    def close(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1
