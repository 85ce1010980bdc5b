"""Load torch, pytest and this package once, and run the programs of other processes in forks of this one.

    python warm_server.py SOCKET

A process that connects (warm_python.py) sends its sys.prefix and its inheritable descriptors. Its words,
environment, folder and limits come from the kernel. The fork takes all of these. A program therefore sees
what it would see in that process, except its process id, parent, session and hash seed. A process runs its
program itself if it has other namespaces, or other variables that are read when Python starts.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib
import os
import resource
import selectors
import signal
import socket
import struct
import sys
import types
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from warm_python import ACCEPTED, PASSED_ON, VARIABLE

LOADED = [
    "hypothesis", "numpy", "pytest",
    "torch.distributed", "torch.distributed.launcher.api", "torch.nn.parallel", "torch.utils.data",
    "horovod.torch", "horovod.torch.ddp", "horovod.torch.elastic",
]  # fmt: skip
NAMESPACES = ("cgroup", "ipc", "mnt", "net", "pid", "user", "uts")
LIMITS = (resource.RLIMIT_CORE, resource.RLIMIT_NOFILE, resource.RLIMIT_FSIZE, resource.RLIMIT_AS)
# Read when a process starts or loads a library. A fork keeps its own, so these have to be equal.
AT_START = (
    b"LC_", b"LANG", b"LD_PRELOAD", b"PYTHON", b"TORCH_", b"KMP_", b"MKL_", b"GLIBC_", b"MALLOC_", b"ASAN_",
    b"COVERAGE",
)  # fmt: skip
TAKEN_OVER = {b"PYTHONPATH", b"PYTHONUNBUFFERED", b"TORCH_NCCL_ASYNC_ERROR_HANDLING"}  # read later, too
PACKAGE = Path(__file__).resolve().parents[2] / "horovod"
OWN_FOLDERS = {PACKAGE / "runner", PACKAGE / "runner" / "agents"}  # function_rank.py, warm_server.py, ...
HIGH = 700  # no program has a descriptor beyond it

Environment = dict[bytes, bytes]


class Forked(BaseException):
    """Raised in the fork that runs the program, to leave all frames above on the stack."""

    def __init__(self, words: list[str], is_unbuffered: bool, environment: Environment) -> None:
        self.words, self.is_unbuffered, self.environment = words, is_unbuffered, environment


class Client:
    """The process whose program a fork runs."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        format_ = "iII"
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize(format_))
        self.pid, self.user, _ = struct.unpack(format_, credentials)
        self.program = 0  # its process id; 0: not started
        self.has_ended = False

    def read(self, name: str) -> bytes:
        return Path(f"/proc/{self.pid}/{name}").read_bytes()

    def words(self) -> list[str]:
        return [os.fsdecode(word) for word in self.read("cmdline").split(b"\0")[:-1]]

    def environment(self) -> Environment:
        pairs = (line.split(b"=", 1) for line in self.read("environ").split(b"\0") if b"=" in line)
        return {name: value for name, value in pairs}

    def is_like_us(self) -> bool:
        if self.user != os.getuid() or self.pid == 0:
            return False
        theirs, ours = self.environment(), dict(os.environb)
        return (
            all(
                os.readlink(f"/proc/{self.pid}/ns/{name}") == os.readlink(f"/proc/self/ns/{name}")
                for name in NAMESPACES
            )
            and os.readlink(f"/proc/{self.pid}/root") == os.readlink("/proc/self/root")
            and os.readlink(f"/proc/{self.pid}/exe") == os.readlink("/proc/self/exe")
            and _read_at_start(theirs) == _read_at_start(ours)
            and _same_packages(theirs, ours)
        )


def _read_at_start(environment: Environment) -> Environment:
    names = [name for name in environment if name.startswith(AT_START) and name not in TAKEN_OVER]
    return {name: environment[name] for name in names}


def _same_packages(theirs: Environment, ours: Environment) -> bool:
    """Return whether no folder of the client alone has a package that was loaded from elsewhere."""
    more = {*_folders(theirs)} - {*_folders(ours)}
    loaded = ("horovod", "torch", "numpy", "pytest", "lean_torch.py", "sitecustomize.py")
    mine = {str(Path(sys.path[0]))}
    return not any(Path(folder, name).exists() for folder in more - mine for name in loaded)


def _folders(environment: Environment) -> list[str]:
    return [os.fsdecode(folder) for folder in environment.get(b"PYTHONPATH", b"").split(b":") if folder]


def program_of(words: list[str]) -> list[str]:
    """Return the words after `python` and -u: `SCRIPT ...`, `-m MODULE ...` or `-c CODE ...`.

    Returns [] for other forms, and for programs of this package that must be the parents of others.
    """
    words = words[1:]
    if words[:1] == ["-u"]:
        words = words[1:]
    if words[:1] in (["-m"], ["-c"]):
        is_ours = words[1:2] == [] or words[1].startswith("horovod.") or "horovod.runner" in words[1]
        return [] if is_ours else words
    is_script = bool(words) and not words[0].startswith("-")
    return words if is_script and Path(words[0]).parent not in OWN_FOLDERS else []


def serve(listening: socket.socket, parent: int) -> None:
    """Serve until the parent has ended. Raises Forked in a program's process."""
    selector = selectors.DefaultSelector()
    selector.register(listening, selectors.EVENT_READ)
    selector.register(parent, selectors.EVENT_READ)
    while True:
        for key, _ in selector.select():
            if key.fd == parent:
                _end_programs(selector)
                return
            if key.fileobj is listening:
                connection, _address = listening.accept()
                selector.register(connection, selectors.EVENT_READ, Client(connection))
            elif key.fileobj is key.data.connection:
                _heard(key.data, selector)
            else:
                _ended(key.fd, key.data, selector)


def _heard(client: Client, selector: selectors.BaseSelector) -> None:
    if client.connection.fileno() < 0:  # its program has ended in this round
        return
    if client.program:
        signals = client.connection.recv(64)  # for the program; empty: the client has ended
        for number in signals or [signal.SIGKILL]:
            os.kill(client.program, number)
        if not signals:
            client.has_ended = True
            selector.unregister(client.connection)
        return
    text, descriptors, _, _ = socket.recv_fds(client.connection, 4096, 250)
    prefix, *numbers = text.decode().split(",")
    try:
        words, environment = client.words(), client.environment()
        is_taken = prefix == sys.prefix and bool(program_of(words)) and client.is_like_us()
    except OSError:  # the client has ended
        is_taken = False
    if is_taken:
        client.program = os.fork()
        if client.program == 0:
            _become(client, dict(zip(map(int, numbers), descriptors, strict=True)))
            raise Forked(program_of(words), "-u" in words[:2], environment)
        with contextlib.suppress(BrokenPipeError):  # it has just ended, which the socket reports next
            client.connection.send(ACCEPTED)
        selector.register(os.pidfd_open(client.program), selectors.EVENT_READ, client)
    for descriptor in descriptors:
        os.close(descriptor)
    if not is_taken:
        selector.unregister(client.connection)
        client.connection.close()


def _ended(pidfd: int, client: Client, selector: selectors.BaseSelector) -> None:
    _, status = os.waitpid(client.program, 0)
    selector.unregister(pidfd)
    os.close(pidfd)
    if not client.has_ended:
        selector.unregister(client.connection)
        with contextlib.suppress(BrokenPipeError):  # it has just ended
            client.connection.send(str(status).encode())
    client.connection.close()


def _end_programs(selector: selectors.BaseSelector) -> None:
    """Kill programs whose test process has ended."""
    for key in selector.get_map().values():
        if isinstance(key.data, Client) and key.data.program:
            os.kill(key.data.program, signal.SIGKILL)


def _become(client: Client, descriptors: dict[int, int]) -> None:
    """Take over everything of the client except its environment."""
    os.setsid()
    high = {number: fcntl.fcntl(ours, fcntl.F_DUPFD_CLOEXEC, HIGH) for number, ours in descriptors.items()}
    os.closerange(0, HIGH)
    for number, ours in high.items():
        os.dup2(ours, number, inheritable=True)
        os.close(ours)
    os.chdir(f"/proc/{client.pid}/cwd")
    status = dict(line.split(b":\t", 1) for line in client.read("status").splitlines())
    umask, signals_ignored = status[b"Umask"], int(status[b"SigIgn"], 16)
    os.umask(int(umask, 8))
    for number in PASSED_ON:
        if signals_ignored >> (number - 1) & 1:
            signal.signal(number, signal.SIG_IGN)
    os.sched_setaffinity(0, os.sched_getaffinity(client.pid))
    for limit in LIMITS:
        resource.prlimit(0, limit, resource.prlimit(client.pid, limit))


def run(forked: Forked) -> None:
    import torch

    from horovod import torch_autoload
    from horovod.runner.agents import warm_server

    before = _folders(dict(os.environb))
    os.environb.clear()
    os.environb.update(forked.environment)
    sys.path[:] = [
        *_folders(forked.environment),
        *(folder for folder in sys.path[1:] if folder not in before),
    ]
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(len(os.sched_getaffinity(0)))
    torch_autoload.load()  # as torch does at the end of its import, by the environment
    is_unbuffered = forked.is_unbuffered or bool(os.environ.get("PYTHONUNBUFFERED"))
    sys.stdout.reconfigure(write_through=is_unbuffered)  # type: ignore[union-attr]
    if forked.words[0] != "-c":
        warm_server.run_script(forked.words, [__file__])
        return
    sys.argv = ["-c", *forked.words[2:]]
    sys.path.insert(0, "")
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    main.__dict__["__builtins__"] = sys.modules["builtins"]
    warm_server.differ_from_server()
    warm_server.leave_out_frames([__file__])
    exec(compile(forked.words[1], "<string>", "exec"), main.__dict__)


def main(path: str) -> None:
    os.environ.pop(VARIABLE, None)
    for name in LOADED:
        importlib.import_module(name)
    importlib.import_module("horovod.torch.elastic").load_compiler()
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listening.bind(path)
    listening.listen(64)
    print("ready", flush=True)
    serve(listening, sys.stdin.fileno())


if __name__ == "__main__":
    try:
        main(sys.argv[1])
    except Forked as program:
        forked = program
    else:
        os._exit(0)
    run(forked)
