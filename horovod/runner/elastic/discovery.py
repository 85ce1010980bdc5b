"""Which hosts there are: from a script of the user's, or fixed. The names are Horovod's.

output := { line "\\n" }
line   := [ host [ ":" slots ] ] [ "#" comment ]

A host with 0 slots is as one that is not named.
"""

from __future__ import annotations

import enum
import os
import random
import select
import signal
import subprocess
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from horovod.common import time_limits
from horovod.common.sentences import facts_of
from horovod.runner import errors
from horovod.runner.elastic.blacklist import Blacklist
from horovod.runner.errors import DiscoveryError, LaunchError
from horovod.runner.hosts import checked_host, shortened

__all__ = [
    "DiscoveredHosts",
    "DiscoveryError",
    "FixedHosts",
    "HostDiscovery",
    "HostDiscoveryScript",
    "HostManager",
    "HostUpdateResult",
    "RepeatedDiscovery",
    "hosts_from_output",
]

_MOST_OUTPUT = 1 << 20  # bytes: some 50,000 hosts
_POLL = 0.05  # seconds between two looks at whether the script has ended


class HostUpdateResult(enum.IntFlag):
    """What has changed: a bit mask, whose number is what workers are told."""

    no_update = 0
    added = 1
    removed = 2
    mixed = 3


class HostDiscovery(ABC):
    """Finds the hosts that a job may use."""

    @abstractmethod
    def find_available_hosts_and_slots(self) -> dict[str, int]:
        """Host name -> slots (workers that it takes). DiscoveryError when they cannot be found now."""


class FixedHosts(HostDiscovery):
    """Hosts that are known, until `set` says others."""

    def __init__(self, available_hosts: Mapping[str, int]) -> None:
        self._hosts = dict(available_hosts)

    def find_available_hosts_and_slots(self) -> dict[str, int]:
        return dict(self._hosts)

    def set(self, available_hosts: Mapping[str, int]) -> None:
        """These hosts, host name -> slots, and no others from now on."""
        self._hosts = dict(available_hosts)


class HostDiscoveryScript(HostDiscovery):
    """Runs a script, or a shell's command, that prints one `host` or `host:slots` a line.

    Blank lines and what follows a # are ignored; a host without slots has `slots` of them, and one with 0 is
    not there. The script gets no input, `timeout` seconds, and is ended with all that it started when these
    are over.
    """

    def __init__(
        self, discovery_script: str, slots: int = 1, *, timeout: float = time_limits.DISCOVERY_SCRIPT
    ) -> None:
        self._script = discovery_script
        self._slots = slots
        self._timeout = timeout

    def find_available_hosts_and_slots(self) -> dict[str, int]:
        """DiscoveryError: it could not be run, took too long, printed too much or failed; a line is wrong."""
        where = f"the host discovery script {shortened(self._script)}"
        code, output, words = _run(self._script, self._timeout, where)
        if code != 0:
            ended = f"exited with code {code}" if code > 0 else f"was killed by signal {-code}"
            said = f"; it said: {shortened(words.strip())}" if words.strip() else ""
            raise errors.script_failed(script=where, end=ended, said=said, exit_code=code)
        return hosts_from_output(output, self._slots, where)


def hosts_from_output(output: str, slots: int, where: str) -> dict[str, int]:
    """Host name -> slots, in the order of the lines. DiscoveryError names the first line that is wrong."""
    hosts: dict[str, int] = {}  # also with 0 slots, which may not be named again either
    for number, line in enumerate(output.splitlines(), 1):
        words = line.partition("#")[0].strip()
        if not words:
            continue
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
    """(exit code, or minus the signal; standard output; standard error) of a shell's command."""
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
            output, words = _read(process, time.monotonic() + timeout)
        except _TooMuchError:
            raise errors.script_too_much(script=where, most=_MOST_OUTPUT >> 20) from None
        except TimeoutError:
            raise errors.script_too_slow(script=where, seconds=timeout) from None
        finally:
            _end_group(process)
    return process.returncode, output.decode(errors="replace"), words.decode(errors="replace")


class _TooMuchError(Exception):
    """The script prints without an end."""


def _read(process: subprocess.Popen[bytes], deadline: float) -> tuple[bytes, bytes]:
    """What it prints until it has ended: what it left running may hold the pipes, and is not waited for."""
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
            raise _TooMuchError
        if has_ended and not ready:
            output, words = texts.values()
            return output, words
        if time.monotonic() > deadline:
            raise TimeoutError
        if not open_ends and not has_ended:
            time.sleep(_POLL)


def _end_group(process: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return  # all have ended


class RepeatedDiscovery:
    """Asks a HostDiscovery again and again: a failure of the first time ends the job, later ones pass.

    `say` gets a sentence when discovery begins to fail, when it fails otherwise than before, once a minute at
    most, and when it works again.
    """

    def __init__(
        self,
        discovery: HostDiscovery,
        say: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._discovery = discovery
        self._say = say
        self.has_worked = False
        self._clock = clock
        self._failure, self._said_at = "", 0.0

    def find(self) -> dict[str, int] | None:
        """Host name -> slots; None where it failed and the hosts known before hold. LaunchError at first."""
        try:
            hosts = self._discovery.find_available_hosts_and_slots()
        except Exception as error:  # a HostDiscovery of the user's may raise anything: it is said, or raised
            if not self.has_worked:
                raise errors.no_hosts_found(**facts_of(error)) from error
            now = self._clock()
            if not self._failure or (
                str(error) != self._failure and now - self._said_at >= time_limits.DISCOVERY_SAY_AGAIN
            ):
                self._failure, self._said_at = str(error), now
                self._say(f"hosts stay as they are, and are looked for again: {error}")
            return None
        if self._failure:
            self._failure = ""
            self._say("host discovery works again")
        self.has_worked = True
        return hosts


@dataclass(frozen=True)
class DiscoveredHosts:
    """Hosts of one moment. `host_assignment_order`: those that may be used, the oldest first.

    `host_slots` has all that discovery named, those on the blacklist too.
    """

    host_slots: Mapping[str, int] = field(default_factory=dict)
    host_assignment_order: Sequence[str] = ()

    @property
    def available_hosts(self) -> set[str]:
        return set(self.host_assignment_order)

    def get_slots(self, host: str) -> int:
        """Slots of the host; 0 where discovery did not name it."""
        return self.host_slots.get(host, 0)

    def count_available_slots(self) -> int:
        """Slots of all hosts that may be used."""
        return sum(map(self.get_slots, self.host_assignment_order))


class HostManager:
    """What discovery finds, in a stable order, without the hosts that have failed. For any thread.

    `cooldown_range`: (lowest, highest) seconds that a failed host is kept away; None: it never comes back.
    ValueError for a wrong range.
    """

    def __init__(
        self,
        discovery: HostDiscovery,
        cooldown_range: tuple[float, float] | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._discovery = discovery
        self._blacklist: Blacklist[str] = Blacklist(cooldown_range, clock, chance)
        self._lock = threading.Lock()
        self._slots: dict[str, int] = {}  # guarded by _lock; in order of age

    @property
    def current_hosts(self) -> DiscoveredHosts:
        """As of the last update; a host that was put on the blacklist since is not available any more."""
        with self._lock:
            usable = [host for host in self._slots if host not in self._blacklist]
            return DiscoveredHosts(dict(self._slots), tuple(usable))

    def update_available_hosts(self) -> HostUpdateResult:
        """Look for hosts, and say what has changed. What `discovery` raises is passed on.

        A host that comes back from the blacklist counts as added. A host on it is not told of.
        """
        found = self._discovery.find_available_hosts_and_slots()
        with self._lock:
            before = self._slots
            order = self.order_available_hosts(found, list(before))
            self._slots = {host: found[host] for host in order}
            returned = self._blacklist.pop_returned()
            result = HostUpdateResult.no_update
            for host in {**before, **found}:
                was, now = before.get(host, 0), found.get(host, 0)
                if host in self._blacklist:
                    continue
                if now > was or (host in returned and now > 0):
                    result |= HostUpdateResult.added
                elif now < was:
                    result |= HostUpdateResult.removed
            return result

    def blacklist(self, host: str) -> float:
        """Keep the host away from now on: seconds, or infinity where it never comes back."""
        with self._lock:
            return self._blacklist.add(host)

    def is_blacklisted(self, host: str) -> bool:
        with self._lock:
            return host in self._blacklist

    def can_return(self) -> bool:
        """Whether hosts come back from the blacklist at all."""
        return self._blacklist.range is not None

    @staticmethod
    def order_available_hosts(available_hosts: Collection[str], ordered_hosts: Sequence[str]) -> list[str]:
        """The hosts of `ordered_hosts` that are still available, in that order; then those that are new."""
        kept = [host for host in ordered_hosts if host in available_hosts]
        return kept + [host for host in available_hosts if host not in set(kept)]
