"""An agent's side of the process that has loaded torch, see `warm_server`.

    asked    JSON {"worker", "words": [directory, *command], "variables"}, and with it the descriptors
             of standard input, output and error, and of the worker's channel
    answer   JSON {"worker", "pid"}: of the wrapper, which is a child of the agent; 0: the fork failed

Both are messages of a SOCK_SEQPACKET socket. Standard library only and few imports, as `agent`.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import sys
import time
from collections.abc import Mapping, Sequence

from horovod.common import time_limits
from horovod.runner.agents.streams import spawn
from horovod.runner.processes import send

SERVER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "warm_server.py")
_LONGEST_ANSWER = 1 << 12


def can_be_warm(command: Sequence[str]) -> bool:
    """Whether a fork can run the command: `python SCRIPT ..` or `python -m MODULE ..`, -u allowed."""
    if not re.fullmatch(r"python(\d(\.\d+)?)?", os.path.basename(command[0]) if command else ""):
        return False
    words = list(command[1:])
    words = words[1:] if words[:1] == ["-u"] else words
    return len(words) > 1 if words[:1] == ["-m"] else bool(words) and not words[0].startswith("-")


class WarmServer:
    """`python`: the interpreter; `environment`: of the server; its ranks add their own variables."""

    def __init__(self, python: str, environment: Mapping[bytes, bytes]) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        nothing = os.open(os.devnull, os.O_RDWR)
        words = [python, SERVER, str(theirs.fileno())]
        self.pid = spawn(words, environment, (nothing, nothing, 2), theirs.fileno())
        os.close(nothing)
        theirs.close()
        self._socket.setblocking(False)
        self._load_until = time.monotonic() + time_limits.WARM_LOAD
        self._has_answered = False

    @property
    def descriptor(self) -> int:
        """Readable when there are answers or the server has ended; -1 when closed."""
        return self._socket.fileno()

    def ask(
        self, worker: int, words: Sequence[str], variables: Mapping[str, str], descriptors: Sequence[int]
    ) -> bool:
        """Request a wrapper; return whether the request was sent."""
        text = json.dumps({"worker": worker, "words": list(words), "variables": dict(variables)}).encode()
        try:
            return socket.send_fds(self._socket, [text], list(descriptors)) == len(text)
        except OSError:  # the server has ended; or too many requests wait, or the request is too large
            return False

    def answers(self) -> dict[int, int]:
        """Return worker -> process id of new wrappers; 0: the worker must start without the server.

        Closes itself when the server has ended.
        """
        found = {}
        try:
            while self.descriptor >= 0 and (text := self._socket.recv(_LONGEST_ANSWER)):
                answer = json.loads(text)
                found[answer["worker"]] = answer["pid"]
                self._has_answered = True
            self.close()
        except BlockingIOError:
            if not self._has_answered and time.monotonic() > self._load_until:
                print(
                    f"horovodrun: loading torch takes more than {time_limits.WARM_LOAD:g} s", file=sys.stderr
                )
                self.close()
        except (OSError, ValueError):
            self.close()
        return found

    def close(self) -> None:
        """Close the socket, which ends the server; SIGTERM ends it while it loads. Safe to repeat."""
        if self.descriptor >= 0:
            self._socket.close()
            send(self.pid, signal.SIGTERM)
