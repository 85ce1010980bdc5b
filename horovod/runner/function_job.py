"""The process that horovod.run starts, which is to a function what horovodrun is to a command.

A process of its own, because it adopts and ends whatever its ranks leave behind, and listens to signals: in
the caller's process, a notebook perhaps, that would be rude. It unpickles nothing.

    standard input  := length:8  request (JSON)  payload
    descriptor N    := length:8  ending (JSON)   values of the ranks, one behind the other

N is the argument. request: {"options": .., "command": [..]}, ending: {"error": .., "row": .., "facts": ..}
when nothing was started, else {"code": .., "message": .., "culprit": ..,
"values": [[rank, length], ..], "ends": [[rank, code], ..], "is_elastic": ..}. In an elastic job a worker's
number stands for a rank.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import IO, Any

from horovod.runner import launch, mistakes, settings
from horovod.runner.elastic.settings import asks_for_elastic
from horovod.runner.errors import LaunchError
from horovod.runner.processes import end_with_parent
from horovod.runner.streams import say


def main(descriptor: int) -> None:
    end_with_parent(signal.SIGTERM)
    with open(descriptor, "wb") as answer:
        try:
            _run(read_record(sys.stdin.buffer), sys.stdin.buffer.read(), answer)
        except LaunchError as error:
            known = {"row": error.code, "facts": error.facts, "remedy": error.remedy}
            write_record(answer, {"error": str(error), **known})
        except KeyboardInterrupt:
            write_record(answer, {"error": "stopped by SIGINT before any rank started"})


def _run(request: dict[str, Any], payload: bytes, answer: IO[bytes]) -> None:
    warnings = settings.environment_warnings(os.environ) + mistakes.variable_warnings(os.environ)
    values = settings.merged({**request["options"], "quiet": True}, {}, os.environ)
    for warning in warnings:
        say(f"warning: {warning}")
    ending = launch.start(values, request["command"], os.environ, payload)
    lengths = [(rank, len(value)) for rank, value in ending.values.items()]
    told = {"code": ending.code, "message": ending.message, "culprit": ending.culprit, "values": lengths}
    told |= {"ends": list(ending.ends.items()), "is_elastic": asks_for_elastic(values)}
    write_record(answer, told)
    for value in ending.values.values():
        answer.write(value)


def write_record(file: IO[bytes], record: dict[str, Any]) -> None:
    text = json.dumps(record, default=str).encode()
    file.write(len(text).to_bytes(8, "big") + text)


def read_record(file: IO[bytes]) -> dict[str, Any]:
    """The next record; {} where the file ends."""
    length = int.from_bytes(file.read(8), "big")
    record: dict[str, Any] = json.loads(file.read(length) or "{}")
    return record
