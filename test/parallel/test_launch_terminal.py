"""horovodrun at a terminal: rank 0's streams are terminals like horovodrun's; the other ranks' are pipes."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Sequence

import busy
import pytest
from launching import environment, fresh_mark

ASKS = """
import os, sys
for number, stream in enumerate((sys.stdin, sys.stdout, sys.stderr)):
    print(number, stream.isatty(), flush=True)
if sys.stdout.isatty():
    print("width", os.get_terminal_size(1).columns, flush=True)
"""


def at_terminal(command: Sequence[str], streams: str = "oe") -> tuple[int, str, str]:
    """Return (exit code, the terminal's text, the other stream's); `streams` are at the terminal."""
    ours, theirs = pty.openpty()
    os.set_blocking(ours, False)
    subprocess.run(["stty", "cols", "133"], stdin=theirs, check=True)
    pipe = subprocess.PIPE
    words = [sys.executable, "-m", "horovod.runner", *command]
    stdout, stderr = (theirs if letter in streams else pipe for letter in "oe")
    null = subprocess.DEVNULL
    own = environment(fresh_mark())
    shown = bytearray()
    with subprocess.Popen(words, stdin=null, stdout=stdout, stderr=stderr, env=own) as process:
        os.close(theirs)

        def has_ended() -> bool:
            try:
                shown.extend(os.read(ours, 1 << 16))
            except BlockingIOError:
                return False
            except OSError:  # the program has closed its end
                return True
            return False

        busy.until(has_ended, 60)
        others = [stream.read() for stream in (process.stdout, process.stderr) if stream is not None]
    os.close(ours)
    return process.returncode, shown.decode(), b"".join(others).decode()


@pytest.mark.quick
def test_rank_0_has_a_terminal_and_its_lines_have_labels() -> None:
    code, shown, _ = at_terminal(["-np", "2", sys.executable, "-c", ASKS])
    assert code == 0, shown
    lines = shown.splitlines()
    said = {rank: [text for label, _, text in (line.partition(":") for line in lines) if label == begin]
            for rank, begin in ((0, "[0]<stdout>"), (1, "[1]<stdout>"))}  # fmt: skip
    assert said == {
        0: ["0 False", "1 True", "2 True", "width 133"],
        1: ["0 False", "1 False", "2 False"],
    }
    assert len(lines) == 7


def test_a_stream_that_goes_elsewhere_is_none() -> None:
    """`horovodrun ... 2> errors`"""
    script = ASKS + "print('x', file=sys.stderr)"
    code, shown, errors = at_terminal(["-np", "1", sys.executable, "-c", script], "o")
    assert (code, errors) == (0, "[0]<stderr>:x\n")
    said = [line.partition(":")[2] for line in shown.splitlines()]
    assert said == ["0 False", "1 True", "2 False", "width 133"]


def test_long_output_through_a_terminal_is_whole_and_the_exit_code_its_own() -> None:
    """The rest in a terminal is read after its program has ended."""
    code, shown, _ = at_terminal(
        ["-np", "1", sys.executable, "-c", "for i in range(20000): print(f'{i:050d}')\nraise SystemExit(5)"]
    )
    own = [line.removeprefix("[0]<stdout>:") for line in shown.splitlines() if line.startswith("[0]")]
    assert code == 5 and own == [f"{i:050d}" for i in range(20000)]
