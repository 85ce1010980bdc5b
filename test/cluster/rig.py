"""Hosts made of namespaces on this machine, with real ssh between them: ../shared/cluster/cluster.sh."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "test" / "parallel"))
import launching  # noqa: E402 -- of the folder beside

# Beside the clone, as MNIST; CLUSTER_SCRIPT names another place.
SCRIPT = Path(os.environ.get("CLUSTER_SCRIPT", ROOT.parent / "shared" / "cluster" / "cluster.sh"))
PREFIX = "t"  # of host names
NET = f"10.{100 + os.getpid() % 100}.7"


def why_not() -> str:
    """Why there can be no hosts here; "" if there can."""
    if not SCRIPT.exists():
        return f"there is no {SCRIPT}; CLUSTER_SCRIPT may name it"
    if os.geteuid() != 0:
        return "making hosts needs root"
    for program in ("ip", "unshare", "nsenter", "setpriv", "ssh", "/usr/sbin/sshd"):
        if shutil.which(program) is None:
            return f"{program} is not installed (apt-get install iproute2 util-linux openssh-server)"
    if importlib.util.find_spec("horovod._native") is None:
        return "the native core is not built"
    probe = f"{PREFIX}probe{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", probe], capture_output=True, text=True, check=False)
    subprocess.run(["ip", "netns", "del", probe], capture_output=True, check=False)
    return f"network namespaces cannot be made: {made.stderr.strip()}" if made.returncode else ""


class Cluster:
    """Hosts t1, t2, ...: with one network, and programs, files and home of this machine."""

    def __init__(self, hosts: int) -> None:
        self.names = [f"{PREFIX}{number}" for number in range(1, hosts + 1)]
        self.folder = Path("/tmp") / f"hvd-test-cluster-{os.getpid()}"
        self.home = self.folder
        self.broken: set[str] = set()
        own = {"CLUSTER_DIR": str(self.folder), "CLUSTER_PREFIX": PREFIX, "CLUSTER_NET": NET}
        self._environment = {**os.environ, **own}

    def up(self) -> None:
        self._remove_leftovers()
        self.script("up", str(len(self.names)), "none")

    def _remove_leftovers(self) -> None:
        """Hosts of these names that a run left which was killed."""
        for name in self.names:
            found = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True, check=False)
            for process in found.stdout.split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(process), signal.SIGKILL)
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)

    def down(self) -> None:
        self.script("down")
        shutil.rmtree(self.folder, ignore_errors=True)

    def mend(self) -> None:
        """Start again what a test has broken."""
        for name in sorted(self.broken):
            self.script("boot", name)
            self.script("link", name, "up")
        self.broken.clear()

    def break_(self, how: str, host: str) -> None:
        """how: `cut` (power), `kill` (all processes) or `unlink` (the network cable)."""
        self.broken.add(host)
        self.script(*(("link", host, "down") if how == "unlink" else (how, host)))

    def script(self, *words: str) -> str:
        """Run cluster.sh."""
        done = subprocess.run(
            ["bash", str(SCRIPT), *words],
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, f"cluster.sh {words}: {done.stdout}{done.stderr}"
        return done.stdout

    def network(self, command: str) -> str:
        """Run an `ip` command outside of the hosts, as `-n t1 link add ...`."""
        return subprocess.run(["ip", *command.split()], capture_output=True, text=True, check=True).stdout

    def start(self, host: str, words: Sequence[str], **variables: str) -> subprocess.Popen[str]:
        """Start a command on a host, with our Python's programs, and this copy of the package."""
        environment = {**launching.environment("cluster"), **self._environment}
        for name in ("PATH", "PYTHONPATH"):
            environment[name] = launching.environment("cluster")[name]
        given = [f"HOME={self.home}", *(f"{name}={text}" for name, text in variables.items())]
        return subprocess.Popen(
            ["bash", str(SCRIPT), "exec", host, "env", *given, *words],
            env=environment,
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )

    def run(
        self, host: str, words: Sequence[str], limit: float = 60, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        process = self.start(host, words, **variables)
        try:
            out, err = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            process.terminate()
            out, err = process.communicate()
            raise AssertionError(f"{words} took more than {limit} s: {out[-2000:]} {err[-2000:]}") from None
        return subprocess.CompletedProcess(list(words), process.returncode, out, err)

    def horovodrun(
        self, *arguments: str, limit: float = 60, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """On the first host."""
        return self.run(
            self.names[0], [sys.executable, "-m", "horovod.runner", *arguments], limit, **variables
        )

    def files_left(self) -> list[str]:
        """What jobs left in the folders for temporary files of the hosts. (torch keeps a cache there.)"""
        listed = [self.run(name, ["sh", "-c", 'ls -A "$TMPDIR"']).stdout.split() for name in self.names]
        return [file for files in listed for file in files if not file.startswith("torch")]
