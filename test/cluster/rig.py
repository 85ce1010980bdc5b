"""The hosts of these tests: `horovod.made_hosts`, with this copy of the package and its programs first."""

from __future__ import annotations

import importlib.util
import itertools
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from horovod import made_hosts

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "test" / "parallel"), str(ROOT / "test")]
import launching  # noqa: E402 -- in a neighbouring folder

PREFIX = "t"  # of host names
NET = "10.77.0"


def why_not() -> str:
    """Return why no hosts can be made here; "" if they can."""
    if importlib.util.find_spec("horovod._native") is None:
        return "the native core is not built"
    return made_hosts.why_not()


class Cluster:
    """Hosts t1, t2, ... on one network, with programs, files and home of this machine."""

    def __init__(self, hosts: int, rate: str = "none") -> None:
        self.made = made_hosts.MadeHosts(hosts, rate=rate, prefix=PREFIX)
        self.names = self.made.names
        self.home = self.made.folder
        self.broken: set[str] = set()
        self._ports = itertools.count(20000)  # no host chooses these by itself

    def up(self) -> None:
        self.made.up()

    def down(self) -> None:
        self.made.down()

    def mend(self) -> None:
        """Start hosts again that a test has stopped."""
        for name in sorted(self.broken):
            self.made.boot(name)
        self.broken.clear()

    def next_port(self) -> str:
        """Return a port for a job's ranks to meet, a new one each time: the last may still be in use."""
        return str(next(self._ports))

    def break_(self, how: str, host: str) -> None:
        """Break a host. `how`: `cut` (power), `kill` (all processes) or `unlink` (the network cable)."""
        self.broken.add(host)
        {"cut": self.made.cut, "kill": self.made.kill, "unlink": self.made.unlink}[how](host)

    def network(self, host: str, command: str) -> str:
        """Run an `ip` command in a host's network, as `link add ...`."""
        words = ["ip", "-n", self.made.namespace(host), *command.split()]
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout

    def environment(self, **variables: str) -> dict[str, str]:
        return launching.environment("cluster", HOME=str(self.home), **variables)

    def start(self, host: str, words: Sequence[str], **variables: str) -> subprocess.Popen[str]:
        """Start a command on a host, with this Python's programs and this copy of the package."""
        return self.made.start(host, words, self.environment(**variables))

    def run(
        self, host: str, words: Sequence[str], limit: float = 60, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        return self.made.run(host, words, limit, self.environment(**variables))

    def horovodrun(
        self, *arguments: str, limit: float = 60, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        return self.run(
            self.names[0], [sys.executable, "-m", "horovod.runner", *arguments], limit, **variables
        )

    def files_left(self) -> list[str]:
        """Return the files that jobs left in the hosts' folders for temporary files, except torch's cache."""
        listed = [self.run(name, ["sh", "-c", 'ls -A "$TMPDIR"']).stdout.split() for name in self.names]
        return [file for files in listed for file in files if not file.startswith("torch")]
