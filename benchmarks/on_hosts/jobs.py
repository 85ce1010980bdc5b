"""Jobs of ranks, started as each contender's users start theirs, and the documents that ranks write.

A job is a document (JSON, in a file that all hosts see) with the task of the ranks; every rank writes one
back. The ranks' documents prove that the job succeeded, not a launcher's exit code.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from horovod.made_hosts import MadeHosts

PROGRAM = Path(__file__).resolve().parents[1] / "cluster.py"
LAUNCHERS = ("horovodrun", "mpirun", "mpirun, 2 links", "torch")
DEVICE = "eth0"
PORT = 29511  # at which the ranks of torch.distributed meet


class JobFailed(RuntimeError):
    """A job failed; the message has its ranks' output."""


def environment() -> dict[str, str]:
    """Return an environment for ranks: this package, one thread for each, and no HOROVOD_ setting."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith("HOROVOD_")}
    path = os.pathsep.join([str(Path(sys.executable).parent), kept.get("PATH", os.defpath)])
    import horovod

    packages = [str(Path(horovod.__file__).parents[1]), kept.get("PYTHONPATH")]
    own = {"PATH": path, "PYTHONPATH": os.pathsep.join(filter(None, packages)), "OMP_NUM_THREADS": "1"}
    return {**kept, **own}


@dataclass
class Job:
    """The command of a rank's process, and the folder for its document."""

    rank: list[str]
    folder: Path

    def documents(self, count: int, what: str, said: str) -> list[Any]:
        """Return the ranks' documents, in the order of ranks. Raises JobFailed."""
        results = [self.folder / f"rank-{number}.json" for number in range(count)]
        missing = [path.stem for path in results if not path.exists()]
        if missing:
            raise JobFailed(f"{what}: {', '.join(missing)} did not finish:\n{said}")
        return [json.loads(path.read_text()) for path in results]


@contextmanager
def described(program: Path, launcher: str, task: Mapping[str, Any]) -> Iterator[Job]:
    """Yield a job of `program --rank TASK`, whose folder lasts as long as the block."""
    with tempfile.TemporaryDirectory(prefix="benchmark-") as folder:
        task_file = Path(folder) / "task.json"
        task_file.write_text(json.dumps({**task, "launcher": launcher, "results": folder}))
        yield Job([sys.executable, str(program), "--rank", str(task_file)], Path(folder))


def run(
    hosts: MadeHosts,
    count: int,
    launcher: str,
    task: Mapping[str, Any],
    limit: float,
    program: Path = PROGRAM,
) -> list[Any]:
    """Run one rank on each of the first `count` hosts; return the ranks' documents, in the order of ranks.

    `launcher` is one of LAUNCHERS, `limit` is in seconds. Raises JobFailed.
    """
    names = hosts.names[:count]
    with described(program, launcher, task) as job:
        if launcher == "torch":
            said = _with_torch(hosts, names, job.rank, limit)
        else:
            words = _horovodrun(names) if launcher == "horovodrun" else _mpirun(names, launcher)
            process = hosts.start(names[0], [*words, *job.rank], environment())
            said = said_until_end(process, limit)
        return job.documents(count, f"{launcher} {dict(task)}", said)


def run_here(count: int, task: Mapping[str, Any], limit: float, program: Path) -> list[Any]:
    """Run `count` ranks on this machine with horovodrun; otherwise like `run`."""
    with described(program, "horovodrun", task) as job:
        words = [sys.executable, "-m", "horovod.runner", "-np", str(count), *job.rank]
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        process = subprocess.Popen(words, env=environment(), text=True, errors="replace", **pipes)
        return job.documents(count, f"horovodrun {dict(task)}", said_until_end(process, limit))


def _horovodrun(names: list[str]) -> list[str]:
    where = ",".join(f"{name}:1" for name in names)
    return [sys.executable, "-m", "horovod.runner", "-np", str(len(names)), "-H", where]


def _mpirun(names: list[str], launcher: str) -> list[str]:
    """Start ranks with Open MPI's defaults, and settings for made hosts: MPI cannot see shared cores."""
    words = ["mpirun", "-np", str(len(names)), "-H", ",".join(names), "--bind-to", "none"]
    if len(names) > len(os.sched_getaffinity(0)):
        words += ["--mca", "mpi_yield_when_idle", "1"]
    if launcher.endswith("2 links"):
        words += ["--mca", "pml", "ob1", "--mca", "btl", "self,sm,tcp", "--mca", "btl_tcp_links", "2"]
    words.append("--allow-run-as-root")
    for name in ("PATH", "PYTHONPATH", "OMP_NUM_THREADS"):
        words += ["-x", name]
    return words


def _with_torch(hosts: MadeHosts, names: list[str], rank: list[str], limit: float) -> str:
    """Start ranks for torch.distributed's env://: a process on each host, with its rank as a variable."""
    processes = []
    for number, name in enumerate(names):
        own = {"RANK": str(number), "WORLD_SIZE": str(len(names)), "MASTER_ADDR": names[0]}
        own |= {"MASTER_PORT": str(PORT), "GLOO_SOCKET_IFNAME": DEVICE}
        processes.append(hosts.start(name, rank, {**environment(), **own}))
    try:
        return "".join(said_until_end(process, limit) for process in processes)
    finally:
        for process in processes:
            process.terminate()
            process.wait()


def said_until_end(process: subprocess.Popen[str], limit: float) -> str:
    """Return the end of a process's output. The process is ended after `limit` seconds."""
    try:
        out, err = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        process.terminate()
        out, err = process.communicate()
        err += f"ended after {limit:g} s (--limit)"
    finally:
        process.terminate()
        process.wait()
    return (out + err)[-4000:]
