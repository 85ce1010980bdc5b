"""The agent's side of the process that has loaded torch: whom it serves, and what is when it has ended."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from horovod.runner.agents import warm
from horovod.runner.agents.warm import WarmServer, can_be_warm

NULL = os.open(os.devnull, os.O_RDWR)


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("python train.py", True),
        ("/opt/bin/python3.11 -u train.py --epochs 3", True),
        ("python -m package.train -x", True),
        ("python -m", False),
        ("python", False),
        ("python -c pass", False),
        ("python -O train.py", False),
        ("env python train.py", False),
        ("pythonic train.py", False),
        ("", False),
    ],
)
def test_what_a_fork_can_run(command: str, expected: bool) -> None:
    assert can_be_warm(command.split()) == expected


def environment() -> dict[bytes, bytes]:
    return dict(os.environb)


def stand_in(folder: Path, text: str) -> str:
    """An interpreter that does something else with the server's file."""
    path = folder / "python"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_one_that_has_ended_takes_nothing(tmp_path: Path) -> None:
    server = WarmServer(stand_in(tmp_path, "exit 3"), environment())
    until = time.monotonic() + 30
    while server.descriptor >= 0:
        assert server.answers() == {} and time.monotonic() < until
        time.sleep(0.01)
    assert os.waitstatus_to_exitcode(os.waitpid(server.pid, 0)[1]) in (3, -15)
    assert not server.ask(0, ["nonce", "/", "python", "a.py"], {}, [NULL] * 4)


def test_one_that_loads_for_too_long_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(warm, "LOADED_WITHIN", 0.2)
    server = WarmServer(stand_in(tmp_path, "exec sleep 600"), environment())
    assert server.ask(0, ["nonce", "/", "python", "a.py"], {}, [NULL] * 4), "it may come to it"
    assert server.answers() == {} and server.descriptor >= 0
    time.sleep(0.3)
    assert server.answers() == {} and server.descriptor < 0
    assert os.waitstatus_to_exitcode(os.waitpid(server.pid, 0)[1]) == -15
    assert "loading torch takes more than" in capfd.readouterr().err


def test_what_is_too_long_for_a_message_is_not_taken(tmp_path: Path) -> None:
    server = WarmServer(stand_in(tmp_path, "exec sleep 600"), environment())
    try:
        assert not server.ask(0, ["x" * (4 << 20)], {}, [NULL] * 4)
    finally:
        server.close()
        os.waitpid(server.pid, 0)
