"""Jobs of one rank per host, started as each contender's users start theirs, and what their ranks wrote down.

A job is a document (JSON, in a file that all hosts see) that says what the ranks are to do; every rank writes
one back. The ranks' documents prove that the job succeeded, not a launcher's exit code.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from horovod.made_hosts import MadeHosts

PROGRAM = Path(__file__).resolve().parents[1] / "cluster.py"
LAUNCHERS = ("horovodrun", "mpirun", "mpirun, 2 links", "torch")
DEVICE = "eth0"
PORT = 29511  # where the ranks of torch.distributed meet


class JobFailed(RuntimeError):
    """A job did not end as it should; the message has what its ranks said."""


def environment() -> dict[str, str]:
    """This environment for the ranks, with this package and one thread for each, and no HOROVOD_ setting."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith("HOROVOD_")}
    path = os.pathsep.join([str(Path(sys.executable).parent), kept.get("PATH", os.defpath)])
    import horovod

    packages = [str(Path(horovod.__file__).parents[1]), kept.get("PYTHONPATH")]
    own = {"PATH": path, "PYTHONPATH": os.pathsep.join(filter(None, packages)), "OMP_NUM_THREADS": "1"}
    return {**kept, **own}


def run(hosts: MadeHosts, count: int, launcher: str, task: Mapping[str, Any], limit: float) -> list[Any]:
    """Run one rank on each of the first `count` hosts; return the ranks' documents, in their order.

    launcher: one of LAUNCHERS. Raises JobFailed.
    """
    with tempfile.TemporaryDirectory(prefix="cluster-benchmark-") as folder:
        task_file = Path(folder) / "task.json"
        task_file.write_text(json.dumps({**task, "launcher": launcher, "results": folder}))
        rank = [sys.executable, str(PROGRAM), "--rank", str(task_file)]
        names = hosts.names[:count]
        if launcher == "torch":
            said = _with_torch(hosts, names, rank, limit)
        else:
            words = _horovodrun(names) if launcher == "horovodrun" else _mpirun(names, launcher)
            said = _on_host(hosts, names[0], [*words, *rank], limit)
        results = [Path(folder) / f"rank-{number}.json" for number in range(count)]
        missing = [path.stem for path in results if not path.exists()]
        if missing:
            raise JobFailed(f"{launcher} {dict(task)}: {', '.join(missing)} did not finish:\n{said}")
        return [json.loads(path.read_text()) for path in results]


def _horovodrun(names: list[str]) -> list[str]:
    where = ",".join(f"{name}:1" for name in names)
    return [sys.executable, "-m", "horovod.runner", "-np", str(len(names)), "-H", where]


def _mpirun(names: list[str], launcher: str) -> list[str]:
    """Open MPI with its defaults, but for what made hosts need: they share cores, which MPI cannot know."""
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
    """As torch.distributed's env:// wants it: a process on every host that is told who it is."""
    processes = []
    for number, name in enumerate(names):
        own = {"RANK": str(number), "WORLD_SIZE": str(len(names)), "MASTER_ADDR": names[0]}
        own |= {"MASTER_PORT": str(PORT), "GLOO_SOCKET_IFNAME": DEVICE}
        processes.append(hosts.start(name, rank, {**environment(), **own}))
    try:
        return "".join(_said(process, limit) for process in processes)
    finally:
        for process in processes:
            process.terminate()
            process.wait()


def _on_host(hosts: MadeHosts, name: str, words: list[str], limit: float) -> str:
    process = hosts.start(name, words, environment())
    try:
        return _said(process, limit)
    finally:
        process.terminate()
        process.wait()


def _said(process: subprocess.Popen[str], limit: float) -> str:
    try:
        out, err = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        process.terminate()
        out, err = process.communicate()
        err += f"ended after {limit:g} s (--limit)"
    return (out + err)[-4000:]
