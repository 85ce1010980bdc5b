"""A process of the tests whose program runs in a fork of a process with torch loaded: see warm_server.

    WARM_PYTHON    path of the socket at which that process listens

Importing torch takes 1.5 s of a core, a fork 0.02 s. This process stays in place of the program, so a
launcher that started it waits for it, signals it, and sees it end as its program does.
"""

from __future__ import annotations

import array
import contextlib
import os
import signal
import socket
import sys
from typing import NoReturn

VARIABLE = "WARM_PYTHON"
PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGQUIT)
ACCEPTED = b"+"


def run_in_a_fork() -> None:
    """End this process as its program ended. Return if this process has to run the program itself."""
    server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        server.connect(os.environ[VARIABLE])
    except OSError:  # the server has ended, or this process sees other files
        return
    heeded = [number for number in PASSED_ON if signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, lambda *_: None) for number in heeded}
    wake, waker = socket.socketpair()
    waker.setblocking(False)
    signal.set_wakeup_fd(waker.fileno())
    own = {server.fileno(), wake.fileno(), waker.fileno()}
    descriptors = [number for number in _open_descriptors() if number not in own]
    server.sendmsg(
        [",".join([sys.prefix, *map(str, descriptors)]).encode()],
        [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))],
    )
    if server.recv(1) == ACCEPTED:
        _end_as(_status_of(server, wake))
    signal.set_wakeup_fd(-1)
    for number, handler in before.items():
        signal.signal(number, handler)
    for each in (server, wake, waker):
        each.close()


def _open_descriptors() -> list[int]:
    """Return the descriptors that a program which replaces this one inherits."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if os.get_inheritable(int(name)):
                found.append(int(name))
    return sorted(found)


def _status_of(server: socket.socket, wake: socket.socket) -> int:
    """Return the program's status, as os.waitpid gives it; pass on signals until then."""
    import selectors

    with selectors.DefaultSelector() as selector:
        selector.register(server, selectors.EVENT_READ)
        selector.register(wake, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is server:
                    text = server.recv(64)
                    return int(text) if text else signal.SIGKILL
                server.send(wake.recv(64))


def _end_as(status: int) -> NoReturn:
    if os.WIFSIGNALED(status):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the program's core dump exists already
        number = os.WTERMSIG(status)
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(os.waitstatus_to_exitcode(status))
