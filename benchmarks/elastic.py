"""Measure how long elastic jobs take to continue after events, and check that no sample is lost.

    python benchmarks/elastic.py --list
    python benchmarks/elastic.py --results build/elastic        # made hosts: as root; some 15 minutes
    python benchmarks/elastic.py --only 'kill -9' torchrun --times 5
    python benchmarks/elastic.py --shown build/elastic

Runs on four made hosts with a worker each; a cell of one host uses names of the first host instead. Each cell
is a job, run --times times: an event happens, and the time counts until all workers that are left have
finished a step together. At the end no sample of an epoch may be lost, and all ranks must have the same bits.
Jobs that have results are not run again.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jobs
import report
from report import Record
from survival import notes as judged
from survival.notes import Note, Notes

from horovod.made_hosts import MadeHosts
from horovod.made_hosts.system import processes_in

WORKERS = Path(__file__).resolve().parent / "survival"
SAMPLES = 480  # of an epoch, as in survival/worker.py
START, ENDS = 180.0, 60.0  # seconds: on a busy machine torch takes long to import
IN_RECOVERY = 0.15  # seconds after a death, when the other workers are about to meet
PORT = 29400
TIMEOUT = "HOROVOD_TCP_TIMEOUT_SECONDS"
FOUR = ("h1", "h2", "h3", "h4")
ONE_HOST = ("127.0.0.1", "127.0.0.2", "127.0.0.3")


class Job:
    """A job on made hosts, and the notes that its workers write."""

    def __init__(self, hosts: MadeHosts, folder: Path, names: tuple[str, ...], **settings: str) -> None:
        self.hosts, self.folder, self.names = hosts, folder, names
        self.notes = Notes(folder)
        self.listed(*names)
        self.own = {**jobs.environment(), "HOME": str(hosts.folder), **settings}
        self.output = (folder / "output").open("wb")
        self.processes: list[Any] = []

    def start(self) -> None:
        script = ["--host-discovery-script", f"cat {self.folder}/hosts"]
        words = ["-np", str(len(self.names)), "--min-np", "1", "--blacklist", "host", *script]
        program = [sys.executable, str(WORKERS / "worker.py"), str(self.folder)]
        self.start_on(self.hosts.names[0], [sys.executable, "-m", "horovod.runner", *words, *program])

    def start_on(self, host: str, words: list[str]) -> None:
        command = self.hosts.command(host, words)
        out = {"stdin": subprocess.DEVNULL, "stdout": self.output, "stderr": self.output}
        self.processes.append(subprocess.Popen(command, env=self.own, **out))

    def listed(self, *names: str) -> None:
        """Set the hosts that discovery finds from now on."""
        new = self.folder / "hosts.new"
        new.write_text("".join(f"{name}:1\n" for name in names))
        new.rename(self.folder / "hosts")

    def where(self, name: str) -> str:
        """Return the made host that has this name."""
        return name if name in self.hosts.names else self.hosts.names[0]

    def worker(self, name: str) -> Note:
        """Return the last note of the last worker on a host."""
        self.notes.read()
        return next(note for note in reversed(self.notes.all()) if note["host"] == name)

    def signal(self, number: int, *names: str) -> float:
        """Send a signal to the workers of hosts at once; return the time."""
        pids = {name: self.worker(name)["pid"] for name in names}
        commands = [self.hosts.command(self.where(n), ["kill", f"-{number}", str(pids[n])]) for n in names]
        began = time.monotonic()
        for process in [subprocess.Popen(command) for command in commands]:
            process.wait()
        return began

    def steps_since(self, when: float, size: int) -> dict[str, float]:
        """Return by worker when it finished its first step that began after `when` in a world of `size`."""
        first: dict[str, float] = {}
        self.notes.read()
        for note in self.notes.all():
            if note["what"] == "step" and note["size"] == size and note["at"] > when:
                first.setdefault(note["worker"], note["at"])
        return first

    def goes_on(self, since: float, size: int, limit: float) -> float:
        """Return the seconds until `size` workers have finished a step together. Raises JobFailed."""
        until = time.monotonic() + limit
        while len(first := self.steps_since(since, size)) < size:
            if time.monotonic() > until or self.processes[0].poll() is not None:
                raise jobs.JobFailed(f"{sorted(first)} of {size} went on within {limit:g} s:\n{self.said()}")
            time.sleep(0.02)
        return sorted(first.values())[size - 1] - since

    def said(self) -> str:
        return (self.folder / "output").read_text(errors="replace")[-4000:]

    def end(self) -> list[str]:
        """Stop the job; return complaints about it."""
        (self.folder / "stop").touch()
        until = time.monotonic() + ENDS
        while self.processes[0].poll() is None and time.monotonic() < until:
            time.sleep(0.05)
        code = self.processes[0].poll()
        self.notes.read()
        seen = self.notes.all()
        found = [] if code == 0 else [f"exit code {code}"]
        return found + judged.wrong_bits(seen) + judged.wrong_samples(seen, SAMPLES)

    def close(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()
        self.output.close()


Event = Callable[[Job], tuple[float, int]]  # causes the event; returns its time and how many workers continue


def killed(*names: str, again: str = "") -> Event:
    def happens(job: Job) -> tuple[float, int]:
        when = job.signal(9, *names)
        if again:
            time.sleep(IN_RECOVERY)
            when = job.signal(9, again)
        return when, len(job.names) - len(names) - bool(again)

    return happens


def stopped(name: str) -> Event:
    return lambda job: (job.signal(19, name), len(job.names) - 1)


def to_hosts(act: Callable[[Job], object], change: int) -> Event:
    """Return an event of hosts, after which so many more workers train."""

    def happens(job: Job) -> tuple[float, int]:
        when = time.monotonic()
        act(job)
        return when, len(job.names) + change

    return happens


CUT = to_hosts(lambda job: job.hosts.cut("h3"), -1)
UNPLUGGED = to_hosts(lambda job: job.hosts.unlink("h3"), -1)
ADDED = to_hosts(lambda job: job.listed(*job.names, "h4"), 1)


@dataclass(frozen=True)
class Cell:
    """A kind of job. `asked`: seconds, at most; `names`: its hosts."""

    name: str
    asked: str
    event: Event | None = None
    names: tuple[str, ...] = FOUR
    limit: str = ""
    kind: str = "elastic"


CELLS = [
    Cell("kill -9 of a worker", "1.5 s", killed("h3")),
    Cell("kill -9 of rank 0", "", killed("h1")),
    Cell("kill -9 of two at once", "", killed("h2", "h3")),
    Cell("kill -9 during a recovery", "", killed("h3", again="h2")),
    Cell("power cut", "12 s", CUT),
    Cell("power cut, limit 3 s", "6 s", CUT, limit="3"),
    Cell("cable pulled, limit 3 s", "6 s", UNPLUGGED, limit="3"),
    Cell("worker stopped, other hosts", "12 s", stopped("h3")),
    Cell("worker stopped, same host", "12 s", stopped("127.0.0.2"), ONE_HOST),
    Cell("worker stopped, same host, limit 3 s", "6 s", stopped("127.0.0.2"), ONE_HOST, limit="3"),
    Cell("host added", "2 s + import", ADDED, FOUR[:3]),
    Cell("launcher killed", "10 s", kind="launcher"),
    Cell("torchrun's restart", "", kind="torchrun"),
    Cell("start of 4 ranks, 2 hosts", "mpirun's + 0.3 s", kind="start"),
]


def run(cell: Cell, found: Record) -> None:
    """Run one job of the cell: add its seconds, complaints and side measurements. Raises JobFailed."""
    with MadeHosts(4) as hosts, tempfile.TemporaryDirectory(prefix="elastic-") as folder:
        settings = {TIMEOUT: cell.limit} if cell.limit else {}
        job = Job(hosts, Path(folder), cell.names, **settings)
        try:
            RUNS[cell.kind](cell, job, found)
        finally:
            job.close()


def elastic(cell: Cell, job: Job, found: Record) -> None:
    job.start()
    job.goes_on(time.monotonic(), len(job.names), START)
    if cell.name == "host added":
        found.setdefault("import", []).append(import_on(job, "h4"))
    assert cell.event is not None
    when, size = cell.event(job)
    found["seconds"].append(job.goes_on(when, size, 90))
    if cell.name == "host added":
        found.setdefault("joined", []).append(joined(job, "h4"))
    found["complaints"] += job.end()


def import_on(job: Job, host: str) -> float:
    """Return the seconds of torch's import and its first optimizer on a host, while the job trains."""
    code = "import torch; torch.optim.SGD([torch.zeros(1)], lr=1.0)"
    began = time.monotonic()
    job.hosts.run(host, [sys.executable, "-c", code], environment=job.own)
    return time.monotonic() - began


def joined(job: Job, host: str) -> float:
    """Return the seconds from a worker's start to its first step."""
    own = [note for note in job.notes.all() if note["host"] == host]
    first = next(note["at"] for note in own if note["what"] == "step")
    return float(first - own[0]["at"])


def launcher(cell: Cell, job: Job, found: Record) -> None:
    """Measure the time until no process of the job is left on any host."""
    before = {host: set(processes_in(job.hosts.namespace(host))) for host in job.hosts.names}
    job.start()
    job.goes_on(time.monotonic(), len(job.names), START)
    inside = processes_in(job.hosts.namespace(job.hosts.names[0]))
    (horovodrun,) = [pid for pid in inside if is_horovodrun(pid)]
    when = time.monotonic()
    os.kill(horovodrun, 9)
    while left := [
        pid for host, own in before.items() for pid in set(processes_in(job.hosts.namespace(host))) - own
    ]:
        if time.monotonic() - when > 60:
            raise jobs.JobFailed(f"processes {left} are there after a minute")
        time.sleep(0.02)
    found["seconds"].append(time.monotonic() - when)
    for host in job.hosts.names:
        listening = "grep -c ' 0A ' /proc/net/tcp"  # the host's sshd, and no other program
        seen = job.hosts.run(host, ["sh", "-c", f"ls -A /dev/shm; {listening}"]).stdout.split()
        found["complaints"] += [] if seen == ["1"] else [f"{host}: shared memory and listeners {seen}"]


def is_horovodrun(pid: int) -> bool:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        is_inside = len(Path(f"/proc/{pid}/status").read_text().partition("NSpid:")[2].split("\n")[0].split())
    except OSError:
        return False
    return words[1:3] == [b"-m", b"horovod.runner"] and is_inside > 1


def torchrun(cell: Cell, job: Job, found: Record) -> None:
    """Measure from a worker's death until all have finished a step: torchrun starts all of them again."""
    end = f"{job.hosts.names[0]}:{PORT}"
    job.own |= {"GLOO_SOCKET_IFNAME": "eth0"}
    words = ["--nnodes", str(len(job.names)), "--nproc-per-node", "1", "--max-restarts", "50"]
    words += ["--rdzv-backend", "c10d", "--rdzv-endpoint", end, "--rdzv-id", "1"]
    program = [str(WORKERS / "torch_worker.py"), str(job.folder)]
    for name in job.names:
        own = ["--local-addr", job.hosts.addresses[name]]
        job.start_on(name, [sys.executable, "-m", "torch.distributed.run", *words, *own, *program])
    job.goes_on(time.monotonic(), len(job.names), START)
    when = job.signal(9, "h3")
    until = time.monotonic() + 120
    while len(again := restarted(job, when)) < len(job.names):
        if time.monotonic() > until:
            raise jobs.JobFailed(f"torchrun's workers did not go on in two minutes:\n{job.said()}")
        time.sleep(0.05)
    found["seconds"].append(max(again.values()) - when)


def start(cell: Cell, job: Job, found: Record) -> None:
    """Measure the start of ranks that do nothing: by our agents, and by mpirun set up for made hosts."""
    where = ["-np", "4", "-H", "h1:2,h2:2"]
    ways = {
        "seconds": [sys.executable, "-m", "horovod.runner", *where, "true"],
        "--launcher mpi": [sys.executable, "-m", "horovod.runner", "--launcher", "mpi", *where, "true"],
        "mpirun": ["mpirun", "--allow-run-as-root", "--bind-to", "none", *where, "true"],
    }
    for words in ways.values():
        job.hosts.run("h1", words, environment=job.own)  # a first run, to read files
    for name, words in ways.items():
        began = time.monotonic()
        done = job.hosts.run("h1", words, environment=job.own)
        found.setdefault(name, []).append(time.monotonic() - began)
        if done.returncode != 0:
            raise jobs.JobFailed(f"{words} failed: {done.stderr}")


def restarted(job: Job, when: float) -> dict[str, float]:
    """Return by host the first step after `when` of a process that started after it."""
    first: dict[str, float] = {}
    job.notes.read()
    for own in job.notes.by_worker.values():
        steps = [note["at"] for note in own if note["what"] == "step"]
        if own and own[0]["at"] > when and steps:
            first[own[0]["host"]] = steps[0]
    return first


RUNS = {"elastic": elastic, "launcher": launcher, "torchrun": torchrun, "start": start}
COLUMNS: report.Columns = {
    "what happens": "{cell}",
    "median": lambda row: f"{statistics.median(row['seconds']):.2f} s",
    "longest": lambda row: f"{max(row['seconds']):.2f} s",
    "times": lambda row: str(len(row["seconds"])),
    "asked": lambda row: asked_text(row) or "-",
    "wrong": lambda row: "; ".join(row["complaints"]) or "nothing",
}


def asked_text(row: Record) -> str:
    """Return the limit, and figures that were measured beside the event's."""
    beside = [name for name in ("import", "mpirun", "--launcher mpi") if name in row]
    return row["asked"] + "".join(f" ({name}: {statistics.median(row[name]):.2f} s)" for name in beside)


def shown(folder: Path) -> str:
    paths = {cell.name: folder / f"{cell.name}.json" for cell in CELLS}
    rows = [{"cell": name} | report.read_json(path) for name, path in paths.items() if path.exists()]
    return report.table_of(rows, COLUMNS)


def arguments(words: list[str]) -> argparse.Namespace:
    parser = report.options("How long elastic jobs take to go on.", "only results list")
    parser.add_argument("--times", type=int, default=3, help="jobs of each cell (default 3)")
    parser.add_argument("--shown", metavar="FOLDER", help="measure nothing: show these results")
    return parser.parse_args(words)


def measure(cell: Cell, chosen: argparse.Namespace, path: Path) -> bool:
    """Run the cell's jobs that have no results yet; return whether nothing was wrong in any."""
    first = {"asked": cell.asked, "seconds": [], "complaints": [], "machine": report.machine()}
    found = report.read_json(path) if path.exists() else first
    while len(found["seconds"]) < chosen.times:
        print(f"{cell.name} ...", flush=True)
        run(cell, found)
        report.write_json(path, found)
    return not found["complaints"]


def main(words: list[str]) -> int:
    return jobs.run_cells(arguments(words), CELLS, measure, shown)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
