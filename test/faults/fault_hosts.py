"""Two made hosts, on which fault programs run one after the other; and all that a program leaves there."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from horovod.made_hosts import MadeHosts
from horovod.made_hosts.system import processes_in

LAUNCHER, OTHER = HOSTS = ("f1", "f2")
OF_THE_SYSTEM = ("sshd", "sshd-session", "sshd-auth")
OF_TORCH = "torch"  # it keeps a cache among the temporary files
_one_at_a_time = threading.Lock()  # clusters of one process are made by one thread at a time


@dataclass(frozen=True)
class Process:
    number: int
    state: str
    command: str
    environment: tuple[str, ...]

    def __str__(self) -> str:
        return f"process {self.number} ({self.state}): {self.command}"

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):  # it has ended meanwhile
            os.kill(self.number, signal.SIGKILL)


def process(number: int) -> Process | None:
    """What runs under this number; None when it has ended, or is a zombie."""
    folder = Path(f"/proc/{number}")
    try:
        state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
        command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        environment = (folder / "environ").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return None
    return None if state in "ZX" or not command else Process(number, state, command, tuple(environment))


def _is_inside(number: int) -> bool:
    """Whether it has a number in a host too: outside of the hosts processes have one."""
    try:
        status = Path(f"/proc/{number}/status").read_text()
    except OSError:
        return False
    return len(next(line for line in status.splitlines() if line.startswith("NSpid:")).split()) > 2


class FaultHosts:
    """Each has its own /dev/shm, folder for temporary files and processes: nobody else's are seen there."""

    def __init__(self) -> None:
        self.made = MadeHosts(len(HOSTS), prefix="f")
        self.folder = self.made.folder / "faults"  # goes with the hosts, also when this process is killed
        self.full = self.folder / "full"  # where the small disk is

    def __enter__(self) -> FaultHosts:
        with _one_at_a_time:
            self.made.up()
        self.full.mkdir(parents=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with _one_at_a_time:
            self.made.down()

    def start(
        self, words: Sequence[str], environment: dict[str, str], out: int, err: int
    ) -> subprocess.Popen[bytes]:
        """Start horovodrun; it runs on the first host as the only child of what this returns."""
        command = self.made.command(LAUNCHER, words)
        return subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=err)

    def mount_small_disk(self, kibibytes: int) -> None:
        size = f"size={kibibytes}k"
        done = self.made.run(LAUNCHER, ["mount", "-t", "tmpfs", "-o", size, "full", str(self.full)])
        if done.returncode != 0:
            raise RuntimeError(f"the small disk cannot be mounted: {done.stderr}")

    def small_disk(self) -> Path:
        """The small disk, seen from outside of the host."""
        return self._root(LAUNCHER) / self.full.relative_to("/")

    def _root(self, host: str) -> Path:
        first = self.made._host(host).first_process()
        return Path(f"/proc/{first}/root")

    def processes(self, host: str) -> list[Process]:
        """All but the host's own: its logins, and what holds it from outside."""
        inside = filter(_is_inside, processes_in(self.made.namespace(host)))
        found = [one for one in map(process, inside) if one]
        return [one for one in found if Path(one.command.split()[0].rstrip(":")).name not in OF_THE_SYSTEM]

    def left(self) -> list[str]:
        """Processes, shared memory and temporary files that are on the hosts now."""
        found = []
        for host in HOSTS:
            found += [f"{host}: {one}" for one in self.processes(host)]
            if self.made._host(host).first_process() is None:
                continue  # its memory went with it
            root = self._root(host)
            temporary = root / self.made.login.temporary.relative_to("/")
            for folder, name in ((root / "dev" / "shm", "/dev/shm"), (temporary, "$TMPDIR")):
                with contextlib.suppress(FileNotFoundError):  # the host has ended meanwhile
                    files = sorted(path.name for path in folder.iterdir())
                    found += [f"{host}: {name}/{file}" for file in files if not file.startswith(OF_TORCH)]
        return found

    def strike(self, kind: str) -> None:
        {"host_cut": self.made.cut, "host_killed": self.made.kill, "host_unlinked": self.made.unlink}[kind](
            OTHER
        )

    def renew(self) -> None:
        """As new: whatever is there ends, mounts and memory included."""
        for host in HOSTS:
            self.made.kill(host)
            self.made.boot(host)
