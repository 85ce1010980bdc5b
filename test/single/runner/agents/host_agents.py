"""A real agent of a host, with a test as its driver."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import busy

from horovod.runner.agents import agent, frames
from horovod.runner.agents.frames import Frame, FrameParser


class HostAgent:
    """The agent's process, and the frames received from it."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._parser, self.heard = FrameParser(from_agent=True), list[Frame]()
        self._has_begun = False

    def say(self, *said: bytes) -> None:
        """Send frames; the first ones follow a driver's first bytes."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"".join(said) if self._has_begun else frames.MAGIC + b"".join(said))
        self._has_begun = True
        self._process.stdin.flush()

    def hear(self, kind: bytes) -> dict[str, Any]:
        """Wait for the first frame of that kind, and remove it."""
        assert self._process.stdout is not None
        until = busy.limit(30)
        while kind not in {frame.kind for frame in self.heard}:
            assert time.monotonic() < until, self.heard  # an agent that lives beats once a second
            self.heard += self._parser.feed(os.read(self._process.stdout.fileno(), 1 << 16))
        found = next(frame for frame in self.heard if frame.kind == kind)
        self.heard.remove(found)
        told: dict[str, Any] = json.loads(found.body)
        return told


@contextmanager
def host_agent(*told: str) -> Iterator[HostAgent]:
    """An agent that ends regularly with the block. `told`: its arguments; facts need the packages."""
    words = [sys.executable, "-I", *([] if frames.FACTS in told else ["-S"]), agent.__file__, *told]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            yield HostAgent(process)
            assert process.stdin is not None
            process.stdin.close()
            assert process.wait(20) == 0
        finally:
            process.kill()
