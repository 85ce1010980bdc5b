"""python -m horovod.lab: does the experiment and writes the report."""

from __future__ import annotations

import shlex
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from horovod.common.build_info import why_unbuilt
from horovod.lab import folders
from horovod.lab.command_line import Chosen, parse
from horovod.lab.conduct import conduct, words_of
from horovod.lab.errors import FolderInUse
from horovod.lab.logs import read
from horovod.lab.places import made_place
from horovod.lab.progress import display
from horovod.lab.results import table
from horovod.lab.runs import THIS_HOST, Plan
from horovod.runner.errors import LaunchError

ENVIRONMENT = "environment.json"
REPORTS = ("report.html", "report.md")


class Stopped(BaseException):
    """A signal has requested the end of the lab."""

    def __init__(self, number: int) -> None:
        self.number = number


def main(words: Sequence[str]) -> int:
    chosen = parse(words)
    command = shlex.join(["python", "-m", "horovod.lab", *words])
    if chosen.only_list:
        return _list(chosen)
    if why := why_unbuilt():
        _complain(why)
        return 2
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _stop)
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # nohup sets it
        signal.signal(signal.SIGHUP, _stop)
    try:
        with folders.only_one_lab(chosen.out):
            return _do(chosen, command)
    except (FolderInUse, OSError) as error:  # OSError: a full disk, a folder that is a file, ...
        _complain(str(error))
        return 2
    except Stopped as stopped:
        name = signal.Signals(stopped.number).name
        _complain(f"stopped by {name}; the same command goes on where it was: {command}")
        return 128 + stopped.number


def _stop(number: int, _: object) -> NoReturn:
    raise Stopped(number)


def _complain(text: str) -> None:
    print(f"lab: {text}", file=sys.stderr, flush=True)


def _list(chosen: Chosen) -> int:
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `--list | head` is not an error
    for plan in chosen.plans:
        folder = folders.folder_of(chosen.out, plan)
        done = "done     " if folders.is_finished(chosen.out, plan) else "missing  "
        if folders.is_disturbed(chosen.out, plan):
            done = "disturbed"
        command = shlex.join(["env", f"OMP_NUM_THREADS={plan.threads}", *words_of(plan, None)])
        print(f"{done}  {folder.name}: {command}")
    return 0


def _do(chosen: Chosen, command: str) -> int:
    shown = display()
    for name in REPORTS:  # of an earlier experiment: they must not be mistaken for this one's
        (chosen.out / name).unlink(missing_ok=True)
    failed = conduct(chosen.out, chosen.plans, shown, chosen.repeats)
    if failed:
        _complain(
            f"no report: {len(failed)} of {len(chosen.plans)} runs failed ({', '.join(failed)}). What was "
            "done is kept; put right what they say, and the same command does only these"
        )
        return 1
    try:
        written = write_report(chosen.out, chosen.plans, chosen.language, command)
    except (ValueError, LaunchError, RuntimeError) as error:
        _complain(f"no report: {error}")
        return 1
    for path in written:
        if path.name in REPORTS:
            shown.say(str(path))
    return 0


def write_report(out: Path, plans: Sequence[Plan], language: str, command: str) -> list[Path]:
    """Write the report of finished runs into the lab's folder. Returns the files written.

    ValueError: a log is wrong, or runs cannot be compared. LaunchError, RuntimeError: the hosts cannot be
    asked for their facts.
    """
    runs = [read(folders.folder_of(out, plan)) for plan in plans]
    rows = table(runs)
    # Here, because matplotlib takes a second to load, which would delay the first run.
    from horovod.lab.environment import collect, to_json
    from horovod.lab.report import write

    environment = collect(_hosts_of(plans), language)
    (out / ENVIRONMENT).write_text(to_json(environment) + "\n")
    return write(out, runs, rows, environment, language, command)


def _hosts_of(plans: Sequence[Plan]) -> list[str]:
    """Options by which horovodrun reaches the hosts that were trained on; [] for hosts made here."""
    for plan in plans:
        if plan.place != THIS_HOST and made_place(plan.place) is None:
            return ["-np", str(max(each.ranks for each in plans)), "-H", plan.place]
    return []


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
