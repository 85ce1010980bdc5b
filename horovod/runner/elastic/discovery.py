"""The present hosts, from a script of the user, and the process that runs the script every second.

    output := { line "\\n" }
    line   := [ host [ ":" slots ] ] [ "#" comment ]

A host with 0 slots counts as not listed. The process, `discovery.py SLOTS SCRIPT`, writes a line of JSON
after a change, {"hosts": {name: slots}} or {"say": sentence}, and ends with the driver that started it. The
script may be slow; a driver must not block. Standard library only.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), *[".."] * 3)))

from horovod.common import time_limits
from horovod.common.sentences import facts_of
from horovod.runner import errors
from horovod.runner.agents.streams import read, start
from horovod.runner.errors import DiscoveryError, LaunchError
from horovod.runner.hosts import checked_host, numbered_lines, shortened
from horovod.runner.processes import end_with_parent

_MOST_OUTPUT = 1 << 20  # bytes: some 50,000 hosts
_POLL = 0.05  # seconds between two checks for the script's end


def hosts_of_script(
    script: str, slots: int = 1, timeout: float = time_limits.DISCOVERY_SCRIPT
) -> dict[str, int]:
    """Run a script or shell command that prints one `host` or `host:slots` a line; return host name -> slots.

    A host without slots gets `slots` of them. The script has no input; its process group is killed at its
    end, or after `timeout` seconds. DiscoveryError: it could not run, was too slow, printed too much or
    failed; or a line is malformed.
    """
    where = f"the host discovery script {shortened(script)}"
    code, output, words = _run(script, timeout, where)
    if code != 0:
        ended = f"exited with code {code}" if code > 0 else f"was killed by signal {-code}"
        said = f"; it said: {shortened(words.strip())}" if words.strip() else ""
        raise errors.script_failed(script=where, end=ended, said=said, exit_code=code)
    return hosts_from_output(output, slots, where)


def hosts_from_output(output: str, slots: int, where: str) -> dict[str, int]:
    """Return host name -> slots, in the order of the lines. DiscoveryError names the first malformed line."""
    hosts: dict[str, int] = {}  # hosts with 0 slots too, which may not be named again
    for number, words in numbered_lines(output):
        name, colon, given = words.partition(":")
        place = f"{where}, line {number} ({shortened(words)!r})"
        try:
            is_drained = given.isascii() and given.isdigit() and int(given) == 0
            host = checked_host(name, "1" if is_drained else given if colon else str(slots), place)
            if host.name in hosts:
                raise errors.host_twice(where=place, host=host.name)
        except LaunchError as error:
            raise errors.script_line(**facts_of(error, line=number)) from None
        hosts[host.name] = 0 if is_drained else host.slots
    return {name: slots for name, slots in hosts.items() if slots}


def _run(script: str, timeout: float, where: str) -> tuple[int, str, str]:
    """Return (exit code, or minus the signal; standard output; standard error) of a shell command."""
    try:
        process = subprocess.Popen(
            ["/bin/sh", "-c", script],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        raise errors.script_not_run(script=where, why=str(error)) from None
    with process:
        try:
            output, words = _read(process, timeout, where)
        finally:
            _end_group(process)
    return process.returncode, output.decode(errors="replace"), words.decode(errors="replace")


def _read(process: subprocess.Popen[bytes], timeout: float, where: str) -> tuple[bytes, bytes]:
    """Return the output when the process has ended, without waiting for others that hold the pipes."""
    deadline = time.monotonic() + timeout
    assert process.stdout is not None and process.stderr is not None
    texts = {process.stdout.fileno(): b"", process.stderr.fileno(): b""}
    open_ends = set(texts)
    while True:
        has_ended = process.poll() is not None
        ready = select.select(list(open_ends), [], [], 0 if has_ended else _POLL)[0] if open_ends else []
        for descriptor in ready:
            data = os.read(descriptor, 65536)
            texts[descriptor] += data
            if not data:
                open_ends.discard(descriptor)
        if sum(map(len, texts.values())) > _MOST_OUTPUT:
            raise errors.script_too_much(script=where, most=_MOST_OUTPUT >> 20)
        if has_ended and not ready:
            output, words = texts.values()
            return output, words
        if time.monotonic() > deadline:
            raise errors.script_too_slow(script=where, seconds=timeout)
        if not open_ends and not has_ended:
            time.sleep(_POLL)


def _end_group(process: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return  # all have ended


@dataclass
class RepeatedDiscovery:
    """Calls `look` repeatedly, and tolerates failures.

    `say` gets a sentence when failures begin, when the failure changes (at most once a minute), and after the
    next success.
    """

    look: Callable[[], dict[str, int]]
    say: Callable[[str], None]
    clock: Callable[[], float] = time.monotonic
    _failure: str = ""
    _said_at: float = 0.0

    def find(self) -> dict[str, int] | None:
        """Return host name -> slots; None after a failure: the known hosts stay."""
        try:
            hosts = self.look()
        except DiscoveryError as error:
            now, is_other = self.clock(), str(error) != self._failure
            if not self._failure or (is_other and now - self._said_at >= time_limits.DISCOVERY_SAY_AGAIN):
                self._failure, self._said_at = str(error), now
                self.say(f"hosts stay as they are, and are looked for again: {error}")
            return None
        if self._failure:
            self._failure = ""
            self.say("host discovery works again")
        return hosts


class Discovering:
    """The process as the driver sees it. `descriptor`: readable when there is news; -1 when it is gone."""

    def __init__(self, script: str, slots: int) -> None:
        self.descriptor, end = os.pipe()
        nothing = os.open(os.devnull, os.O_RDONLY)
        start([sys.executable, "-I", "-S", __file__, str(slots), script], os.environb, (nothing, end, 2))
        os.close(nothing)
        os.close(end)
        os.set_blocking(self.descriptor, False)
        self._rest = b""

    def news(self) -> list[dict[str, Any]]:
        """Return its output since the last call. If it is gone, hosts stay as they are."""
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


def main(slots: int, script: str) -> None:
    end_with_parent(signal.SIGKILL)
    discovery = RepeatedDiscovery(lambda: hosts_of_script(script, slots), lambda text: _write({"say": text}))
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
