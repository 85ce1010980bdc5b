"""Logins between the hosts of a cluster: its own key is the only one that sshd accepts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from horovod.made_hosts.system import run

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


@dataclass(frozen=True)
class Login:
    """The login files of one cluster under `folder`; hosts find them at their usual places."""

    folder: Path

    @property
    def user_folder(self) -> Path:
        """~/.ssh of the hosts."""
        return self.folder / "dot-ssh"

    @property
    def server_configuration(self) -> Path:
        return self.folder / "sshd_config"

    @property
    def host_table(self) -> Path:
        """/etc/hosts of the hosts."""
        return self.folder / "etc-hosts"

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
            self.server_configuration: SERVER.format(
                host_key=host_key, authorized=authorized, temporary=self.temporary
            ),
        }
        for path, text in files.items():
            path.write_text(text)
            path.chmod(0o600)
        names = [f"{address} {name}\n" for name, address in addresses.items()]
        self.host_table.write_text("127.0.0.1 localhost\n" + "".join(names))
