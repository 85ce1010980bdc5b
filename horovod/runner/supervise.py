"""Runs mpirun, shows the ranks' output, ends the job when a rank fails or the user asks."""

from __future__ import annotations

import os
import re
import select
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from horovod.runner import rank as wrapper
from horovod.runner.outcome import Outcome, signal_name
from horovod.runner.output import Cell, Decoder, RankOutput

AFTER_FAILURE = (
    2.0  # seconds in which mpirun ends the others by itself; MPICH leaves ranks that never called MPI
)
AFTER_INTERRUPT = 1.0  # Ctrl-C reaches mpirun too: it gets time to act before it is told again
BEFORE_KILL = 5.0
HEARD = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
OUTPUT_CLOSED = 128 + signal.SIGPIPE
# Open MPI's paragraph about a rank's exit code: ours names the rank, its host and the signal.
_NON_ZERO = re.compile(
    rb"-{60,}\n(?:(?!-{60})[^\n]*\n)*?[^\n]*non-zero (?:status|exit code)(?:[^\n]*\n)*?-{60,}\n\s*"
)


@dataclass(frozen=True)
class Ending:
    """How a job ended: exit code, and the sentence about it, "" for success.

    `culprit` is the rank that the sentence is about, if any. `values`: what each rank sent as its value, in
    the order in which they began to arrive.
    """

    code: int
    message: str
    culprit: int | None
    all_started: bool
    values: Mapping[int, bytes | bytearray]


@dataclass(frozen=True)
class Launch:
    command: list[str]
    environment: Mapping[str, str]
    nonce: str
    ranks: int
    start_timeout: float
    verbose: bool
    spare: frozenset[int] = frozenset()  # child processes of ours that are none of the job's


def say(text: str) -> None:
    """A line of horovodrun's own, on standard error."""
    print(f"horovodrun: {text}", file=sys.stderr, flush=True)


def run(launch: Launch, output: RankOutput) -> Ending:
    """Run the job to its end."""
    if launch.verbose:
        say(shlex.join(launch.command))
    supervision = _Supervision(launch, output)
    wrapper.adopt_orphans()
    ending = supervision.run()
    # Ranks outlive mpirun for some tenths of a second, and longer if mpirun was killed.
    wrapper.end_descendants(patience=2.0, spare=launch.spare)
    return ending


class _Supervision:
    def __init__(self, launch: Launch, output: RankOutput) -> None:
        self._launch = launch
        self._output = output
        self._outcome = Outcome(launch.ranks)
        self._decoder = Decoder(launch.nonce)
        self._start_by: float | None = time.monotonic() + launch.start_timeout
        self._to_send: list[tuple[float, int]] = []  # when, which signal for mpirun
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
                stdout=subprocess.PIPE,
                stderr=self._cells_end,
                env=self._launch.environment,
                preexec_fn=lambda: wrapper.end_with_parent(signal.SIGTERM),
            )
            with process:
                self._follow(process)
                self._drain(process)
            return self._explain(process.returncode)
        finally:
            signal.set_wakeup_fd(-1)
            for descriptor in (self._wake, self._wake_end, self._cells, self._cells_end):
                os.close(descriptor)
            for number, handler in handlers.items():
                signal.signal(number, handler)

    def _listen_to_signals(self) -> dict[int, Any]:
        os.set_blocking(self._wake, False)
        os.set_blocking(self._wake_end, False)
        signal.set_wakeup_fd(self._wake_end, warn_on_full_buffer=False)
        before: dict[int, Any] = {number: signal.getsignal(number) for number in (*HEARD, signal.SIGCHLD)}
        for number in before:
            signal.signal(number, lambda *_: None)
        return before

    def _follow(self, process: subprocess.Popen[bytes]) -> None:
        streams = self._streams(process)
        poll = select.poll()
        for descriptor in (self._wake, *streams):
            poll.register(descriptor, select.POLLIN)
        while process.poll() is None:
            for descriptor, _ in poll.poll(200 if self._to_send or self._start_by else None):
                if descriptor == self._wake:
                    self._heed(os.read(self._wake, 64))
                elif not self._read(descriptor, streams[descriptor]):
                    poll.unregister(descriptor)
            self._act_in_time(process)

    def _drain(self, process: subprocess.Popen[bytes]) -> None:
        """What is in the pipes after mpirun's end; an ssh that it left may hold them open."""
        streams = self._streams(process)
        while streams and (ready := select.select(list(streams), [], [], 0)[0]):
            for descriptor in ready:
                if not self._read(descriptor, streams[descriptor]):
                    del streams[descriptor]
        self._pass_on(2, self._decoder.rest())
        self._guarded(self._output.finish)
        self._guarded(sys.stderr.buffer.write, _NON_ZERO.sub(b"", self._late_words.replace(b"\0", b"")))

    def _streams(self, process: subprocess.Popen[bytes]) -> dict[int, int]:
        """mpirun's output pipes, and our descriptors for them. Cells come in standard error."""
        assert process.stdout is not None
        return {process.stdout.fileno(): 1, self._cells: 2}

    def _read(self, descriptor: int, target: int) -> bool:
        # Open MPI 5 makes its standard error non-blocking, and when it ends gives up what does not fit in at
        # once: the end of long output, and our reports. The pipe is ours too, so this can be undone.
        os.set_blocking(self._cells_end, True)
        data = os.read(descriptor, 1 << 16)
        if target == 1:
            self._pass_on(target, data)
            return bool(data)
        for part in self._decoder.feed(data):
            if isinstance(part, bytes):
                self._pass_on(target, part)
            elif part.kind == wrapper.REPORT:
                self._take_report(part)
            elif part.kind == wrapper.VALUE:
                self._values.setdefault(part.rank, bytearray()).extend(part.payload)
            else:
                self._guarded(self._output.write, part.rank, part.kind, part.payload)
        self._guarded(self._output.flush)
        return bool(data)

    def _pass_on(self, target: int, text: bytes) -> None:
        """mpirun's own words. After a failure they wait for the end: what we say better is left out."""
        if target == 2 and self._outcome.has_failure() and not self._launch.verbose:
            self._late_words += text
            return
        stream = sys.stdout.buffer if target == 1 else sys.stderr.buffer
        cleaned = text.replace(b"\0", b"")  # its help texts hold such bytes
        if cleaned:
            self._guarded(stream.write, cleaned)
            self._guarded(stream.flush)

    def _guarded(self, write: object, *arguments: object) -> None:
        """Call `write`. When nobody reads our output any more (`horovodrun ... | head`) the job ends."""
        assert callable(write)
        if self._trouble == (OUTPUT_CLOSED, ""):
            return
        try:
            write(*arguments)
        except BrokenPipeError:
            self._stop(OUTPUT_CLOSED, "")
            # Python would complain again when it closes the stream.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

    def _take_report(self, cell: Cell) -> None:
        report = cell.payload.decode(errors="replace")
        had_failed = self._outcome.has_failure()
        self._outcome.take(cell.rank, report)
        if self._launch.verbose and cell.rank in self._outcome.ends:
            say(f"{self._outcome.named(cell.rank)} {self._outcome.ends[cell.rank]}")
        if self._outcome.have_all_started():
            self._start_by = None
        if self._outcome.has_failure() and not had_failed:
            self._end_mpirun(after=AFTER_FAILURE)

    def _heed(self, numbers: bytes) -> None:
        for number in numbers:
            if number in HEARD and not self._interrupt:
                self._interrupt = number
                self._stop(128 + number, f"stopped by {signal_name(number)}, all ranks were ended")
                self._end_mpirun(after=AFTER_INTERRUPT if number == signal.SIGINT else 0.0)

    def _stop(self, code: int, message: str) -> None:
        if self._trouble is None:
            self._trouble = (code, message)
            self._end_mpirun(after=0.0 if code != 128 + signal.SIGINT else AFTER_INTERRUPT)

    def _end_mpirun(self, after: float) -> None:
        first = time.monotonic() + after
        if not self._to_send:
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
        while self._to_send and now >= self._to_send[0][0]:
            process.send_signal(self._to_send.pop(0)[1])

    def _explain(self, mpirun_code: int) -> Ending:
        code, message = self._trouble or self._outcome.verdict(mpirun_code)
        culprit = None if self._trouble else self._outcome.culprit()
        return Ending(code, message, culprit, self._outcome.have_all_started(), self._values)
