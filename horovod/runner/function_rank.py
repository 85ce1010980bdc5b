"""What a rank of horovod.run does: takes the function out of its payload, calls it, and sends the result.

Started by its path, so that it is found where PYTHONPATH does not lead to this package. The result goes into
the descriptor that `rank` opened for it, signed with the key of the payload (see `payload`).
"""

from __future__ import annotations

import json
import os
import pickle
import sys
import traceback
from pathlib import Path


def main() -> int:
    """Call the function; returns the exit code: 1 when it raised."""
    # The first entry is this file's own folder, whose modules have names that others may have too.
    sys.path[0] = str(Path(__file__).resolve().parents[2])
    from horovod.runner import payload
    from horovod.runner import rank as wrapper

    rank, _ = wrapper.rank_and_local_size()
    descriptor = int(os.environ.pop(wrapper.VALUE_VARIABLE))
    os.set_inheritable(descriptor, False)
    key, header, function = payload.unpacked(payload.found(os.environ.pop(wrapper.PAYLOAD_VARIABLE)))
    # As where horovod.run was called: functions of modules travel by the name of their module.
    sys.path[:] = [*header["path"], *(path for path in sys.path if path not in header["path"])]
    kind, body = _called(function)
    with open(descriptor, "wb") as value:
        value.write(payload.signature(key, rank, kind, body))
        value.write(kind)
        value.write(body)
    return 0 if kind == payload.RETURNED else 1


def _called(function: memoryview) -> tuple[bytes, bytes]:
    """(kind, body) of the result. SystemExit and the like end the rank without one."""
    import cloudpickle  # type: ignore[import-untyped]

    from horovod.runner import payload

    what = "its function"
    try:
        call, arguments, keywords = pickle.loads(function)
        returned = call(*arguments, **keywords)
        what = f"its function returned a {type(returned).__name__} that cannot be sent, and pickling it"
        return payload.RETURNED, cloudpickle.dumps(returned)
    except Exception as error:
        trace = error.__traceback__ and error.__traceback__.tb_next  # without this file
        text = "".join(traceback.format_exception(type(error), error, trace))
        print(text, end="", file=sys.stderr, flush=True)
        told = {"what": what, "type": _name(type(error)), "message": str(error), "traceback": text}
        return payload.RAISED, json.dumps(told).encode()


def _name(kind: type) -> str:
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


if __name__ == "__main__":
    sys.exit(main())
