"""Jobs as horovodrun follows them, with a shell that says what mpirun and its ranks would have said."""

from __future__ import annotations

import io
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from pipes import closed_pipe, full_device
from types import SimpleNamespace
from typing import Any

import pytest

from horovod.runner import cells, outcome, processes, signs_of_life, supervise
from horovod.runner.output import RankOutput
from horovod.runner.rank_input import frame
from horovod.runner.agents.supervision import Ending, Launch

NONCE = "0123456789ab"
HERE = os.uname().nodename
# So long mpirun would go on if nobody ended it: far longer than a test waits.
ENDLESS = "exec sleep 60"


def cell(rank: int, kind: bytes, text: str) -> bytes:
    return cells.cells(NONCE, rank, kind, text.encode())


def reports(*said: tuple[int, str]) -> bytes:
    return b"".join(cell(rank, cells.REPORT, text) for rank, text in said)


def started(ranks: int = 2, host: str = "h") -> bytes:
    return reports(*((rank, f"started {host}{rank} 100") for rank in range(ranks)))


def ended(*codes: int) -> bytes:
    return reports(*((rank, f"ended {code} 0") for rank, code in enumerate(codes)))


@dataclass
class ShellJobs:
    """Runs jobs of which mpirun is a shell: it says `errors`, then does `script`, to which "$1" is `more`."""

    folder: Path
    stdout: io.BytesIO = field(default_factory=io.BytesIO)
    stderr: io.BytesIO = field(default_factory=io.BytesIO)

    def run(
        self,
        errors: bytes,
        script: str = "",
        trap: str = "",
        ranks: int = 2,
        start_timeout: float = 30.0,
        verbose: bool = False,
        output: RankOutput | None = None,
        **more: float,
    ) -> Ending:
        file = self.folder / "errors"
        file.write_bytes(errors)
        command = ["sh", "-c", f'{trap}\ncat "$0" >&2\n{script}', str(file), str(self.folder / "more")]
        spare = frozenset(processes.children())
        told = {**os.environ, "SAID": "yes"}
        launch = Launch(command, told, NONCE, ranks, start_timeout, verbose, spare, **more)  # type: ignore[arg-type]
        return supervise.run(launch, output or RankOutput(ranks, self.stdout, self.stderr))


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ShellJobs]:
    """The process that runs the tests adopts nobody: that could not be undone."""
    monkeypatch.setattr(processes, "adopt_orphans", lambda: None)
    before = {number: signal.getsignal(number) for number in (*supervise.ENDING_SIGNALS, signal.SIGCHLD)}
    descriptors = len(os.listdir("/proc/self/fd"))
    yield ShellJobs(tmp_path)
    assert {number: signal.getsignal(number) for number in before} == before
    assert len(os.listdir("/proc/self/fd")) == descriptors
    assert signal.set_wakeup_fd(-1) == -1


def test_a_job_that_succeeds(shell: ShellJobs, capfd: pytest.CaptureFixture[str]) -> None:
    said = started() + cell(1, cells.OUTPUT, "out\n") + cell(0, cells.ERROR, "err\nlast") + b"a w\0ord\n"
    assert shell.run(said + ended(0, 0), 'echo "mpirun: $SAID"') == Ending(0, "", None, True, {})
    assert sorted(shell.stdout.getvalue().splitlines()) == [b"[1]<stdout>:out", b"mpirun: yes"]
    assert shell.stderr.getvalue() == b"[0]<stderr>:err\na word\n[0]<stderr>:last\n"
    assert capfd.readouterr() == ("", "")  # nothing of horovodrun's own


def test_values_of_ranks_are_put_together(shell: ShellJobs) -> None:
    long = "0123456789" * 200  # several cells
    said = cell(1, cells.VALUE, "one") + cell(0, cells.VALUE, long) + cell(1, cells.VALUE, " more")
    ending = shell.run(started() + said + ended(0, 0))
    assert {rank: bytes(value) for rank, value in ending.values.items()} == {
        0: long.encode(),
        1: b"one more",
    }
    assert list(ending.values) == [1, 0]
    assert shell.stderr.getvalue() == b""


PARAGRAPH = b"-" * 70 + b"\nmpirun detected that a process exited with non-zero status\n" + b"-" * 70 + b"\n"


def test_after_a_failure_mpiruns_words_wait_and_those_we_say_better_are_left_out(shell: ShellJobs) -> None:
    said = b"before\n" + started() + reports((1, "ended 3 0"), (0, "killed 15 1"))
    ending = shell.run(said + b"lost\0 a host\n" + PARAGRAPH + cell(0, cells.ERROR, "late\n"), "exit 5")
    assert (ending.code, ending.culprit, ending.all_started) == (3, 1, True)
    assert ending.message == "rank 1 on host h1 exited with code 3; the other ranks were ended"
    assert shell.stderr.getvalue() == b"before\n[0]<stderr>:late\nlost a host\n"


def test_verbose_shows_the_command_mpiruns_words_and_each_end(
    shell: ShellJobs, capsys: pytest.CaptureFixture[str]
) -> None:
    said = started() + reports((1, "killed 9 0"), (0, "ended 0 0"))
    assert shell.run(said + PARAGRAPH, verbose=True).code == 137
    assert shell.stderr.getvalue() == PARAGRAPH
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("horovodrun: sh -c ")
    assert lines[-2:] == [
        "horovodrun: rank 1 on host h1 was killed by signal 9 (SIGKILL)",
        "horovodrun: rank 0 on host h0 exited with code 0",
    ]


def test_without_reports_mpiruns_own_code_counts(shell: ShellJobs) -> None:
    ending = shell.run(b"no such option\n", "exit 7")
    assert (ending.code, ending.culprit, ending.all_started) == (7, None, False)
    assert ending.message == "mpirun exited with code 7 before any rank started; its message is above"
    assert shell.stderr.getvalue() == b"no such option\n"
    assert shell.run(started(), "kill -9 $$").message.startswith("ranks 0, 1 on h0, h1 did not report")


def test_reports_that_make_no_sense_are_left_aside(
    shell: ShellJobs, capsys: pytest.CaptureFixture[str]
) -> None:
    nonsense = [(2, "ended 3 0"), (0, "dances"), (1, "took many"), (1, "ended 999 0")]
    alive = reports((5, "alive")) + reports((0, "alive"))  # of a rank that is none, and one that is
    assert shell.run(started() + reports(*nonsense) + alive + ended(0, 0)) == Ending(0, "", None, True, {})
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 5
    assert all(line.startswith("horovodrun: warning: a report makes no sense") for line in said)
    assert "rank 2 reported 'ended 3 0'" in said[0]


class Clock(io.BytesIO):
    """Standard output; and the clock of horovodrun, of which `step` seconds go by with each line."""

    BEGIN = 1000.0

    def __init__(self, monkeypatch: pytest.MonkeyPatch, step: float) -> None:
        super().__init__()
        self.now, self.step = self.BEGIN, step
        monkeypatch.setattr(supervise, "time", SimpleNamespace(monotonic=lambda: self.now))

    def write(self, data: Any) -> int:
        self.now += self.step
        return super().write(data)


TICK = cell(0, cells.OUTPUT, "tick\n")


@pytest.mark.parametrize(("seconds", "is_given_up"), [(29.0, False), (31.0, True)])
def test_ranks_that_do_not_start_in_time(
    shell: ShellJobs, monkeypatch: pytest.MonkeyPatch, seconds: float, is_given_up: bool
) -> None:
    shell.stdout = Clock(monkeypatch, seconds)
    (shell.folder / "more").write_bytes(
        reports((1, "started h1 100"), (2, "started h2 100")) + ended(0, 0, 0)
    )
    script = ENDLESS if is_given_up else 'cat "$1" >&2'
    ending = shell.run(reports((0, "started h0 100")) + TICK, script, ranks=3)
    if not is_given_up:
        assert ending == Ending(0, "", None, True, {})
        return
    assert (ending.code, ending.culprit, ending.all_started) == (1, None, False)
    assert ending.message.startswith("ranks 1, 2 did not start within 30 s. Likely causes: ")


def test_once_all_have_started_they_may_take_their_time(
    shell: ShellJobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell.stdout = Clock(monkeypatch, 1000.0)
    (shell.folder / "more").write_bytes(ended(0, 0))
    assert shell.run(started() + TICK, 'sleep 0.1; cat "$1" >&2').code == 0


def test_of_many_ranks_it_is_said_how_many_have_started(
    shell: ShellJobs, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (shell.folder / "more").write_bytes(TICK)
    script = 'while :; do cat "$1" >&2; sleep 0.02; done'
    for many in (3, 2):
        shell.stdout = Clock(monkeypatch, 6.0)
        monkeypatch.setattr(supervise, "MANY_RANKS", many)
        assert "rank 1 did not start within" in shell.run(started(1), script).message
        said = capsys.readouterr().err.splitlines()
        assert set(said) == ({"horovodrun: 1 of 2 ranks have started"} if many == 2 else set())
        assert len(said) < 10


FAILS = reports((1, "ended 3 0"))
FOLLOWS = reports((1, "note joining"), (1, "note follows 0 gone"), (1, "ended 1 0"))


@pytest.mark.parametrize(
    ("said", "seconds", "is_told"),
    [(FAILS, 0.4, True), (FAILS, 0.2, False), (FOLLOWS, 3.1, True), (FOLLOWS, 2.9, False)],
)
def test_mpirun_is_told_to_end_the_job_soonest_when_it_is_known_who_failed(
    shell: ShellJobs, monkeypatch: pytest.MonkeyPatch, said: bytes, seconds: float, is_told: bool
) -> None:
    shell.stdout = Clock(monkeypatch, seconds)
    told = shell.folder / "told"
    script = "while :; do sleep 0.02; done" if is_told else "sleep 0.3"
    shell.run(started() + said + TICK, script, trap=f"trap 'echo >{told}; exit 0' TERM")
    assert told.exists() == is_told


def test_mpirun_that_does_not_end_when_told_to_is_killed(
    shell: ShellJobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell.stdout = Clock(monkeypatch, 1.0)
    (shell.folder / "more").write_bytes(6 * TICK)
    told = shell.folder / "told"
    trap = f"trap 'echo told >>{told}; cat \"$1\" >&2' TERM"
    script = "while :; do sleep 0.02; done"
    assert shell.run(started() + reports((0, "ended 4 0")) + TICK, script, trap=trap).code == 4
    assert told.read_text() == "told\n"  # once


def test_ranks_that_wait_for_one_that_has_left_are_ended(
    shell: ShellJobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outcome, "VAIN_WAIT", 0.1)
    ending = shell.run(started() + reports((0, "note joining"), (1, "ended 0 0")), ENDLESS)
    assert (ending.code, ending.culprit) == (1, 1)
    assert "ended with code 0 before hvd.init(), and rank 0 cannot begin without it" in ending.message


@pytest.mark.parametrize("work", [b"", reports((1, "busy")), cell(1, cells.OUTPUT, "step\n")])
def test_who_does_nothing_while_all_others_have_ended_is_ended(
    work: bytes, shell: ShellJobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And has its time again whenever it does something."""
    shell.stdout = clock = Clock(monkeypatch, 0.3)
    (shell.folder / "more").write_bytes(TICK + work)
    (shell.folder / "tick").write_bytes(TICK)
    works = 'for i in $(seq 12); do cat "$1" >&2; sleep 0.02; done'
    waits = f"while :; do cat {shell.folder}/tick >&2; sleep 0.02; done"
    said = started() + reports((1, "note outside 1"), (0, "ended 0 0"))
    ending = shell.run(said, f"{works}; {waits}" if work else waits, "trap 'exit 1' TERM", exit_timeout=1.0)
    assert (ending.code, ending.culprit) == (1, None)
    assert ending.message.startswith("rank 1 on host h1 did not end") and "--exit-timeout" in ending.message
    assert clock.now - Clock.BEGIN > (3.6 if work else 1.0)


@pytest.mark.parametrize(("timeout", "code"), [(0.0, 0), (1.0, 1)])
def test_without_an_exit_timeout_nobody_is_ended(
    shell: ShellJobs, monkeypatch: pytest.MonkeyPatch, timeout: float, code: int
) -> None:
    shell.stdout = Clock(monkeypatch, 0.6)
    said = started() + reports((1, "note outside 1"), (0, "ended 0 0"))
    (shell.folder / "more").write_bytes(TICK)
    (shell.folder / "end").write_bytes(reports((1, "ended 0 0")))
    script = f'for i in $(seq 9); do cat "$1" >&2; sleep 0.02; done; cat {shell.folder}/end >&2'
    assert shell.run(said, script, "trap 'exit 1' TERM", exit_timeout=timeout).code == code


def test_a_host_that_falls_silent_is_given_up(shell: ShellJobs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signs_of_life, "SILENCE", 0.3)
    said = reports((0, "started h0 100"), (1, "started h1 100"), (1, "alive"))
    ending = shell.run(said, ENDLESS, ranks=3)  # another has not started, so it looks often
    assert (ending.code, ending.culprit) == (1, 1)
    assert ending.message.startswith("rank 1 on host h1 was lost: that host, or the network to it")


def test_what_mpirun_says_of_a_wrapper_that_was_killed(shell: ShellJobs) -> None:
    said = b"mpirun noticed that process rank 1 with PID 335 on node h1 exited on signal 9 (Killed).\n"
    ending = shell.run(started() + reports((0, "killed 15 1")) + said, "exit 137")
    assert (ending.code, ending.culprit) == (1, 1)
    assert "horovodrun's process above it was killed by signal 9 (SIGKILL)" in ending.message


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_horovodrun_ends_the_job(
    shell: ShellJobs, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    """mpirun has Ctrl-C from the terminal too, and time to act on it; other signals it has from us."""
    monkeypatch.setattr(supervise, "AFTER_INTERRUPT", 0.4)
    began = time.monotonic()
    ending = shell.run(started(), f"kill -{number.value} $PPID; {ENDLESS}")
    waited = time.monotonic() - began
    assert (ending.code, ending.culprit) == (128 + number, None)
    assert ending.message == f"stopped by {number.name}, all ranks were ended"
    assert waited < 20 and (waited > 0.4 or number != signal.SIGINT)


@pytest.mark.parametrize(
    ("opened", "code", "said"),
    [
        (closed_pipe, 141, ""),
        (
            full_device,
            1,
            "standard output (/dev/full) cannot be written: No space left on device (ENOSPC); "
            "all ranks were ended",
        ),
    ],
)
def test_output_that_cannot_be_written_ends_the_job(
    shell: ShellJobs, opened: Callable[[str], Any], code: int, said: str
) -> None:
    with opened("wb") as stream:
        output = RankOutput(2, stream, shell.stderr)
        ending = shell.run(started() + cell(0, cells.OUTPUT, "x\n"), ENDLESS, output=output)
    assert (ending.code, ending.message, ending.culprit) == (code, said, None)


@pytest.fixture
def standard_input() -> Iterator[Callable[[int], None]]:
    """Puts a descriptor in the place of standard input, and closes it."""
    before = os.dup(0)

    def put(descriptor: int) -> None:
        os.dup2(descriptor, 0)
        os.close(descriptor)

    yield put
    os.dup2(before, 0)
    os.close(before)


def test_standard_input_goes_to_rank_0_once_it_is_there(
    shell: ShellJobs, standard_input: Callable[[int], None]
) -> None:
    reader, writer = os.pipe()
    os.write(writer, b"some words")
    os.close(writer)
    standard_input(reader)
    got = shell.folder / "got"
    (shell.folder / "more").write_bytes(ended(0, 0))
    script = f'cat >{got}\ncat "$1" >&2'
    assert shell.run(reports((1, "started h1 1"), (0, f"started {HERE} 1")), script).code == 0
    assert got.read_bytes() == frame(b"some words") + frame(b"")


def test_input_that_cannot_be_read_is_said_at_the_end(
    shell: ShellJobs, standard_input: Callable[[int], None], capsys: pytest.CaptureFixture[str]
) -> None:
    standard_input(os.open(shell.folder, os.O_RDONLY))
    (shell.folder / "more").write_bytes(ended(0, 0))
    script = 'cat >/dev/null\ncat "$1" >&2'
    assert shell.run(reports((1, "started h1 1"), (0, f"started {HERE} 1")), script).code == 0
    said = capsys.readouterr().err
    assert said == "horovodrun: warning: standard input cannot be read: Is a directory\n"
