"""Runs one rank's command as a child, passes its output on in cells, and reports how it ended.

Started by mpirun as `python -I -S rank.py NONCE DIRECTORY COMMAND...`: standard library only and few imports,
so that it costs some 20 ms. It exists because neither mpirun's exit code (0 when a host is lost) nor its text
says reliably how ranks ended, and because no two MPIs tag output alike, or keep lines of different ranks
apart.

Everything goes through standard error, where every mpirun we know (Open MPI 4 and 5, MPICH, Intel MPI) keeps
a pipe and passes on what it read, in blocks of at most 4 or 64 KiB, in order per rank. Standard output would
not do: Open MPI puts a terminal there, which splits anywhere. Blocks of different ranks alternate, so a line
may be torn apart. A cell is not: cells have 512 bytes, and at most 4096 bytes are written at once, which a
pipe takes as a whole (PIPE_BUF); so every block that is read is a whole number of cells.

    cell   := magic rank:7 digits  kind:1  length:3 digits  payload  spaces up to 511 bytes  newline
    magic  := 0x02 "hvd" NONCE                   NONCE: 12 hexadecimal digits, fresh for each job
    kind   := "O" (standard output) | "E" (standard error) | "R" (report) | "V" (value: see `function_rank`)
    report := "started" host pid | "ended" code told | "killed" signal told | "refused" code reason...

`told` is 1 when this rank had been told to end (SIGTERM and the like) before it did: then it is not the
culprit. In payloads the bytes 0x0A (newline) and 0x1E are exchanged, because Open MPI 5 spends a buffer of
4 KiB and a write of its own on every line that it passes on.

The rank's end is the end of what it started: processes that it left behind are ended too.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time

CELL_SIZE = 512
BLOCK_SIZE = 4096  # PIPE_BUF of Linux: written as a whole
MOST_PER_SECOND = 32e6  # bytes; an mpirun that always has something to read neither writes nor heeds signals
OUTPUT, ERROR, REPORT, VALUE = b"O", b"E", b"R", b"V"
# For ranks that run a function: the name of its parcel, and the descriptor that its value is written to.
PARCEL_VARIABLE, VALUE_VARIABLE = "HOROVOD_RUN_PARCEL", "HOROVOD_RUN_VALUE"
RANK_VARIABLES = ("OMPI_COMM_WORLD_RANK", "PMI_RANK")
LOCAL_SIZE_VARIABLES = ("OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS")
FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
GRACE = 3.0  # seconds between telling a process to end and killing it
NOT_FOUND, NOT_EXECUTABLE = 127, 126  # what a shell answers

_EXCHANGE = bytes.maketrans(b"\n\x1e", b"\x1e\n")
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


def magic(nonce: str) -> bytes:
    return b"\x02hvd" + nonce.encode()


def header_size(nonce: str) -> int:
    return len(magic(nonce)) + 7 + 1 + 3


def exchanged(payload: bytes) -> bytes:
    """With newlines exchanged as cells have them; its own inverse."""
    return payload.translate(_EXCHANGE)


def cells(nonce: str, rank: int, kind: bytes, payload: bytes) -> bytes:
    """The payload as a whole number of cells."""
    capacity = CELL_SIZE - 1 - header_size(nonce)
    head = magic(nonce) + b"%07d" % rank + kind
    payload = exchanged(payload)
    parts = (payload[start : start + capacity] for start in range(0, len(payload), capacity))
    return b"".join((head + b"%03d" % len(part) + part).ljust(CELL_SIZE - 1) + b"\n" for part in parts)


def process_control(option: int, value: int) -> None:
    """prctl(2). Where it is missing (not Linux) processes that outlive their parent are not ended for us."""
    import ctypes

    if sys.platform == "linux" and ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option}, {value}) failed")


def adopt_orphans() -> None:
    """From now on, descendants whose parent ends become children of this process."""
    process_control(_PR_SET_CHILD_SUBREAPER, 1)


def end_with_parent(signal_number: int) -> None:
    """Have the kernel send this signal to this process when its parent ends."""
    process_control(_PR_SET_PDEATHSIG, signal_number)


def children() -> list[int]:
    """Process ids of this process' children that still run."""
    mine, found = os.getpid(), []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    state, parent = file.read().rpartition(b")")[2].split()[:2]
            except OSError:
                continue  # it ended while we looked
            if int(parent) == mine and state != b"Z":
                found.append(int(name))
    return found


def end_descendants(patience: float = 0.5, spare: frozenset[int] = frozenset()) -> None:
    """Wait for our children's end (but not `spare`), then SIGTERM, then SIGKILL. Needs adopt_orphans()."""
    for signal_number in (None, signal.SIGTERM, signal.SIGKILL):
        deadline = time.monotonic() + patience
        left = set(children()) - spare
        for pid in left:
            if signal_number is not None:
                send(pid, signal_number)
        while left and time.monotonic() < deadline:
            reap()
            time.sleep(0.01)
            left = set(children()) - spare
        if not left:
            return


def send(pid: int, signal_number: int) -> bool:
    """Send a signal; False when the process has ended already."""
    try:
        os.kill(pid, signal_number)
    except ProcessLookupError:
        return False
    return True


def reap() -> int:
    """Take leave of children that ended; returns how many."""
    count = 0
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            count += 1
    except ChildProcessError:
        return count
    return count


def place_among_ranks() -> tuple[int, int]:
    """Rank, and number of ranks on this host (0 when the launcher does not say)."""
    rank = next((os.environ[name] for name in RANK_VARIABLES if name in os.environ), None)
    if rank is None:
        sys.exit(
            f"horovodrun: mpirun set none of {', '.join(RANK_VARIABLES)}: it is none that horovodrun knows"
        )
    return int(rank), int(next((os.environ[n] for n in LOCAL_SIZE_VARIABLES if n in os.environ), 0))


class Rank:
    """One rank: its child, the two pipes the child writes to, and whether it has been told to end."""

    def __init__(self, nonce: str, rank: int) -> None:
        self.nonce = nonce
        self.rank = rank
        self.child = 0
        self.told = False
        self.kill_at: float | None = None
        self.wake, self._wake_end = os.pipe()
        self.pipes: dict[int, bytes] = {}  # file descriptor -> kind

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
        value, value_end = os.pipe()
        if PARCEL_VARIABLE in os.environ:
            os.environ[VALUE_VARIABLE] = str(value_end)
            os.set_inheritable(value_end, True)
        self.child = os.fork()
        if self.child == 0:
            self._become(directory, command, (out_end, err_end), failure_end)
        for descriptor in (out_end, err_end, failure_end, value_end):
            os.close(descriptor)
        self.pipes = {out: OUTPUT, err: ERROR, value: VALUE}
        with open(failure, "rb") as file:  # closed by a successful exec
            return file.read().decode(errors="replace")

    def _become(self, directory: str, command: list[str], output: tuple[int, int], failure: int) -> None:
        """In the child: turn into the command, or write why not to `failure`. Does not return."""
        code = NOT_FOUND
        try:
            end_with_parent(signal.SIGKILL)
            for signal_number in (*FORWARDED, signal.SIGCHLD, signal.SIGPIPE):
                signal.signal(signal_number, signal.SIG_DFL)
            what = f"the directory {directory} does not exist or cannot be entered"
            if PARCEL_VARIABLE not in os.environ or os.path.isdir(
                directory
            ):  # a function needs no shared folder
                os.chdir(directory)
            what = f"the command {command[0]} was not found (PATH is {os.environ.get('PATH', 'empty')})"
            os.dup2(output[0], 1)
            os.dup2(output[1], 2)
            os.execvp(command[0], command)
        except PermissionError:
            code = NOT_EXECUTABLE
            os.write(failure, f"{code} {what.replace('was not found', 'may not be executed')}".encode())
        except OSError as error:
            reason = what if isinstance(error, FileNotFoundError | NotADirectoryError) else str(error)
            os.write(failure, f"{code} {reason}".encode())
        finally:
            os._exit(code)  # of a copy of this wrapper that is no user's process: no exec took place

    def follow(self) -> int:
        """Pass output on until the child has ended; returns its wait status."""
        poll = select.poll()
        for descriptor in (self.wake, *self.pipes):
            poll.register(descriptor, select.POLLIN)
        status: int | None = None
        while status is None:
            if self.kill_at is not None and time.monotonic() > self.kill_at:
                send(self.child, signal.SIGKILL)
            for descriptor, _ in poll.poll(None if self.kill_at is None else 100):
                if descriptor == self.wake:
                    status = self._heed_signals()
                elif not self._pass_on(descriptor):
                    poll.unregister(descriptor)
        return status

    def _heed_signals(self) -> int | None:
        """Do what the signals say; returns the child's wait status if it has ended."""
        status = None
        for number in os.read(self.wake, 64):
            if number == signal.SIGCHLD and status is None:
                pid, waited = os.waitpid(self.child, os.WNOHANG)
                status = waited if pid else None
            elif number != signal.SIGCHLD:
                self.tell(number)  # also when the child was told beside us, and has ended of it already
        return status

    def tell(self, signal_number: int) -> None:
        """Pass on what we were told. mpirun tells the whole process group, so the child may hear it twice."""
        self.told = True
        self.kill_at = self.kill_at or time.monotonic() + GRACE
        send(self.child, signal_number)

    def _pass_on(self, descriptor: int) -> bool:
        data = os.read(descriptor, 65536)
        if data:
            self.write(self.pipes[descriptor], data)
        else:
            del self.pipes[descriptor]
            os.close(descriptor)
        return bool(data)

    def drain(self) -> None:
        """What is in the pipes now. They may never end: a process that the rank left behind may hold them."""
        while self.pipes and (ready := select.select(list(self.pipes), [], [], 0)[0]):
            for descriptor in ready:
                self._pass_on(descriptor)


def run(nonce: str, directory: str, command: list[str]) -> int:
    rank, local_size = place_among_ranks()
    if local_size > len(os.sched_getaffinity(0)):
        # Read by Open MPI only. A rank that waits must let another one work: 0.85 s instead of 12 s.
        os.environ.setdefault("OMPI_MCA_mpi_yield_when_idle", "1")
    this = Rank(nonce, rank)
    this.listen_to_signals()
    end_with_parent(signal.SIGTERM)
    adopt_orphans()
    failure = this.start(directory, command)
    this.report(f"started {os.uname().nodename} {this.child}")
    if failure:
        this.report(f"refused {failure}")
        return int(failure.split()[0])
    try:
        status = this.follow()
        this.drain()
        code = os.waitstatus_to_exitcode(status)
        this.report(f"killed {-code} {this.told:d}" if code < 0 else f"ended {code} {this.told:d}")
        end_descendants()
        this.drain()
    except BrokenPipeError:  # mpirun is gone, and nobody hears us
        send(this.child, signal.SIGKILL)
        end_descendants()
        return 1
    return 128 - code if code < 0 else code


if __name__ == "__main__":
    sys.exit(run(sys.argv[1], sys.argv[2], sys.argv[3:]))
