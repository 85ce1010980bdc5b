"""Runs a fault program, strikes from outside where a fault is none of a rank's, and notes what was seen."""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from fault_hosts import HOSTS, LAUNCHER, OTHER, FaultHosts, Process, process
from fault_programs import (
    OF_A_RANK,
    PATIENCE,
    STALL_SHUTDOWN,
    STALL_WARNING,
    TO_A_HOST,
    TO_ITS_OUTPUT,
    Program,
    limit_of,
)

import horovod

START_LIMIT = 90  # seconds until something has gone wrong: horovodrun's 30 are few on a busy machine
LOOK_EVERY = 0.02
SETTLE = 5.0  # seconds after the launcher's end in which all may end: a host's daemon has its own pace
HERE = Path(__file__).parent
SIGNALS = {
    "launcher_term": signal.SIGTERM,
    "launcher_int": signal.SIGINT,
    "launcher_killed": signal.SIGKILL,
}


@dataclass
class Observation:
    """What was seen of a program.

    code: horovodrun's exit code, negative for a signal; None when it had to be ended. struck: when each fault
    happened (those that did). trained: how many ranks got past init(). ended: when horovodrun did. left: what
    was there still when all should have been gone. processes: those that ran when horovodrun had to be ended.
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


def environment(home: Path) -> dict[str, str]:
    """Ours, with this Python and this copy of the package first; no settings but those that faults meet."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith("HOROVOD_")}
    return {
        **kept,
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), kept.get("PATH", os.defpath)]),
        "PYTHONPATH": str(Path(horovod.__file__).parents[1]),
        "HOME": str(home),  # for what horovodrun remembers of hosts
        "HOROVOD_STALL_CHECK_TIME_SECONDS": str(STALL_WARNING),
        "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": str(STALL_SHUTDOWN),
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",  # NumPy's: threads that nobody needs take long to start
    }


class FaultRun:
    def __init__(self, program: Program, hosts: FaultHosts) -> None:
        self.program = program
        self.hosts = hosts
        self.seen = Observation()
        self._first_begun = self._all_trained = math.inf
        self.folder = hosts.folder / f"seed{program.seed}"
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir()
        (self.folder / "program.json").write_text(json.dumps(program.as_record()))

    def run(self) -> Observation:
        """To the end of everything that it has started, if necessary by force."""
        kind = self.program.faults[0].kind
        if kind in ("stdout_disk_full", "files_disk_full"):
            self.hosts.mount_small_disk(self.program.full_after)
        try:
            self._run()
        finally:
            is_whole = not self.seen.left and self.seen.code is not None
            if not is_whole or kind in (*TO_A_HOST, *TO_ITS_OUTPUT, "launcher_killed"):
                self.hosts.renew()
        shutil.rmtree(self.folder, ignore_errors=True)
        return self.seen

    def _run(self) -> None:
        kind = self.program.faults[0].kind
        reader, writer = os.pipe() if kind == "reader_gone" else (-1, -1)
        self.seen.started = time.monotonic()
        with (self.folder / "out").open("wb") as out, (self.folder / "err").open("wb") as err:
            self.launched = self.hosts.start(
                self._words(),
                environment(self.hosts.folder),
                writer if reader >= 0 else out.fileno(),
                err.fileno(),
            )
        if reader >= 0:
            os.close(writer)
        try:
            self._watch(reader)
            self._await_nothing_left()
        finally:
            self.launched.kill()
            self.launched.wait()
            if reader >= 0 and 0 not in self.seen.struck:
                os.close(reader)
        self.seen.out = (self.folder / "out").read_text(errors="replace")
        self.seen.err = (self.folder / "err").read_text(errors="replace")

    def _words(self) -> list[str]:
        program = self.program
        words = [sys.executable, "-m", "horovod.runner", "-np", str(program.ranks)]
        words += ["--start-timeout", str(START_LIMIT)]
        if len(program.hosts) > 1:
            words += ["-H", f"{LAUNCHER}:{program.hosts[0]},{OTHER}:{program.hosts[1]}"]
        if program.faults[0].kind == "files_disk_full":
            words += ["--output-filename", str(self.hosts.full / "logs")]
        words += [sys.executable, str(HERE / "faulty_rank.py"), str(self.folder)]
        to = f' >"{self.hosts.full}/out"' if program.faults[0].kind == "stdout_disk_full" else ""
        return ["sh", "-c", f'ulimit -c 0; exec "$@"{to}', "sh", *words]

    def _watch(self, reader: int) -> None:
        """Until horovodrun has ended, or should have."""
        while self.launched.poll() is None:
            self._read_notes()
            if 0 not in self.seen.struck and self._is_time():
                self._strike(reader)
            if time.monotonic() > self.deadline():
                self.seen.processes = [
                    f"{host}: {one}" for host in HOSTS for one in self.hosts.processes(host)
                ]
                self.seen.ended = time.monotonic()
                return
            self._drain(reader)
            time.sleep(LOOK_EVERY)
        self.seen.ended = time.monotonic()
        self.seen.code = self.launched.returncode
        self._read_notes()

    def deadline(self) -> float:
        if not self.seen.struck:
            return self.seen.started + START_LIMIT
        first = min(self.seen.struck, key=lambda number: self.seen.struck[number])
        return self.seen.struck[first] + limit_of(self.program.faults[first].kind) + PATIENCE

    def _drain(self, reader: int) -> None:
        if reader >= 0 and 0 not in self.seen.struck:
            os.set_blocking(reader, False)
            try:
                os.read(reader, 1 << 20)
            except BlockingIOError:
                return

    def _read_notes(self) -> None:
        begun = trained = 0
        for path in self.folder.glob("*.notes"):
            for line in path.read_text().splitlines():
                what, _, when = line.rpartition(" ")
                begun += what == "begun"
                trained += what == "training"
                if what.startswith("struck "):
                    self.seen.struck.setdefault(int(what.split()[1]), float(when))
        self.seen.trained = trained
        if begun:
            self._first_begun = min(self._first_begun, time.monotonic())
        if trained == self.program.ranks:
            self._all_trained = min(self._all_trained, time.monotonic())

    def _is_time(self) -> bool:
        """Whether the first fault is one from outside whose moment has come."""
        fault = self.program.faults[0]
        if fault.kind in OF_A_RANK:
            return False
        if fault.kind in ("stdout_disk_full", "files_disk_full"):
            return self._disk_is_full()
        since = self._first_begun if fault.moment.phase == "starting" else self._all_trained
        return time.monotonic() >= since + fault.moment.seconds

    def _disk_is_full(self) -> bool:
        disk = os.statvfs(self.hosts.small_disk())
        return disk.f_bfree == 0

    def _strike(self, reader: int) -> None:
        fault = self.program.faults[0]
        victim = self._victim()
        if victim is None and fault.kind not in (*TO_A_HOST, *TO_ITS_OUTPUT):
            return  # it is not there yet
        now = time.monotonic()
        self.seen.struck[0] = now
        (self.folder / "outside.notes").write_text(f"struck 0 {now}\n")
        if fault.kind in TO_A_HOST:
            self.hosts.strike(fault.kind)
        elif fault.kind == "reader_gone":
            os.close(reader)
        elif victim is not None:
            os.kill(victim.number, SIGNALS.get(fault.kind, signal.SIGKILL))

    def _victim(self) -> Process | None:
        """The process that a fault from outside ends."""
        fault = self.program.faults[0]
        if fault.kind in SIGNALS:
            children = (
                Path(f"/proc/{self.launched.pid}/task/{self.launched.pid}/children").read_text().split()
            )
            return process(int(children[0])) if children else None
        host = OTHER if fault.kind == "daemon_killed" else LAUNCHER
        if fault.kind == "wrapper_killed":
            host = HOSTS[self.program.host_of(fault.rank)]
        wanted = {
            "wrapper_killed": lambda one: _is_wrapper(one, fault.rank),
            "mpirun_killed": lambda one: _name(one) in ("prterun", "mpirun"),
            "ssh_killed": lambda one: _name(one) == "ssh" and "prted" in one.command,
            "daemon_killed": lambda one: _name(one) == "prted",
        }
        if fault.kind not in wanted:
            return None
        return next(filter(wanted[fault.kind], self.hosts.processes(host)), None)

    def _await_nothing_left(self) -> None:
        """As `left` stays: what is there when this takes too long."""
        by = max(self.deadline(), self.seen.ended + SETTLE)
        if self.seen.code is None:
            return
        while (left := self._left()) and time.monotonic() < by:
            time.sleep(10 * LOOK_EVERY)
        self.seen.left = left

    def _left(self) -> list[str]:
        """A launcher that was killed cannot remove its folder for temporary files, and nobody else has it."""
        is_killed = self.program.faults[0].kind == "launcher_killed"
        return [what for what in self.hosts.left() if not (is_killed and "$TMPDIR/horovodrun-" in what)]


def _name(one: Process) -> str:
    return Path(one.command.split()[0]).name


def _is_wrapper(one: Process, rank: int) -> bool:
    return (
        "runner/rank.py" in one.command.split("faulty_rank")[0]
        and f"OMPI_COMM_WORLD_RANK={rank}" in one.environment
    )
