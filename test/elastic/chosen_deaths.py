"""What a worker writes down, and where it dies: a module of its own, whose classes can be pickled by name."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

TASK: dict[str, Any] = json.loads(Path(sys.argv[1]).read_text())
START_RANK = int(os.environ["HOROVOD_RANK"])
LOG = open(Path(TASK["folder"]) / f"worker-{START_RANK}-{os.getpid()}.jsonl", "a")  # noqa: SIM115


def note(what: str, **more: Any) -> None:
    line = {"what": what, "at": time.monotonic(), "start_rank": START_RANK, "pid": os.getpid(), **more}
    LOG.write(json.dumps(line) + "\n")
    LOG.flush()


def die_at(point: str, step: int) -> None:
    """Where the task says so."""
    for death in TASK["deaths"]:
        if (death["rank"], death["point"], death["step"]) == (START_RANK, point, step):
            note("dies", point=point, step=step)
            os.kill(os.getpid(), signal.SIGKILL)


class DiesWhenCopied:
    """A part of the state: being copied is in the middle of a commit."""

    def __init__(self) -> None:
        self.step = 0

    def __deepcopy__(self, memo: object) -> DiesWhenCopied:
        die_at("commit", self.step)
        twin = DiesWhenCopied()
        twin.step = self.step
        return twin

    def __getstate__(self) -> dict[str, int]:
        die_at("commit", self.step)
        return {"step": self.step}
