"""Clusters of made hosts: creation, lookup by name, and removal, also by later processes."""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from horovod.made_hosts import errors
from horovod.made_hosts.host import Host, Login
from horovod.made_hosts.network import Network, remove, seconds_of
from horovod.made_hosts.system import NETWORK_NAMESPACES, start_time, why_not

# Like network namespaces, it lasts until the machine restarts.
FOLDER = Path("/run/horovod-made-hosts")
NAMESPACE = "horovod"  # first word of the names of this package's network namespaces
MOST_HOSTS = 250  # the last byte of an address is 1 to 250
_numbers = itertools.count(1)  # of the clusters that this process has made
# All clusters use the same subnet: each has its own switch, and clusters are not connected.
SUBNET = "10.77.0"


class MadeHosts:
    """A cluster of `count` hosts, h1, h2, ... with addresses 10.77.0.1, 10.77.0.2, ...

    `up`, or the block of a `with`, makes the hosts. Methods raise HostsError; none is thread-safe.

    Args:
        count: 1 to 250.
        rate: limit of each cable in each direction, as tc takes it ("1gbit"), or "none".
        rtt: time of a round trip between two hosts, as "20ms", or "none" for no added delay. With a delay
            each frame passes a process, which was measured up to 200mbit.
        name: of the cluster; the default is unique.
        prefix: of the hosts' names.
        keep: the hosts outlive this process; otherwise the next `up` of any process removes leftover hosts.
    """

    def __init__(
        self,
        count: int,
        *,
        rate: str = "none",
        rtt: str = "none",
        name: str = "",
        prefix: str = "h",
        keep: bool = False,
    ) -> None:
        self.cluster = name or f"process{os.getpid()}cluster{next(_numbers)}"
        for word in (self.cluster, prefix):
            if not re.fullmatch(r"[A-Za-z0-9]+", word):
                raise errors.no_name(got=word)
        if not 1 <= count <= MOST_HOSTS:
            raise errors.no_such_count(most=MOST_HOSTS, got=count)
        self.rate_limit = rate
        self.rtt = rtt
        self.prefix = prefix
        self._owner = None if keep else [os.getpid(), start_time(os.getpid())]
        self.folder = FOLDER / self.cluster
        self.login = Login(self.folder)
        self._network = Network(self._namespace("switch"), seconds_of(rtt))
        self.names = [f"{prefix}{number}" for number in range(1, count + 1)]
        self.addresses = {name: f"{SUBNET}.{number}" for number, name in enumerate(self.names, 1)}
        self._hosts = {name: Host(name, self._namespace(name), self.login) for name in self.names}

    @staticmethod
    def open(name: str) -> MadeHosts:
        """Return an existing cluster by name."""
        record = _record(FOLDER / name)
        if record is None:
            raise errors.no_cluster(got=name)
        made = {key: record[key] for key in ("rate", "rtt", "prefix")}
        found = MadeHosts(record["count"], name=name, **made)
        found._owner = record["owner"]
        return found

    def up(self) -> None:
        """Make the hosts, or make them again; remove hosts of processes that ended without `down`."""
        reason = why_not()
        if reason:
            raise errors.not_possible(why=reason)
        with _locked():
            for folder in sorted(FOLDER.iterdir()):
                if folder.is_dir() and (folder == self.folder or _is_left_over(folder)):
                    _remove(folder.name)
            self.folder.mkdir()
            self._write_record()  # first, so that later processes find the cluster whatever happens
            try:
                self._make()
            except BaseException:
                _remove(self.cluster)
                raise

    def _make(self) -> None:
        self.login.write(self.addresses)
        self._network.make()
        for name, address in self.addresses.items():
            self._network.attach(self._hosts[name].namespace, name, f"{address}/24")
        self.rate(self.rate_limit)
        self._network.switch_on(self.names, self.folder / "switch.log")
        for host in self._hosts.values():
            host.boot()

    def down(self) -> None:
        """End all processes of the hosts and remove everything; no effect if nothing exists."""
        if FOLDER.is_dir():
            with _locked():
                _remove(self.cluster)

    def __enter__(self) -> MadeHosts:
        self.up()
        return self

    def __exit__(self, *_: object) -> None:
        self.down()

    def command(self, host: str, words: Sequence[str]) -> list[str]:
        """Return the command line that runs `words` on a host, in the current folder."""
        return self._host(host).command(words, os.getcwd())

    def start(
        self, host: str, words: Sequence[str], environment: Mapping[str, str] | None = None
    ) -> subprocess.Popen[str]:
        """Start a command on a host, with pipes for its output. environment: replaces this process's."""
        return subprocess.Popen(
            self.command(host, words),
            env=dict(os.environ if environment is None else environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )

    def run(
        self,
        host: str,
        words: Sequence[str],
        limit: float = 60,
        environment: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command on a host to its end. Raises HostsError if it takes more than `limit` seconds."""
        process = self.start(host, words, environment)
        try:
            out, err = process.communicate(timeout=limit)
        except BaseException as error:
            process.terminate()
            out, err = process.communicate()
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            said = f"{out[-2000:]} {err[-2000:]}"
            raise errors.too_slow_on_host(words=list(words), host=host, limit=limit, said=said) from None
        return subprocess.CompletedProcess(list(words), process.returncode, out, err)

    def kill(self, host: str) -> None:
        """End all processes of a host. Its kernel still closes the connections, so peers notice."""
        self._host(host).kill()

    def cut(self, host: str) -> None:
        """Simulate a power cut of a host: its peers receive nothing any more."""
        self.unlink(host)
        self.kill(host)

    def unlink(self, host: str) -> None:
        """Pull out a host's network cable."""
        self._network.plug(self._host(host).namespace, False)

    def link(self, host: str) -> None:
        """Plug a host's network cable in again."""
        self._network.plug(self._host(host).namespace, True)

    def boot(self, host: str) -> None:
        """Start a host that was killed or cut, with its cable plugged in."""
        self.link(host)
        self._host(host).boot()

    def rate(self, rate: str, host: str = "") -> None:
        """Limit all cables, or one host's, to this rate in each direction ("1gbit", "none")."""
        for name in [host] if host else self.names:
            self._network.shape(self._host(name).namespace, name, rate)
        if not host:
            self.rate_limit = rate

    def bytes(self, host: str) -> tuple[int, int]:
        """Return the bytes that a host has received and sent by its cable, headers included."""
        return self._network.bytes(self._host(host).namespace)

    def switch_seconds(self) -> float:
        """Return the processor time that `rtt` has cost so far, in seconds."""
        return self._network.switch_seconds()

    def namespace(self, host: str) -> str:
        """Return the name of a host's network for `ip -n` and `tc -n`."""
        return self._host(host).namespace

    def status(self) -> dict[str, str]:
        """Return each host's address and state: "up", "down" or "unlinked"."""
        states = {}
        for name, host in self._hosts.items():
            plugged = self._network.is_plugged(host.namespace)
            state = "down" if host.first_process() is None else "up" if plugged else "unlinked"
            states[name] = f"{self.addresses[name]} {state}"
        return states

    def _host(self, name: str) -> Host:
        if name not in self._hosts:
            raise errors.no_host(got=name, choices=self.names)
        return self._hosts[name]

    def _namespace(self, name: str) -> str:
        return f"{NAMESPACE}-{self.cluster}-{name}"

    def _write_record(self) -> None:
        record = {
            "count": len(self.names),
            "prefix": self.prefix,
            "rate": self.rate_limit,
            "rtt": self.rtt,
            "owner": self._owner,  # process and start time; null: kept until removed by `down`
        }
        (self.folder / "cluster.json").write_text(json.dumps(record))


@contextlib.contextmanager
def _locked() -> Iterator[None]:
    """Hold the lock for making or removing clusters; the kernel releases it when its holder ends."""
    FOLDER.mkdir(mode=0o755, exist_ok=True)
    with (FOLDER / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _record(folder: Path) -> Any:
    """Return the record that `up` wrote about a cluster; None if there is none, or it is incomplete."""
    try:
        return json.loads((folder / "cluster.json").read_text())
    except (FileNotFoundError, json.JSONDecodeError):
        return None


def _is_left_over(folder: Path) -> bool:
    """Whether the process that made this cluster, and should have removed it, has ended."""
    record = _record(folder)
    if record is None:
        return True
    if record["owner"] is None:
        return False
    process, started = record["owner"]
    return start_time(int(process)) != str(started)


def _remove(cluster: str) -> None:
    """Remove everything of this cluster, even if `up` did not finish."""
    mine = f"{NAMESPACE}-{cluster}-"
    if NETWORK_NAMESPACES.is_dir():
        for path in sorted(NETWORK_NAMESPACES.iterdir()):
            if path.name.startswith(mine):
                Host(path.name.removeprefix(mine), path.name, Login(FOLDER / cluster)).kill()
                remove(path.name)
    if (FOLDER / cluster).exists():
        shutil.rmtree(FOLDER / cluster)
