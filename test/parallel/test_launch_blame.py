"""The rank that horovodrun blames when others fail with it; the exit code. On hosts: test_blame_on_hosts."""

import sys
from pathlib import Path

import pytest
from launching import HOST, horovodrun

PROGRAM = str(Path(__file__).with_name("blame.py"))
STALL = {"HOROVOD_STALL_CHECK_TIME_SECONDS": "1", "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "2"}


@pytest.mark.parametrize(
    ("who", "before", "deed", "code", "said"),
    [
        (0, "", "raise SystemExit(3)", 3, "exited with code 3"),
        (1, "", "sys.exit(3)", 3, "exited with code 3"),
        (1, "", "raise RuntimeError('mine')", 1, "exited with code 1"),
        (0, "", "sys.exit(0)", 1, "ended with code 0 before the others were done with it"),
        (1, "", "os._exit(0)", 1, "ended with code 0 before the others were done with it"),
        (1, "sys.exit(0)", "", 1, "ended with code 0 before hvd.init(), and rank"),
        (1, "", "os.kill(os.getpid(), signal.SIGSTOP)", 1, "was stopped by signal 19 (SIGSTOP), and others"),
        (1, "", "os.kill(os.getpid(), signal.SIGKILL)", 137, "was killed by signal 9 (SIGKILL)"),
    ],
)
def test_whoever_was_first_is_blamed(who: int, before: str, deed: str, code: int, said: str) -> None:
    result = horovodrun("-np", "3", sys.executable, PROGRAM, str(who), before, deed, limit=120, **STALL)
    last = result.stderr.splitlines()[-1]
    assert last.startswith(f"horovodrun: rank {who} on host {HOST} {said}"), result.stderr
    assert last.endswith("; the other ranks were ended") and result.returncode == code
