"""A made host's processes, and logins. Process 1 is its sshd; if it dies, the kernel kills all others."""

from __future__ import annotations

import contextlib
import os
import pwd
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from horovod.made_hosts import errors
from horovod.made_hosts.system import path_of, processes_in, run, started

BOOT_SECONDS = 10.0
# Own folders for temporary files: Open MPI names session folders by process numbers, which repeat between
# hosts and boots. /tmp stays shared, as jobs may read files there. Logins read no ~/.bashrc: pyenv's line
# takes a lock in the shared home folder, and a host that is cut just then would block all later logins of
# this machine.
BOOT = """
set -e
name=$1 folder=$2 home=$3 sshd=$4
echo "$name" >/proc/sys/kernel/hostname
mount -t tmpfs -o mode=1777 shm /dev/shm
mount -t tmpfs -o mode=1777 tmp "$folder/tmp"
mount --bind "$folder/etc-hosts" /etc/hosts
mkdir -p /run/sshd
mkdir -p -m 700 "$home/.ssh"
mount --bind "$folder/dot-ssh" "$home/.ssh"
[ ! -e "$home/.bashrc" ] || mount --bind /dev/null "$home/.bashrc"
export TMPDIR="$folder/tmp"
exec "$sshd" -D -e -f "$folder/sshd_config"
"""
CLIENT = """\
Host *
  BatchMode yes
  StrictHostKeyChecking yes
  ConnectTimeout 10
  LogLevel ERROR
"""
# StrictModes checks parent folders, which others own. MaxStartups: launchers log in all at once.
SERVER = """\
Port 22
HostKey {host_key}
AuthorizedKeysFile {authorized}
StrictModes no
PasswordAuthentication no
KbdInteractiveAuthentication no
PubkeyAuthentication yes
PermitRootLogin prohibit-password
UsePAM no
UseDNS no
MaxStartups 100
PidFile none
SetEnv TMPDIR={temporary}
"""
# In the caller's folder, if the host has it: $TMPDIR is a different folder there.
ENTER = 'cd "$1" 2>/dev/null || cd /; shift; exec "$@"'


@dataclass(frozen=True)
class Login:
    """Logins between the hosts of a cluster: its own key is the only one that sshd accepts.

    The files lie in `folder`; BOOT mounts them at their usual places.
    """

    folder: Path

    @property
    def user_folder(self) -> Path:
        """~/.ssh of the hosts."""
        return self.folder / "dot-ssh"

    @property
    def temporary(self) -> Path:
        """The path at which each host mounts its own folder for temporary files."""
        return self.folder / "tmp"

    def write(self, addresses: Mapping[str, str]) -> None:
        """Write keys and configuration for hosts of these names and addresses."""
        self.user_folder.mkdir(mode=0o700)
        self.temporary.mkdir()
        user_key, host_key = self.user_folder / "id_ed25519", self.folder / "host_key"
        for key, comment in ((user_key, "made-hosts"), (host_key, "made-host")):
            run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(key))
        kind, code, _ = host_key.with_suffix(".pub").read_text().split()
        known = [f"{name},{address} {kind} {code}\n" for name, address in addresses.items()]
        authorized = self.user_folder / "authorized_keys"
        files = {
            authorized: user_key.with_suffix(".pub").read_text(),
            self.user_folder / "known_hosts": "".join(known),
            self.user_folder / "config": CLIENT,
            self.folder / "sshd_config": SERVER.format(
                host_key=host_key, authorized=authorized, temporary=self.temporary
            ),
        }
        for path, text in files.items():
            path.write_text(text)
            path.chmod(0o600)
        names = [f"{address} {name}\n" for name, address in addresses.items()]
        (self.folder / "etc-hosts").write_text("127.0.0.1 localhost\n" + "".join(names))


@dataclass(frozen=True)
class Host:
    """A host. Its state is the kernel's, so all objects for the same host agree."""

    name: str
    namespace: str  # of the network
    login: Login

    def first_process(self) -> int | None:
        """Return process 1 of the host, by its number outside; None if the host is not up."""
        for process in processes_in(self.namespace):
            with contextlib.suppress(OSError):  # it has ended meanwhile
                status = Path(f"/proc/{process}/status").read_text()
                numbers = next(line for line in status.splitlines() if line.startswith("NSpid:")).split()[1:]
                if len(numbers) == 2 and numbers[1] == "1":
                    return process
        return None

    def boot(self) -> None:
        """Start the host, and wait until logins are possible. No effect if it is up."""
        if self.first_process() is not None:
            return
        log = self.login.folder / f"{self.name}.log"
        home = pwd.getpwuid(os.getuid()).pw_dir
        apart = ["--uts", "--ipc", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child=KILL"]
        given = [self.name, str(self.login.folder), home, str(path_of("sshd"))]
        process = started(self.namespace, ["unshare", *apart, "sh", "-c", BOOT, "sh", *given], log)
        deadline = time.monotonic() + BOOT_SECONDS
        while not self.listens():
            if process.poll() is not None or time.monotonic() > deadline:
                process.kill()
                raise errors.not_started(host=self.name, said=log.read_text(errors="replace").strip())
            time.sleep(0.02)

    def listens(self) -> bool:
        """Whether the host's sshd accepts connections: port 22 (hexadecimal 16) in state LISTEN (0A)."""
        process = self.first_process()
        if process is None:
            return False
        try:
            table = Path(f"/proc/{process}/net/tcp").read_text().splitlines()[1:]
        except OSError:
            return False
        return any(row.split()[1].endswith(":0016") and row.split()[3] == "0A" for row in table)

    def kill(self) -> None:
        """End all processes of the host, and wait until they are gone. The kernel closes connections."""
        first = self.first_process()
        if first is not None:
            _kill(first)
        # The others die with it. Processes that remain have entered its network from outside.
        patience = time.monotonic() + 1.0
        while left := processes_in(self.namespace):
            now = time.monotonic()
            if now > patience:
                for process in left:
                    _kill(process)
            if now > patience + BOOT_SECONDS:
                raise errors.not_killed(processes=left, host=self.name)
            time.sleep(0.01)

    def command(self, words: Sequence[str], folder: str) -> list[str]:
        """Return the command line that runs `words` on the host, in `folder`. Ending it ends the command."""
        process = self.first_process()
        if process is None:
            raise errors.not_up(host=self.name)
        # nsenter waits for a child in the host; setpriv makes the kernel signal the child when nsenter ends.
        into = [str(path_of("nsenter")), "-t", str(process), "-m", "-u", "-i", "-n", "-p", "--"]
        private = ["env", f"TMPDIR={self.login.temporary}"]
        return [*into, "setpriv", "--pdeathsig", "TERM", *private, "sh", "-c", ENTER, "sh", folder, *words]


def _kill(process: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)
