"""Programs of cells: jobs with names, whose results are files of a folder and are not made again."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from jobs import JobFailed

from horovod.made_hosts import HostsError


def main(
    chosen: argparse.Namespace,
    cells: Sequence[Any],
    measure: Callable[[Any, argparse.Namespace, Path], bool],
    shown: Callable[[Path], str],
) -> int:
    """Do what the options of report.OPTIONS request; return the exit code.

    `measure` adds a cell's missing results to its file, and returns whether they are right; `shown` returns
    the table of a folder's results.
    """
    if chosen.shown:
        print(shown(Path(chosen.shown)))
        return 0
    if chosen.only:
        cells = [cell for cell in cells if cell.name.startswith(tuple(chosen.only))]
    if chosen.list:
        print("\n".join(cell.name for cell in cells))
        return 0
    failed = 0
    with tempfile.TemporaryDirectory(prefix="benchmark-") as temporary:
        folder = chosen.results or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for cell in cells:
            try:
                failed += not measure(cell, chosen, folder / f"{cell.name}.json")
            except (JobFailed, HostsError) as error:
                failed += 1
                print(error, file=sys.stderr)
        print(shown(folder))
    return 1 if failed else 0
