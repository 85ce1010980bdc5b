"""Notes of a rank, and which processes write them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from horovod.common import notes

ROOT = Path(__file__).resolve().parents[3]
TELLS = "from horovod.common import notes; notes.{}('uses hvd'); notes.{}('uses hvd'); notes.{}('uses ddp')"
BELOW = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]], check=True)"


class Pipe:
    """A pipe as a rank's wrapper has it, named in the environment of the rank."""

    def __init__(self) -> None:
        self.source, self.target = os.pipe()
        status = os.fstat(self.target)
        self.variables = {notes.VARIABLE: f"{self.target}:{status.st_dev}:{status.st_ino}"}

    def told_by(self, *code: str, inherited: bool) -> str:
        """The notes of a process that runs the first of the programs, with the others as arguments."""
        environment = {**os.environ, **self.variables, "PYTHONPATH": str(ROOT)}
        passed = (self.target,) if inherited else ()
        subprocess.run([sys.executable, "-c", *code], check=True, env=environment, pass_fds=passed)
        os.set_blocking(self.source, False)
        try:
            return os.read(self.source, 4096).decode()
        except BlockingIOError:
            return ""

    def close(self) -> None:
        os.close(self.source)
        os.close(self.target)


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    pipe = Pipe()
    yield pipe
    pipe.close()


def code(function: str) -> str:
    return TELLS.format(*[function] * 3)


@pytest.mark.parametrize("function", ["tell", "tell_from_below"])
def test_a_rank_tells_each_note_once(pipe: Pipe, function: str) -> None:
    assert pipe.told_by(code(function), inherited=True) == "uses hvd\nuses ddp\n"


def test_who_did_not_inherit_the_pipe_tells_by_that_of_a_process_above(pipe: Pipe) -> None:
    assert pipe.told_by(code("tell_from_below"), inherited=False) == "uses hvd\nuses ddp\n"
    assert pipe.told_by(BELOW, code("tell_from_below"), inherited=True) == "uses hvd\nuses ddp\n"
    assert pipe.told_by(BELOW, code("tell_from_below"), inherited=False) == "uses hvd\nuses ddp\n"


def test_the_life_of_a_rank_is_told_by_its_own_process_only(pipe: Pipe) -> None:
    assert pipe.told_by(code("tell"), inherited=False) == ""


def test_nothing_is_told_where_nobody_has_that_pipe(pipe: Pipe) -> None:
    name = pipe.variables[notes.VARIABLE].rpartition(":")[0]
    pipe.variables = {notes.VARIABLE: f"{name}:1"}
    assert pipe.told_by(code("tell_from_below"), inherited=True) == ""
    pipe.variables = {}
    assert pipe.told_by(code("tell_from_below"), inherited=True) == ""
