"""Pods of an MPIJob, emulated by made hosts whose root is the root of a container of the image.

The module implements the MPI Operator (v2beta1): the names of pods, /etc/mpi/hostfile, the key of the job
mounted into sshAuthMountPath, and the variables that it sets for Open MPI.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from horovod.made_hosts import MadeHosts

TIMED_OUT = 124  # the exit code that stands for a passed time limit, as in coreutils' timeout

# Runs as root on a made host, which has its own mounts. A Secret belongs to root, and all users can read it.
MAKE_A_POD = """
set -e
root=$1 made=$2 keys=$3 shm=$4 secret=$5
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount -t tmpfs -o mode=1777,size="$shm" shm "$root/dev/shm"
mount -t tmpfs -o mode=1777 tmp "$root/tmp"
mount --bind "$made/hosts" "$root/etc/hosts"
mkdir -p "$root/etc/mpi" && mount -t tmpfs mpi "$root/etc/mpi" && cp "$made/hostfile" "$root/etc/mpi/"
mount --bind "$secret" "$root$keys" && mount -o remount,ro,bind "$root$keys"
"""


def operator_variables(slots: int) -> dict[str, str]:
    """Return the variables that the operator sets in the launcher for mpiImplementation: OpenMPI."""
    return {
        "K_MPI_JOB_ROLE": "launcher",
        "OMPI_MCA_orte_keep_fqdn_hostnames": "true",
        "OMPI_MCA_orte_default_hostfile": "/etc/mpi/hostfile",
        "OMPI_MCA_plm_rsh_args": "-o ConnectionAttempts=10",
        "OMPI_MCA_orte_set_default_slots": str(slots),
        "NVIDIA_VISIBLE_DEVICES": "",
        "NVIDIA_DRIVER_CAPABILITIES": "",
    }


class Pods:
    """The launcher and the workers of a manifest, on a separate network. Use it in a `with` block.

    Args:
        root: the files of a container of the image.
        variables: the image's variables.
        shm: size of /dev/shm.
        secret: a folder to mount for keys, instead of one as the operator makes it.

    Hosts are pod1 (the launcher), pod2 and so on; they also resolve the names of pods.
    """

    def __init__(
        self,
        manifest: Mapping[str, Any],
        root: Path,
        variables: Sequence[str],
        *,
        shm: str = "64m",
        secret: Path | None = None,
    ) -> None:
        self.spec = manifest["spec"]
        self.root, self.variables, self.shm = root, list(variables), shm
        job = manifest["metadata"]["name"]
        self.count = self.spec["mpiReplicaSpecs"]["Worker"]["replicas"]
        pods = [f"{job}-launcher", *(f"{job}-worker-{number}" for number in range(self.count))]
        self.names = [f"{pod}.{job}.default.svc" for pod in pods]
        self.hosts = MadeHosts(1 + self.count, prefix="pod")
        self._folder = tempfile.TemporaryDirectory(prefix="pods-")
        self.made = Path(self._folder.name)
        self.secret = secret or self.made / "secret"
        self._servers: list[subprocess.Popen[str]] = []

    def __enter__(self) -> Pods:
        self._write()
        self.hosts.up()
        try:
            for host in self.hosts.names:
                words = [
                    str(self.root),
                    str(self.made),
                    self.spec["sshAuthMountPath"],
                    self.shm,
                    str(self.secret),
                ]
                done = self.hosts.run(host, ["bash", "-c", MAKE_A_POD, "pod", *words])
                assert done.returncode == 0, done.stderr
            worker = self.container("Worker")
            for number in range(self.count):
                self._servers.append(self.start(1 + number, [*worker["command"], *worker["args"]]))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.hosts.down()
        for server in self._servers:
            server.communicate(timeout=10)
        self._folder.cleanup()

    def _write(self) -> None:
        self.made.chmod(0o755)
        table = zip(self.hosts.addresses.items(), self.names, strict=True)
        known = [f"{address} {name} {host}\n" for (host, address), name in table]
        (self.made / "hosts").write_text("127.0.0.1 localhost\n" + "".join(known))
        slots = self.spec["slotsPerWorker"]
        (self.made / "hostfile").write_text("".join(f"{name} slots={slots}\n" for name in self.names[1:]))
        if self.secret.exists():
            return
        self.secret.mkdir()
        key = self.secret / "id_rsa"  # its name for every type of key
        subprocess.run(["ssh-keygen", "-q", "-t", "ecdsa", "-b", "521", "-N", "", "-f", str(key)], check=True)
        (self.secret / "authorized_keys").write_text((self.secret / "id_rsa.pub").read_text())
        for path in self.secret.iterdir():
            path.chmod(0o644)

    def container(self, role: str) -> dict[str, Any]:
        """Return the manifest's container of the launcher or of the workers."""
        (found,) = self.spec["mpiReplicaSpecs"][role]["template"]["spec"]["containers"]
        return dict(found)

    def start(self, pod: int, words: Sequence[str], **variables: str) -> subprocess.Popen[str]:
        """Start a command in a pod (0 is the launcher), as the image's user and in the image's folder."""
        user = self.container("Worker" if pod else "Launcher")["securityContext"]["runAsUser"]
        # This machine may be busy, unlike the machines of real pods.
        given = {"HOME": "/home/mpiuser", "HOROVOD_START_TIMEOUT": "120", **variables}
        words_of_env = [*self.variables, *(f"{name}={text}" for name, text in given.items())]
        inside = ["env", "-i", *words_of_env, "bash", "-c", 'cd && exec "$@"', "pod", *words]
        command = ["chroot", f"--userspec={user}:{user}", str(self.root), *inside]
        return self.hosts.start(self.hosts.names[pod], command, os.environ)

    def run(
        self, pod: int, words: Sequence[str], limit: float = 300, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in a pod to its end; a command that has not ended by ``limit`` seconds fails."""
        done = self.run_for(limit, pod, words, **variables)
        assert done.returncode != TIMED_OUT, (
            f"{words} took more than {limit} s: {done.stdout[-3000:]} {done.stderr[-3000:]}"
        )
        return done

    def run_for(
        self, limit: float, pod: int, words: Sequence[str], **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in a pod, which is ended after ``limit`` seconds: its exit code is then TIMED_OUT."""
        process = self.start(pod, words, **variables)
        code = TIMED_OUT
        try:
            out, err = process.communicate(timeout=limit)
            code = process.returncode
        except subprocess.TimeoutExpired:
            # Not SIGTERM: a process that hangs may ignore it and keep the pipes open.
            for one in [*psutil.Process(process.pid).children(recursive=True), process]:
                with suppress(psutil.NoSuchProcess):
                    one.kill()
            out, err = process.communicate()
        return subprocess.CompletedProcess(list(words), code, out, err)

    def launch(self, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run the manifest's launcher, with the operator's variables."""
        launcher = self.container("Launcher")
        given = {**operator_variables(self.spec["slotsPerWorker"]), **variables}
        return self.run(0, [*launcher["command"], *launcher["args"]], **given)
