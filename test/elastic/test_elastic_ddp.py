"""DistributedDataParallel inside of hvd.elastic.run: process groups are left, and made again."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from launching import horovodrun

PROGRAM = Path(__file__).with_name("ddp_rank.py")


def run(folder: Path, ranks: int, elastic: bool, limit: float = 150, **task: Any) -> tuple[Any, list[Any]]:
    """The job, and what its workers noted, in order. A worker's host is its own."""
    folder.mkdir(exist_ok=True)
    path = folder / "task.json"
    path.write_text(json.dumps({"victim": -1, "step": 0, "resume": "", "folder": str(folder), **task}))
    hosts = ",".join(f"127.0.0.{number + 1}:1" for number in range(ranks))
    words = ["--launcher", "tcp", "-np", str(ranks), *(["--min-np", "1", "-H", hosts] if elastic else [])]
    command = (sys.executable, str(PROGRAM), str(path))
    done = horovodrun(*words, *command, limit=limit, HOROVOD_DETERMINISTIC="1")
    notes = [json.loads(line) for file in folder.glob("*.jsonl") for line in file.read_text().splitlines()]
    return done, sorted(notes, key=lambda note: note["at"])


def only(notes: list[Any], what: str) -> list[Any]:
    return [note for note in notes if note["what"] == what]


@pytest.mark.timeout(330)
@pytest.mark.parametrize(("way", "victim"), [("plain", 0), ("compress", 1), ("backend", 2)])
def test_survivors_make_a_new_group(way: str, victim: int, tmp_path: Path) -> None:
    """They end with the bits of a job of two that began where they went on."""
    done, notes = run(tmp_path / "job", 3, True, way=way, victim=victim, step=7)
    assert done.returncode == 0 and len(only(notes, "dies")) == 1, done.stderr
    ends = only(notes, "ends")
    assert {note["start_rank"] for note in ends} == {0, 1, 2} - {victim}, done.stderr
    assert {note["size"] for note in ends} == {2}
    began = [note for note in only(notes, "begins") if note["rank"] == 0][-1]
    assert (began["size"], began["step"]) == (2, 6)
    kept = str(tmp_path / "job" / began["kept"])
    twin, others = run(tmp_path / "twin", 2, False, way=way, resume=kept)
    assert twin.returncode == 0, twin.stderr
    digests = {note["digest"] for note in [*ends, *only(others, "ends")]}
    assert len(digests) == 1, "another result than undisturbed"


@pytest.mark.timeout(180)
def test_an_error_of_the_script_is_not_tried_again(tmp_path: Path) -> None:
    """Although it reads as a loss: all ranks are there. The launcher goes by what it reads as."""
    done, notes = run(tmp_path, 2, True, way="plain", raises=True)
    assert done.stderr.count("RuntimeError: Connection closed by peer: of a database") == 1, done.stderr
    assert not [note for note in only(notes, "begins") if note["start_rank"] == 0][1:]
