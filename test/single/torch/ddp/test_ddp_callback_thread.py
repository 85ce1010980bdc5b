"""The thread that runs callbacks of futures runs them in order, and no process waits for it for ever."""

import subprocess
import sys

import pytest

PROGRAM = """
import threading
from horovod.torch.ddp import future_work
future_work._EXIT_SECONDS = 0.1
callbacks = future_work.CallbackThread()
for number in range(3):
    callbacks.call(lambda number=number: print(number, flush=True))
callbacks.call({last})
"""


@pytest.mark.parametrize("last", ["lambda: None", "threading.Event().wait"])
def test_a_script_ends_when_it_is_at_its_end(last: str) -> None:
    """Although nothing closes the thread, and even if a callback waits for ever."""
    command = [sys.executable, "-c", PROGRAM.format(last=last)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert (done.stdout, done.stderr) == ("0\n1\n2\n", "")
