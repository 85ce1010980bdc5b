"""A process that has loaded torch, and of which ranks are made by fork: `warm_server.py DESCRIPTOR`.

For ranks that are started again (`--elastic-restart`): they need not load it anew. An agent starts it, with
the interpreter and the environment of the ranks, and asks by the socket DESCRIPTOR (see `warm`). The process
that it makes is a rank's wrapper, a child of the agent as others are. That runs the rank's script in a child
of its own, as the interpreter would: its `__main__`, sys.argv, sys.path, signals, standard streams,
descriptors and end are those of a process that was started anew.

It starts no threads, and computes nothing, as that would be lost in the fork.
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
    del sys.path[0]  # the folder of this file, which no script would have there

_MOST = 1 << 20
_CHANNEL = "HOROVOD_AGENT"
_OWN_FILES = (__file__, runpy.__file__, "<frozen runpy>")
_THREADS = "OMP_NUM_THREADS"
_threads_at_load = os.environ.get(_THREADS, "")
_CANNOT_OPEN = 2  # what the interpreter answers where there is no such script


class _Forked(BaseException):
    """This is the child that shall run the script: leave all that is above it on the stack."""

    def __init__(self, words: Sequence[str]) -> None:
        self.words = list(words)  # of the command


def serve(control: socket.socket) -> None:
    """Make wrappers, until the agent is gone. Raises _Forked in a rank's own process."""
    from horovod.runner.agents import wrapper

    class WarmRank(wrapper.Rank):
        """Its command is no program of its own, but a script for this interpreter."""

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
            if pid:  # whose parent is to be the agent
                os._exit(_answer(control, asked["worker"], pid) if pid > 0 else 1)
            control.close()
            _become_wrapper(agent, descriptors, asked["variables"])
            directory, *command = asked["words"]
            os._exit(wrapper.run(directory, command, WarmRank))
        for descriptor in descriptors:
            os.close(descriptor)
        if maker < 0 or os.waitpid(maker, 0)[1] != 0:  # no room for another process, or it was killed
            _answer(control, asked["worker"], 0)


def _answer(control: socket.socket, worker: int, pid: int) -> int:
    """To the agent. Returns the exit code of the process that was to do only this."""
    try:
        control.send(json.dumps({"worker": worker, "pid": pid}).encode())
    except OSError as error:  # the agent has ended: so does whatever it has started
        print(f"horovodrun: the agent does not hear of a rank: {error.strerror}", file=sys.stderr)
        return 1
    return 0


def _fork() -> int:
    """As os.fork, but -1 where the kernel allows no more processes."""
    with warnings.catch_warnings():  # of OpenBLAS' threads, which it ends before, and begins after
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            return os.fork()
        except OSError as error:
            print(f"horovodrun: a rank cannot be forked: {error.strerror}", file=sys.stderr)
            return -1


def _become_wrapper(agent: int, descriptors: Sequence[int], variables: dict[str, str]) -> None:
    """As streams.spawn does it by exec: a session of its own, streams, the channel, the environment."""
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
    """Does as exec would: descriptors that are not inherited are closed, and signals are as they begin."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    for descriptor in _descriptors() - kept:
        if not os.get_inheritable(descriptor):
            os.close(descriptor)


def run_script(words: list[str], callers: Sequence[str] = ()) -> None:
    """`[-u] SCRIPT ARGUMENTS...` or `[-u] -m MODULE ARGUMENTS...`, as the interpreter runs it.

    `callers`: files whose frames no traceback shows either.
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
    """Do what a new process does: draw other random numbers, heed the number of threads, and note the folder
    that it starts in, for the processes that it spawns.
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
    """OpenMP has read its variable when torch was loaded, and `--bind auto` sets it for each rank."""
    told, torch = os.environ.get(_THREADS, ""), sys.modules.get("torch")
    first = told.partition(",")[0].strip()  # of a list: the others are for loops within loops
    if torch is not None and told != _threads_at_load and first.isdecimal() and int(first) > 0:
        torch.set_num_threads(int(first))


def _search_first(folder: str) -> None:
    if not getattr(sys.flags, "safe_path", False):  # since Python 3.11
        sys.path.insert(0, folder)


def leave_out_frames(files: Sequence[str]) -> None:
    """Have tracebacks begin with the script, as they would; horovod's own hook goes on from there."""
    shown_by = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, traceback: types.TracebackType | None) -> None:
        while traceback is not None and traceback.tb_frame.f_code.co_filename in files:
            traceback = traceback.tb_next
        shown_by(kind, error.with_traceback(traceback), traceback)

    sys.excepthook = hook


def load() -> None:
    """The modules that ranks would load."""
    from horovod.torch.elastic.preload import load_compiler

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
