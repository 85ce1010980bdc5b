"""Carry a failure program out: start its job, strike it from outside, and record the observations."""

from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from failure_places import HOSTS, LAUNCHER, OTHER, Made, Place, Process, send
from failure_programs import (
    FAVOURED,
    OF_A_RANK,
    PATIENCE,
    SILENCE,
    STALL_SHUTDOWN,
    STALL_WARNING,
    TO_A_DISK,
    TO_A_HOST,
    TO_ITS_OUTPUT,
    WEIGHTS,
    Course,
    Program,
    limit_of,
)

HERE = Path(__file__).resolve().parent
SURVIVAL = HERE.parents[1] / "benchmarks" / "survival"
sys.path.append(str(SURVIVAL.parent))
from survival.notes import Notes  # noqa: E402 -- of that folder

from horovod.runner.agents.frames import BY_SSH  # noqa: E402

START_LIMIT = 90  # until the first event: horovodrun's 30 are too few on a busy machine
SETTLE = 5.0  # after the launcher's end, for all processes to end: a host's agent needs longer
HANGS = 120.0  # without a step: on a busy machine a new worker takes half of it to import torch
SETTLED, WAITS = 3, 8.0  # workers that train together, and seconds that patient events wait for them at most
SIGNALS = {
    "launcher_term": signal.SIGTERM,
    "launcher_int": signal.SIGINT,
    "launcher_killed": signal.SIGKILL,
}
HOW = {"host_cut": "cut", "host_killed": "kill", "host_unlinked": "unlink"}


@dataclass
class Seen:
    """The observations of a program.

    code: horovodrun's exit code, negative for a signal; None if it had to be ended. struck: time of each
    event that happened. trained: number of ranks that got past init(). ended: time of horovodrun's end. left:
    what remained when everything should have been gone. processes: those that ran when horovodrun had to be
    ended. happened: events of a soak; victims: workers that they struck; held: figures of horovodrun and
    agents at these times. trace: the timeline, if any. undisturbed: of an elastic job, another job that
    continued at its last survivors' state.
    """

    code: int | None = None
    out: str = ""
    err: str = ""
    struck: dict[int, float] = field(default_factory=dict)
    trained: int = 0
    started: float = 0.0
    ended: float = 0.0
    left: list[str] = field(default_factory=list)
    processes: list[str] = field(default_factory=list)
    notes: Notes = field(default_factory=lambda: Notes(Path("/nonexistent")))
    happened: list[str] = field(default_factory=list)
    victims: set[str] = field(default_factory=set)
    held: dict[str, list[dict[str, int]]] = field(default_factory=dict)
    trace: list[dict[str, Any]] = field(default_factory=list)
    undisturbed: Seen | None = None

    def told(self, what: str) -> list[dict[str, Any]]:
        """Return the notes of this kind, in the order of time."""
        return [note for note in self.notes.all() if note["what"] == what]


def run(program: Program, place: Place, keep: Path | None = None) -> Seen:
    """Run a program to the end of all its processes, by force if necessary. keep: all that its job wrote."""
    kinds: dict[str, type[Run]] = {"fixed": FixedRun, "elastic": ElasticRun, "soak": SoakRun}
    return kinds[program.kind](program, place).run(keep)


class Run:
    """The run of a program on a place. Subclasses define the job and its events."""

    look_every = 0.05
    command = str(HERE / "failing_rank.py")
    settings: dict[str, str] = {}  # noqa: RUF012 -- never changed

    def __init__(self, program: Program, place: Place) -> None:
        self.program, self.place = program, place
        self.folder = place.folder / f"{program.kind}{program.seed}"
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir()
        (self.folder / "program.json").write_text(json.dumps(program.as_record()))
        self.seen = Seen(notes=Notes(self.folder))
        self.progressed = math.inf  # time of the last progress

    def run(self, keep: Path | None = None) -> Seen:
        try:
            with self._started():
                self.follow()
                self._end()
        finally:
            if self.spoils_its_place():
                self.place.renew()
        self.look()
        self.seen.out = (self.folder / "out").read_text(errors="replace")
        self.seen.err = (self.folder / "err").read_text(errors="replace")
        self.afterwards()
        if keep:
            shutil.copytree(self.folder, keep, dirs_exist_ok=True)
        shutil.rmtree(self.folder, ignore_errors=True)
        return self.seen

    # ---- which job ----

    def options(self) -> list[str]:
        raise NotImplementedError

    def script(self) -> str:
        """Return the script by which a shell runs horovodrun."""
        return 'ulimit -c 0; exec "$@"'

    def output(self, out: int) -> int:
        """Return the descriptor that horovodrun writes to."""
        return out

    # ---- its course ----

    def follow(self) -> None:
        self.wait()

    def look(self) -> None:
        """Read the ranks' new notes, and act on them."""
        for note in self.seen.notes.read():
            if note["what"] == "strikes":
                self.seen.struck.setdefault(note["number"], note["at"])
            self.seen.trained += note["what"] == "trains"
            self.takes(note)

    def takes(self, note: dict[str, Any]) -> None:
        if note["what"] in ("starts", "step"):
            self.progressed = time.monotonic()

    def deadline(self) -> float:
        """Return the time by which the job should have made progress, or ended."""
        return self.progressed + HANGS

    def settles_by(self) -> float:
        """Return the time by which nothing may remain."""
        return self.seen.ended + SETTLE

    def afterwards(self) -> None:
        """Act when the job has ended; its files still exist."""

    def spoils_its_place(self) -> bool:
        return bool(self.seen.left) or self.seen.code is None

    # ---- how it is done ----

    @contextmanager
    def _started(self) -> Iterator[None]:
        words = [sys.executable, "-m", "horovod.runner", *self.options()]
        words = ["sh", "-c", self.script(), "sh", *words, sys.executable, self.command, str(self.folder)]
        own = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}  # idle threads slow the start
        self.seen.started = self.progressed = time.monotonic()
        with (self.folder / "out").open("wb") as out, (self.folder / "err").open("wb") as err:
            self.job = self.place.start(
                words, self.output(out.fileno()), err.fileno(), **own, **self.settings
            )
        try:
            yield
        finally:
            self.job.kill()
            self.job.wait()

    def wait(self, is_so: Callable[[], bool] = lambda: False) -> bool:
        """Wait until the condition holds or the job has ended. Return False if that took too long."""
        self.look()
        while self.job.poll() is None and not is_so():
            if time.monotonic() > self.deadline():
                if not self.seen.processes:
                    self.hangs()
                return False
            time.sleep(self.look_every)
            self.look()
        return True

    def hangs(self) -> None:
        """Record all processes, and make workers write their stacks to the job's output."""
        there = self.place.processes()
        self.seen.processes = list(map(str, there)) or ["none"]
        for one in there:
            if one.words[1:2] == (self.command,) and self.program.kind != "fixed":
                send(one.number, signal.SIGUSR1)
        time.sleep(0 if self.program.kind == "fixed" else 2)

    def _end(self) -> None:
        """Record the exit code, and in `left` what still remains at the time of `settles_by`."""
        self.seen.ended = time.monotonic()
        self.seen.code = self.job.poll()
        if self.seen.code is None:
            return
        while (left := self.place.left()) and time.monotonic() < self.settles_by():
            time.sleep(0.2)
        self.seen.left = left


class FixedRun(Run):
    """A job that an event ends, which one of its ranks or this process causes."""

    look_every = 0.02
    settings = {  # noqa: RUF012
        "HOROVOD_STALL_CHECK_TIME_SECONDS": str(STALL_WARNING),
        "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": str(STALL_SHUTDOWN),
    }

    def __init__(self, program: Program, place: Made) -> None:
        super().__init__(program, place)
        self.made = place
        self._first_begun = self._all_trained = math.inf
        if program.first in TO_A_DISK:
            place.mount_small_disk(program.full_after)
        self._reader, self._writer = os.pipe() if program.first == "reader_gone" else (-1, -1)

    def options(self) -> list[str]:
        program = self.program
        words = ["-np", str(program.ranks), "--start-timeout", str(START_LIMIT)]
        if len(program.hosts) > 1:
            words += ["-H", f"{LAUNCHER}:{program.hosts[0]},{OTHER}:{program.hosts[1]}"]
        if program.first == "files_disk_full":
            words += ["--output-filename", str(self.made.full / "logs")]
        return words

    def script(self) -> str:
        to = f' >"{self.made.full}/out"' if self.program.first == "stdout_disk_full" else ""
        return super().script() + to

    def output(self, out: int) -> int:
        return out if self._reader < 0 else self._writer

    def follow(self) -> None:
        if self._writer >= 0:
            os.close(self._writer)
        self.wait()
        if self._reader >= 0 and 0 not in self.seen.struck:
            os.close(self._reader)
        self._reader = -1

    def look(self) -> None:
        super().look()
        if self.job.poll() is None and 0 not in self.seen.struck and self._is_time():
            self._strike()
        self._drain()

    def takes(self, note: dict[str, Any]) -> None:
        if note["what"] == "begins":
            self._first_begun = min(self._first_begun, time.monotonic())
        if self.seen.trained == self.program.ranks:
            self._all_trained = min(self._all_trained, time.monotonic())

    def deadline(self) -> float:
        if not self.seen.struck:
            return self.seen.started + START_LIMIT
        first = min(self.seen.struck, key=lambda number: self.seen.struck[number])
        return self.seen.struck[first] + limit_of(self.program.events[first].kind) + PATIENCE

    def settles_by(self) -> float:
        return max(self.deadline(), super().settles_by())

    def spoils_its_place(self) -> bool:
        spoilers = (*TO_A_HOST, *TO_ITS_OUTPUT, "launcher_killed")
        return super().spoils_its_place() or self.program.first in spoilers

    def _drain(self) -> None:
        if self._reader >= 0 and 0 not in self.seen.struck:
            os.set_blocking(self._reader, False)
            try:
                os.read(self._reader, 1 << 20)
            except BlockingIOError:
                return

    def _is_time(self) -> bool:
        """Return whether the first event is caused from outside and its moment has come."""
        if self.program.first in OF_A_RANK:
            return False
        if self.program.first in TO_A_DISK:
            return self.made.disk_is_full()
        moment = self.program.events[0].moment
        since = self._first_begun if moment.phase == "starting" else self._all_trained
        return time.monotonic() >= since + moment.seconds

    def _strike(self) -> None:
        kind = self.program.first
        victim = self._victim()
        if victim is None and kind not in (*TO_A_HOST, *TO_ITS_OUTPUT):
            return  # it does not exist yet
        now = time.monotonic()
        self.seen.struck[0] = now
        note = {"what": "strikes", "at": now, "number": 0}
        (self.folder / "worker-outside.jsonl").write_text(json.dumps(note) + "\n")
        if kind in HOW:
            self.place.strike(HOW[kind], OTHER)
        elif kind == "reader_gone":
            os.close(self._reader)
        elif victim is not None:
            os.kill(victim.number, SIGNALS.get(kind, signal.SIGKILL))

    def _victim(self) -> Process | None:
        """Return the process that an event from outside ends."""
        kind, rank = self.program.first, self.program.events[0].rank
        if kind in SIGNALS:
            return self.place.launcher(self.job)
        wanted: dict[str, tuple[str, Callable[[Process], bool]]] = {
            "wrapper_killed": (HOSTS[self.program.host_of(rank)], lambda one: _is_wrapper(one, rank)),
            "agent_killed": (LAUNCHER, _is_agent),
            "ssh_killed": (
                LAUNCHER,
                lambda one: one.name == "ssh" and "agents/agent.py" in " ".join(one.words),
            ),
            "far_agent_killed": (OTHER, _is_agent),
        }
        if kind not in wanted:
            return None
        host, is_it = wanted[kind]
        return next(filter(is_it, self.place.processes(host)), None)


def _is_wrapper(one: Process, rank: int) -> bool:
    return _runs(one, "wrapper.py") and f"HOROVOD_RANK={rank}" in one.environment


def _is_agent(one: Process) -> bool:
    """Return whether it is an agent, not the shell that becomes it."""
    return one.name.startswith("python") and _runs(one, "agent.py")


class ElasticRun(Run):
    """Workers die at the program's points, each on its own "host": a failing worker takes its host along.

    An undisturbed job of the remaining workers can then be compared.
    """

    def __init__(self, program: Program, place: Place) -> None:
        super().__init__(program, place)
        self.trace = self.folder / "trace.json"
        told = {"HOROVOD_TIMELINE": str(self.trace), "HOROVOD_LOG_LEVEL": "info"} if program.is_traced else {}
        self.settings = {"HOROVOD_DETERMINISTIC": "1", **told}

    def options(self) -> list[str]:
        words = ["-np", str(self.program.ranks)]
        hosts = ",".join(f"{name}:1" for name in self.place.names[: self.program.ranks])
        return words if self.program.resume else [*words, "--min-np", "1", "--blacklist", "host", "-H", hosts]

    def afterwards(self) -> None:
        """Run the undisturbed job: as many ranks as are left, starting where these started last."""
        if self.trace.exists():
            self.seen.trace = json.loads(self.trace.read_text())
        sizes = [note["size"] for note in self.seen.told("ends")]
        began = [note["kept"] for note in self.seen.told("begins") if note["rank"] == 0]
        if self.seen.code == 0 and sizes and began and not self.program.resume:
            twin = replace(
                self.program, seed=-self.program.seed - 1, hosts=(sizes[0],), events=(), resume=began[-1]
            )
            self.seen.undisturbed = ElasticRun(twin, self.place).run()


@dataclass
class Worker:
    """A worker of a soak. world: of its last step, 0 before the first. struck: how; "" if not."""

    name: str
    host: str
    pid: int
    world: float = 0.0
    struck: str = ""


class SoakRun(Run):
    """A soak. One worker is the *favourite*, which no event strikes, so that the state of training survives.

    The favourite goes through many worlds. After a while another worker replaces it.
    """

    command = str(SURVIVAL / "worker.py")
    settings = {"HOROVOD_TCP_TIMEOUT_SECONDS": str(SILENCE)}  # noqa: RUF012

    def __init__(self, program: Program, place: Place) -> None:
        super().__init__(program, place)
        self.course = Course(program)
        self._workers: dict[str, Worker] = {}
        self._listed = place.names[:3]
        self._down: set[str] = set()  # hosts that were cut or unlinked
        self._later: list[tuple[float, Callable[[], None]]] = []
        self._favourite: Worker | None = None
        self._favoured = 0
        self._list()

    def options(self) -> list[str]:
        words = ["--host-discovery-script", f"cat {self.folder}/hosts", "-np", "2", "--min-np", "1"]
        return [*words, "--max-np", "5", "--blacklist-cooldown-range", "2", "6", "--elastic-timeout", "120"]

    # ---- the course of events ----

    def follow(self) -> None:
        goes_on = self.wait(lambda: self._choose_favourite() is not None)
        while goes_on and len(self.seen.happened) < self.program.length and self.job.poll() is None:
            goes_on = self._wait_until(time.monotonic() + self.course.pause())
            if goes_on and self.course.is_patient():
                goes_on = self._wait_until(time.monotonic() + WAITS, self._is_settled)
            if goes_on and self.job.poll() is None:
                self._choose_favourite()
                self._measure()
                self._strike()
        self._finish()

    def _wait_until(self, when: float, is_so: Callable[[], bool] = lambda: False) -> bool:
        return self.wait(lambda: time.monotonic() >= when or is_so())

    def _finish(self) -> None:
        """Restart all hosts, let their workers train for some seconds, and stop the job."""
        for _, act in self._later:
            act()
        self._later, self._listed = [], list(self.place.names)
        self._list()
        since = time.monotonic()
        all_train = lambda: len(self._settled()) == len(self._listed)  # noqa: E731
        self.wait(lambda: self.progressed > since and (all_train() or time.monotonic() > since + WAITS))
        (self.folder / "stop").touch()
        self.wait()
        self.seen.victims = {worker.name for worker in self._workers.values() if worker.struck}

    def look(self) -> None:
        super().look()
        now = time.monotonic()
        due = [act for when, act in self._later if when <= now]
        self._later = [(when, act) for when, act in self._later if when > now]
        for act in due:
            act()

    def takes(self, note: dict[str, Any]) -> None:
        worker = self._workers.setdefault(note["worker"], Worker(note["worker"], note["host"], note["pid"]))
        if note["what"] == "step":
            worker.world = note["world"]
            self.progressed = time.monotonic()

    def _after(self, low: float, high: float, act: Callable[[], None]) -> None:
        self._later.append((time.monotonic() + self.course.seconds(low, high), act))

    # ---- targets and strikes ----

    def _living(self) -> list[Worker]:
        """Return the last worker of each host, if it is not struck: they train or are about to."""
        last = {worker.host: worker for worker in self._workers.values()}
        return [worker for worker in last.values() if not worker.struck and worker.host in self._listed]

    def _settled(self) -> list[Worker]:
        """Return the workers of the newest world, which all hold the state."""
        world = max((worker.world for worker in self._living()), default=0.0)
        return [worker for worker in self._living() if worker.world == world > 0]

    def _is_settled(self) -> bool:
        return len(self._settled()) >= min(SETTLED, len(self._listed))

    def _choose_favourite(self) -> Worker | None:
        """Return the favourite; after a while another worker that holds the state replaces it."""
        self._favoured += 1
        settled = self._settled()
        is_old = self._favoured > FAVOURED and len(settled) > 1
        if settled and (self._favourite is None or is_old):
            others = [worker for worker in settled if worker is not self._favourite]
            self._favourite, self._favoured = self.course.one_of(others or settled), 0
        return self._favourite

    def _strike(self) -> None:
        kind, target = self.course.event(self._targets())
        self.seen.happened.append(f"{time.monotonic():.2f} {kind} {getattr(target, 'name', target)}")
        if isinstance(target, Worker):
            self._strike_worker(kind, target)
        else:
            self._strike_host(kind, target)

    def _targets(self) -> dict[str, list[Any]]:
        """Return the possible targets of each kind of event."""
        assert self._favourite is not None
        victims = [worker for worker in self._living() if worker is not self._favourite]
        hosts = [host for host in self._listed if host != self._favourite.host]
        far = [host for host in hosts if host in self.place.others and host not in self._down]
        new = [host for host in self.place.names if host not in self._listed]
        own = {"add": new, "remove": hosts if len(hosts) > 1 else [], "cut": far, "unlink": far}
        return {kind: own.get(kind, victims) for kind in WEIGHTS}

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
        if kind in ("cut", "unlink"):
            self._down.add(host)
            self.place.strike(kind, host)
            self._after(2, 15, lambda: self._mend("boot" if kind == "cut" else "link", host))

    def _mend(self, how: str, host: str) -> None:
        self.place.strike(how, host)
        self._down.discard(host)

    def _list(self) -> None:
        """Write the list of hosts. The script never reads a half-written list."""
        new = self.folder / "hosts.new"
        new.write_text("".join(f"{host}:1\n" for host in self._listed))
        new.rename(self.folder / "hosts")

    def _measure(self) -> None:
        """Record what horovodrun and its host's agents hold; horovodrun has connections to all agents."""
        agents = [one for one in self.place.processes() if _runs(one, "agent.py")]
        held = {f"agent {one.number}": one for one in agents if one.words[-2] != BY_SSH}
        if (launcher := self.place.launcher(self.job)) is not None:
            held[f"horovodrun, with {len(agents)} agents,"] = launcher
        for whose, one in held.items():
            with contextlib.suppress(OSError):  # it has ended
                self.seen.held.setdefault(whose, []).append(_held(one.number))


def _runs(one: Process, program: str) -> bool:
    return any(word.endswith(f"/agents/{program}") for word in one.words)


def _held(number: int) -> dict[str, int]:
    folder = Path(f"/proc/{number}")
    return {
        "memory": int((folder / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE"),
        "descriptors": len(os.listdir(folder / "fd")),
        "threads": len(os.listdir(folder / "task")),
        "shared": 0,
    }
