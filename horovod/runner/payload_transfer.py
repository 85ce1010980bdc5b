"""Brings a payload (see `payload`) to every host of a job, and has it removed when the job is over."""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

from horovod.runner import errors, host_agent, preflight
from horovod.runner.payload import stored
from horovod.runner.shell import Shell

_REMOVAL_SECONDS = 5.0
_SLOWEST_START, _SLOWEST_RATE = 60.0, 1e6  # seconds, bytes per second: slower than that is given up


@contextmanager
def transferred(
    name: str, payload: bytes, hosts: Sequence[str], shell: Shell | None
) -> Iterator[frozenset[int]]:
    """The payload lies here and on `hosts` during the context, which gets the process ids of our ssh.

    A host keeps the payload while our connection to it stands, so it goes with us even if we are killed.
    LaunchError names the hosts that could not be given it.
    """
    if hosts and shell is None:
        raise errors.function_needs_ssh()
    with ExitStack() as stack:
        stack.enter_context(stored(name, payload))
        holders = [_holder(shell, host, name, len(payload)) for host in hosts if shell is not None]
        stack.callback(_let_go, holders)
        with ThreadPoolExecutor(max_workers=preflight.MOST_AT_ONCE) as pool:
            whys = list(pool.map(lambda holder: _send(holder, payload), holders))
        failures = {host: why for host, why in zip(hosts, whys, strict=True) if why}
        if failures:
            raise errors.function_not_sent(failures=failures, shown=preflight.shown(failures))
        yield frozenset(holder.pid for holder in holders)


def _holder(shell: Shell, host: str, name: str, size: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        preflight.agent_command(shell, host, ["hold", name, str(size)]),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "LC_ALL": "C"},
    )


def _send(holder: subprocess.Popen[bytes], payload: bytes) -> str:
    """Returns why it did not arrive, "" when it did."""
    assert holder.stdin is not None and holder.stdout is not None and holder.stderr is not None
    limit = threading.Timer(_SLOWEST_START + len(payload) / _SLOWEST_RATE, holder.kill)
    limit.start()
    with contextlib.suppress(BrokenPipeError):  # then what it says on standard error tells why, below
        holder.stdin.write(payload)
        holder.stdin.flush()
    for line in holder.stdout:
        if host_agent.answer_in(line) is not None:
            limit.cancel()
            return ""
    limit.cancel()
    said = holder.stderr.read().decode(errors="replace")
    return str(preflight.explained("the host", holder.wait(), said))


def _let_go(holders: Sequence[subprocess.Popen[bytes]]) -> None:
    for holder in holders:
        assert holder.stdin is not None
        try:
            holder.stdin.close()
        except BrokenPipeError:
            continue  # it has ended already
    for holder in holders:
        try:
            holder.wait(_REMOVAL_SECONDS)
        except subprocess.TimeoutExpired:
            holder.kill()
            holder.wait()
        for stream in (holder.stdout, holder.stderr):
            assert stream is not None
            stream.close()
