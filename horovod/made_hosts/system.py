"""Requirements of made hosts: programs, root, and a kernel with namespaces."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from horovod.made_hosts import errors
from horovod.made_hosts.errors import HostsError

# Program -> its package on Debian and Ubuntu.
PROGRAMS = {
    "ip": "iproute2",
    "tc": "iproute2",
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "setpriv": "util-linux",
    "ssh": "openssh-client",
    "ssh-keygen": "openssh-client",
    "sshd": "openssh-server",
}
NETWORK_NAMESPACES = Path("/run/netns")  # iproute2's
LIMIT = 30  # seconds for a command that takes milliseconds


def path_of(program: str) -> str | None:
    """Return the program's full path, which sshd requires; /usr/sbin may be missing from PATH."""
    everywhere = [os.environ.get("PATH", os.defpath), "/usr/local/sbin", "/usr/sbin", "/sbin"]
    return shutil.which(program, path=os.pathsep.join(everywhere))


def run(*words: str) -> str:
    """Run a command of PROGRAMS and return its output. Raises HostsError if it fails."""
    program = path_of(words[0])
    if program is None:
        raise errors.not_installed(program=words[0], package=PROGRAMS[words[0]])
    try:
        done = subprocess.run(
            [program, *words[1:]],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=LIMIT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise errors.too_slow(command=" ".join(words), limit=LIMIT) from None
    if done.returncode != 0:
        said = (done.stderr + done.stdout).strip() or "no message"
        raise errors.failed(command=" ".join(words), exit_code=done.returncode, said=said)
    return done.stdout


def started(
    namespace: str, words: Sequence[str], log: Path, folder: Path = Path("/")
) -> subprocess.Popen[bytes]:
    """Start a command in a network namespace, in its own session: no interrupt from the keyboard ends it."""
    command = [str(path_of("ip")), "netns", "exec", namespace, *words]
    with log.open("wb") as said:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=said, stderr=said, cwd=folder, start_new_session=True
        )


def why_not() -> str:
    """Return why this machine cannot have made hosts; "" if it can."""
    if os.geteuid() != 0:
        return "making hosts needs root"
    lacking = [program for program in PROGRAMS if path_of(program) is None]
    if lacking:
        packages = sorted({PROGRAMS[program] for program in lacking})
        return f"not installed: {', '.join(lacking)} (apt-get install {' '.join(packages)})"
    probe = f"horovod-probe-{os.getpid()}"
    try:
        run("ip", "netns", "add", probe)
        run("ip", "netns", "del", probe)
    except HostsError as error:
        return f"network namespaces cannot be made: {error}"
    return ""


def processes_in(namespace: str) -> list[int]:
    """Return the processes of a named network namespace; an empty list if it does not exist."""
    try:
        wanted = (NETWORK_NAMESPACES / namespace).stat().st_ino
    except FileNotFoundError:
        return []
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                number = (folder / "ns" / "net").stat().st_ino
            except OSError:
                continue  # it has ended
            if number == wanted:
                found.append(int(folder.name))
    return found


def start_time(process: int) -> str:
    """Return a process' start time in clock ticks, unique with its number; "" if it has ended."""
    try:
        return statistics_of(process)[19]
    except OSError:
        return ""


def statistics_of(process: int) -> list[str]:
    """Return the fields of proc(5)'s stat from the third on, the state. OSError if the process has ended."""
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
