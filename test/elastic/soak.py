"""A long elastic job whose hosts and workers are struck at random moments; what it should come to, and did.

There is always a *favourite*, a worker that nobody strikes: so the state of training lives, and one process
goes through many worlds. After a while another worker becomes it.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import launching
import soak_judge
from survival import notes as judged
from survival.notes import Notes

from horovod.made_hosts import MadeHosts
from horovod.made_hosts.system import processes_in

RANK_PROGRAM = Path(judged.__file__).with_name("worker.py")
SAMPLES = 480  # of an epoch, as survival/worker.py has it
LIMIT = "5"  # seconds after which a silent or stopped worker is lost
FAVOURED = 40  # events for which a worker is the favourite
HANGS = 120.0  # seconds without a step: on a busy machine a newcomer takes half as many to import torch
ENDS = 120.0  # seconds for the job's end, for the same reason
SETTLED = 3  # workers that train together, for which most events wait
PATIENT = 0.5  # of the events do; the others happen whenever they happen, as while ranks meet
WAITS = 8.0  # seconds, at most
WEIGHTS = {"kill": 5, "add": 6, "remove": 3, "stop": 1, "pause": 2, "cut": 2, "unlink": 2}
ON_OTHER_HOSTS = ("cut", "unlink")


class Place(Protocol):
    """Where the job's hosts are. `names`: of all that there may be; `others`: those that can be cut."""

    names: list[str]
    others: list[str]

    def start(self, words: list[str], out: int, **variables: str) -> subprocess.Popen[bytes]: ...

    def signal(self, host: str, pid: int, number: int) -> None:
        """To a process, by its number there; nothing happens if it has ended."""

    def strike(self, how: str, host: str) -> None:
        """`how`: cut, unlink, link or boot."""

    def processes(self) -> list[int]:
        """Of the job, on all hosts, by their numbers here."""

    def left(self) -> list[str]:
        """What is there when the job has ended, and should not be."""


class Loopback:
    """Hosts that are names of this machine."""

    def __init__(self) -> None:
        self.names = [f"127.0.0.{number}" for number in range(1, 6)]
        self.others: list[str] = []
        self._mark = launching.fresh_mark()
        self._shared = set(os.listdir("/dev/shm"))

    def start(self, words: list[str], out: int, **variables: str) -> subprocess.Popen[bytes]:
        environment = launching.environment(self._mark, **variables)
        return subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=environment)

    def signal(self, host: str, pid: int, number: int) -> None:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            return

    def strike(self, how: str, host: str) -> None:
        raise AssertionError(f"{host} is no host that one can {how}")

    def processes(self) -> list[int]:
        return [int(line.partition(":")[0]) for line in launching.processes_of(self._mark)]

    def left(self) -> list[str]:
        return launching.processes_of(self._mark)


class Made:
    """Three made hosts, the first of which, where horovodrun is, has three names."""

    def __init__(self, hosts: MadeHosts) -> None:
        self._hosts = hosts
        self.others = hosts.names[1:]
        self.names = [hosts.names[0], "127.0.0.2", *self.others, "127.0.0.3"]
        self._before = set(self._inside())

    def start(self, words: list[str], out: int, **variables: str) -> subprocess.Popen[bytes]:
        environment = launching.environment("soak", HOME=str(self._hosts.folder), **variables)
        command = self._hosts.command(self._hosts.names[0], words)
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=environment)

    def signal(self, host: str, pid: int, number: int) -> None:
        where = host if host in self.others else self._hosts.names[0]
        if self._hosts._host(where).first_process() is not None:
            self._hosts.run(where, ["sh", "-c", f"kill -{number} {pid} 2>/dev/null || :"])

    def strike(self, how: str, host: str) -> None:
        getattr(self._hosts, how)(host)

    def processes(self) -> list[int]:
        return [pid for pid in self._inside() if pid not in self._before]

    def _inside(self) -> list[int]:
        names = self._hosts.names
        return [pid for name in names for pid in processes_in(self._hosts.namespace(name))]

    def left(self) -> list[str]:
        found = []
        for name in self._hosts.names:
            seen = self._hosts.run(name, ["sh", "-c", "ls -A /dev/shm; ps -eo pid,args"]).stdout
            own = ("PID", "sshd", "ls -A", "ps -eo", "sh -c", "[")
            found += [
                f"{name}: {line}" for line in seen.splitlines() if not any(word in line for word in own)
            ]
        return found


@dataclass
class Worker:
    """`step`, `world`: of its last step, 0 before the first. `struck`: how; "" while it should live on."""

    name: str
    host: str
    pid: int
    step: int = 0
    world: float = 0.0
    struck: str = ""
    ended: bool = False


@dataclass
class Report:
    """What became of a soak."""

    code: int | None = None
    events: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)
    said: str = ""


class Soak:
    """`seconds` for `events`, on average. `folder`: for what workers write."""

    def __init__(self, place: Place, folder: Path, events: int, seconds: float, seed: int) -> None:
        self.place, self.folder, self.report = place, folder, Report()
        self._chance = random.Random(seed)
        self._left, self._seconds = events, seconds
        self._notes = Notes(folder)
        self._workers: dict[str, Worker] = {}
        self._listed = place.names[:3]
        self._down: set[str] = set()  # hosts that were cut or unlinked
        self._later: list[tuple[float, Callable[[], None]]] = []
        self._favourite: Worker | None = None
        self._favoured = 0
        self._held: dict[str, list[dict[str, int]]] = {"driver": [], "agent": []}
        self._stepped_at = time.monotonic()

    def run(self) -> Report:
        """To the job's end."""
        self._list()
        words = ["--host-discovery-script", f"cat {self.folder}/hosts", "-np", "2", "--min-np", "1"]
        words += ["--max-np", "5", "--blacklist-cooldown-range", "2", "6", "--elastic-timeout", "120"]
        program = [sys.executable, str(RANK_PROGRAM), str(self.folder)]
        command = [sys.executable, "-m", "horovod.runner", *words, *program]
        with (self.folder / "output").open("wb") as out:
            job = self.place.start(
                command, out.fileno(), HOROVOD_TCP_TIMEOUT_SECONDS=LIMIT, OMP_NUM_THREADS="1"
            )
        try:
            self._strike_until_done(job)
            self._end(job)
        finally:
            job.kill()
            job.wait()
        self.report.said = (self.folder / "output").read_text(errors="replace")
        self._judge()
        return self.report

    # ---- the course of events ----

    def _strike_until_done(self, job: subprocess.Popen[bytes]) -> None:
        self._wait(job, lambda: self._choose_favourite() is not None)
        mean = self._seconds / self._left
        while self._left and job.poll() is None:
            until = time.monotonic() + min(self._chance.expovariate(1 / mean), 3 * mean)
            self._wait(job, lambda until=until: time.monotonic() >= until)  # type: ignore[misc]
            if self._hung:
                return
            if self._chance.random() < PATIENT:
                until = time.monotonic() + WAITS
                self._wait(job, lambda until=until: self._is_settled() or time.monotonic() >= until)  # type: ignore[misc]
            self._left -= 1
            self._choose_favourite()
            self._measure()
            self._strike()

    def _end(self, job: subprocess.Popen[bytes]) -> None:
        for _, act in self._later:
            act()
        self._later = []
        self._listed = list(self.place.names)
        self._list()
        since = time.monotonic()
        self._wait(job, lambda: time.monotonic() > since + 5 and self._stepped_at > since)
        (self.folder / "stop").touch()
        until = time.monotonic() + ENDS
        while job.poll() is None and time.monotonic() < until and not self._hung:
            self._look()
            time.sleep(0.1)
        self.report.code = job.poll()
        if self.report.code is None:
            self._ask_where_they_are("the job did not end")
            job.terminate()
        until = time.monotonic() + 10
        while self.place.processes() and time.monotonic() < until:
            time.sleep(0.1)

    _hung = False

    def _wait(self, job: subprocess.Popen[bytes], is_so: Callable[[], bool]) -> None:
        """Until it is so, the job has ended, or nothing happens any more."""
        self._look()
        while not is_so() and job.poll() is None:
            time.sleep(0.05)
            self._look()
            if time.monotonic() - self._stepped_at > HANGS:
                self._hung = True
                self._ask_where_they_are(f"no step in {HANGS:g} s")
                return

    def _ask_where_they_are(self, why: str) -> None:
        """Have all workers write their stacks to the job's output."""
        self.report.complaints.append(f"{why}: see the stacks")
        for pid in self.place.processes():
            try:
                words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                if words[1:2] == [os.fsencode(RANK_PROGRAM)]:
                    os.kill(pid, signal.SIGUSR1)
            except OSError:
                continue
        time.sleep(2)

    def _look(self) -> None:
        """At what workers have written, and at what is to be done now."""
        for note in self._notes.read():
            worker = self._workers.setdefault(
                note["worker"], Worker(note["worker"], note["host"], note["pid"])
            )
            if note["what"] == "step":
                worker.step, worker.world = note["step"], note["world"]
                self._stepped_at = time.monotonic()
            worker.ended |= note["what"] == "ends"
        now = time.monotonic()
        due = [act for when, act in self._later if when <= now]
        self._later = [(when, act) for when, act in self._later if when > now]
        for act in due:
            act()

    def _after(self, low: float, high: float, act: Callable[[], None]) -> None:
        self._later.append((time.monotonic() + self._chance.uniform(low, high), act))

    # ---- whom to strike, and how ----

    def _living(self) -> list[Worker]:
        """Those that are not struck, in training or on their way to it: the last of each host."""
        last = {worker.host: worker for worker in self._workers.values()}
        return [worker for worker in last.values() if not worker.struck and worker.host in self._listed]

    def _settled(self) -> list[Worker]:
        """Those of the newest world, who all hold the state."""
        world = max((worker.world for worker in self._living()), default=0.0)
        return [worker for worker in self._living() if worker.world == world > 0]

    def _is_settled(self) -> bool:
        return len(self._settled()) >= min(SETTLED, len(self._listed))

    def _choose_favourite(self) -> Worker | None:
        """It stays for a while, then another one follows that holds the state too."""
        self._favoured += 1
        settled = self._settled()
        is_old = self._favoured > FAVOURED and len(settled) > 1
        if settled and (self._favourite is None or is_old):
            others = [worker for worker in settled if worker is not self._favourite]
            self._favourite, self._favoured = self._chance.choice(others or settled), 0
        return self._favourite

    def _strike(self) -> None:
        choices = {kind: targets for kind, targets in self._choices().items() if targets}
        kind = self._chance.choices(list(choices), [WEIGHTS[kind] for kind in choices])[0]
        target = self._chance.choice(choices[kind])
        self.report.events.append(f"{time.monotonic():.2f} {kind} {getattr(target, 'name', target)}")
        (self.folder / "events").write_text("\n".join(self.report.events))
        if isinstance(target, Worker):
            self._strike_worker(kind, target)
        else:
            self._strike_host(kind, target)

    def _choices(self) -> dict[str, Sequence[Any]]:
        """What may happen, and to whom."""
        assert self._favourite is not None
        safe = self._favourite.host
        victims = [worker for worker in self._living() if worker is not self._favourite]
        hosts = [host for host in self._listed if host != safe]
        far = [host for host in hosts if host in self.place.others and host not in self._down]
        new = [host for host in self.place.names if host not in self._listed]
        removed = hosts if len(hosts) > 1 else []
        on_workers = {"kill": victims, "stop": victims, "pause": victims}
        return {**on_workers, "add": new, "remove": removed, "cut": far, "unlink": far}

    def _strike_worker(self, kind: str, worker: Worker) -> None:
        worker.struck = kind
        number = signal.SIGKILL if kind == "kill" else signal.SIGSTOP
        self.place.signal(worker.host, worker.pid, number)
        if kind == "pause":
            self._after(0.5, 8, lambda: self.place.signal(worker.host, worker.pid, signal.SIGCONT))

    def _strike_host(self, kind: str, host: str) -> None:
        if kind in ("add", "remove"):
            self._listed = [name for name in self._listed if name != host] + [host] * (kind == "add")
            self._list()
        for worker in self._workers.values():
            if worker.host == host and kind != "add":
                worker.struck = worker.struck or kind
        if kind in ON_OTHER_HOSTS:
            self._down.add(host)
            self.place.strike(kind, host)
            self._after(2, 15, lambda: self._mend("boot" if kind == "cut" else "link", host))

    def _mend(self, how: str, host: str) -> None:
        self.place.strike(how, host)
        self._down.discard(host)

    def _list(self) -> None:
        """The hosts from now on. The script never reads half of them."""
        new = self.folder / "hosts.new"
        new.write_text("".join(f"{host}:1\n" for host in self._listed))
        new.rename(self.folder / "hosts")

    # ---- what is to be said of it ----

    def _measure(self) -> None:
        """What the driver, and the agent of the favourite's host, hold now."""
        for pid in self.place.processes():
            folder = Path(f"/proc/{pid}")
            try:
                words = (folder / "cmdline").read_bytes().split(b"\0")
                whose = next((name for name in self._held if _is_program(words, name)), None)
                if whose == "driver" or (whose == "agent" and words[-2] != b"ssh"):
                    key = whose if whose == "driver" else f"agent {pid}"
                    self._held.setdefault(key, []).append(_held(folder))
            except OSError:
                continue  # it has ended

    def _judge(self) -> None:
        report = self.report
        self._notes.read()
        notes = self._notes.all()
        if report.code != 0:
            report.complaints.append(f"exit code {report.code}")
        if self._left and report.code is not None:
            report.complaints.append(f"it ended {self._left} events too early")
        report.complaints += judged.wrong_samples(notes, SAMPLES) + judged.wrong_bits(notes)
        report.complaints += soak_judge.leaks_of_workers(self._notes)
        for who, held in self._held.items():
            report.complaints += soak_judge.leaks(who, held)
        report.complaints += [f"left: {what}" for what in self.place.left()]
        report.complaints += [
            f"{worker.name} was struck by nobody, and did not reach the end"
            for worker in self._workers.values()
            if not worker.struck and not worker.ended and worker.world
        ]
        report.figures = self._figures(notes)

    def _figures(self, notes: list[dict[str, Any]]) -> Mapping[str, Any]:  # type: ignore[override]
        pauses = judged.pauses(notes)
        lives = {
            worker: max((note.get("resets", 0) for note in own), default=0)
            for worker, own in self._notes.by_worker.items()
        }
        oldest = max(lives, key=lambda worker: lives[worker], default="")
        ends = [note["held"] for note in self._notes.by_worker.get(oldest, ()) if note["what"] == "epoch"]
        return {
            "events": len(self.report.events),
            "kinds": {kind: sum(f" {kind} " in event for event in self.report.events) for kind in WEIGHTS},
            "workers": len(self._workers),
            "worlds": len({note["world"] for note in notes if note["what"] == "begins"}),
            "epochs": judged.epochs(notes),
            "steps": max((note["step"] for note in notes if note["what"] == "step"), default=0),
            "longest pauses": [round(pause, 2) for pause in pauses[-5:]],
            "most resets of a process": lives.get(oldest, 0),
            "it held": [ends[0], ends[len(ends) // 2], ends[-1]] if ends else [],
            "driver held": self._held["driver"][:1] + self._held["driver"][-1:],
        }


def _is_program(words: list[bytes], name: str) -> bool:
    return any(word.endswith(f"/agents/{name}.py".encode()) for word in words)


def _held(folder: Path) -> dict[str, int]:
    pages = int((folder / "statm").read_text().split()[1])
    return {
        "memory": pages * os.sysconf("SC_PAGE_SIZE"),
        "descriptors": len(os.listdir(folder / "fd")),
        "threads": len(os.listdir(folder / "task")),
        "shared": 0,
    }
