"""A process that has loaded torch, and makes ranks by fork: `warm_server.py DESCRIPTOR`.

Ranks that are started again (`--elastic-restart`) need not load torch again. An agent starts the server with
the ranks' interpreter and environment, and sends requests by the socket DESCRIPTOR (see `warm`). The server
forks a rank's wrapper, which the agent adopts. The wrapper runs the script in a child, as the interpreter
would: its `__main__`, sys.argv, sys.path, signals, standard streams, descriptors and exit are those of a new
process.

The server starts no threads and computes nothing, as a fork would lose both.
"""

from __future__ import annotations

import importlib.machinery
import json
import os
import runpy
import signal
import socket
import sys
import threading
import time
import types
import warnings
from collections.abc import Sequence
from typing import Any

if __name__ == "__main__":
    del sys.path[0]  # the folder of this file, which a script does not have there

_MOST = 1 << 20
_CHANNEL = "HOROVOD_AGENT"
_OWN_FILES = (__file__, runpy.__file__, "<frozen runpy>")
_THREADS = "OMP_NUM_THREADS"
_threads_at_load = os.environ.get(_THREADS, "")
_CANNOT_OPEN = 2  # the interpreter's exit code if there is no such script


class _Forked(BaseException):
    """Raised in the child that runs the script, to leave all frames on the stack."""

    def __init__(self, words: Sequence[str]) -> None:
        self.words = list(words)  # the command's


def serve(control: socket.socket) -> None:
    """Make wrappers until the agent is gone. Raises _Forked in a rank's own process."""
    from horovod.runner.agents import wrapper

    class WarmRank(wrapper.Rank):
        """A rank whose command is a script for this interpreter, not another program."""

        def execute(self, command: list[str]) -> None:
            _forget_wrapper(kept)
            raise _Forked(command)

    agent, kept = os.getppid(), _descriptors() - {control.fileno()}
    while True:
        text, descriptors, _, _ = socket.recv_fds(control, _MOST, 4)
        if not text:
            return
        asked = json.loads(text)
        maker = _fork()
        if maker == 0:
            pid = _fork()
            if pid:  # this parent ends, so that the agent adopts the wrapper
                os._exit(_answer(control, asked["worker"], pid) if pid > 0 else 1)
            control.close()
            _become_wrapper(agent, descriptors, asked["variables"])
            directory, *command = asked["words"]
            os._exit(wrapper.run(directory, command, WarmRank))
        for descriptor in descriptors:
            os.close(descriptor)
        if maker < 0 or os.waitpid(maker, 0)[1] != 0:  # the fork failed, or the maker was killed
            _answer(control, asked["worker"], 0)


def _answer(control: socket.socket, worker: int, pid: int) -> int:
    """Send an answer to the agent; return the exit code of this process."""
    try:
        control.send(json.dumps({"worker": worker, "pid": pid}).encode())
    except OSError as error:  # the agent has ended: then all processes that it started end
        print(f"horovodrun: the agent does not hear of a rank: {error.strerror}", file=sys.stderr)
        return 1
    return 0


def _fork() -> int:
    """As os.fork, but -1 if the kernel allows no more processes."""
    with warnings.catch_warnings():  # of OpenBLAS' threads, which end before a fork
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            return os.fork()
        except OSError as error:
            print(f"horovodrun: a rank cannot be forked: {error.strerror}", file=sys.stderr)
            return -1


def _become_wrapper(agent: int, descriptors: Sequence[int], variables: dict[str, str]) -> None:
    """Do what streams.spawn does by exec: set session, streams, channel and environment."""
    from horovod.common.time_limits import WARM_ADOPTION

    until = time.monotonic() + WARM_ADOPTION
    while os.getppid() != agent:
        if time.monotonic() > until:
            os._exit(1)
        time.sleep(0.0005)
    os.setsid()
    *streams, channel = descriptors
    for standard, descriptor in enumerate(streams):
        os.dup2(descriptor, standard)
        os.close(descriptor)
    os.set_inheritable(channel, True)
    os.environ.update(variables)
    status = os.fstat(channel)
    os.environ[_CHANNEL] = f"{channel}:{status.st_dev}:{status.st_ino}"


def _descriptors() -> set[int]:
    found = {int(name) for name in os.listdir("/proc/self/fd")}
    return {descriptor for descriptor in found if _is_open(descriptor)}  # without listdir's own


def _is_open(descriptor: int) -> bool:
    try:
        return bool(os.fstat(descriptor))
    except OSError:
        return False


def _forget_wrapper(kept: set[int]) -> None:
    """Close descriptors and reset signals, as exec would."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    for descriptor in _descriptors() - kept:
        if not os.get_inheritable(descriptor):
            os.close(descriptor)


def run_script(words: list[str], callers: Sequence[str] = ()) -> None:
    """Run `[-u] SCRIPT ARGUMENTS...` or `[-u] -m MODULE ARGUMENTS...`, as the interpreter does.

    `callers`: files whose frames tracebacks must not show.
    """
    differ_from_server()
    words = words[1:] if words[0] == "-u" else words
    if words[0] == "-m":
        sys.argv = words[1:]
        _search_first(os.getcwd())
        leave_out_frames([*callers, *_OWN_FILES])
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        return
    sys.argv = words
    _search_first(os.path.dirname(os.path.realpath(words[0])))
    try:
        with open(words[0], "rb") as file:
            source = file.read()
    except OSError as error:
        what = f"{os.path.abspath(words[0])!r}: [Errno {error.errno}] {error.strerror}"
        print(f"{sys.executable}: can't open file {what}", file=sys.stderr)
        raise SystemExit(_CANNOT_OPEN) from None
    main: Any = types.ModuleType("__main__")
    main.__file__, main.__builtins__ = words[0], sys.modules["builtins"]
    main.__loader__ = importlib.machinery.SourceFileLoader("__main__", words[0])
    sys.modules["__main__"] = main
    leave_out_frames([*callers, *_OWN_FILES])
    exec(compile(source, words[0], "exec"), main.__dict__)


def differ_from_server() -> None:
    """Set what differs in a new process: random numbers, the number of threads, and the start folder for
    processes that it spawns.
    """
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed()
    if torch := sys.modules.get("torch"):
        torch.seed()
    spawning: Any = sys.modules.get("multiprocessing.process")
    if spawning is not None:
        spawning.ORIGINAL_DIR = os.getcwd()
    _heed_number_of_threads()


def _heed_number_of_threads() -> None:
    """Set the number of threads, which OpenMP read when torch was loaded, before `--bind auto` set it."""
    told, torch = os.environ.get(_THREADS, ""), sys.modules.get("torch")
    first = told.partition(",")[0].strip()  # of a list: the others are for nested loops
    if torch is not None and told != _threads_at_load and first.isdecimal() and int(first) > 0:
        torch.set_num_threads(int(first))


def _search_first(folder: str) -> None:
    if not getattr(sys.flags, "safe_path", False):  # since Python 3.11
        sys.path.insert(0, folder)


def leave_out_frames(files: Sequence[str]) -> None:
    """Make tracebacks begin with the script; the previous hook (horovod's too) then shows them."""
    shown_by = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, traceback: types.TracebackType | None) -> None:
        while traceback is not None and traceback.tb_frame.f_code.co_filename in files:
            traceback = traceback.tb_next
        shown_by(kind, error.with_traceback(traceback), traceback)

    sys.excepthook = hook


def load() -> None:
    from horovod.torch.elastic import load_compiler

    load_compiler()


def main(descriptor: int) -> None:
    try:
        load()
    except Exception as error:
        print(f"horovodrun: torch and horovod cannot be loaded before ranks are: {error}", file=sys.stderr)
        os._exit(1)
    if threading.active_count() > 1:
        print("horovodrun: torch has started threads, and cannot be loaded before ranks are", file=sys.stderr)
        os._exit(1)
    try:
        serve(socket.socket(fileno=descriptor))
    except _Forked as forked:
        words = forked.words
    else:
        os._exit(0)
    run_script(words[1:])


if __name__ == "__main__":
    main(int(sys.argv[1]))
