"""python -m horovod.lab: does the experiment and writes the report."""

from __future__ import annotations

import importlib
import shlex
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from horovod.lab import folders
from horovod.lab.command_line import Chosen, parse
from horovod.lab.conduct import conduct, words_of
from horovod.lab.logs import LogError, read
from horovod.lab.progress import display
from horovod.lab.results import table
from horovod.lab.runs import Plan

ENVIRONMENT = "environment.json"
REPORTS = ("report.html", "report.md")


class Stopped(BaseException):
    """A signal asks for the lab's end."""

    def __init__(self, number: int) -> None:
        self.number = number


def main(words: Sequence[str]) -> int:
    chosen = parse(words)
    if chosen.only_list:
        return _list(chosen)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _stop)
    try:
        with folders.only_one_lab(chosen.out):
            return _do(chosen)
    except folders.FolderInUse as error:
        _complain(str(error))
        return 2
    except Stopped as stopped:
        _complain(
            f"stopped by {signal.Signals(stopped.number).name}; the same command goes on where it was: "
            f"python -m horovod.lab {shlex.join(words)}"
        )
        return 128 + stopped.number


def _stop(number: int, _: object) -> NoReturn:
    raise Stopped(number)


def _complain(text: str) -> None:
    print(f"lab: {text}", file=sys.stderr, flush=True)


def _list(chosen: Chosen) -> int:
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `--list | head` is no error
    for plan in chosen.plans:
        folder = folders.folder_of(chosen.out, plan)
        done = "done   " if folders.is_finished(chosen.out, plan) else "missing"
        print(f"{done}  {folder.name}: {shlex.join(words_of(plan, folder / folders.LOG))}")
    return 0


def _do(chosen: Chosen) -> int:
    shown = display()
    if not all(folders.is_finished(chosen.out, plan) for plan in chosen.plans):
        for name in REPORTS:  # of an earlier experiment: none is to be taken for this one's
            (chosen.out / name).unlink(missing_ok=True)
    failed = conduct(chosen.out, chosen.plans, shown)
    if failed:
        _complain(
            f"no report: {len(failed)} of {len(chosen.plans)} runs failed ({', '.join(failed)}). What was "
            "done is kept; put right what they say, and the same command does only these"
        )
        return 1
    try:
        for path in write_report(chosen.out, chosen.plans, chosen.language):
            shown.say(str(path))
    except (LogError, ValueError) as error:
        _complain(f"no report: {error}")
        return 1
    return 0


def write_report(out: Path, plans: Sequence[Plan], language: str) -> list[Path]:
    """The report of finished runs. LogError or ValueError when a log is not right, or runs do not compare."""
    runs = [read(folders.folder_of(out, plan)) for plan in plans]
    rows = table(runs)
    # Here, because matplotlib takes a second, which nobody has to wait for before the first run.
    environment = importlib.import_module("horovod.lab.environment")
    report = importlib.import_module("horovod.lab.report")
    found = environment.collect()
    (out / ENVIRONMENT).write_text(environment.to_json(found) + "\n")
    written: list[Path] = report.write(out, runs, rows, found, language)
    return written


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
