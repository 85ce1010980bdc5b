"""The thread that runs callbacks of futures runs them in order, and no process waits for it for ever."""

import subprocess
import sys
from pathlib import Path

import pytest

import horovod

SOURCE = Path(horovod.__file__).parent / "torch" / "ddp" / "callback_thread.py"

# By its path: the package around it would import torch.
PROGRAM = """
import runpy, threading
module = runpy.run_path({source!r})
module["_end_threads"].__globals__["_EXIT_SECONDS"] = 0.1
callbacks = module["CallbackThread"]()
for number in range(3):
    callbacks.call(lambda number=number: print(number, flush=True))
callbacks.call({last})
"""


@pytest.mark.parametrize("last", ["lambda: None", "threading.Event().wait"])
def test_a_script_ends_when_it_is_at_its_end(last: str) -> None:
    """Although nothing closes the thread, and even if a callback waits for ever."""
    command = [sys.executable, "-I", "-c", PROGRAM.format(source=str(SOURCE), last=last)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30)
    assert (done.stdout, done.stderr) == ("0\n1\n2\n", "")
