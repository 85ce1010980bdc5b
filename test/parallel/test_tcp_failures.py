"""Ranks without a launcher over TCP: killed, stopped, or out of descriptors."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import busy
import launching
import pytest

PROGRAM = Path(__file__).with_name("tcp_rank.py")
PATIENCE = 60.0


class Ranks:
    """Start processes that get their places from the four variables of torch.distributed."""

    def __init__(self, size: int, folder: Path, words: tuple[str, ...] = (), **variables: str) -> None:
        self.folder = folder
        port = str(launching.free_port())
        self.processes = [
            subprocess.Popen(
                [sys.executable, str(PROGRAM), str(folder), *words],
                env=launching.environment(
                    "tcp",
                    HOROVOD_TRANSPORT="tcp",
                    RANK=str(rank),
                    WORLD_SIZE=str(size),
                    MASTER_ADDR="127.0.0.1",
                    MASTER_PORT=port,
                    **variables,
                ),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            for rank in range(size)
        ]

    def wait_until_all_reduce(self) -> None:
        deadline = busy.limit(PATIENCE)
        while len(list(self.folder.glob("started.*"))) < len(self.processes):
            assert time.monotonic() < deadline and all(p.poll() is None for p in self.processes), self.said()
            time.sleep(0.02)
        time.sleep(0.3)

    def said(self) -> list[str]:
        self.end()
        return [process.communicate(timeout=PATIENCE)[0] for process in self.processes]

    def end(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.kill()


@pytest.fixture
def started(tmp_path: Path) -> Iterator[list[Ranks]]:
    all_of_them: list[Ranks] = []
    yield all_of_them
    for ranks in all_of_them:
        ranks.end()


def last_line(text: str) -> tuple[float, str]:
    when, _, error = text.strip().splitlines()[-1].partition(" ")
    return float(when), error


@pytest.mark.parametrize("victim", [0, 1])
def test_a_killed_rank_is_named_by_all_others_within_a_second(
    tmp_path: Path, started: list[Ranks], victim: int
) -> None:
    ranks = Ranks(3, tmp_path, ("fork",))
    started.append(ranks)
    ranks.wait_until_all_reduce()
    killed = time.time()
    ranks.processes[victim].kill()
    others = [process for rank, process in enumerate(ranks.processes) if rank != victim]
    for process in others:
        text = process.communicate(timeout=PATIENCE)[0]
        assert process.returncode == 3, text
        when, error = last_line(text)
        assert when - killed < 1.0 and f"lost rank {victim} (" in error, text


def test_a_stopped_rank_is_named_at_the_limit(tmp_path: Path, started: list[Ranks]) -> None:
    ranks = Ranks(3, tmp_path, HOROVOD_TCP_TIMEOUT_SECONDS="3")
    started.append(ranks)
    ranks.wait_until_all_reduce()
    stopped = time.time()
    ranks.processes[1].send_signal(signal.SIGSTOP)
    for rank in (0, 2):
        text = ranks.processes[rank].communicate(timeout=PATIENCE)[0]
        when, error = last_line(text)
        assert 2.0 < when - stopped < 6.0 and "lost rank 1 (" in error and "for 3 s" in error, text
    ranks.processes[1].send_signal(signal.SIGCONT)
    text = ranks.processes[1].communicate(timeout=PATIENCE)[0]
    assert ranks.processes[1].returncode == 3 and re.search(r"rank 1 .*given up.* rank 0\b", text), text


def test_they_end_in_order(tmp_path: Path, started: list[Ranks]) -> None:
    ranks = Ranks(3, tmp_path, ("steps",))
    started.append(ranks)
    texts = [process.communicate(timeout=PATIENCE)[0] for process in ranks.processes]
    assert [process.returncode for process in ranks.processes] == [0, 0, 0], texts
    assert texts == ["", "", ""]
