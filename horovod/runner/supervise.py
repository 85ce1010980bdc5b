"""Runs mpirun, shows the ranks' output, ends the job when a rank fails or the user asks.

All that is said of mpirun here holds for the driver of `agents`, which may stand in its place.
"""

from __future__ import annotations

import os
import re
import select
import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from threading import Thread
from typing import Any

from horovod.common.listeners import narrow_process
from horovod.runner import cells, processes
from horovod.runner.closing import Closing
from horovod.runner.errors import OutputError
from horovod.runner.job_input import JobInput
from horovod.runner.outcome import ElasticOutcome, Outcome, signal_name
from horovod.runner.output import Cell, Decoder, RankOutput
from horovod.runner.signs_of_life import SignsOfLife
from horovod.runner.streams import WriteLimit, say

# Seconds after the first failure: when it is known who is to blame, others get the time to say their last
# words; else whoever is to blame may be slower than those that follow.
AFTER_FAILURE, BEFORE_BLAMING = 0.3, 3.0
AFTER_INTERRUPT = 1.0  # Ctrl-C reaches mpirun too: it gets time to act before it is told again
BEFORE_KILL = 5.0
ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
OUTPUT_CLOSED = 128 + signal.SIGPIPE
OUTPUT_FAILED = 1
STUCK_OUTPUT = 1.0  # seconds that a write may wait for a reader after a signal told us to end
MANY_RANKS, BEFORE_NEWS = 64, 5.0  # so many ranks may take long to start: say so after these seconds
# Open MPI's paragraph about a rank's exit code: ours names the rank, its host and the signal.
_NON_ZERO = re.compile(
    rb"-{60,}\n(?:(?!-{60})[^\n]*\n)*?[^\n]*non-zero (?:status|exit code)(?:[^\n]*\n)*?-{60,}\n\s*"
)


@dataclass(frozen=True)
class Ending:
    """How a job ended: exit code, and the sentence about it, "" for success.

    `culprit` is the rank that the sentence is about, if any. `values`: what each rank sent as its value, in
    the order in which they began to arrive. `starter`: see Launch. `ends`: exit codes of those that ended. In
    elastic jobs a worker's number stands for a rank.
    """

    code: int
    message: str
    culprit: int | None
    all_started: bool
    values: Mapping[int, bytes | bytearray]
    starter: str = "mpirun"
    ends: Mapping[int, int] = field(default_factory=dict, compare=False)


@dataclass(frozen=True)
class Launch:
    command: list[str]
    environment: Mapping[str, str]
    nonce: str
    ranks: int
    start_timeout: float
    verbose: bool
    spare: frozenset[int] = frozenset()  # child processes of ours that are none of the job's
    networks: str = ""  # that mpirun may listen on, see `listeners`; all for none
    is_elastic: bool = False  # `ranks` are at most so many, and the command alone decides when the job ends
    starter: str = "mpirun"  # what the command is called where it fails: see `starting`
    exit_timeout: float = 0.0  # seconds, see `Outcome.lingering`; 0: no limit
    closing: Closing = field(default_factory=Closing, compare=False)  # hears of the ranks' notes


def run(launch: Launch, output: RankOutput) -> Ending:
    """Run the job to its end."""
    if launch.verbose:
        say(shlex.join(launch.command))
    supervision = _Supervision(launch, output)
    processes.adopt_orphans()
    ending = supervision.run()
    # Ranks outlive mpirun for some tenths of a second, and longer if mpirun was killed.
    processes.end_descendants(patience=2.0, spare=launch.spare)
    return ending


class _Supervision:
    def __init__(self, launch: Launch, output: RankOutput) -> None:
        self._launch = launch
        self._output = output
        outcome = ElasticOutcome if launch.is_elastic else Outcome
        self._outcome = outcome(launch.ranks, launch.starter)
        self._decoder = Decoder(launch.nonce)
        self._started = time.monotonic()
        # A driver of an elastic job waits as long as that may, and says what for.
        self._start_by: float | None = None if launch.is_elastic else self._started + launch.start_timeout
        tells_news = launch.ranks >= MANY_RANKS and not launch.is_elastic
        self._news_at: float | None = self._started + BEFORE_NEWS if tells_news else None
        self._vain_since: float | None = None
        self._lingering: list[int] = []  # and since when they do nothing, and when we looked last:
        self._lingers_since = self._looked_at = self._started
        self._life = SignsOfLife()
        self._input: JobInput | None = None
        self._to_send: list[tuple[float, int]] = []  # when, which signal for mpirun
        self._was_told = False
        self._late_words = b""
        self._interrupt = 0
        self._values: dict[int, bytearray] = {}
        self._trouble: tuple[int, str] | None = None  # beats what the ranks report
        self._wake, self._wake_end = os.pipe()
        self._cells, self._cells_end = os.pipe()  # mpirun's standard error

    def run(self) -> Ending:
        handlers = self._listen_to_signals()
        try:
            process = subprocess.Popen(
                self._launch.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._cells_end,
                env=self._launch.environment,
                preexec_fn=lambda: processes.end_with_parent(signal.SIGTERM),
            )
            Thread(target=self._narrow, args=[process.pid], daemon=True).start()
            with process:
                try:
                    self._follow(process)
                    self._drain(process)
                except BaseException:
                    process.kill()  # or it would be waited for
                    raise
            return self._explain(process.returncode)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.set_wakeup_fd(-1)
            for descriptor in (self._wake, self._wake_end, self._cells, self._cells_end):
                os.close(descriptor)
            for number, handler in handlers.items():
                signal.signal(number, handler)

    def _narrow(self, mpirun: int) -> None:
        why = narrow_process(mpirun, self._launch.networks) if self._launch.networks else ""
        if why and self._launch.verbose:
            say(f"mpirun listens on all networks of this host: {why}")

    def _listen_to_signals(self) -> dict[int, Any]:
        os.set_blocking(self._wake, False)
        os.set_blocking(self._wake_end, False)
        signal.set_wakeup_fd(self._wake_end, warn_on_full_buffer=False)
        woken_by = (*ENDING_SIGNALS, signal.SIGCHLD, signal.SIGCONT)
        before: dict[int, Any] = {number: signal.getsignal(number) for number in (*woken_by, signal.SIGALRM)}
        for number in woken_by:
            does = WriteLimit(STUCK_OUTPUT).begin if number in ENDING_SIGNALS else lambda *_: None
            signal.signal(number, does)
        return before

    def _follow(self, process: subprocess.Popen[bytes]) -> None:
        streams = self._streams(process)
        assert process.stdin is not None
        self._input = JobInput(0, os.dup(process.stdin.fileno()))
        process.stdin.close()
        while process.poll() is None:
            poll = select.poll()
            for descriptor in (self._wake, *streams):
                poll.register(descriptor, select.POLLIN)
            for descriptor, event in self._input.wanted().items():
                poll.register(descriptor, event)
            for descriptor, _ in poll.poll(self._milliseconds()):
                if descriptor == self._wake:
                    self._heed(os.read(self._wake, 64))
                elif descriptor not in streams:
                    self._input.go_on(descriptor)
                elif not self._read(descriptor, streams[descriptor]):
                    del streams[descriptor]
            self._act_in_time(process)
        self._input.close()
        if self._input.error:
            say(f"warning: standard input cannot be read: {self._input.error}")

    def _milliseconds(self) -> int | None:
        if self._to_send or self._start_by or self._lingering or self._outcome.waits_in_vain():
            return 200
        return 1000 if self._life.are_expected() else None

    def _drain(self, process: subprocess.Popen[bytes]) -> None:
        """What is in the pipes after mpirun's end; an ssh that it left may hold them open."""
        streams = self._streams(process)
        while streams and (ready := select.select(list(streams), [], [], 0)[0]):
            for descriptor in ready:
                if not self._read(descriptor, streams[descriptor]):
                    del streams[descriptor]
        self._pass_on(2, self._decoder.rest())
        self._guarded(self._output.finish)
        words = _NON_ZERO.sub(b"", self._late_words.replace(b"\0", b""))
        self._guarded(self._output.pass_on, cells.ERROR, words)

    def _streams(self, process: subprocess.Popen[bytes]) -> dict[int, int]:
        """mpirun's output pipes, and our descriptors for them. Cells come in standard error."""
        assert process.stdout is not None
        return {process.stdout.fileno(): 1, self._cells: 2}

    def _read(self, descriptor: int, target: int) -> bool:
        # ssh makes the standard error that it shares with mpirun non-blocking, and then mpirun, at its end,
        # gives up what does not fit in at once: the end of long output, and our reports. The pipe is
        # ours too, so this can be undone.
        os.set_blocking(self._cells_end, True)
        data = os.read(descriptor, 1 << 16)
        if target == 1:
            self._pass_on(target, data)
            return bool(data)
        for part in self._decoder.feed(data):
            if isinstance(part, bytes):
                self._pass_on(target, part)
            elif part.kind == cells.REPORT:
                self._take_report(part)
            elif part.kind == cells.VALUE:
                self._values.setdefault(part.rank, bytearray()).extend(part.payload)
            else:
                self._take_work(part.rank)
                self._guarded(self._output.write, part.rank, part.kind, part.payload)
        self._guarded(self._output.flush)
        return bool(data)

    def _pass_on(self, target: int, text: bytes) -> None:
        """mpirun's own words. After a failure they wait for the end: what we say better is left out."""
        self._life.read(text)
        if target == 2 and self._outcome.has_failure() and not self._launch.verbose:
            self._late_words += text
            return
        cleaned = text.replace(b"\0", b"")  # its help texts hold such bytes
        if cleaned:
            self._guarded(self._output.pass_on, cells.OUTPUT if target == 1 else cells.ERROR, cleaned)

    def _guarded(self, write: Callable[..., None], *arguments: Any) -> None:
        """Call `write`. When nobody reads our output (`horovodrun ... | head`), or it fails, the job ends."""
        try:
            write(*arguments)
        except OutputError as error:
            if error.is_closed:
                self._stop(OUTPUT_CLOSED, "")
            elif not error.is_blocked:
                self._stop(OUTPUT_FAILED, f"{error}; all ranks were ended")

    def _take_report(self, cell: Cell) -> None:
        report = cell.payload.decode(errors="replace")
        outcome = self._outcome
        try:
            if cell.rank >= self._launch.ranks:
                raise ValueError(f"rank {cell.rank} reported {report!r}")
            if report.startswith("took ") and self._input is not None and cell.rank == 0:
                self._input.take(int(report[5:]))
            elif report.partition(" ")[0] in ("named", "gone"):
                self._take_label(cell.rank, report[6:])
            elif report in ("alive", "busy"):
                self._take_sign(cell.rank, report)
            else:
                outcome.take(cell.rank, report)
                self._launch.closing.hear(cell.rank, report)
                if cell.rank == 0 and report.startswith("started ") and self._input is not None:
                    self._input.begin(outcome.hosts[0], self._launch.starter == "mpirun")
        except (ValueError, KeyError) as error:
            say(f"warning: a report makes no sense, and is left aside: {error}")
        if self._launch.verbose and report.startswith(("ended", "killed", "refused")):
            say(f"{outcome.named(cell.rank)} {outcome.ends.get(cell.rank, report)}")
        if outcome.have_all_started():
            self._start_by = self._news_at = None
        if outcome.has_failure():
            self._heed_failure()

    def _take_label(self, number: int, label: str) -> None:
        """Of a worker of an elastic job, which begins; "": it is gone."""
        if label:
            self._output.name(number, label)
        else:
            self._guarded(self._output.end, number)

    def _take_sign(self, rank: int, report: str) -> None:
        """Of life, of a rank's host; or that the rank does something. KeyError before it has started."""
        if report == "alive":
            self._life.note(self._outcome.hosts[rank], time.monotonic())
        else:
            self._take_work(rank)

    def _take_work(self, rank: int) -> None:
        """A rank writes, or uses the processor."""
        if rank in self._lingering:
            self._lingers_since = time.monotonic()

    def _heed_lingering(self, now: float) -> None:
        """End those that keep the job from its end, and do nothing. Where we were stopped, so may they be."""
        limit = self._launch.exit_timeout
        ranks = self._outcome.lingering() if limit and self._trouble is None else []
        if ranks != self._lingering or now - self._looked_at > processes.LONGEST_ROUND:
            self._lingering, self._lingers_since = ranks, now
        elif ranks and now - self._lingers_since > limit:
            self._lingering = []
            self._stop(1, self._outcome.overdue(ranks, limit))
        self._looked_at = now

    def _heed_failure(self) -> None:
        if self._outcome.is_ended_by_mpirun() and not self._interrupt:
            self._to_send.clear()  # a second or two later, and it has said why
        self._end_mpirun(after=AFTER_FAILURE if self._outcome.has_settled() else BEFORE_BLAMING)

    def _heed(self, numbers: bytes) -> None:
        for number in numbers:
            if number in ENDING_SIGNALS and not self._interrupt:
                self._interrupt = number
                self._stop(128 + number, f"stopped by {signal_name(number)}, all ranks were ended")
                self._end_mpirun(after=AFTER_INTERRUPT if number == signal.SIGINT else 0.0)

    def _stop(self, code: int, message: str) -> None:
        if self._trouble is None:
            self._trouble = (code, message)
            self._end_mpirun(after=0.0 if code != 128 + signal.SIGINT else AFTER_INTERRUPT)

    def _end_mpirun(self, after: float) -> None:
        """Once it has been told, it is not told again but by SIGKILL."""
        first = time.monotonic() + after
        if not self._was_told and (not self._to_send or first < self._to_send[0][0]):
            self._to_send = [(first, signal.SIGTERM), (first + BEFORE_KILL, signal.SIGKILL)]

    def _act_in_time(self, process: subprocess.Popen[bytes]) -> None:
        now = time.monotonic()
        if self._start_by is not None and now > self._start_by and not self._outcome.has_failure():
            self._start_by = None
            self._stop(
                1,
                f"{self._outcome.missing_start()} did not start within {self._launch.start_timeout:g} s. "
                "Likely causes: a "
                "host is down or asks for a password; a firewall; too slow a file system (raise "
                "--start-timeout)",
            )
        if self._news_at is not None and now > self._news_at:
            self._news_at = now + BEFORE_NEWS
            say(f"{len(self._outcome.hosts)} of {self._launch.ranks} ranks have started")
        wait = self._outcome.waits_in_vain()
        self._vain_since = (self._vain_since or now) if wait else None
        if self._vain_since is not None and now - self._vain_since > wait:
            self._end_mpirun(after=0.0)
        self._heed_lingering(now)
        if silent := self._life.silent(now):
            self._outcome.lost |= silent
            self._end_mpirun(after=0.0)
        while self._to_send and now >= self._to_send[0][0]:
            self._was_told = self._outcome.is_over = True
            process.send_signal(self._to_send.pop(0)[1])

    def _explain(self, mpirun_code: int) -> Ending:
        self._outcome.lost |= self._life.lost(set(self._outcome.hosts.values())) or self._life.named_lost()
        self._outcome.unreported |= self._life.named_killed()
        code, message = self._trouble or self._outcome.conclusion(mpirun_code)
        culprit = None if self._trouble else self._outcome.culprit()
        all_started = self._outcome.have_all_started()
        ends = {rank: end.exit_code() for rank, end in self._outcome.ends.items()}
        return Ending(code, message, culprit, all_started, self._values, self._launch.starter, ends)
