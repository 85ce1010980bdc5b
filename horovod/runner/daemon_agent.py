"""Starts mpirun's daemon on another host over ssh, and gives it our environment through ssh's own channel.

Ranks inherit it from the daemon. mpirun would send it in its own messages, which everybody on the network can
read; on a command line, everybody on the host. Run by its path, standard library only:

    daemon_agent.py SSH-OPTION.. -- HOST WORD..   here, by mpirun: becomes ssh, whose input is the environment
    daemon_agent.py --there DAEMON ARGUMENT..     there, by ssh: takes it, and runs mpirun's daemon

    input := MAGIC  length:8 bytes  variables (NAME=VALUE, each ended by a zero byte)
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import BinaryIO, NoReturn

VERBOSE_VARIABLE = "HOROVOD_RUN_VERBOSE"
THERE, END_OF_OPTIONS = "--there", "--"
MAGIC = b"horovodrun environment\n"
# mpirun has put its own folders first there, which its daemon needs.
_EXTENDED = (b"LD_LIBRARY_PATH", b"DYLD_LIBRARY_PATH")
NOT_UNDERSTOOD, NOT_STARTED = 203, 127


def packed(variables: Iterable[tuple[bytes, bytes]]) -> bytes:
    data = b"".join(name + b"=" + value + b"\0" for name, value in variables)
    return MAGIC + len(data).to_bytes(8, "big") + data


def unpacked(stream: BinaryIO) -> dict[bytes, bytes]:
    """ValueError when the stream holds something else, or less."""
    if stream.read(len(MAGIC)) != MAGIC:
        raise ValueError("it does not begin as it should")
    length = stream.read(8)
    data = stream.read(int.from_bytes(length, "big"))
    if len(length) != 8 or len(data) != int.from_bytes(length, "big"):
        raise ValueError(f"it ends after {len(data)} bytes")
    entries = (entry.partition(b"=") for entry in data.split(b"\0")[:-1])
    return {name: value for name, _, value in entries}


def merged(own: Mapping[bytes, bytes], given: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
    """The environment of the daemon: what it was given goes before the host's own."""
    result = {**own, **given}
    for name in _EXTENDED:
        if name in own and name in given:
            folders = dict.fromkeys([*own[name].split(b":"), *given[name].split(b":")])
            result[name] = b":".join(folder for folder in folders if folder)
    return result


def words_for_ssh(words: Sequence[str]) -> list[str]:
    """mpirun's words for its agent as those for ssh, with this program before the daemon.

    The first word of the command may set variables in the language of the user's shell before it names the
    daemon, and goes to that shell as it is.
    """
    end = words.index(END_OF_OPTIONS)
    host, first, *rest = words[end + 1 :]
    settings, semicolon, daemon = first.rpartition(";")
    start = shlex.join([sys.executable, "-I", "-S", __file__, THERE])
    return ["ssh", *words[: end + 1], host, f"{settings}{semicolon}{start} {daemon.strip()}", *rest]


def _become_ssh(words: Sequence[str]) -> NoReturn:
    from horovod.runner.forwarding import forwarded_variables

    names = map(os.fsencode, forwarded_variables(os.environ))
    data = packed((name, os.environb[name]) for name in names)
    os.dup2(_readable(data), 0)
    command = words_for_ssh(words)
    os.execvp(command[0], command)


def _readable(data: bytes) -> int:
    """A descriptor that the data can be read from, in a file that has no name."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("environment")
    else:
        import tempfile

        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    with open(descriptor, "wb", closefd=False) as file:
        file.write(data)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def not_understood(error: ValueError) -> str:
    """What to say where something else has come."""
    return (
        f"horovodrun: the environment did not reach {os.uname().nodename}: {error}; likely a login "
        "script there (.bashrc and the like) reads its standard input, which is ssh's: have it leave "
        "that alone"
    )


def own_environment() -> Mapping[bytes, bytes]:
    """As this program was given it: Python adds LC_CTYPE where the host's locale is C."""
    try:
        with open("/proc/self/environ", "rb") as file:
            entries = file.read().split(b"\0")
    except OSError:
        return os.environb
    return {name: value for name, equals, value in (entry.partition(b"=") for entry in entries) if equals}


def _run_daemon(command: Sequence[str]) -> NoReturn:
    """As its parent, as long as it runs: parents may say what it listens on (see `listeners`)."""
    from horovod.common.listeners import DAEMONS_VARIABLE, narrow_process

    try:
        given = unpacked(sys.stdin.buffer)
    except ValueError as error:
        print(not_understood(error), file=sys.stderr)
        sys.exit(NOT_UNDERSTOOD)
    environment = merged(own_environment(), given)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    networks = given.get(DAEMONS_VARIABLE.encode(), b"").decode()
    if not networks:
        os.execvpe(command[0], list(command), environment)
    child = os.fork()
    if child == 0:
        try:
            os.execvpe(command[0], list(command), environment)
        finally:
            os._exit(NOT_STARTED)  # of this copy; the reason is on standard error
    why = narrow_process(child, networks)
    if why and VERBOSE_VARIABLE.encode() in given:
        host = os.uname().nodename
        print(f"horovodrun: mpirun's daemon listens on all networks of {host}: {why}", file=sys.stderr)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    sys.exit(128 - code if code < 0 else code)


if __name__ == "__main__":
    sys.path.insert(0, os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), *[".."] * 2)))
    if sys.argv[1] == THERE:
        _run_daemon(sys.argv[2:])
    else:
        _become_ssh(sys.argv[1:])
