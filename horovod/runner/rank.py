"""Runs one rank's command as a child, passes its output on in cells, and reports how it ended.

Started by mpirun, or an agent of ours (see `agents`), as `python -I -S rank.py NONCE DIRECTORY COMMAND...`:
standard library only and few imports, so that it costs some 20 ms. It exists because neither mpirun's exit
code (0 when a host is lost) nor its text says reliably how ranks ended, and because no two MPIs tag output
alike, or keep lines of different ranks apart.

Everything goes through standard error, in cells (see `cells`).

The rank's end is the end of what it started: processes that it left behind are ended too. Under mpirun the
wrapper stays after a failure until it is told to end, or for PATIENCE: mpirun ends all ranks as soon as one
of them is gone, and whoever failed first may have no word out by then.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time

if __name__ == "__main__":  # by its path, and isolated: nothing leads to this package
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

from horovod.common import host_memory
from horovod.common.agent_messages import VARIABLE as AGENT_VARIABLE
from horovod.common.notes import VARIABLE as NOTES_VARIABLE
from horovod.runner.agents.places import WORKER as WORKER_VARIABLE
from horovod.runner.cells import BLOCK_SIZE, CELL_SIZE, ERROR, OUTPUT, REPORT, VALUE, cells, header_size
from horovod.runner.daemon_link import DaemonLink
from horovod.runner.mpi_memory import remove_abandoned
from horovod.runner.processes import (
    LONGEST_ROUND,
    adopt_orphans,
    end_descendants,
    end_with_parent,
    processor_time,
    send,
)
from horovod.runner.rank_input import RankInput

MOST_PER_SECOND = 32e6  # bytes; an mpirun that always has something to read neither writes nor heeds signals
_NOTES = b"N"  # what comes in the pipe of notes: each is passed on as a report
# For ranks that run a function: the name of its payload, and the descriptor that its value is written to.
PAYLOAD_VARIABLE, VALUE_VARIABLE = "HOROVOD_RUN_PAYLOAD", "HOROVOD_RUN_VALUE"
BIND_VARIABLE = "HOROVOD_BIND"
# Those of MPIs, and of our own agents, which give their hosts' signs of life themselves.
RANK_VARIABLES = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "HOROVOD_RANK")
SIZE_VARIABLES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
LOCAL_SIZE_VARIABLES = ("OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "HOROVOD_LOCAL_SIZE")
LOCAL_RANK_VARIABLES = ("OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "HOROVOD_LOCAL_RANK")
FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
GRACE = 3.0  # seconds between telling a process to end and killing it
ELASTIC_VARIABLE, SILENCE_VARIABLE = "HOROVOD_ELASTIC", "HOROVOD_TCP_TIMEOUT_SECONDS"
PATIENCE = 5.0  # seconds that the wrapper of a rank that failed waits to be told to end
START_SPREAD = 60.0  # seconds in which the ranks of a host all start, at most
BEAT = 1.0  # seconds between two signs of life of a host
BUSY = 0.05  # of a processor, in a BEAT, from which on a rank that has left the job does something
NOT_FOUND, NOT_EXECUTABLE = 127, 126  # what a shell answers


def rank_and_local_size() -> tuple[int, int]:
    """Rank, and number of ranks on this host (0 when the launcher does not say)."""
    rank = next((os.environ[name] for name in RANK_VARIABLES if name in os.environ), None)
    if rank is None:
        sys.exit(
            f"horovodrun: mpirun set none of {', '.join(RANK_VARIABLES)}: it is none that horovodrun knows"
        )
    return int(rank), int(next((os.environ[n] for n in LOCAL_SIZE_VARIABLES if n in os.environ), 0))


def number_in_cells(rank: int) -> int:
    """The worker's in an elastic job. Its command does not hear of it, unless it has a result to sign."""
    number = int(os.environ.get(WORKER_VARIABLE, rank))
    if PAYLOAD_VARIABLE not in os.environ:
        os.environ.pop(WORKER_VARIABLE, None)
    return number


def local_rank() -> int:
    """Of this rank on its host; -1 when the launcher does not say."""
    return int(next((os.environ[name] for name in LOCAL_RANK_VARIABLES if name in os.environ), -1))


def stop_limit() -> float:
    """Seconds that a rank may be stopped, as by SIGSTOP; infinity where the job waits for it.

    An elastic job goes on without it. The ranks of its host see its process, and would wait; to those of
    other hosts it is silent, so their limit counts here too.
    """
    if AGENT_VARIABLE not in os.environ or os.environ.get(ELASTIC_VARIABLE) != "1":
        return float("inf")
    from horovod.common.options import BY_VARIABLE

    return BY_VARIABLE[SILENCE_VARIABLE].read(os.environ) or float("inf")


def speaks_for_its_host() -> bool:
    """Whether this rank gives its host's signs of life: the first there, where mpirun has several hosts."""
    size, local_size = (
        int(next((os.environ[name] for name in names if name in os.environ), -1))
        for names in (SIZE_VARIABLES, LOCAL_SIZE_VARIABLES)
    )
    return local_rank() == 0 and 0 < local_size < size


class Rank:
    """One rank: its child, the pipes between them, and whether it has been told to end.

    `rank`: the number that its cells have, and 0 for who gets the job's standard input.
    """

    def __init__(self, nonce: str, rank: int, has_beat: bool = False) -> None:
        self.nonce = nonce
        self.rank = rank
        self.beat_at = time.monotonic() if has_beat else float("inf")
        self._link = DaemonLink()
        self._parent = os.getppid()
        self.child = 0
        self.told = False
        self.kill_at: float | None = None
        self._stop_limit = float("inf")  # seconds, see `stop_limit`; of a stop that lasts, since:
        self._stopped_since: float | None = None
        self._looked_at = time.monotonic()  # by this process, which may be stopped as well
        self.wake, self._wake_end = os.pipe()
        self.pipes: dict[int, bytes] = {}  # file descriptor -> kind
        self.input: RankInput | None = None  # rank 0 only
        self._notes = b""  # the beginning of a line
        self._look_at, self._worked = float("inf"), 0  # when next, and ticks then; once it has left the job
        self._began = time.time()
        self._took = 0  # as was reported last

    def write(self, kind: bytes, payload: bytes) -> None:
        block = cells(self.nonce, self.rank, kind, payload)
        for start in range(0, len(block), BLOCK_SIZE):
            os.write(2, block[start : start + BLOCK_SIZE])
        if len(block) > BLOCK_SIZE:
            time.sleep(len(block) / MOST_PER_SECOND)

    def report(self, text: str) -> None:
        capacity = CELL_SIZE - 1 - header_size(self.nonce)
        self.write(REPORT, text.encode(errors="replace")[:capacity])

    def listen_to_signals(self) -> None:
        os.set_blocking(self.wake, False)
        os.set_blocking(self._wake_end, False)
        signal.set_wakeup_fd(self._wake_end)
        for signal_number in (*FORWARDED, signal.SIGCHLD):
            signal.signal(signal_number, lambda *_: None)

    def start(self, directory: str, command: list[str]) -> str:
        """Start the child; returns why it could not be started, or ""."""
        (out, out_end), (err, err_end), (failure, failure_end) = os.pipe(), os.pipe(), os.pipe()
        (value, value_end), (notes, notes_end) = os.pipe(), os.pipe()
        status = os.fstat(notes_end)
        os.environ[NOTES_VARIABLE] = f"{notes_end}:{status.st_dev}:{status.st_ino}"
        os.set_inheritable(notes_end, True)
        stdin, stdin_end = os.pipe() if self.rank == 0 else (0, -1)
        if PAYLOAD_VARIABLE in os.environ:
            os.environ[VALUE_VARIABLE] = str(value_end)
            os.set_inheritable(value_end, True)
        parent, self.child = os.getpid(), os.fork()
        if self.child == 0:
            code = NOT_FOUND
            try:
                code = self._become(parent, directory, command, (stdin, out_end, err_end), failure_end)
            except Exception as error:
                os.write(failure_end, f"{code} {error}".encode(errors="replace"))
            os._exit(code)  # of a copy of this wrapper that is no user's process: no exec took place
        for descriptor in (out_end, err_end, failure_end, value_end, notes_end):
            os.close(descriptor)
        self.pipes = {out: OUTPUT, err: ERROR, value: VALUE, notes: _NOTES}
        if self.rank == 0:
            os.close(stdin)
            self.input = RankInput(0, stdin_end)
        with open(failure, "rb") as file:  # closed by a successful exec
            return file.read().decode(errors="replace")

    def _become(
        self, parent: int, directory: str, command: list[str], streams: tuple[int, ...], failure: int
    ) -> int:
        """In the child: turn into the command, or write why not to `failure` and return an exit code."""
        code = NOT_FOUND
        try:
            end_with_parent(signal.SIGKILL)
            if os.getppid() != parent:  # it was killed before the kernel knew
                return code
            for signal_number in (*FORWARDED, signal.SIGCHLD, signal.SIGPIPE):
                signal.signal(signal_number, signal.SIG_DFL)
            what = f"the directory {directory} does not exist or cannot be entered"
            if PAYLOAD_VARIABLE not in os.environ or os.path.isdir(
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
        """Become the command. OSError where it cannot be."""
        os.execvp(command[0], command)

    def follow(self) -> int:
        """Pass output and input on until the child has ended; returns its wait status."""
        poll = select.poll()
        for descriptor in (self.wake, *self.pipes, *((self.input.source,) if self.input else ())):
            poll.register(descriptor, select.POLLIN)
        status: int | None = None
        while status is None:
            if self.kill_at is not None and time.monotonic() > self.kill_at:
                send(self.child, signal.SIGKILL)
            if self.input is not None and self.input.is_waiting():
                poll.register(self.input.target, select.POLLOUT)
            for descriptor, _ in poll.poll(self._milliseconds()):
                if descriptor == self.wake:
                    status = self._heed_signals()
                elif descriptor in self.pipes:
                    if not self._pass_on(descriptor):
                        poll.unregister(descriptor)
                elif not self._pass_in(descriptor):
                    poll.unregister(descriptor)
            self._give_sign_of_life()
            self._report_work()
            self._end_if_stopped()
        return status

    def _milliseconds(self) -> int | None:
        """Until something is to be done that no descriptor announces."""
        is_watched = self._stopped_since is not None and self._stop_limit != float("inf")
        if self.kill_at is not None or is_watched:
            return 100
        left = min(self.beat_at, self._look_at) - time.monotonic()
        return None if left == float("inf") else max(0, int(1e3 * left) + 1)

    def _give_sign_of_life(self) -> None:
        if time.monotonic() >= self.beat_at:
            self.report("alive")
            self._link.look()
            self.beat_at = time.monotonic() + BEAT

    def _heed_note(self, word: str) -> None:
        """From when it has left the job on, it is reported that it does something."""
        if word in ("outside", "leaving"):
            self._look_at, self._worked = time.monotonic() + BEAT, processor_time(self.child)
        elif word == "inside":
            self._look_at = float("inf")

    def _report_work(self) -> None:
        if time.monotonic() >= self._look_at:
            worked, self._worked = self._worked, processor_time(self.child)
            self._look_at = time.monotonic() + BEAT
            if self._worked - worked >= BUSY * BEAT * os.sysconf("SC_CLK_TCK"):
                self.report("busy")

    def _end_if_stopped(self) -> None:
        """In an elastic job, when it has been stopped for too long. A debugger's stop is not seen here."""
        now = time.monotonic()
        if now - self._looked_at > LONGEST_ROUND:  # we were stopped too: whoever did it lets both go on
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

    def _pass_in(self, descriptor: int) -> bool:
        """Standard input of the command, or room for it; False when that descriptor is to be left alone."""
        assert self.input is not None
        if descriptor == self.input.source:
            goes_on = self.input.receive()
        else:
            self.input.give()
            goes_on = False  # until something waits again
        if self.input.target < 0 and self._took >= 0:
            self._took = -1
            self.report("took -1")
        elif self.input.taken > self._took >= 0 and not self.input.is_waiting():
            self._took = self.input.taken
            self.report(f"took {self._took}")
        return goes_on

    def wait_to_be_told(self) -> None:
        """After a failure: leave the others' fate to horovodrun, for a while."""
        deadline = time.monotonic() + PATIENCE
        while not self.told and (left := deadline - time.monotonic()) > 0:
            if select.select([self.wake], [], [], min(left, BEAT))[0]:
                self.told = any(number in FORWARDED for number in os.read(self.wake, 64))
            self._give_sign_of_life()

    def _heed_signals(self) -> int | None:
        """Do what the signals say; returns the child's wait status if it has ended."""
        status = None
        for number in os.read(self.wake, 64):
            if number == signal.SIGCHLD:
                status = self._child_status() if status is None else status
            else:
                self.tell(number)  # also when the child was told beside us, and has ended of it already
        return status

    def _child_status(self) -> int | None:
        """The child's wait status if it has ended. That it was stopped, or goes on, is reported."""
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
        """Pass on what we were told. mpirun tells the whole process group, so the child may hear it twice."""
        self.told = True
        self.kill_at = self.kill_at or time.monotonic() + GRACE
        send(self.child, signal_number)

    def _pass_on(self, descriptor: int) -> bool:
        data = os.read(descriptor, 65536)
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
        return bool(data)

    def clean_up(self) -> None:
        """What mpirun does not do when it was killed, nor its daemon when it is cut off."""
        if os.getppid() != self._parent:
            remove_abandoned(self._began - START_SPREAD)
            host_memory.remove_abandoned()
        if self.beat_at != float("inf"):
            self._link.look_from_aside()

    def drain(self) -> None:
        """What is in the pipes now. They may never end: a process that the rank left behind may hold them."""
        while self.pipes and (ready := select.select(list(self.pipes), [], [], 0)[0]):
            for descriptor in ready:
                self._pass_on(descriptor)


def run(nonce: str, directory: str, command: list[str], kind: type[Rank] = Rank) -> int:
    rank, local_size = rank_and_local_size()
    if local_size > len(os.sched_getaffinity(0)):
        # Read by Open MPI only. A rank that waits must let another one work: 0.85 s instead of 12 s.
        os.environ.setdefault("OMPI_MCA_mpi_yield_when_idle", "1")
    if os.environ.get(BIND_VARIABLE) == "auto":
        from horovod.runner.binding import bind

        bind(local_rank(), local_size)
    this = kind(nonce, number_in_cells(rank), speaks_for_its_host())
    this.listen_to_signals()
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
        if code != 0 and AGENT_VARIABLE not in os.environ:
            this.wait_to_be_told()
        this.clean_up()
    except BrokenPipeError:  # mpirun is gone, and nobody hears us
        send(this.child, signal.SIGKILL)
        end_descendants()
        this.clean_up()
        return 1
    return 128 - code if code < 0 else code


if __name__ == "__main__":
    sys.exit(run(sys.argv[1], sys.argv[2], sys.argv[3:]))
