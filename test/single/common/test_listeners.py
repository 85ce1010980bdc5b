"""Sockets that are narrowed to a job's networks."""

import contextlib
import errno
import os
import socket
import subprocess
import sys
import warnings
from collections.abc import Callable
from ipaddress import IPv4Network
from typing import Any

import pytest
from refusals import refused

from horovod.common import errors, listeners

if not sys.platform.startswith("linux"):
    pytest.skip("packet filters are Linux's", allow_module_level=True)


def listener(family: socket.AddressFamily = socket.AF_INET) -> socket.socket:
    found = socket.socket(family)
    if family == socket.AF_INET6:
        found.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    found.bind(("", 0))
    found.listen()
    return found


def opens(address: str, to: socket.socket, patience: float = 20.0) -> bool:
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as connection:
        connection.settimeout(patience)
        return connection.connect_ex((address, to.getsockname()[1])) == 0


def is_deaf(address: str, to: socket.socket) -> bool:
    return not opens(address, to, 0.3)


def device_of(narrowed: socket.socket) -> bytes:
    return narrowed.getsockopt(socket.SOL_SOCKET, listeners.SO_BINDTODEVICE, 16).rstrip(b"\0")


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_a_filter_takes_what_is_for_the_networks_only(family: socket.AddressFamily) -> None:
    try:
        mine = listener(family)
    except OSError as error:
        pytest.skip(f"no such addresses here: {error}")
    networks = [IPv4Network("127.7.0.0/16"), IPv4Network("127.0.0.2/32")]
    with mine:
        listeners.attach(mine, listeners.program([], networks))
        assert opens("127.7.3.4", mine) and opens("127.0.0.2", mine)
        assert is_deaf("127.0.0.1", mine) and is_deaf("127.8.0.1", mine)


def test_a_filter_takes_what_comes_in_by_the_interfaces() -> None:
    with listener() as mine:
        listeners.narrow(mine, ["10.0.0.0/8"])  # the host itself is always let in
        assert opens("127.0.0.2", mine)
        listeners.attach(mine, listeners.program([socket.if_nametoindex("lo") + 1000], []))
        assert is_deaf("127.0.0.1", mine)
        with refused(errors.none_of_interfaces, interfaces=["nosuch0"]):
            listeners.narrow(mine, ["nosuch0"])


def test_networks_are_taken_as_people_write_them() -> None:
    """As an address and how much of it counts; several, of which this host has some."""
    with listener() as mine:
        listeners.narrow(mine, ["10.1.2.3/8", "nosuch0"])
        assert opens("127.0.0.1", mine)
        listeners.narrow(mine, ["lo", "nosuch0"])
        assert opens("127.0.0.1", mine)
        with refused(errors.none_of_interfaces, interfaces=["nosuch0", "nosuch1"]):
            listeners.narrow(mine, ["nosuch0", "nosuch1"])
    assert listeners.parsed("eth0,,10.0.0.0/8,") == ["eth0", "10.0.0.0/8"]


def test_this_host_alone_where_only_root_may_bind_to_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before Linux 5.7: then a filter does it."""

    class Refusing(socket.socket):
        def setsockopt(self, level: int, option: int, *value: Any) -> None:
            if option == listeners.SO_BINDTODEVICE:
                raise PermissionError
            super().setsockopt(level, option, *value)

    filters = []
    program = listeners.program

    def noted(*given: Any) -> list[tuple[int, int, int, int]]:
        filters.append(given)
        return program(*given)

    monkeypatch.setattr(listeners, "program", noted)
    with Refusing() as mine:
        mine.bind(("", 0))
        mine.listen()
        listeners.narrow(mine, ["lo"])
        assert device_of(mine) == b""
        lo = socket.if_nametoindex("lo")
        assert filters == [([lo, lo], [])], "what comes in by the loopback device"
        assert opens("127.0.0.1", mine)


def pidfds() -> list[str]:
    open_ones = []
    for descriptor in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # that of listdir() itself
            open_ones.append(os.readlink(f"/proc/self/fd/{descriptor}"))
    return [target for target in open_ones if "pidfd" in target]


def test_a_descriptor_is_taken_of_a_process() -> None:
    """Of this one, which no system forbids."""
    if not hasattr(os, "pidfd_open"):
        pytest.skip("this Python has no pidfd_open")
    with listener() as mine:
        try:
            again = listeners.taken(os.getpid(), mine.fileno())
        except OSError as error:
            if error.errno != errno.ENOSYS:
                raise
            pytest.skip("needs Linux 5.6")
        try:
            assert again != mine.fileno() and os.fstat(again).st_ino == os.fstat(mine.fileno()).st_ino
        finally:
            os.close(again)
    with pytest.raises(OSError, match="pidfd_getfd: Bad file descriptor") as refused:
        listeners.taken(os.getpid(), 12345)
    assert refused.value.errno == errno.EBADF
    assert not pidfds(), "what stands for the process is closed"


def test_systems_without_such_calls_are_a_reason_and_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Older Pythons have no os.pidfd_open, and older systems no way to take a descriptor."""

    def raising(error: Exception) -> Callable[[int], dict[str, int]]:
        def raises(process: int) -> dict[str, int]:
            raise error

        return raises

    with subprocess.Popen(["sleep", "60"]) as child:
        for error, why in (
            (AttributeError("no pidfd_open"), "no pidfd_open"),
            (PermissionError("not yours"), "not yours"),
            (FileNotFoundError("/proc/1"), ""),
            (ProcessLookupError("gone"), ""),
        ):
            monkeypatch.setattr(listeners, "listening", raising(error))
            assert listeners.narrow_process(child.pid, "lo", patience=30.0) == why
        child.kill()


def test_what_a_process_began_to_listen_on_meanwhile() -> None:
    with listener() as before, listener() as after, listener() as of_python:
        before.set_inheritable(True)
        after.close()
        with listeners.narrowed("lo"):
            after = listener()
            after.set_inheritable(True)  # as those of C libraries are
            other = listener()
        with after, other:
            assert [device_of(one) for one in (before, of_python, other, after)] == [b"", b"", b"", b"lo"]
        with warnings.catch_warnings(record=True) as said, listeners.narrowed("nosuch0"):
            warnings.simplefilter("always")
            late = listener()
            late.set_inheritable(True)
        with late:
            assert "MPI listens on all networks of this host: this host has none" in str(said[0].message)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with listeners.narrowed(""):
                free = listener()
                free.set_inheritable(True)
        with free:
            assert device_of(free) == b""
        assert set(listeners.listening()) == {str(os.fstat(s.fileno()).st_ino) for s in (before, of_python)}


CHILD = """
import os, socket, sys, time
if os.fork() == 0:  # as mpirun's daemon
    time.sleep(0.05)
    listener = socket.socket()
    listener.bind(("", 0))
    listener.listen()
    print(listener.fileno(), os.getpid(), flush=True)
sys.stdin.read()
"""


def test_what_a_child_listens_on() -> None:
    child = subprocess.Popen([sys.executable, "-c", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with child:
        assert child.stdin is not None and child.stdout is not None
        why = listeners.narrow_process(child.pid, "lo", patience=30)
        descriptor, process = map(int, child.stdout.readline().split())
        if any(no in why for no in ("not permitted", "not implemented", "pidfd_open")):
            pytest.skip(f"this system says no: {why}")
        assert why == ""
        with socket.socket(fileno=listeners.taken(process, descriptor)) as narrowed:
            assert device_of(narrowed) == b"lo"
        child.stdin.close()
    assert listeners.narrow_process(child.pid, "lo") == ""  # it has ended


def test_a_child_that_does_not_listen() -> None:
    with subprocess.Popen(["sleep", "60"]) as child:
        assert listeners.narrow_process(child.pid, "lo", patience=0.2) == "it did not listen within 0.2 s"
        child.kill()


def test_a_system_that_does_not_show_sockets_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os.path, "isdir", lambda folder: False)
    monkeypatch.setattr(listeners, "listening", None)
    with listeners.narrowed("lo"):
        pass
