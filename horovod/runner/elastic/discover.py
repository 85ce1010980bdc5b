"""Looks for hosts every second, beside the driver: `discover.py SLOTS SCRIPT`, which see `discovery`.

Writes a line of JSON when something has changed: {"hosts": {name: slots}}, or {"say": sentence}. It ends with
who started it. A process of its own, as the script may take its time, and a driver may not.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), *[".."] * 3)))

from horovod.common import time_limits
from horovod.runner.elastic.discovery import HostDiscoveryScript, RepeatedDiscovery
from horovod.runner.processes import end_with_parent


def main(slots: int, script: str) -> None:
    end_with_parent(signal.SIGKILL)
    discovery = RepeatedDiscovery(HostDiscoveryScript(script, slots), lambda text: _write({"say": text}))
    discovery.has_worked = True  # horovodrun has run it before
    known: dict[str, int] | None = None
    while True:
        found = discovery.find()
        if found is not None and (known is None or list(found.items()) != list(known.items())):
            known = found
            _write({"hosts": found})
        time.sleep(time_limits.DISCOVERY_EVERY)


def _write(record: dict[str, Any]) -> None:
    print(json.dumps(record), flush=True)


if __name__ == "__main__":
    try:
        main(int(sys.argv[1]), sys.argv[2])
    except BrokenPipeError:
        os._exit(0)  # the driver is gone
