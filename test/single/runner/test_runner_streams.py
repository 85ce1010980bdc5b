"""The output of ranks is shown line by line and complete, whatever kind of stream horovodrun writes to."""

from __future__ import annotations

import errno
import fcntl
import io
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from pipes import held_by
from typing import Any

import busy
import pytest
from refusals import refused

from horovod.runner import errors
from horovod.runner.agents.frames import ERROR, OUTPUT, Frame
from horovod.runner.agents.output import RankOutput, Writer
from horovod.runner.streams import Sink, discard_full, say

WHOLE = bytes(range(256)) * 4096  # 1 MiB: many times the capacity of a pipe


def room_of(pipe: int) -> int:
    return fcntl.fcntl(pipe, fcntl.F_GETPIPE_SZ)


def read_late(pipe: int, before: Callable[[], None], received: bytearray) -> None:
    """Once the pipe is full and its writer waits, call `before`, then read to the end."""
    deadline = busy.limit(20)
    while held_by(pipe) < room_of(pipe) and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.05)  # it has tried again
    before()
    while data := os.read(pipe, 1 << 16):
        received += data
    os.close(pipe)


def received_of(stream_of: Callable[[int], Sink], before: Callable[[], None] = lambda: None) -> bytes:
    out, end = os.pipe()
    received = bytearray()
    reader = threading.Thread(target=read_late, args=[out, before, received])
    reader.start()
    sink = stream_of(end)
    sink.write(WHOLE)
    sink.flush()
    sink.close()
    reader.join()
    return bytes(received)


@pytest.mark.parametrize("buffering", [0, -1], ids=["unbuffered", "buffered"])
def test_a_signal_in_the_middle_of_a_write_loses_nothing(buffering: int) -> None:
    """write() then returns a partial count, and an unbuffered stream reports it."""
    came = []
    before = signal.signal(signal.SIGUSR1, lambda *_: came.append(1))
    try:
        received = received_of(
            lambda end: Sink("standard output", open(end, "wb", buffering=buffering)),  # noqa: SIM115 -- the Sink's
            lambda: signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1),
        )
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert came
    assert received == WHOLE


@pytest.mark.parametrize("buffering", [0, -1], ids=["unbuffered", "buffered"])
def test_a_stream_that_does_not_block_is_waited_for(buffering: int) -> None:
    """A program that shares the terminal or pipe may have made it non-blocking."""

    def made(end: int) -> Sink:
        os.set_blocking(end, False)
        return Sink("standard output", open(end, "wb", buffering=buffering))

    assert received_of(made) == WHOLE


def test_what_cannot_be_written_is_an_error_once() -> None:
    sink = Sink("the file", open("/dev/full", "wb", buffering=0))  # noqa: SIM115 -- the Sink's
    with refused(errors.cannot_write, name="the file", errno=errno.ENOSPC, is_closed=False):
        sink.write(b"x")
        sink.flush()
    sink.write(b"y")
    sink.flush()


OUT, ERR = OUTPUT, ERROR


def shown(*written: tuple[int, bytes, bytes], **options: Any) -> tuple[bytes, bytes]:
    """(standard output, standard error) after these pieces of (rank, kind, data)."""
    streams = io.BytesIO(), io.BytesIO()
    output = RankOutput(12, *streams, **options)
    for piece in written:
        output.write(*piece)
    output.finish()
    return streams[0].getvalue(), streams[1].getvalue()


def test_each_line_is_shown_with_its_rank_and_stream() -> None:
    assert shown((3, OUT, b"a\nb\n"), (11, ERR, b"c\n"), (0, OUT, b"\xff\n\n")) == (
        b"[3]<stdout>:a\n[3]<stdout>:b\n[0]<stdout>:\xff\n[0]<stdout>:\n",
        b"[11]<stderr>:c\n",
    )


def test_lines_are_put_together_for_each_rank_and_stream() -> None:
    pieces = [
        (1, OUT, b"be"),
        (2, OUT, b"other\nla"),
        (1, ERR, b"err"),
        (1, OUT, b"gin"),
        (1, OUT, b"s\nand"),
    ]
    assert shown(*pieces) == (
        b"[2]<stdout>:other\n[1]<stdout>:begins\n[1]<stdout>:and\n[2]<stdout>:la\n",
        b"[1]<stderr>:err\n",
    )


def test_a_carriage_return_ends_a_line() -> None:
    whole = b"\r10 %\r20 %\rdone\r\nnext\n"
    wanted = b"\r[0]<stdout>:10 %\r[0]<stdout>:20 %\r[0]<stdout>:done\r\n[0]<stdout>:next\n"
    assert shown((0, OUT, whole))[0] == wanted
    for at in range(1, len(whole)):  # for any split
        assert shown((0, OUT, whole[:at]), (0, OUT, b""), (0, OUT, whole[at:]))[0] == wanted, at
    # Another rank's newline does not end this rank's line.
    assert shown((0, OUT, b"x\r"), (1, OUT, b"\n"), (0, ERR, b"\n"), (0, OUT, b"\ny\n")) == (
        b"[0]<stdout>:x\r[1]<stdout>:\n\n[0]<stdout>:y\n",
        b"[0]<stderr>:\n",
    )


def test_lines_begin_with_the_time_where_that_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "asctime", lambda: "Thu Nov 26 00:41:40 2026")
    said, _ = shown((0, OUT, b"a\n"), timestamps=True)
    assert said == b"Thu Nov 26 00:41:40 2026[0]<stdout>:a\n"


def test_files_have_what_was_written_as_it_is(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "logs"
    streams = io.BytesIO(), io.BytesIO()
    output = RankOutput(11, *streams, folder=str(folder))
    output.write(3, OUT, b"a\r\nun")
    assert (folder / "rank.03" / "stdout").read_bytes() == b"a\r\nun"  # at once
    output.write(10, ERR, b"e\n")
    output.write(3, OUT, b"finished")
    output.finish()
    found = {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    assert len(found) == 22
    assert {name: data for name, data in found.items() if data} == {
        "rank.03/stdout": b"a\r\nunfinished",
        "rank.10/stderr": b"e\n",
    }
    assert streams[0].getvalue() == b"[3]<stdout>:a\r\n[3]<stdout>:unfinished\n"
    shown((0, OUT, b"x"), folder=str(tmp_path / "ten"))
    assert sorted(path.name for path in (tmp_path / "ten").iterdir())[::11] == ["rank.00", "rank.11"]
    RankOutput(10, *streams, folder=str(tmp_path / "few")).finish()
    assert sorted(path.name for path in (tmp_path / "few").iterdir())[::9] == ["rank.0", "rank.9"]


def test_output_of_workers_that_have_begun_as_the_same_rank(tmp_path: Path) -> None:
    """Workers of an elastic job do not share files, and parts of their lines are not joined."""
    streams = io.BytesIO(), io.BytesIO()
    output = RankOutput(2, *streams, folder=str(tmp_path))
    for number, label in ((0, "0"), (1, "1"), (2, "1.2"), (3, "0.2"), (4, "12")):
        output.name(number, label)
        output.write(number, OUT, f"{label} beg".encode())
    output.write(1, OUT, b"ins\n")
    output.end(2)
    output.write(0, OUT, b"ins\n")
    output.finish()
    assert streams[0].getvalue().splitlines() == [
        b"[1]<stdout>:1 begins", b"[1.2]<stdout>:1.2 beg", b"[0]<stdout>:0 begins",
        b"[0.2]<stdout>:0.2 beg", b"[12]<stdout>:12 beg",
    ]  # fmt: skip
    assert {path.name: (path / "stdout").read_text() for path in tmp_path.iterdir()} == {
        "rank.0": "0 begins\n", "rank.1": "1 begins\n", "rank.1.2": "1.2 beg", "rank.0.2": "0.2 beg",
        "rank.12": "12 beg",
    }  # fmt: skip


def test_a_folder_of_output_that_is_lost_meanwhile(tmp_path: Path) -> None:
    output = RankOutput(1, io.BytesIO(), io.BytesIO(), folder=str(tmp_path / "out"))
    (tmp_path / "out").rename(tmp_path / "gone")
    (tmp_path / "out").touch()
    output.name(1, "0.2")
    with refused(errors.cannot_write, name=f"--output-filename {tmp_path / 'out'}"):
        output.write(1, OUT, b"x")


@pytest.mark.parametrize("label", ["", "x", "1.", "1.2.3", "../1", "12345678", "-1"])
def test_what_is_no_label(label: str) -> None:
    with pytest.raises(ValueError, match="is no label of a worker"):
        RankOutput(1, io.BytesIO(), io.BytesIO()).name(1, label)


def test_files_that_cannot_be_made_are_a_mistake_in_the_command(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    folder = str(tmp_path / "file")
    with refused(errors.wrong_value, option="--output-filename", value=folder) as error:
        RankOutput(2, io.BytesIO(), io.BytesIO(), folder=folder)
    assert os.strerror(errno.ENOTDIR) in str(error.value)


def test_what_is_no_ranks_is_passed_on_at_once_and_as_it_is() -> None:
    reader, writer = os.pipe()
    with open(writer, "wb") as stream, open(reader, "rb", buffering=0) as pipe:
        output = RankOutput(1, stream, io.BytesIO())
        output.pass_on(OUT, b"no newline")
        assert pipe.read(99) == b"no newline"
        output.write(0, OUT, b"line\n")
        output.flush()
        assert pipe.read(99) == b"[0]<stdout>:line\n"


def test_a_stream_that_fails_is_named_and_then_written_nowhere(tmp_path: Path) -> None:
    """The error names the path, too, if the shell redirected the stream to a file."""
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "wb", buffering=0) as stream:
        with refused(errors.cannot_write, name="standard output", is_closed=True):
            sink = Sink("standard output", stream)
            sink.write(b"x")
            sink.flush()
        os.write(stream.fileno(), b"goes nowhere")
    with open("/dev/full", "wb") as stream:
        sink = Sink("standard error", stream)
        sink.write(b"x")
        with refused(errors.cannot_write, name="standard error (/dev/full)", is_closed=False):
            sink.flush()


def test_horovodrun_says_a_line_or_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    say("one thing")
    assert capsys.readouterr() == ("", "horovodrun: one thing\n")
    with open("/dev/full", "w") as full:
        monkeypatch.setattr(sys, "stderr", full)
        say("another")
        say("a third")


def writer(**options: Any) -> tuple[Writer, int, int]:
    """(a writer of two ranks, the read end of its standard output, of its standard error)."""
    (out, out_end), (err, err_end) = os.pipe(), os.pipe()
    streams = (open(end, "wb", buffering=0) for end in (out_end, err_end))  # noqa: SIM115 -- the Writer's
    return Writer(RankOutput(2, *streams, **options)), out, err


def closed(one: Writer, *pipes: int) -> list[bytes]:
    """The content of the pipes after the writer has ended."""
    one.end()
    assert one.has_ended(20)
    one.close()
    left = []
    for pipe in pipes:
        left.append(os.read(pipe, 1 << 16) if held_by(pipe) else b"")
        os.close(pipe)
    return left


def test_a_writer_shows_what_it_is_given_in_order_and_says_when() -> None:
    one, out, err = writer()
    one.show(0, [Frame(OUT, b"a\n"), Frame(ERR, b"b\n")], "host0", 20)
    one.say("a word")
    one.pass_on(b"of ssh\n")
    one.label(1, "0.2")
    one.show(1, [Frame(OUT, b"half")], "host1", 5)
    one.label(1, "")
    shown: list[tuple[str, int, bool]] = []
    deadline = busy.limit(20)
    while len(shown) < 2 and time.monotonic() < deadline:
        select.select([one.descriptor], [], [], 1)
        shown += one.done()
    assert shown == [("host0", 20, True), ("host1", 5, True)] and one.errors() == []
    assert closed(one, out, err) == [
        b"[0]<stdout>:a\n[0.2]<stdout>:half\n",
        b"[0]<stderr>:b\nhorovodrun: a word\nof ssh\n",
    ]


def test_a_writer_waits_for_its_reader_and_nobody_else_does() -> None:
    one, out, err = writer()
    one.show(0, [Frame(OUT, bytes(1 << 20)), Frame(OUT, b"\n")], "host0", 1 << 20)
    one.say("late")
    one.end()
    assert not one.has_ended(0.1) and one.done() == []
    received = bytearray()
    while not one.has_ended(0.01):
        received += os.read(out, 1 << 16)
    received += os.read(out, 1 << 16) if held_by(out) else b""
    assert received == b"[0]<stdout>:" + bytes(1 << 20) + b"\n"
    assert one.done() == [("host0", 1 << 20, True)]
    assert closed(one, err) == [b"horovodrun: late\n"]
    os.close(out)


def test_a_writer_whose_reader_is_gone_tells_it_once_and_goes_on(tmp_path: Path) -> None:
    one, out, err = writer(folder=str(tmp_path))
    os.close(out)
    for _ in range(3):
        one.show(1, [Frame(OUT, b"words\n"), Frame(ERR, b"others\n")], "h", 1)
        time.sleep(0.05)
    assert closed(one, err) == [b"[1]<stderr>:others\n" * 3]
    (error,) = one.errors()
    assert error.is_closed and (tmp_path / "rank.1" / "stdout").read_bytes() == b"words\n" * 3


def test_a_word_that_would_wait_for_a_reader_is_not_said() -> None:
    reader, end = os.pipe()
    with open(end, "w") as stream:
        discard_full(stream)
        os.write(end, b"there is room")
        assert held_by(reader) == 13
        os.set_blocking(end, False)
        while held_by(reader) < room_of(reader):
            os.write(end, bytes(4096 - held_by(reader) % 4096))
        discard_full(stream)
        os.write(end, b"nowhere")
        assert held_by(reader) == room_of(reader)
    os.close(reader)
