"""Start ranks that run the calling program, and read the document that rank 0 writes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

RESULT = "BENCHMARK_RESULT"  # the variable that names rank 0's file


def document_of(
    launcher: Sequence[str], program: str, words: list[str], limit: float, settings: Mapping[str, str]
) -> dict[str, Any]:
    """Run `program` with `words` under the launcher; return the document that rank 0 wrote.

    The document proves success, not only the launcher's exit code. `settings` are environment variables of
    the ranks, `limit` is in seconds. Raises SystemExit.
    """
    name = Path(program).name
    with tempfile.TemporaryDirectory(prefix="benchmark-") as folder:
        result = Path(folder) / "result.json"
        environment = os.environ | {RESULT: str(result), **settings}
        process = subprocess.Popen([*launcher, sys.executable, program, *words], env=environment)
        try:
            code = process.wait(timeout=limit)
        except subprocess.TimeoutExpired:
            raise SystemExit(f"{name}: the ranks did not finish within {limit:g} s (--limit)") from None
        finally:
            process.terminate()
            process.wait()
        if code != 0 or not result.exists():
            raise SystemExit(f"{name}: the ranks failed, the launcher's exit code was {code}")
        document: dict[str, Any] = json.loads(result.read_text())
        return document


def horovodrun(ranks: int) -> list[str]:
    """Return horovodrun's command, with mpirun below it because these ranks use mpi4py."""
    return [sys.executable, "-m", "horovod.runner", "--launcher", "mpi", "-np", str(ranks)]
