"""The places of failing jobs, used one after the other: how hosts are struck, and what a job leaves."""

# private: _host: a made host's processes are visible only through it

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "cluster"))
from rig import Cluster, launching  # of a neighbouring folder

from horovod.made_hosts.system import processes_in

LAUNCHER, OTHER = HOSTS = ("t1", "t2")
OF_THE_SYSTEM = ("sshd", "sshd-session", "sshd-auth")
OF_TORCH = "torch"  # it keeps a cache among the temporary files
_one_at_a_time = threading.Lock()  # only one thread at a time may make clusters of a process


@dataclass(frozen=True)
class Process:
    number: int
    state: str
    words: tuple[str, ...]
    environment: tuple[str, ...]

    @property
    def name(self) -> str:
        return Path(self.words[0].split()[0].rstrip(":")).name

    def __str__(self) -> str:
        return f"process {self.number} ({self.state}): {' '.join(self.words)}"


def process(number: int) -> Process | None:
    """Return the process with this number; None if it has ended or is a zombie."""
    folder = Path(f"/proc/{number}")
    try:
        state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
        words, environment = (
            tuple((folder / name).read_bytes().decode(errors="replace").rstrip("\0").split("\0"))
            for name in ("cmdline", "environ")
        )
    except OSError:
        return None
    return None if state in "ZX" or not words[0].strip() else Process(number, state, words, environment)


def send(number: int, signal_number: int) -> None:
    with contextlib.suppress(ProcessLookupError):  # it has ended in the meantime
        os.kill(number, signal_number)


class Place:
    """names: all hosts that jobs may have; others: hosts that can be struck. folder: visible to all hosts."""

    names: list[str]
    others: list[str]
    folder: Path

    def start(self, words: Sequence[str], out: int, err: int, **variables: str) -> subprocess.Popen[bytes]:
        raise NotImplementedError

    def launcher(self, job: subprocess.Popen[bytes]) -> Process | None:
        """Return the process of horovodrun itself; None before it exists."""
        raise NotImplementedError

    def signal(self, host: str, number: int, signal_number: int) -> None:
        """Send a signal to a process, by its number on that host."""
        raise NotImplementedError

    def strike(self, how: str, host: str) -> None:
        """Strike a host. how: cut, kill, unlink, link or boot."""
        raise AssertionError(f"{host} is no host that one can {how}")

    def processes(self, host: str = "") -> list[Process]:
        """Return the job's processes, on all hosts or on this one, by their numbers here."""
        raise NotImplementedError

    def left(self) -> list[str]:
        """Return complaints about what remains after a job has ended."""
        return [str(one) for one in self.processes()]

    def renew(self) -> None:
        """End everything that remains, so that the place is as new."""
        for one in self.processes():
            send(one.number, signal.SIGKILL)


class Loopback(Place):
    """Hosts that are names of this machine."""

    def __init__(self, folder: Path) -> None:
        self.names, self.others, self.folder = [f"127.0.0.{n}" for n in range(1, 6)], [], folder
        self._mark = launching.fresh_mark()

    def start(self, words: Sequence[str], out: int, err: int, **variables: str) -> subprocess.Popen[bytes]:
        own = launching.environment(self._mark, **variables)
        return subprocess.Popen(words, env=own, stdin=subprocess.DEVNULL, stdout=out, stderr=err)

    def launcher(self, job: subprocess.Popen[bytes]) -> Process | None:
        return process(job.pid)

    def signal(self, host: str, number: int, signal_number: int) -> None:
        send(number, signal_number)

    def processes(self, host: str = "") -> list[Process]:
        numbers = [int(line.partition(":")[0]) for line in launching.processes_of(self._mark)]
        return [one for one in map(process, numbers) if one]


class Made(Place):
    """Made hosts. Each has its own /dev/shm, temporary files and processes, invisible to other hosts.

    The first host, on which horovodrun is, has other names too.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.made, self._environment = cluster.made, cluster.environment
        first, *self.others = cluster.names
        self.names = [first, "127.0.0.2", *self.others, "127.0.0.3"]
        self.folder = self.made.folder / "failures"  # removed with the hosts, also if this process is killed
        self.full = self.folder / "full"  # the mount point of the small disk
        self.full.mkdir(parents=True)

    def start(self, words: Sequence[str], out: int, err: int, **variables: str) -> subprocess.Popen[bytes]:
        command = self.made.command(LAUNCHER, words)
        own = self._environment(**variables)
        return subprocess.Popen(command, env=own, stdin=subprocess.DEVNULL, stdout=out, stderr=err)

    def launcher(self, job: subprocess.Popen[bytes]) -> Process | None:
        """Return the only child of the process that waits for it outside of the host."""
        children = Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text().split()
        return process(int(children[0])) if children else None

    def signal(self, host: str, number: int, signal_number: int) -> None:
        where = host if host in self.others else LAUNCHER
        if self._first_process(where) is not None:
            self.made.run(where, ["sh", "-c", f"kill -{signal_number} {number} 2>/dev/null || :"])

    def strike(self, how: str, host: str) -> None:
        getattr(self.made, how)(host)

    def mount_small_disk(self, kibibytes: int) -> None:
        size = f"size={kibibytes}k"
        done = self.made.run(LAUNCHER, ["mount", "-t", "tmpfs", "-o", size, "full", str(self.full)])
        if done.returncode != 0:
            raise RuntimeError(f"the small disk cannot be mounted: {done.stderr}")
        self._disk = self._root(LAUNCHER) / self.full.relative_to("/")  # its path outside of the host

    def disk_is_full(self) -> bool:
        return os.statvfs(self._disk).f_bfree == 0

    def _first_process(self, host: str) -> int | None:
        return self.made._host(host).first_process()

    def _root(self, host: str) -> Path:
        return Path(f"/proc/{self._first_process(host)}/root")

    def processes(self, host: str = "") -> list[Process]:
        """Return all processes except the hosts' own: their logins, and their holders outside."""
        names = [host] if host else self.made.names
        numbers = [number for name in names for number in processes_in(self.made.namespace(name))]
        found = [one for one in map(process, filter(_is_inside, numbers)) if one]
        return [one for one in found if one.name not in OF_THE_SYSTEM]

    def left(self) -> list[str]:
        """Return processes, shared memory and temporary files that remain."""
        found = []
        for host in self.made.names:
            found += [f"{host}: {one}" for one in self.processes(host)]
            if self._first_process(host) is None:
                continue  # its memory is gone with it
            root = self._root(host)
            temporary = root / self.made.login.temporary.relative_to("/")
            for folder, name in ((root / "dev" / "shm", "/dev/shm"), (temporary, "$TMPDIR")):
                with contextlib.suppress(FileNotFoundError):  # the host has ended in the meantime
                    files = sorted(path.name for path in folder.iterdir())
                    found += [f"{host}: {name}/{file}" for file in files if not file.startswith(OF_TORCH)]
        return found

    def renew(self) -> None:
        """Renew mounts and memory too."""
        for host in self.made.names:
            self.made.kill(host)
            self.made.boot(host)


def _is_inside(number: int) -> bool:
    """Return whether the process is in a host: such a process has a second number there."""
    try:
        status = Path(f"/proc/{number}/status").read_text()
    except OSError:
        return False
    return len(next(line for line in status.splitlines() if line.startswith("NSpid:")).split()) > 2


@contextmanager
def made(hosts: int = len(HOSTS)) -> Iterator[Made]:
    cluster = Cluster(hosts)
    try:
        with _one_at_a_time:
            cluster.up()
        yield Made(cluster)
    finally:
        with _one_at_a_time:
            cluster.down()


@contextmanager
def loopback() -> Iterator[Loopback]:
    with tempfile.TemporaryDirectory(prefix="failures-") as folder:
        yield Loopback(Path(folder))
