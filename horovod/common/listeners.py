"""Narrows sockets that listen on all addresses of a host to the networks of a job.

Open MPI lets one choose which addresses it tells its peers, but always listens on all of them. What a socket
takes can be changed afterwards: by the process that has it (`narrowed`), or by its parent
(`narrow_process`). A socket for this host alone is bound to the loopback device. Others get a packet filter:
what comes in by other ways is as if nobody listened. Linux only; standard library only.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
import struct
import time
import warnings
from collections.abc import Iterator, Sequence
from ipaddress import IPv4Network

from horovod.common import errors

# What the ranks, and mpirun's daemons, are told: interfaces, and networks as 10.0.0.0/8; LOOPBACK for none.
RANKS_VARIABLE, DAEMONS_VARIABLE = "HOROVOD_RUN_NETWORKS", "HOROVOD_RUN_DAEMON_NETWORKS"
LOOPBACK = "lo"

_LISTEN = "0A"  # a state in /proc/net/tcp
_PIDFD_GETFD = 438  # since Linux 5.6, the same number everywhere
SO_BINDTODEVICE, _SO_ATTACH_FILTER = 25, 26
_IPV4 = 0x0800
# Classic BPF. Negative offsets: what is known of the packet, and where its network header begins.
_LOAD, _AND, _EQUALS, _RETURN = 0x20, 0x54, 0x15, 0x06
_PROTOCOL, _INTERFACE, _DESTINATION = 0xFFFFF000, 0xFFFFF008, 0xFFF00010
_DROP, _TAKE = (_RETURN, 0, 0, 0), (_RETURN, 0, 0, 0xFFFFFFFF)
_POLL, _LONGEST_POLL, _SETTLED = 0.005, 0.1, 3.0  # seconds


def program(interfaces: Sequence[int], networks: Sequence[IPv4Network]) -> list[tuple[int, int, int, int]]:
    """A filter that takes what comes in by these interfaces, or for an address in these networks."""
    code = [(_LOAD, 0, 0, _INTERFACE)]
    for number in interfaces:
        code += [(_EQUALS, 0, 1, number), _TAKE]
    code += [(_LOAD, 0, 0, _PROTOCOL), (_EQUALS, 1, 0, _IPV4), _DROP]
    for network in networks:
        code += [(_LOAD, 0, 0, _DESTINATION), (_AND, 0, 0, int(network.netmask))]
        code += [(_EQUALS, 0, 1, int(network.network_address)), _TAKE]
    return [*code, _DROP]


def attach(listener: socket.socket, code: Sequence[tuple[int, int, int, int]]) -> None:
    packed = b"".join(struct.pack("HBBI", *instruction) for instruction in code)
    buffer = ctypes.create_string_buffer(packed, len(packed))
    described = struct.pack("HP", len(code), ctypes.addressof(buffer))
    listener.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, described)


def narrow(listener: socket.socket, networks: Sequence[str]) -> None:
    """OSError when the system does not let us, or none of the networks can be of this host."""
    if list(networks) == [LOOPBACK]:
        with contextlib.suppress(PermissionError):  # before Linux 5.7 for root only; then the filter does it
            listener.setsockopt(socket.SOL_SOCKET, SO_BINDTODEVICE, LOOPBACK.encode())
            return
    here = {name: number for number, name in socket.if_nameindex()}
    inside = [IPv4Network(word, strict=False) for word in networks if "/" in word]
    named = [here[word] for word in networks if word in here]
    if not inside and not named:
        raise errors.none_of_interfaces(interfaces=list(networks))
    attach(listener, program([here[LOOPBACK], *named], inside))


def listening(process: int | str = "self") -> dict[str, int]:
    """Socket (its inode) -> descriptor, for all that listen on every address in that process."""
    inodes = set()
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(FileNotFoundError), open(f"/proc/{process}/net/{table}") as file:
            for row in file.read().splitlines()[1:]:
                columns = row.split()
                if columns[3] == _LISTEN and not columns[1].partition(":")[0].strip("0"):
                    inodes.add(columns[9])
    found = {}
    for descriptor in os.listdir(f"/proc/{process}/fd"):
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            target = os.readlink(f"/proc/{process}/fd/{descriptor}")
            if target.startswith("socket:[") and target[8:-1] in inodes:
                found[target[8:-1]] = int(descriptor)
    return found


def parsed(networks: str) -> list[str]:
    return [word for word in networks.split(",") if word]


@contextlib.contextmanager
def narrowed(networks: str) -> Iterator[None]:
    """What this process began to listen on during the block is narrowed at its end; nothing for no networks.

    Warns where the system does not let us.
    """
    if not networks or not os.path.isdir("/proc/self/fd"):
        yield
        return
    before = listening()
    yield
    for inode, descriptor in listening().items():
        # Python has its own closed in programs that it starts, MPI does not: no other thread's is meant.
        if inode not in before and os.get_inheritable(descriptor):
            with socket.socket(fileno=os.dup(descriptor)) as listener:
                try:
                    narrow(listener, parsed(networks))
                except OSError as error:
                    warnings.warn(f"MPI listens on all networks of this host: {error}", stacklevel=3)


def narrow_process(process: int, networks: str, patience: float = 60.0) -> str:
    """Wait until a child of ours listens, and narrow that and what it opens soon after.

    Returns why that could not be done, or "".

    Children of the same program count as the process: mpirun's daemon goes on in one.
    """
    done: set[str] = set()
    end = time.monotonic() + patience
    pause = _POLL
    try:
        while time.monotonic() < end and not _has_ended(process):
            for one in _of_one_program(process):
                for inode, descriptor in listening(one).items():
                    if inode not in done:
                        with socket.socket(fileno=taken(one, descriptor)) as listener:
                            narrow(listener, parsed(networks))
                        done.add(inode)
                        end, pause = time.monotonic() + _SETTLED, _POLL
            time.sleep(pause)
            pause = min(1.2 * pause, _LONGEST_POLL)
    except (FileNotFoundError, ProcessLookupError):  # it has ended
        return ""
    except (AttributeError, OSError) as error:
        return str(error)
    return "" if done or _has_ended(process) else f"it did not listen within {patience:g} s"


def _has_ended(child: int) -> bool:
    """Without waiting for it, which its parent does elsewhere."""
    try:
        return os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True


def _of_one_program(process: int) -> list[int]:
    found = [process]
    with open(f"/proc/{process}/comm") as file:
        name = file.read()
    for one in found:
        with contextlib.suppress(FileNotFoundError):
            with open(f"/proc/{one}/task/{one}/children") as file:
                children = [int(word) for word in file.read().split()]
            for child in children:
                with open(f"/proc/{child}/comm") as file:
                    found += [child] if file.read() == name else []
    return found


def taken(process: int, descriptor: int) -> int:
    """A duplicate of another process' descriptor. AttributeError where systems have no such thing."""
    library = ctypes.CDLL(None, use_errno=True)
    handle = os.pidfd_open(process)
    try:
        taken = int(library.syscall(_PIDFD_GETFD, handle, descriptor, 0))
        number = ctypes.get_errno()
    finally:
        os.close(handle)
    if taken < 0:
        raise OSError(number, f"pidfd_getfd: {os.strerror(number)}")
    return taken
