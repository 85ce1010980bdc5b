"""The wrapper around each rank, and its reports."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from pipes import held_by

import busy
import pytest

from horovod.runner.agents import frames, wrapper
from horovod.runner.agents.frames import Frame, Splitter
from horovod.runner.processes import send

CHANGED = """
import sys, time
from pathlib import Path
from horovod.runner.agents import wrapper
from horovod.runner.agents.frames import Frame
{before}
sys.exit(wrapper.run(sys.argv[1], sys.argv[2:]))
"""


class Wrapper:
    """The wrapper of a rank with this command, and all its output."""

    def __init__(self, *command: str, directory: str = "/", before: str = "", **environment: str) -> None:
        """`before`: Python code that changes the module `wrapper`."""
        program = ["-c", CHANGED.format(before=before)] if before else ["-I", "-S", wrapper.__file__]
        words = [sys.executable, *program, directory, *command]
        own = {**os.environ, **environment}
        self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=own)
        assert self.process.stdout is not None
        self.pipe = self.process.stdout
        self._parser, self._records = Splitter(frames.RECORDS), list[Frame]()

    def said(self, kind: bytes) -> bytes:
        return b"".join(record.body for record in self._records if record.kind == kind)

    def reports(self) -> list[str]:
        return [record.body.decode() for record in self._records if record.kind == b"R"]

    def hear(self, word: str) -> str:
        """Wait for output or a report with this prefix, and return it."""
        while True:
            found = [each.body for each in self._records if each.body.startswith(word.encode())]
            if found:
                return found[0].decode()
            data = os.read(self.pipe.fileno(), 1 << 16)
            assert data, self._records
            self._records += self._parser.feed(data)

    def finish(self) -> tuple[int, bytes, bytes, list[str]]:
        """(exit code, standard output, standard error, reports without the first)."""
        self._records += self._parser.feed(self.pipe.read())
        self.pipe.close()
        begin, *reports = self.reports()
        assert begin.startswith("started ")
        return self.process.wait(timeout=20), self.said(b"O"), self.said(b"E"), reports


def shell(script: str, **environment: str) -> tuple[int, bytes, bytes, list[str]]:
    return Wrapper("sh", "-c", script, **environment).finish()


def test_success_and_output() -> None:
    assert shell("echo out; echo err >&2") == (0, b"out\n", b"err\n", ["ended 0 0"])


@pytest.mark.parametrize(
    ("script", "code", "report"),
    [
        ("exit 3", 3, "ended 3 0"),
        ("kill -9 $$", 137, "killed 9 0"),
        ("kill -SEGV $$", 139, "killed 11 0"),
    ],
)
def test_a_failure_is_reported_and_the_exit_code_is_that_of_a_shell(
    script: str, code: int, report: str
) -> None:
    assert shell(script) == (code, b"", b"", [report])


def test_any_bytes_survive() -> None:
    data = bytes(range(256)) * 1000 + b"\r\n\n\x1e\n\r no newline at the end"
    code = f"import sys; sys.stdout.buffer.write(bytes(range(256)) * 1000 + {data[256000:]!r})"
    assert Wrapper(sys.executable, "-c", code).finish()[1] == data


def test_a_command_that_cannot_run(tmp_path: Path) -> None:
    code, _, _, reports = Wrapper("no-such-command-here").finish()
    assert code == 127 and reports[0].startswith("refused 127 the command no-such-command-here was not found")
    plain = tmp_path / "plain"
    plain.write_text("x")
    code, _, _, reports = Wrapper(str(plain)).finish()
    assert code == 126 and "may not be executed" in reports[0]
    code, _, _, reports = Wrapper("true", directory=str(tmp_path / "gone")).finish()
    assert code == 127 and "gone does not exist" in reports[0]


def test_the_rank_starts_in_the_directory(tmp_path: Path) -> None:
    assert Wrapper("pwd", directory=str(tmp_path)).finish()[1] == f"{tmp_path.resolve()}\n".encode()


def test_being_told_to_end_is_passed_on_and_said() -> None:
    told = Wrapper("sh", "-c", "trap 'echo told; exit 5' TERM; echo ready; while :; do sleep 0.05; done")
    told.hear("ready")
    told.process.terminate()
    assert told.finish() == (5, b"ready\ntold\n", b"", ["ended 5 1"])


def test_a_rank_is_told_to_end_also_where_nobody_reads_what_it_writes(tmp_path: Path) -> None:
    """A late reader still gets all its output."""
    script = f"""
import os, pathlib, signal
def end(*_):
    pathlib.Path({str(tmp_path / "told")!r}).touch()
    os._exit(5)
signal.signal(signal.SIGTERM, end)
while True:
    os.write(1, b"0123456789abcde\\n" * 64)
"""
    rank = Wrapper(sys.executable, "-S", "-c", script)
    rank.hear("started")
    busy.until(lambda: held_by(rank.pipe.fileno()) > 1 << 15)
    time.sleep(0.3)
    rank.process.terminate()
    busy.until((tmp_path / "told").exists, 10)
    code, out, _, reports = rank.finish()
    assert (code, reports) == (5, ["ended 5 1"])
    lines = out.split(b"\n")
    assert len(lines) > 4096 and set(lines[:-1]) == {b"0123456789abcde"}


def test_what_the_rank_left_behind_is_ended() -> None:
    code, out, _, reports = shell("setsid sleep 300 & echo $!")
    assert (code, reports) == (0, ["ended 0 0"])
    busy.until(lambda: busy.has_ended(int(out)), 10)


def test_what_it_says_when_it_is_ended_is_passed_on(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    os.mkfifo(ready)
    left = f"(trap 'echo bye; exit' TERM; echo >{ready}; sleep 300 & wait) &"
    assert shell(f"{left} read x <{ready}") == (0, b"bye\n", b"", ["ended 0 0"])


def test_work_after_the_job_is_reported() -> None:
    note = "import os, time; pipe = int(os.environ['HOROVOD_RANK_NOTES'].split(':')[0])\n"
    note += "os.write(pipe, b'%s\\n')\n"
    spin = "end = time.process_time() + 0.7\nwhile time.process_time() < end: pass"
    scripts = (
        note % "outside 1" + spin,
        note % "outside 1" + "time.sleep(1)",
        note % "outside 1\\ninside 1" + spin,
    )
    soon = "wrapper.time_limits.WORK_LOOK = 0.2"
    ranks = [Wrapper(sys.executable, "-S", "-c", each, before=soon) for each in scripts]
    works, sleeps, is_inside = (rank.finish()[3] for rank in ranks)
    assert works[0] == "note outside 1" and works[-1] == "ended 0 0" and set(works[1:-1]) == {"busy"}
    assert sleeps == ["note outside 1", "ended 0 0"]
    assert is_inside[1:] == ["note inside 1", "ended 0 0"]


def test_the_rank_does_not_outlive_its_wrapper() -> None:
    rank = Wrapper("sh", "-c", "echo $$; exec sleep 300")
    pid = int(rank.hear("started").split()[2])
    rank.process.kill()
    rank.process.wait(timeout=20)
    rank.pipe.close()
    busy.until(lambda: busy.has_ended(pid), 10)


def test_a_rank_whose_first_word_nobody_hears_ends_what_it_started(tmp_path: Path) -> None:
    """Its agent was killed before it had read anything; the command has started a process by then."""
    heard, number = tmp_path / "not heard", tmp_path / "process"
    late = f"""
report = wrapper.Rank.report
def when_it_has_started(self, text):
    while not (number := Path({str(number)!r})).exists() or not number.read_text().endswith("\\n"):
        time.sleep(0.01)
    report(self, text)
wrapper.Rank.report = when_it_has_started
"""
    script = f"while [ ! -e '{heard}' ]; do sleep 0.01; done; sleep 300 & echo $! > {number}; sleep 300"
    rank = Wrapper("sh", "-c", script, before=late)
    rank.pipe.close()
    heard.touch()
    assert rank.process.wait(timeout=30) == 1
    process = int(number.read_text())
    try:
        busy.until(lambda: busy.has_ended(process), 10)
    finally:
        send(process, signal.SIGKILL)


def test_who_was_stopped_together_with_its_wrapper_is_not_ended() -> None:
    """A scheduler stops a whole job and continues the wrapper first: the time of the stop does not count."""
    limits = {"HOROVOD_ELASTIC": "1", "HOROVOD_TCP_TIMEOUT_SECONDS": "2", "HOROVOD_AGENT": "0"}
    script = "kill -STOP $$; echo went on"
    rank = Wrapper("sh", "-c", script, before="wrapper.time_limits.LONGEST_ROUND = 1.0", **limits)
    pid = int(rank.hear("started").split()[2])
    rank.hear("stopped")
    time.sleep(0.3)  # until it has recorded the time of the stop
    rank.process.send_signal(signal.SIGSTOP)
    time.sleep(2.2)
    rank.process.send_signal(signal.SIGCONT)
    time.sleep(0.3)
    os.kill(pid, signal.SIGCONT)
    assert rank.finish()[:3] == (0, b"went on\n", b"")
