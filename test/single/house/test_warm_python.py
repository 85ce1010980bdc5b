"""Programs in forks of a process that has loaded torch: they see and do what they would without that."""

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

SEES = """
import os, sys
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
IS_WARM = "import sys; print('torch' in sys.modules)"


@pytest.fixture(scope="module")
def socket() -> Iterator[str]:
    python = warm.WarmPython()
    python.choose(True)
    path = os.environ[warm.VARIABLE]
    python.choose(False)
    yield path
    python.end()


def run(words: list[str], socket: str = "", **more: str) -> subprocess.CompletedProcess[str]:
    """Without a socket, as ever."""
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


def as_cold(words: list[str], socket: str) -> None:
    cold, hot = run(words), run(words, socket)
    assert hot.returncode == cold.returncode
    assert hot.stdout.replace(socket, "") == cold.stdout
    assert hot.stderr == cold.stderr


@pytest.mark.parametrize("way", ["script", "module", "code"])
def test_a_program_sees_the_same(
    way: str, socket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "program.py").write_text(SEES)
    as_cold({"script": ["-u", "program.py"], "module": ["-m", "program"], "code": ["-c", SEES]}[way], socket)


@pytest.mark.parametrize("way", ["script", "code"])
@pytest.mark.parametrize("end", ENDS)
def test_it_ends_the_same(way: str, end: str, socket: str, tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(ENDS[end])
    as_cold([str(script)] if way == "script" else ["-c", ENDS[end]], socket)


def test_it_is_a_fork_unless_it_has_to_start_by_itself(socket: str) -> None:
    assert run(["-c", IS_WARM], socket).stdout == "True\n"
    assert run(["-c", IS_WARM], socket, PYTHONHASHSEED="1").stdout == "False\n", "read when Python starts"
    assert run(["-S", "-c", IS_WARM], socket).stdout == "False\n"
    assert run(["-X", "dev", "-c", IS_WARM], socket).stdout == "False\n"
    assert run(["-c", IS_WARM], f"{socket}.gone").stdout == "False\n"


@pytest.mark.parametrize("draw", ["random.random()", "numpy.random.rand()", "torch.rand(1).item()"])
def test_each_draws_numbers_of_its_own(draw: str, socket: str) -> None:
    code = f"import random, numpy, torch; print({draw})"
    assert run(["-c", code], socket).stdout != run(["-c", code], socket).stdout


def test_another_copy_of_the_package_is_not_mistaken_for_this(socket: str, tmp_path: Path) -> None:
    (tmp_path / "horovod").mkdir()
    path = os.pathsep.join([str(tmp_path), os.environ["PYTHONPATH"]])
    assert run(["-c", IS_WARM], socket, PYTHONPATH=path).stdout == "False\n"


def test_a_signal_that_is_ignored_stays_ignored(socket: str) -> None:
    code = "import os, signal; os.kill(os.getppid(), 0); print(signal.getsignal(signal.SIGHUP))"
    told = {**os.environ, warm.VARIABLE: socket}
    words = ["nohup", sys.executable, "-c", code]
    done = subprocess.run(words, env=told, capture_output=True, text=True, check=True)
    assert done.stdout == "1\n", "SIG_IGN"


SLEEPS = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_signal_ends_both(number: int, socket: str) -> None:
    with asleep(socket) as (process, program):
        process.send_signal(number)
        assert process.wait() == -number
        busy.until(lambda: busy.has_ended(program), 10)


def test_programs_end_with_the_server() -> None:
    python = warm.WarmPython()
    python.choose(True)
    path = os.environ[warm.VARIABLE]
    python.choose(False)
    with asleep(path) as (process, program):
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
