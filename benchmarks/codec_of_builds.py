"""Compare the codecs' speed of another build with this environment's: a wheel, or an older commit.

    python benchmarks/codec_of_builds.py dist/horovod-*-cp311-*.whl
    python benchmarks/codec_of_builds.py ../older/horovod/_native.cpython-311-x86_64-linux-gnu.so

Each build has its own process. Both do the same operation in turn, on arrays that begin at a page boundary:
the place of the arrays made a difference of up to 10 % between two processes of one build.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import zipfile
from contextlib import ExitStack
from pathlib import Path

import report

from horovod import _native
from horovod.tune.paired import gain_of

CODECS = ("bit8/128", "bit8/128/e5m2", "bit16", "int8/128", "int4/128")
OPERATIONS = ("encode", "decode", "decode-add")
WORKER = Path(__file__).with_name("codec_of_builds_worker.py")


class Build:
    def __init__(self, library: str, count: int) -> None:
        words = [sys.executable, str(WORKER), library, str(count)]
        self._library = library
        self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __enter__(self) -> Build:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def seconds(self, codec: str, operation: str) -> float:
        assert self._process.stdin is not None and self._process.stdout is not None
        print(codec, operation, file=self._process.stdin, flush=True)
        if said := self._process.stdout.readline():
            return float(said)
        sys.exit(f"the process with {self._library} has ended")


def library_of(build: str, folder: Path) -> str:
    """Return the path of the core's library; a wheel is unpacked into `folder`."""
    if not build.endswith(".whl"):
        return str(Path(build).resolve())
    with zipfile.ZipFile(build) as wheel:
        (name,) = (each for each in wheel.namelist() if "/_native." in each and each.endswith(".so"))
        return wheel.extract(name, folder)


def rows_of(here: Build, other: Build, rounds: int) -> list[list[str]]:
    rows = []
    for codec in CODECS:
        for operation in OPERATIONS:
            pairs = []
            for number in range(rounds + 1):
                builds = (here, other) if number % 2 else (other, here)
                took = {build: build.seconds(codec, operation) for build in builds}
                if number:  # the first round also loads what is read for the first time
                    pairs.append((took[here], took[other]))
            fastest = report.time_text(min(pair[0] for pair in pairs))
            rows.append([codec, operation, fastest, str(gain_of(pairs))])
    return rows


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description="The codecs of another build beside this environment's.")
    parser.add_argument("build", help="a wheel for this Python, or a library _native")
    parser.add_argument("--mb", type=float, default=100, help="of float32 (default 100)")
    parser.add_argument("--rounds", type=int, default=41)
    options = parser.parse_args(words)
    count = int(options.mb * 1e6) // 4
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        here = stack.enter_context(Build(str(_native.__file__), count))
        other = stack.enter_context(Build(library_of(options.build, folder), count))
        rows = rows_of(here, other, options.rounds)
    headings = ["codec", "operation", "here, at best", "the other is faster by (95 %)"]
    print(report.table(headings, rows, left=2))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
