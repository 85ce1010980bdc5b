"""The rank's side of horovod.run: unpacks the function, calls it, and sends the result.

It is started by its path, so PYTHONPATH need not lead to this package. It writes the result to the descriptor
that the rank's wrapper opened for it, signed with the key of the payload (see `payload`).
"""

from __future__ import annotations

import json
import os
import pickle
import sys
import traceback
from collections.abc import Callable
from pathlib import Path


def main() -> int:
    """Call the function; return the exit code, which is 1 if it raised."""
    # The first entry is this file's folder, whose module names may hide other packages' modules.
    sys.path[0] = str(Path(__file__).resolve().parents[2])
    from horovod.common.agent_messages import RANK
    from horovod.runner import payload
    from horovod.runner.agents import places

    rank = int(os.environ[RANK])
    number = int(os.environ.pop(places.WORKER, -1))  # set in elastic jobs only
    descriptor = int(os.environ.pop(places.VALUE))
    os.set_inheritable(descriptor, False)
    key, header, function = payload.unpacked(payload.found(os.environ.pop(places.PAYLOAD)))
    # The caller's path: pickle stores a module's function by the name of its module.
    sys.path[:] = [*header["path"], *(path for path in sys.path if path not in header["path"])]
    kind, body = _called(function) if number < 0 else _called_in_elastic_job(function, rank)
    with open(descriptor, "wb") as value:
        value.write(payload.signature(key, rank if number < 0 else number, kind, body))
        value.write(kind)
        value.write(body)
    return 1 if kind == payload.RAISED else 0


def _called_in_elastic_job(function: memoryview, rank: int) -> tuple[bytes, bytes]:
    """As `_called`, with the worker's place in the job's last membership; `rank`: at the worker's start.

    An exception is also reported to the launcher, because another worker would raise the same.
    """
    from horovod.common.agent_channel import agent_channel
    from horovod.common.errors import Removed
    from horovod.runner import payload

    def tell(error: Exception) -> None:
        if (channel := agent_channel(os.environ)) is not None:
            channel.tell_exception(error)

    try:
        kind, body = _called(function, tell)
    except SystemExit as end:
        if not isinstance(end.__context__, Removed):
            raise
        kind, body = payload.OUT, b""
    channel = agent_channel(os.environ)
    place = None if channel is None else channel.place
    at = (0, rank) if place is None else (place.generation, place.rank)
    return kind, payload.PLACE.pack(*at) + body


def _called(function: memoryview, hear: Callable[[Exception], None] = lambda _: None) -> tuple[bytes, bytes]:
    """Return (kind, body) of the result; `hear` gets the exception. SystemExit and the like pass through."""
    import cloudpickle  # type: ignore[import-untyped]

    from horovod.common.exceptions import follows_others
    from horovod.common.sentences import Explained, causes, class_name
    from horovod.runner import payload

    what = "its function"
    try:
        call, arguments, keywords = pickle.loads(function)
        returned = call(*arguments, **keywords)
        what = f"its function returned a {type(returned).__name__} that cannot be sent, and pickling it"
        return payload.RETURNED, cloudpickle.dumps(returned)
    except Exception as error:
        trace = error.__traceback__ and error.__traceback__.tb_next  # without this file's frame
        text = "".join(traceback.format_exception(type(error), error, trace))
        print(text, end="", file=sys.stderr, flush=True)
        hear(error)
        kinds = (kind for each in causes(error) for kind in type(each).__mro__)
        told = {
            "what": what,
            "type": class_name(type(error)),
            "bases": list(dict.fromkeys(map(class_name, kinds))),
            "follows": follows_others(error),
            "ranks": list(error.ranks) if isinstance(error, Explained) else [],
            "message": str(error),
            "traceback": text,
        }
        return payload.RAISED, json.dumps(told, default=str).encode()


if __name__ == "__main__":
    sys.exit(main())
