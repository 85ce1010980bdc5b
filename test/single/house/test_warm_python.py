"""Programs in forks of a process that has loaded torch behave as in a fresh process."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import busy
import pytest
import warm

# The first line of each program writes whether it is a fork: torch is loaded before its import.
NOTES = "import os, sys; open(os.environ['NOTE'], 'w').write(str('torch' in sys.modules))\n"
SEES = """
print(sys.argv, sys.path[:2], __name__, os.getcwd(), os.umask(0), sorted(os.sched_getaffinity(0)))
print(os.environ["MARK"], os.environ.get("WARM_PYTHON"), sys.stdin.read(), os.read(int(sys.argv[1]), 9))
print("and more", file=sys.stderr)
import torch
print(torch.get_num_threads())
"""
ENDS = {
    "an exit code": "raise SystemExit(3)",
    "a message": "raise SystemExit('no')",
    "an error": "def work():\n    1 / 0\nwork()",
    "no such module": "import no_such_module",
    "what is registered": "import atexit; atexit.register(print, 'last', flush=True)",
    "a signal": "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
    "at once": "import os; print('lost'); os._exit(7)",
}


@contextlib.contextmanager
def serving() -> Iterator[tuple[warm.WarmPython, str]]:
    """A server, and its socket."""
    with pytest.MonkeyPatch.context() as environment:
        environment.delenv(warm.VARIABLE, raising=False)
        python = warm.WarmPython()
        python.choose(True)
        path = os.environ[warm.VARIABLE]
        python.choose(False)
        yield python, path
        python.end()


@pytest.fixture(scope="module")
def socket() -> Iterator[str]:
    with serving() as (_, path):
        yield path


@pytest.fixture
def note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NOTE", str(tmp_path / "note"))
    return tmp_path / "note"


def run(words: list[str], socket: str = "", **more: str) -> subprocess.CompletedProcess[str]:
    """Runs Python with these words; without a socket, cold."""
    given, giving = os.pipe()
    os.write(giving, b"hello")
    os.close(giving)
    environment = {**os.environ, "MARK": "mine", "OMP_NUM_THREADS": "1", warm.VARIABLE: socket, **more}
    try:
        return subprocess.run(
            [sys.executable, *words, str(given)],
            input="typed",
            pass_fds=(given,),
            umask=0o27,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        os.close(given)


def as_cold(words: list[str], socket: str, note: Path) -> None:
    cold = run(words)
    assert note.read_text() == "False"
    hot = run(words, socket)
    assert note.read_text() == "True"
    assert hot.returncode == cold.returncode
    assert hot.stdout.replace(socket, "") == cold.stdout
    assert hot.stderr == cold.stderr


@pytest.mark.parametrize("way", ["script", "module", "code"])
def test_a_program_sees_the_same(way: str, socket: str, note: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(note.parent)
    code = NOTES + SEES
    (note.parent / "program.py").write_text(code)
    ways = {"script": ["-u", "program.py"], "module": ["-m", "program"], "code": ["-c", code]}
    as_cold(ways[way], socket, note)


@pytest.mark.parametrize("way", ["script", "code"])
@pytest.mark.parametrize("end", ENDS)
def test_it_ends_the_same(way: str, end: str, socket: str, note: Path) -> None:
    code, script = NOTES + ENDS[end], note.parent / "program.py"
    script.write_text(code)
    as_cold([str(script)] if way == "script" else ["-c", code], socket, note)


def test_it_starts_by_itself_if_it_has_to(socket: str, note: Path) -> None:
    def is_warm(words: list[str], socket: str, **more: str) -> bool:
        assert run([*words, "-c", NOTES], socket, **more).returncode == 0
        return note.read_text() == "True"

    assert is_warm([], socket)
    assert not is_warm([], socket, PYTHONHASHSEED="1"), "read when Python starts"
    assert not is_warm(["-S"], socket)
    assert not is_warm(["-X", "dev"], socket)
    assert not is_warm([], f"{socket}.gone")
    (note.parent / "horovod").mkdir()
    another = os.pathsep.join([str(note.parent), os.environ["PYTHONPATH"]])
    assert not is_warm([], socket, PYTHONPATH=another), "another copy of the package"


@pytest.mark.parametrize("draw", ["random.random()", "numpy.random.rand()", "torch.rand(1).item()"])
def test_each_draws_numbers_of_its_own(draw: str, socket: str, note: Path) -> None:
    code = f"{NOTES}import random, numpy, torch; print({draw})"
    assert run(["-c", code], socket).stdout != run(["-c", code], socket).stdout
    assert note.read_text() == "True"


def test_a_signal_that_is_ignored_stays_ignored(socket: str, note: Path) -> None:
    code = f"{NOTES}import signal; print(signal.getsignal(signal.SIGHUP) == signal.SIG_IGN)"
    told = {**os.environ, warm.VARIABLE: socket}
    words = ["nohup", sys.executable, "-c", code]
    done = subprocess.run(words, env=told, capture_output=True, text=True, check=True)
    assert done.stdout == "True\n" and note.read_text() == "True"


SLEEPS = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_signal_ends_both(number: int, socket: str) -> None:
    with asleep(socket) as (process, program):
        process.send_signal(number)
        assert process.wait() == -number
        busy.until(lambda: busy.has_ended(program), 10)


def test_programs_end_with_the_server() -> None:
    with serving() as (python, path), asleep(path) as (process, program):
        python.end()
        assert process.wait() == -signal.SIGKILL
        busy.until(lambda: busy.has_ended(program), 10)


@contextlib.contextmanager
def asleep(socket: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A process, and the process id of its program."""
    told = {**os.environ, warm.VARIABLE: socket}
    with subprocess.Popen([sys.executable, "-c", SLEEPS], env=told, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        program = int(process.stdout.readline())
        assert program != process.pid
        yield process, program
