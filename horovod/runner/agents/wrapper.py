"""Runs one rank's command as a child, passes its output on in records, and reports how it ended.

An agent starts it as `python -I -S wrapper.py DIRECTORY COMMAND...`: standard library only and few imports,
so that a start takes some 20 ms. Records go to standard output (see `frames`), the wrapper's own errors to
the agent's standard error.

After the rank's end, the wrapper ends the processes that the rank left behind.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from functools import partial

if __name__ == "__main__":  # started by path and isolated, so the package is not on sys.path
    sys.path.insert(0, os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), *[".."] * 3)))

from horovod.common import host_memory, time_limits
from horovod.common.agent_messages import LOCAL_RANK, LOCAL_SIZE
from horovod.common.notes import VARIABLE as NOTES_VARIABLE
from horovod.runner.agents import places
from horovod.runner.agents.frames import ERROR, OUTPUT, REPORT, VALUE, frame
from horovod.runner.agents.streams import Wake, Wanted, read, serve
from horovod.runner.processes import (
    ENDING,
    adopt_orphans,
    end_descendants,
    end_with_parent,
    processor_time,
    send,
)

_NOTES = b"N"  # kind of the notes' pipe: each line becomes a report
ELASTIC_VARIABLE, SILENCE_VARIABLE = "HOROVOD_ELASTIC", "HOROVOD_TCP_TIMEOUT_SECONDS"
BUSY = 0.05  # share of a processor from which a rank that has left the job counts as working
NOT_FOUND, NOT_EXECUTABLE = 127, 126  # exit codes of a shell


def stop_limit() -> float:
    """Return for how many seconds a rank may be stopped (SIGSTOP and the like); infinity in a fixed job.

    An elastic job continues without it. The ranks of its host see its process, and would wait; to other hosts
    it is silent, so their limit applies here too.
    """
    if os.environ.get(ELASTIC_VARIABLE) != "1":
        return float("inf")
    from horovod.common.options import BY_VARIABLE

    return BY_VARIABLE[SILENCE_VARIABLE].read(os.environ) or float("inf")


class Rank:
    """One rank: its child, the pipes between them, and whether it has been asked to end."""

    def __init__(self) -> None:
        self.child = 0
        self.told = False
        self.kill_at: float | None = None
        self._has_news = False  # the child has ended, was stopped, or continues
        self._stop_limit = float("inf")  # seconds, see `stop_limit`
        self._stopped_since: float | None = None
        self._looked_at = time.monotonic()  # by this process, which may have been stopped as well
        self.wake = Wake()
        self.pipes: dict[int, bytes] = {}  # file descriptor -> kind
        self._notes = b""  # the incomplete last line
        self._look_at, self._worked = float("inf"), 0  # next look, and ticks at the last; outside the job

    def write(self, kind: bytes, payload: bytes) -> None:
        data = memoryview(frame(kind, payload))
        while data:
            try:
                data = data[os.write(1, data) :]
            except BlockingIOError:
                self._wait_for_room()

    def _wait_for_room(self) -> None:
        """Handle signals meanwhile, so that the child ends even if the reader does not read."""
        if select.select([self.wake.descriptor], [1], [], None if self.kill_at is None else 0.1)[0]:
            self._pass_signals_on()
        self._kill_if_overdue()

    def report(self, text: str) -> None:
        self.write(REPORT, text.encode(errors="replace"))

    def start(self, directory: str, command: list[str]) -> str:
        """Start the child; return why it could not be started, or ""."""
        (out, out_end), (err, err_end) = _stream(OUTPUT), _stream(ERROR)
        (failure, failure_end), (value, value_end), (notes, notes_end) = os.pipe(), os.pipe(), os.pipe()
        status = os.fstat(notes_end)
        os.environ[NOTES_VARIABLE] = f"{notes_end}:{status.st_dev}:{status.st_ino}"
        os.set_inheritable(notes_end, True)
        if places.PAYLOAD in os.environ:
            os.environ[places.VALUE] = str(value_end)
            os.set_inheritable(value_end, True)
        else:
            os.environ.pop(places.WORKER, None)  # its only use is to sign results
        os.environ.pop(places.TERMINALS, None)
        parent, self.child = os.getpid(), os.fork()
        if self.child == 0:
            code = NOT_FOUND
            try:
                code = self._become(parent, directory, command, (0, out_end, err_end), failure_end)
            except Exception as error:
                os.write(failure_end, f"{code} {error}".encode(errors="replace"))
            os._exit(code)  # no exec took place: this copy of the wrapper must not continue
        for descriptor in (out_end, err_end, failure_end, value_end, notes_end):
            os.close(descriptor)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)  # only the command may hold its standard input, so that it can close it
        os.close(nothing)
        self.pipes = {out: OUTPUT, err: ERROR, value: VALUE, notes: _NOTES}
        with open(failure, "rb") as file:  # closed by a successful exec
            return file.read().decode(errors="replace")

    def _become(
        self, parent: int, directory: str, command: list[str], streams: tuple[int, ...], failure: int
    ) -> int:
        """In the child: become the command, or write the reason to `failure` and return an exit code."""
        code = NOT_FOUND
        try:
            end_with_parent(signal.SIGKILL)
            if os.getppid() != parent:  # the parent died before the kernel was asked to watch it
                return code
            for signal_number in (*ENDING, signal.SIGCHLD, signal.SIGPIPE):
                signal.signal(signal_number, signal.SIG_DFL)
            what = f"the directory {directory} does not exist or cannot be entered"
            if places.PAYLOAD not in os.environ or os.path.isdir(
                directory
            ):  # a function needs no shared folder
                os.chdir(directory)
            what = f"the command {command[0]} was not found (PATH is {os.environ.get('PATH', 'empty')})"
            for standard, descriptor in enumerate(streams):
                os.dup2(descriptor, standard)
            self.execute(command)
        except PermissionError:
            code = NOT_EXECUTABLE
            os.write(failure, f"{code} {what.replace('was not found', 'may not be executed')}".encode())
        except OSError as error:
            reason = what if isinstance(error, FileNotFoundError | NotADirectoryError) else str(error)
            os.write(failure, f"{code} {reason}".encode())
        return code

    def execute(self, command: list[str]) -> None:
        """Become the command. OSError if that fails."""
        os.execvp(command[0], command)

    def follow(self) -> int:
        """Pass output on until the child has ended; return its wait status."""
        status: int | None = None
        while status is None:
            self._kill_if_overdue()
            if self._has_news:
                self._has_news = False
                status = self._child_status()
                continue
            wanted: Wanted = {self.wake.descriptor: (select.POLLIN, self._pass_signals_on)}
            for descriptor in self.pipes:
                wanted[descriptor] = select.POLLIN, partial(self._pass_on, descriptor)
            serve(wanted, self._seconds())
            self._report_work()
            self._end_if_stopped()
        return status

    def _seconds(self) -> float | None:
        """Return the time until the next action that no descriptor announces; None for none."""
        is_watched = self._stopped_since is not None and self._stop_limit != float("inf")
        if self.kill_at is not None or is_watched:
            return 0.1
        left = self._look_at - time.monotonic()
        return None if left == float("inf") else max(0.0, left) + 1e-3

    def _heed_note(self, word: str) -> None:
        """Watch the rank's processor time from the note on by which it leaves the job."""
        if word in ("outside", "leaving"):
            self._look_at, self._worked = time.monotonic() + time_limits.WORK_LOOK, processor_time(self.child)
        elif word == "inside":
            self._look_at = float("inf")

    def _report_work(self) -> None:
        if time.monotonic() >= self._look_at:
            worked, self._worked = self._worked, processor_time(self.child)
            self._look_at = time.monotonic() + time_limits.WORK_LOOK
            if self._worked - worked >= BUSY * time_limits.WORK_LOOK * os.sysconf("SC_CLK_TCK"):
                self.report("busy")

    def _end_if_stopped(self) -> None:
        """Kill a rank that was stopped for too long, in an elastic job; a debugger's stops do not count."""
        now = time.monotonic()
        if now - self._looked_at > time_limits.LONGEST_ROUND:  # this process was stopped too
            self._stopped_since = now if self._stopped_since is not None else None
        self._looked_at = now
        if self._stopped_since is None or time.monotonic() - self._stopped_since < self._stop_limit:
            return
        self._stopped_since = None
        self.write(
            ERROR,
            f"horovodrun: process {self.child} on host {os.uname().nodename} has been stopped for "
            f"{self._stop_limit:g} s ({SILENCE_VARIABLE}): it is ended, so that the others go on\n".encode(),
        )
        send(self.child, signal.SIGKILL)

    def _pass_signals_on(self) -> None:
        """Handle signals; changes of the child's state are left to `follow`."""
        for number in self.wake.numbers():
            if number == signal.SIGCHLD:
                self._has_news = True
            else:
                self.tell(number)  # even if the child got the signal too, and has already ended

    def _kill_if_overdue(self) -> None:
        if self.kill_at is not None and time.monotonic() > self.kill_at:
            send(self.child, signal.SIGKILL)

    def _child_status(self) -> int | None:
        """Return the child's wait status if it has ended. Report stops and continuations."""
        while True:
            pid, status = os.waitpid(self.child, os.WNOHANG | os.WUNTRACED | os.WCONTINUED)
            if pid and os.WIFSTOPPED(status):
                self.report(f"stopped {os.WSTOPSIG(status)}")
                self._stop_limit, self._stopped_since = stop_limit(), time.monotonic()
            elif pid and os.WIFCONTINUED(status):
                self.report("continued")
                self._stopped_since = None
            else:
                return status if pid else None

    def tell(self, signal_number: int) -> None:
        self.told = True
        self.kill_at = self.kill_at or time.monotonic() + time_limits.GRACE
        send(self.child, signal_number)

    def _pass_on(self, descriptor: int) -> None:
        data = read(descriptor)  # b"" also if the other end of a terminal is closed
        if data and self.pipes[descriptor] == _NOTES:
            *lines, self._notes = (self._notes + data).split(b"\n")
            for line in map(os.fsdecode, lines):
                self.report(f"note {line}")
                self._heed_note(line.partition(" ")[0])
        elif data:
            self.write(self.pipes[descriptor], data)
        else:
            del self.pipes[descriptor]
            os.close(descriptor)

    def drain(self) -> None:
        """Read the pipes' present content. A process that the rank left may hold them open indefinitely."""
        while self.pipes and (ready := select.select(list(self.pipes), [], [], 0)[0]):
            for descriptor in ready:
                self._pass_on(descriptor)


def _stream(kind: bytes) -> tuple[int, int]:
    """Return (read end, command's end): of a pipe, or of a terminal if horovodrun's stream is one.

    TERMINALS has kinds and the size: "OE 24 80". Newlines are not translated.
    """
    kinds, *size = os.environ.get(places.TERMINALS, "").split() or [""]
    if kind.decode() not in kinds:
        return os.pipe()
    import fcntl
    import pty
    import struct
    import termios

    source, end = pty.openpty()
    mode = termios.tcgetattr(end)
    mode[1] &= ~termios.OPOST
    termios.tcsetattr(end, termios.TCSANOW, mode)
    fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", int(size[0]), int(size[1]), 0, 0))
    return source, end


def run(directory: str, command: list[str], kind: type[Rank] = Rank) -> int:
    if os.environ.get(places.BIND) == "auto":
        from horovod.runner.binding import bind

        bind(int(os.environ[LOCAL_RANK]), int(os.environ[LOCAL_SIZE]))
    this = kind()
    agent = os.getppid()
    os.set_blocking(1, False)
    end_with_parent(signal.SIGTERM)
    adopt_orphans()
    failure = this.start(directory, command)
    try:
        this.report(f"started {os.uname().nodename} {this.child}")
        if failure:
            this.report(f"refused {failure}")
            return int(failure.split()[0])
        status = this.follow()
        this.drain()
        code = os.waitstatus_to_exitcode(status)
        this.report(f"killed {-code} {this.told:d}" if code < 0 else f"ended {code} {this.told:d}")
        end_descendants()
        this.drain()
    except BrokenPipeError:  # the agent is gone
        send(this.child, signal.SIGKILL)
        end_descendants()
        code = 1
    if os.getppid() != agent:
        host_memory.remove_abandoned()  # which the agent would have done
    return 128 - code if code < 0 else code


if __name__ == "__main__":
    sys.exit(run(sys.argv[1], sys.argv[2:]))
