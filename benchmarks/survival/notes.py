"""The notes that workers of a job write, and complaints about them: pure functions."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

Note = dict[str, Any]


class Notes:
    """The notes of all workers, read as they are written. `by_worker`: by the name of the worker's file."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[Path, int] = {}
        self.by_worker: dict[str, list[Note]] = {}

    def read(self) -> list[Note]:
        new: list[Note] = []
        for path in sorted(self._folder.glob("worker-*.jsonl")):
            with path.open("rb") as file:
                file.seek(self._read.get(path, 0))
                data = file.read()
            whole = data[: data.rfind(b"\n") + 1]  # the last line may be incomplete
            self._read[path] = self._read.get(path, 0) + len(whole)
            found = [json.loads(line) | {"worker": path.stem} for line in whole.splitlines()]
            self.by_worker.setdefault(path.stem, []).extend(found)
            new += found
        return new

    def all(self) -> list[Note]:
        """Return all notes in the order of time."""
        return sorted(
            (note for notes in self.by_worker.values() for note in notes), key=lambda note: note["at"]
        )


def wrong_samples(notes: Sequence[Note], samples: int) -> list[str]:
    """Return complaints about epochs that lost samples or repeated too many.

    A step counts in the last world that finished it; steps that were rolled back do not count. Each world
    pads its part of an epoch with up to size - 1 samples, so that all ranks have equally many.
    """
    final: dict[int, Note] = {}
    for note in notes:
        if note["what"] == "step" and note["world"] >= final.get(note["step"], note)["world"]:
            final[note["step"]] = note
    done: dict[int, Counter[int]] = {}
    padding: dict[int, dict[float, int]] = {}
    for note in notes:
        if note["what"] != "tries" or note["step"] not in final:
            continue
        if note["world"] == final[note["step"]]["world"]:
            done.setdefault(note["epoch"], Counter()).update(note["samples"])
            padding.setdefault(note["epoch"], {})[note["world"]] = note["size"] - 1
    whole = {note["epoch"] for note in notes if note["what"] == "epoch"}
    found = []
    for epoch in sorted(whole & set(done)):
        lost = samples - len(done[epoch])
        twice = done[epoch].total() - len(done[epoch])
        if lost:
            found.append(f"epoch {epoch} lost {lost} samples")
        if twice > sum(padding[epoch].values()):
            found.append(f"epoch {epoch} did {twice} samples again, in worlds that pad {padding[epoch]}")
    return found


def wrong_bits(notes: Sequence[Note]) -> list[str]:
    """Return the ends of epochs at which ranks of a world differ."""
    digests: dict[tuple[float, int], set[str]] = {}
    for note in notes:
        if note["what"] == "epoch":
            digests.setdefault((note["world"], note["epoch"]), set()).add(note["digest"])
    return [
        f"at the end of epoch {epoch} ranks differ" for (_, epoch), seen in digests.items() if len(seen) > 1
    ]


def epochs(notes: Sequence[Note]) -> int:
    return len({note["epoch"] for note in notes if note["what"] == "epoch"})


def pauses(notes: Sequence[Note]) -> list[float]:
    """Return the seconds between steps that any rank finished, the longest last."""
    times = sorted(note["at"] for note in notes if note["what"] == "step")
    return sorted(after - before for before, after in itertools.pairwise(times))
