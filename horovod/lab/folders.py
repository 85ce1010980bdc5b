"""The lab's folder: one folder for each run, described by its plan.json, and a lock.

runs/<name>/plan.json     the run's options
runs/<name>/log.jsonl     the script's records
runs/<name>/output.txt    the output of all ranks
runs/<name>/tuning.json   the autotuner's trials, if HOROVOD_AUTOTUNE=1
runs/<name>/load.json     the load by other programs; written last
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

from horovod.lab import errors, load
from horovod.lab.plan import folder_name
from horovod.lab.runs import Plan

PLAN, LOG, OUTPUT, LOAD, TUNING = "plan.json", "log.jsonl", "output.txt", "load.json", "tuning.json"


@contextlib.contextmanager
def only_one_lab(out: Path) -> Iterator[None]:
    """Hold the folder's lock. The kernel releases it when this process ends, however it ends.

    FolderInUse if another process holds it.
    """
    out.mkdir(parents=True, exist_ok=True)
    with (out / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise errors.folder_in_use(path=str(out)) from None
        yield


def folder_of(out: Path, plan: Plan) -> Path:
    return out / "runs" / folder_name(plan)


def plan_in(folder: Path) -> Plan | None:
    """The plan that a folder's run was started with; None if it is missing or unreadable."""
    try:
        values = json.loads((folder / PLAN).read_text())
        plan = Plan(**{**values, "arguments": tuple(values["arguments"])})
    except (OSError, ValueError, TypeError, LookupError, RecursionError):
        return None
    return plan if _is_whole(plan) else None


def _is_whole(plan: Plan) -> bool:
    """Whether its fields have the right types and ranges: the file may contain anything."""
    counts = (plan.ranks, plan.epochs, plan.threads)
    texts = (plan.script, plan.compression, plan.place, plan.digest, *plan.arguments)
    return (
        all(type(count) is int and count > 0 for count in counts)
        and type(plan.seed) is int
        and all(isinstance(text, str) for text in texts)
    )


def load_in(folder: Path) -> load.Load | None:
    """The load by other programs during a folder's run; None if the record is missing or unreadable."""
    try:
        return load.from_json((folder / LOAD).read_text())
    except (OSError, ValueError):
        return None


def is_finished(out: Path, plan: Plan) -> bool:
    """Whether the run was done with exactly this plan, up to the final record, and its load is known."""
    folder = folder_of(out, plan)
    if plan_in(folder) != plan or load_in(folder) is None:
        return False
    try:
        last = (folder / LOG).read_text().splitlines(keepends=True)[-1]
        return last.endswith("\n") and json.loads(last).get("event") == "final"
    except (OSError, ValueError, IndexError, AttributeError, RecursionError):
        return False


def is_disturbed(out: Path, plan: Plan) -> bool:
    """Whether the run was done, and other programs were busy meanwhile."""
    found = load_in(folder_of(out, plan))
    return is_finished(out, plan) and found is not None and found.is_disturbing


@contextlib.contextmanager
def repeating(out: Path, plan: Plan) -> Iterator[None]:
    """Repeat the run in the block. Afterwards its folder has the less disturbed of the two runs.

    The runs' times do not decide: choosing by them would bias the result. Both runs are kept. If the block
    fails, the earlier run is restored.
    """
    folder = folder_of(out, plan)
    earlier = _free_name(folder)
    folder.rename(earlier)
    try:
        yield
    finally:
        before, now = load_in(earlier), load_in(folder) if is_finished(out, plan) else None
        if before is not None and (now is None or now.during >= before.during):
            if now is None:
                shutil.rmtree(folder, ignore_errors=True)
                earlier.rename(folder)
            else:
                repetition = folder.rename(_free_name(folder))
                earlier.rename(folder)
                repetition.rename(earlier)


def prepare(out: Path, plan: Plan) -> Path:
    """An empty folder for the run with its plan in it.

    Removes the remains of a run that did not end. A run of another plan (an edited script's) is kept beside
    it.
    """
    folder = folder_of(out, plan)
    if folder.exists():
        before = plan_in(folder)
        if before is not None and before != plan:
            folder.rename(_free_name(folder))
        else:
            shutil.rmtree(folder)
    folder.mkdir(parents=True)
    partial = folder / f"{PLAN}.partial"
    partial.write_text(json.dumps(dataclasses.asdict(plan), indent=2) + "\n")
    partial.rename(folder / PLAN)  # so that a plan.json is always complete
    return folder


def _free_name(folder: Path) -> Path:
    number = 1
    while (free := folder.with_name(f"{folder.name}~{number}")).exists():
        number += 1
    return free
