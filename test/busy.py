"""Longer time limits for tests on a machine with more work than cores."""

from __future__ import annotations

import inspect
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

__all__ = ["be_patient_with_processes", "has_ended", "limit", "patience", "times_longer", "until"]

Value = TypeVar("Value")

MOST = 8.0  # bounds the factor, so that a test that hangs is found
LEAST_SECONDS = 5.0  # shorter limits are meant to pass, and stay


def times_longer() -> float:
    """Return the factor: 1 on an idle machine, otherwise by the load of the last minute."""
    return min(max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1)), MOST)


def patience(seconds: float) -> float:
    """Return the seconds, longer by the load."""
    return seconds * times_longer()


def limit(seconds: float) -> float:
    """Return the deadline, of time.monotonic(), after these seconds, longer by the load."""
    return time.monotonic() + patience(seconds)


def until(what: Callable[[], Value], seconds: float = 30.0) -> Value:
    """Wait until `is_so` returns a true value, and return it. AssertionError after these seconds."""
    deadline = limit(seconds)
    while not (value := what()):
        assert time.monotonic() < deadline, f"after {seconds:g} s it is still {value!r}"
        time.sleep(0.01)
    return value


def has_ended(pid: int) -> bool:
    """Return whether a process has ended; a zombie counts as ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] == b"Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def be_patient_with_processes() -> None:
    """Multiply every time-out of a subprocess by the load, wherever a test waits for one."""

    def patient(method: Any) -> Any:
        signature = inspect.signature(method)

        def call(*given: Any, **named: Any) -> Any:
            bound = signature.bind(*given, **named)
            timeout = bound.arguments.get("timeout")
            if timeout is not None and timeout >= LEAST_SECONDS:
                bound.arguments["timeout"] = patience(timeout)
            return method(*bound.args, **bound.kwargs)

        return call

    for name in ("communicate", "wait"):
        method = getattr(subprocess.Popen, name)
        if method.__module__ != __name__:
            setattr(subprocess.Popen, name, patient(method))
