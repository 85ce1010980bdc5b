"""What becomes of horovodrun's standard input: JobInput sends it, RankInput gives it to rank 0's command."""

import contextlib
import os
import select
from collections.abc import Iterator
from pathlib import Path
from pipes import held_by

import pytest

from horovod.runner.job_input import FRAME_SIZE, MESSAGE_SIZE, WINDOW, JobInput
from horovod.runner.rank_input import RankInput, frame


@contextlib.contextmanager
def between_pipes() -> Iterator[tuple[RankInput, int, int]]:
    """(an input, where mpirun writes frames, where the command reads)."""
    source, mpirun = os.pipe()
    command, target = os.pipe()
    given = RankInput(source, target)
    os.set_blocking(command, False)
    try:
        yield given, mpirun, command
    finally:
        given.close()
        for descriptor in (source, mpirun, command):
            with contextlib.suppress(OSError):  # a test may have closed it
                os.close(descriptor)


def test_a_frame_is_four_bytes_of_length_and_what_is_in_it() -> None:
    assert frame(b"") == bytes(4)
    assert frame(b"x" * 258) == b"\0\0\1\2" + b"x" * 258


def test_a_rank_is_given_what_is_in_the_frames_and_then_the_end() -> None:
    with between_pipes() as (given, mpirun, command):
        whole = frame(b"one ") + frame(b"two") + frame(b"") + frame(b"after the end")
        for at in range(len(whole)):  # however it is torn apart
            os.write(mpirun, whole[at : at + 1])
            goes_on = given.receive()
            assert goes_on == (at + 1 < len(frame(b"one ") + frame(b"two") + frame(b"")))
        assert os.read(command, 99) == b"one two"
        assert os.read(command, 99) == b""  # it is closed
        assert (given.taken, given.target, given.is_waiting()) == (7, -1, False)
        given.give()  # of a pipe that is closed: nothing is left to do


def test_what_a_command_has_no_room_for_waits_and_is_counted_when_it_is_taken() -> None:
    whole = bytes(range(256)) * 1024  # four times what a pipe holds
    with between_pipes() as (given, mpirun, command):
        frames = b"".join(frame(whole[at : at + 30000]) for at in range(0, len(whole), 30000)) + frame(b"")
        received = b""
        for at in range(0, len(frames), 1 << 15):
            os.write(mpirun, frames[at : at + (1 << 15)])
            given.receive()
        taken = given.taken
        assert 0 < taken < len(whole) and given.is_waiting()
        while given.is_waiting():
            received += os.read(command, 1 << 16)
            before = given.taken
            given.give()
            assert before <= given.taken == len(received) + held_by(command)
        while data := os.read(command, 1 << 16):
            received += data
        assert received == whole and given.taken == len(whole) and given.target == -1


def test_a_command_that_reads_no_more_ends_its_input() -> None:
    with between_pipes() as (given, mpirun, command):
        os.close(command)
        os.write(mpirun, frame(b"words"))
        assert not given.receive()
        assert (given.target, given.is_waiting(), given.taken) == (-1, False, 0)


def test_input_ends_with_mpirun_and_where_there_is_none() -> None:
    with between_pipes() as (given, mpirun, command):
        os.write(mpirun, frame(b"words"))
        os.close(mpirun)
        assert given.receive() and not given.receive()
        assert (os.read(command, 9), os.read(command, 9)) == (b"words", b"")
    with between_pipes() as (given, mpirun, command):
        os.close(given.source)
        assert not given.receive()
        assert os.read(command, 9) == b""


@contextlib.contextmanager
def job_input() -> Iterator[tuple[JobInput, int, int, int, int]]:
    """(an input, its source, who writes there, what has come out, where it sends it)."""
    source, writer = os.pipe()
    out, target = os.pipe()
    job = JobInput(source, target)
    try:
        yield job, source, writer, out, target
    finally:
        job.close()
        for descriptor in (source, writer, out):
            with contextlib.suppress(OSError):  # a test may have closed it
                os.close(descriptor)


def test_nothing_is_read_before_rank_0_is_there() -> None:
    with job_input() as (job, source, *_):
        assert job.wanted() == {}
        job.begin("elsewhere")
        assert job.wanted() == {source: select.POLLIN}


def test_only_so_much_is_read_ahead_of_what_rank_0_has_taken() -> None:
    for host, size, window in (
        (os.uname().nodename, FRAME_SIZE, WINDOW),
        ("elsewhere", MESSAGE_SIZE, MESSAGE_SIZE),  # a message, and the next once it has been taken
    ):
        with job_input() as (job, source, writer, out, _):
            job.begin(host)
            sent = 0
            while job.wanted():
                os.write(writer, bytes(size + 1))
                job.go_on(source)
                assert os.read(out, 1 << 17) == frame(bytes(size))
                sent += size
                while held_by(source):
                    os.read(source, 1)
            assert sent == window
            job.take(sent - window + 1)
            assert bool(job.wanted()) == (host != "elsewhere")
            job.take(sent)
            assert job.wanted() == {source: select.POLLIN}


def test_the_end_of_input_is_told_and_so_is_what_cannot_be_read(tmp_path: Path) -> None:
    with job_input() as (job, source, writer, out, _):
        job.begin("h")
        os.close(writer)
        job.go_on(source)
        assert (os.read(out, 9), os.read(out, 9)) == (frame(b""), b"")
        assert job.wanted() == {} and job.error == ""
        job.go_on(source)  # late news of a poll
    with job_input() as (job, source, writer, out, _):
        job.begin("h")
        folder = os.open(tmp_path, os.O_RDONLY)
        os.dup2(folder, source)
        os.close(folder)
        job.go_on(source)
        assert (os.read(out, 9), job.wanted(), job.error) == (frame(b""), {}, "Is a directory")


def test_input_that_comes_with_the_news_that_nobody_reads_it_is_left() -> None:
    """One poll may tell of both; the pipe to mpirun is closed then."""
    with job_input() as (job, source, writer, out, _):
        job.begin(os.uname().nodename)
        os.write(writer, b"y\n")
        assert job.wanted() == {source: select.POLLIN}
        job.take(-1)
        job.go_on(source)
        assert job.wanted() == {}
        assert (os.read(source, 9), os.read(out, 9)) == (b"y\n", b"")  # its only writer has closed it


def test_what_does_not_fit_waits_and_nothing_is_lost() -> None:
    with job_input() as (job, source, writer, out, target):
        job.begin(os.uname().nodename)
        filled = 0
        with contextlib.suppress(BlockingIOError):
            while True:
                filled += os.write(target, bytes(4096))
        os.write(writer, b"y\n")
        job.go_on(source)
        assert job.wanted() == {target: select.POLLOUT}
        while filled:
            filled -= len(os.read(out, filled))
        job.go_on(target)
        assert os.read(out, 99) == frame(b"y\n")
        assert job.wanted() == {source: select.POLLIN}


def test_input_is_left_when_mpirun_has_ended() -> None:
    with job_input() as (job, source, writer, out, _):
        job.begin("h")
        os.close(out)
        os.write(writer, b"y")
        job.go_on(source)
        assert job.wanted() == {}


@pytest.mark.parametrize("is_ours", [True, False])
def test_a_terminal_is_read_in_the_foreground_only(monkeypatch: pytest.MonkeyPatch, is_ours: bool) -> None:
    with job_input() as (job, source, *_):
        job.begin("h")
        monkeypatch.setattr(os, "isatty", lambda descriptor: True)
        monkeypatch.setattr(os, "tcgetpgrp", lambda descriptor: os.getpgrp() + (not is_ours))
        assert job.wanted() == ({source: select.POLLIN} if is_ours else {})
        monkeypatch.undo()
        monkeypatch.setattr(os, "isatty", lambda descriptor: True)  # and a pipe is nobody's terminal
        assert job.wanted() == {}
