"""Python processes that tests start are forks of one with torch loaded: see lean_torch/warm_server.py."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

SERVER = Path(__file__).parent / "lean_torch" / "warm_server.py"
VARIABLE = "WARM_PYTHON"


class WarmPython:
    """One server for this process, started on first use. It ends with this process.

    A setting in the environment counts: a rank that runs pytest has its parent's server; 0 is none.
    """

    def __init__(self) -> None:
        self._path = ""
        self._is_given = VARIABLE in os.environ

    def choose(self, wanted: bool) -> None:
        """Set whether processes that are started from now on are warm."""
        if self._is_given:
            return
        if wanted:
            self._path = self._path or self._start()
            assert self._server.poll() is None, f"{SERVER.name} ended with {self._server.returncode}"
            os.environ[VARIABLE] = self._path
        else:
            os.environ.pop(VARIABLE, None)

    def _start(self) -> str:
        self._folder = tempfile.TemporaryDirectory(prefix="warm-python-")
        path = str(Path(self._folder.name, "socket"))
        reading, self._ends_it = os.pipe()
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        self._server = subprocess.Popen(
            [sys.executable, str(SERVER), path], stdin=reading, stdout=subprocess.PIPE, env=environment
        )
        os.close(reading)
        assert self._server.stdout is not None
        assert self._server.stdout.readline() == b"ready\n", "torch cannot be loaded before ranks are"
        return path

    def end(self) -> None:
        """End the server, which happens when its input is closed."""
        if self._path:
            os.close(self._ends_it)
            self._server.wait()
            self._path = ""
