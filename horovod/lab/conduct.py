"""Does missing runs, one after the other. If the lab is ended, it ends the processes that it has started."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import horovod
from horovod.lab import errors, folders, load
from horovod.lab.errors import LogError, RunFailed
from horovod.lab.logs import read
from horovod.lab.places import hosts_of, made_place
from horovod.lab.plan import in_rounds
from horovod.lab.progress import Display, GrowingLog, Stepped
from horovod.lab.runs import Plan
from horovod.made_hosts import HostsError, MadeHosts
from horovod.runner.processes import end_with_parent

LOOK_EVERY = 0.2  # seconds
PATIENCE = 15.0  # seconds for horovodrun to end its ranks
LAST_LINES = 15


def words_of(plan: Plan, log: Path | None) -> list[str]:
    """The command of a run, with or without its log."""
    script = [sys.executable, plan.script, "--epochs", str(plan.epochs), "--seed", str(plan.seed)]
    script += [*(["--log-file", str(log)] if log else []), *plan.arguments]
    if plan.ranks == 1:
        return script
    hosts = hosts_of(plan.place, plan.ranks)
    launcher = [sys.executable, "-m", "horovod.runner", "-np", str(plan.ranks)]
    return [*launcher, "--compression", plan.compression, *(["-H", hosts] if hosts else []), *script]


def environment_of(plan: Plan, folder: Path | None = None) -> dict[str, str]:
    """This process' environment, with this copy of the package, and the plan's number of OpenMP threads.

    horovodrun sets HOROVOD_COMPRESSION. The autotuner's log goes into the run's folder.
    """
    kept = {name: text for name, text in os.environ.items() if name != "HOROVOD_COMPRESSION"}
    packages = [str(Path(horovod.__file__).parents[1]), kept.get("PYTHONPATH", "")]
    return {
        **kept,
        "PYTHONPATH": os.pathsep.join(filter(None, packages)),
        "PYTHONUNBUFFERED": "1",
        "OMP_NUM_THREADS": str(plan.threads),
        **({"HOROVOD_AUTOTUNE_LOG": str(folder / folders.TUNING)} if folder else {}),
    }


def conduct(out: Path, plans: Sequence[Plan], display: Display, repeats: int = 0) -> list[str]:
    """Do the missing runs of the plans, and repeat disturbed ones up to `repeats` times.

    If a repetition fails, the earlier run stays. An exception that ends the lab (a signal) passes through
    after the current run has been ended. Returns the names of failed runs, which do not stop the others.
    """
    missing = [plan for plan in in_rounds(plans) if not folders.is_finished(out, plan)]
    if len(missing) < len(plans):
        display.say(f"{len(plans) - len(missing)} of {len(plans)} runs are done already")
    with _MadeHostsOnDemand() as made:
        work = _Work(out, made, display)
        failures = [
            plan for number, plan in enumerate(missing, 1) if not work.do(plan, f"{number} of {len(missing)}")
        ]
        for _ in range(repeats):
            disturbed = _disturbed(out, plans)
            for number, plan in enumerate(disturbed, 1):
                with folders.repeating(out, plan):
                    work.do(plan, f"{number} of {len(disturbed)} again")
    if disturbed := _disturbed(out, plans):
        names = ", ".join(folders.folder_of(out, plan).name for plan in disturbed)
        display.say(
            f"other programs disturbed {len(disturbed)} of {len(plans)} runs: {names}. Do them again with "
            "--repeat-disturbed, when the machine does nothing else"
        )
    return [folders.folder_of(out, plan).name for plan in failures]


def _disturbed(out: Path, plans: Sequence[Plan]) -> list[Plan]:
    return [plan for plan in in_rounds(plans) if folders.is_disturbed(out, plan)]


class _MadeHostsOnDemand(contextlib.ExitStack):
    """Makes hosts for the first run that needs them, and sets the cables to the rate of each run."""

    _hosts: MadeHosts | None = None

    def on_first_host(self, place: str, words: list[str]) -> list[str]:
        """The command line that runs `words` on the first of the place's made hosts, or just `words`."""
        wanted = made_place(place)
        if wanted is None:
            return words
        if self._hosts is None or len(self._hosts.names) != wanted.count:
            self.close()
            self._hosts = MadeHosts(wanted.count)
            self.callback(self._hosts.down)
            self._hosts.up()
        self._hosts.rate(wanted.rate)
        return self._hosts.command(self._hosts.names[0], words)


@dataclass(frozen=True)
class _Work:
    """Does runs one by one, and prints the result of each."""

    out: Path
    made: _MadeHostsOnDemand
    display: Display

    def do(self, plan: Plan, number: str) -> bool:
        """Do a run. Returns whether it succeeded."""
        folder = folders.folder_of(self.out, plan)
        began = time.monotonic()
        try:
            with self.display.run(f"run {number}: {folder.name}", plan) as stepped:
                _run(self.out, plan, self.made, stepped)
        except (RunFailed, HostsError) as failure:
            self.display.say(f"{folder.name} FAILED. {failure}")
            return False
        run = read(folder)
        remark = f"; disturbed: others took {run.load.during:.0%} of the processors" * run.load.is_disturbing
        self.display.say(
            f"{folder.name}: {time.monotonic() - began:.0f} s, {run.training_seconds:.1f} s of it training; "
            f"accuracy {run.accuracy:.2%}{remark}"
        )
        return True


def _run(out: Path, plan: Plan, made: _MadeHostsOnDemand, stepped: Stepped) -> None:
    folder = folders.prepare(out, plan).resolve()
    log = folder / folders.LOG
    words = words_of(plan, log)
    command = made.on_first_host(plan.place, words)
    growing = GrowingLog(log)
    before, first = load.while_quiet(), load.reading()
    with (folder / folders.OUTPUT).open("wb") as output:
        output.write(f"$ {shlex.join(words)}\n".encode())
        output.flush()
        with _started(command, environment_of(plan, folder), output.fileno()) as process:
            while process.poll() is None:
                if news := growing.news():
                    stepped(news[-1])
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(LOOK_EVERY)
    during = load.others(first, load.reading())
    found = load.Load(before, during, load.while_quiet())
    (folder / folders.LOAD).write_text(load.to_json(found))
    trouble = ""
    if process.returncode != 0:
        trouble = f"it ended with {_ending(process.returncode)}"
    else:
        try:
            read(folder)
        except LogError as error:
            trouble = f"it ended well, but its log is not right: {error}"
    if trouble:
        # Even with a complete log, the run does not count as done.
        (folder / folders.PLAN).rename(folder / f"failed-{folders.PLAN}")
        said = _last_lines(folder)
        raise errors.run_failed(path=str(folder), why=trouble, output=folders.OUTPUT, said=said)


@contextlib.contextmanager
def _started(
    command: list[str], environment: dict[str, str], output: int
) -> Iterator[subprocess.Popen[bytes]]:
    """Start a process group, which ends with the block, or with this process if that is killed."""
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        env=environment,
        start_new_session=True,
        preexec_fn=lambda: end_with_parent(signal.SIGTERM),
    )
    try:
        yield process
    finally:
        try:
            if process.poll() is None:
                process.terminate()  # horovodrun then ends its ranks
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(PATIENCE)
        finally:  # also if Ctrl-C is pressed again
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # processes that a script has left behind, too
            process.wait()


def _ending(code: int) -> str:
    return f"exit code {code}" if code > 0 else signal.Signals(-code).name


def _last_lines(folder: Path) -> str:
    lines = (folder / folders.OUTPUT).read_text(errors="replace").splitlines()[-LAST_LINES:]
    return "\n".join(f"    {line}" for line in lines)
