"""How far ahead horovodrun reads its standard input before it sends it, and when it does not read."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from horovod.runner.agents.driver import PART, WINDOW, JobInput


@contextlib.contextmanager
def job_input() -> Iterator[tuple[JobInput, int, int]]:
    """(an input, its source, its writer)."""
    source, writer = os.pipe()
    try:
        yield JobInput(source), source, writer
    finally:
        for descriptor in (source, writer):
            with contextlib.suppress(OSError):  # a test may have closed it
                os.close(descriptor)


def test_only_so_much_is_read_ahead_of_what_rank_0_has_taken() -> None:
    with job_input() as (job, source, writer):
        sent = 0
        while job.wanted() == source:
            os.write(writer, bytes(PART))
            sent += len(job.read())
        assert sent == WINDOW and job.wanted() == -1
        job.take(1)
        assert job.wanted() == source
        os.write(writer, b"y")
        assert job.read() == b"y" and job.wanted() == -1
        job.take(WINDOW + 1)
        assert job.wanted() == source


def test_the_end_of_input_is_told_and_so_is_what_cannot_be_read(tmp_path: Path) -> None:
    with job_input() as (job, _, writer):
        os.close(writer)
        assert (job.read(), job.wanted(), job.error) == (b"", -1, "")
    folder = os.open(tmp_path, os.O_RDONLY)
    job = JobInput(folder)
    assert (job.read(), job.wanted(), job.error) == (b"", -1, "Is a directory")
    os.close(folder)


def test_input_that_nobody_reads_any_more_is_left() -> None:
    with job_input() as (job, source, writer):
        os.write(writer, b"y\n")
        assert job.wanted() == source
        job.take(-1)
        assert job.wanted() == -1
        assert os.read(source, 9) == b"y\n", "whoever is next has it"


@pytest.mark.parametrize("is_ours", [True, False])
def test_a_terminal_is_read_in_the_foreground_only(monkeypatch: pytest.MonkeyPatch, is_ours: bool) -> None:
    with job_input() as (job, source, _):
        monkeypatch.setattr(os, "isatty", lambda descriptor: True)
        monkeypatch.setattr(os, "tcgetpgrp", lambda descriptor: os.getpgrp() + (not is_ours))
        assert job.wanted() == (source if is_ours else -1)
        monkeypatch.undo()
        monkeypatch.setattr(os, "isatty", lambda descriptor: True)  # a pipe is not a terminal
        assert job.wanted() == -1
