"""The output of the MNIST examples: progress as a bar or as lines, a record of every step, and a summary.

Only rank 0 prints and writes; other ranks hold the same object, which is silent. The log file is CSV or JSON
Lines by its extension, one record per step ("step"), per tested epoch ("epoch") and per run ("final"). Every
record has the data set's name, the compression, the number of ranks and the seed. docs/lab.md describes the
fields.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from types import TracebackType
from typing import Any

from ranks import parameters_text

LOG_EXTENSIONS = (".csv", ".jsonl")
COLUMNS = [
    *("event", "dataset", "compression", "ranks", "seed", "epoch", "step", "steps", "seconds"),
    *("wait_seconds", "loss", "accuracy", "bytes_sent", "tensor_bytes", "checksum", "identical"),
]


@dataclass(frozen=True)
class Score:
    """A model's result on the test images."""

    correct: int
    total: int
    loss_sum: float

    @property
    def accuracy(self) -> float:
        return self.correct / self.total

    @property
    def loss(self) -> float:
        return self.loss_sum / self.total


def log_format(text: str) -> str:
    """A file name whose extension chooses the format, for argparse."""
    if Path(text).suffix not in LOG_EXTENSIONS:
        raise argparse.ArgumentTypeError(f"{text} ends in neither {' nor '.join(LOG_EXTENSIONS)}")
    return text


class Log:
    """A CSV or JSON Lines file. Each record is written at once, so that a plot can follow a running job."""

    def __init__(self, path: str) -> None:
        self._stream = Path(path).open("w", newline="", buffering=1)  # noqa: SIM115 - closed by close()
        self._csv = csv.DictWriter(self._stream, COLUMNS) if path.endswith(".csv") else None
        if self._csv:
            self._csv.writeheader()

    def write(self, record: dict[str, Any]) -> None:
        if self._csv:
            self._csv.writerow(record)
        else:
            self._stream.write(json.dumps(record) + "\n")

    def close(self) -> None:
        self._stream.close()


class Report:
    """Follows a run: `epoch`, then `step` for each step, then `tested`, and `finish` at the end.

    facts: the values in every record: dataset, compression, ranks, seed.
    """

    def __init__(
        self, args: argparse.Namespace, steps_per_epoch: int, speaks: bool, facts: dict[str, Any]
    ) -> None:
        self.steps_per_epoch = steps_per_epoch
        self._epochs: int = args.epochs
        self._interval: int = args.log_interval
        self._speaks = speaks
        self._facts = facts
        self._log = Log(args.log_file) if args.log_file and speaks else None
        self._seconds: list[float] = []
        self._epoch = 0
        self._step = 0  # within the epoch
        self._bar: Any = None

    def __enter__(self) -> Report:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.close()
        if self._log:
            self._log.close()

    def epoch(self, number: int) -> None:
        """Begin epoch `number`, counted from 1."""
        self._epoch, self._step = number, 0
        if self._speaks and sys.stderr.isatty():
            self._bar = progress_bar(self.steps_per_epoch, f"epoch {number}/{self._epochs}")

    def step(self, seconds: float, loss: float, accuracy: float, wait_seconds: float = 0.0) -> None:
        """Record a step of `seconds`, of which this rank waited for the others for `wait_seconds`.

        `loss` and `accuracy` are this rank's, on the batch before the update.
        """
        self._step += 1
        self._seconds.append(seconds)
        place = {"step": self._step, "steps": self.steps_per_epoch}
        times = {"seconds": seconds, "wait_seconds": wait_seconds}
        self._record("step", **place, **times, loss=loss, accuracy=accuracy)
        if self._bar is not None:
            self._bar.set_postfix(loss=f"{loss:.4f}", refresh=False)
            self._bar.update()
        elif self._step % self._interval == 0 or self._step == self.steps_per_epoch:
            share = 100 * self._step // self.steps_per_epoch
            self._say(
                f"epoch {self._epoch}/{self._epochs}  "
                f"step {self._step:>4}/{self.steps_per_epoch} {share:>3} %  "
                f"loss {loss:.4f}  accuracy {100 * accuracy:6.2f} %  {1e3 * self._recent():.1f} ms/step"
            )

    def tested(self, score: Score) -> None:
        """Record the test after the epoch."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None
        self._record("epoch", loss=score.loss, accuracy=score.accuracy)
        self._say(
            f"epoch {self._epoch}/{self._epochs}  test loss {score.loss:.4f}  "
            f"accuracy {100 * score.accuracy:.2f} %"
        )

    def finish(
        self, score: Score, checksums: list[str], source: str, traffic: dict[str, int] | None = None
    ) -> bool:
        """Print the summary. Returns whether all ranks' models are bit-identical, by their checksums.

        traffic: if counted, for all steps the `tensor_bytes` of gradients and the `bytes_sent` for them.
        """
        identical = len(set(checksums)) == 1
        seconds = median(self._seconds)
        self._record(
            "final",
            seconds=seconds,
            loss=score.loss,
            accuracy=score.accuracy,
            checksum=checksums[0],
            identical=identical,
            **(traffic or {}),
        )
        lines = [
            ("dataset", f"{self._facts['dataset']} ({source})"),
            ("compression", f"{self._facts['compression']}, {len(checksums)} rank(s)"),
            ("time per step", f"{1e3 * seconds:.2f} ms (median of {len(self._seconds)})"),
            ("test loss", f"{score.loss:.4f}"),
            ("test accuracy", f"{100 * score.accuracy:.2f} % ({score.correct} of {score.total})"),
            ("parameters", parameters_text(checksums)),
        ]
        if traffic is not None:
            per_step = traffic["bytes_sent"] / len(self._seconds) / 1e3
            lines.insert(3, ("bytes sent", f"{per_step:.1f} KB per step and rank"))
        for name, value in lines:
            self._say(f"{name:<14} {value}")
        return identical

    def _recent(self) -> float:
        return median(self._seconds[-self._interval :])

    def _say(self, line: str) -> None:
        if self._speaks:
            print(line, flush=True)

    def _record(self, event: str, **values: Any) -> None:
        if self._log:
            self._log.write({"event": event, **self._facts, "epoch": self._epoch, **values})


def progress_bar(total: int, title: str) -> Any:
    """A tqdm bar; None without tqdm, in which case plain lines are printed."""
    try:
        from tqdm import tqdm
    except ImportError:
        return None
    return tqdm(total=total, desc=title, unit="step")
