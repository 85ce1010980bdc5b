"""Progress of the runs: bars in a terminal, otherwise a line now and then."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from horovod.lab.runs import Plan

SECONDS_BETWEEN_LINES = 10.0
Stepped = Callable[[dict[str, Any]], None]


class GrowingLog:
    """A log that another process is writing: `news` are the complete records since the last call."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def news(self) -> list[dict[str, Any]]:
        """New step records. Skips malformed lines: `logs.read` reports them when the run is over."""
        try:
            with self._path.open("rb") as stream:
                stream.seek(self._offset)
                data = stream.read()
        except FileNotFoundError:
            return []
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        found = []
        for line in whole.splitlines():
            try:
                record = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(record, dict) and record.get("event") == "step":
                found.append(record)
        return found


def state(record: dict[str, Any], epochs: int) -> str:
    """A run's progress: epoch 1/3 step 40/469 loss 0.3367 accuracy 90.6 %."""
    words = f"epoch {record.get('epoch')}/{epochs}  step {record.get('step')}/{record.get('steps')}"
    for name, form in (("loss", "{:.4f}"), ("accuracy", "{:.1%}")):
        value = record.get(name)
        if isinstance(value, float) or (isinstance(value, int) and abs(value) < 2**53):
            words += f"  {name} {form.format(value)}"
    return words


def steps_done(record: dict[str, Any], epochs: int) -> tuple[int, int] | None:
    """Steps done and steps in all; None if the record lacks them."""
    numbers = [record.get(name) for name in ("epoch", "step", "steps")]
    if not all(isinstance(number, int) for number in numbers):
        return None
    epoch, step, steps = map(int, numbers)  # type: ignore[arg-type]
    return (epoch - 1) * steps + step, epochs * steps


class Lines:
    """Progress for a file or a pipe."""

    def say(self, line: str) -> None:
        """Print a line that stays."""
        print(line, flush=True)

    @contextmanager
    def run(self, title: str, plan: Plan) -> Iterator[Stepped]:
        """Show a run inside the block, which calls the function with the latest step record of its log."""
        self.say(title)
        last = time.monotonic()
        first: tuple[float, int] | None = None  # time of the first look, and the steps done then

        def stepped(record: dict[str, Any]) -> None:
            nonlocal first, last
            now, done = time.monotonic(), steps_done(record, plan.epochs)
            if done and first is None:
                first = now, done[0]
            if now < last + SECONDS_BETWEEN_LINES:
                return
            last = now
            left = ""
            if done and first and done[0] > first[1]:
                per_step = (now - first[0]) / (done[0] - first[1])
                left = f"  about {per_step * (done[1] - done[0]):.0f} s left"
            self.say(f"  {state(record, plan.epochs)}{left}")

        yield stepped


class Bars:
    """Progress for a terminal: one bar for the run, under the lines that stay."""

    def __init__(self) -> None:
        from rich.console import Console

        self._console = Console(highlight=False)

    def say(self, line: str) -> None:
        self._console.print(line, markup=False)

    @contextmanager
    def run(self, title: str, plan: Plan) -> Iterator[Stepped]:
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=20),
            TextColumn("{task.fields[state]}", markup=False),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
        )
        with Progress(*columns, console=self._console, transient=True) as progress:
            task = progress.add_task(title, total=None, state="starting")

            def stepped(record: dict[str, Any]) -> None:
                done, total = steps_done(record, plan.epochs) or (0, None)
                progress.update(task, completed=done, total=total, state=state(record, plan.epochs))

            yield stepped


Display = Lines | Bars


def display() -> Display:
    """The display that suits standard output."""
    return Bars() if sys.stdout.isatty() else Lines()
