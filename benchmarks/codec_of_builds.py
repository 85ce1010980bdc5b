"""Compare the codecs' speed of another build with this environment's: a wheel, or an older commit.

    python benchmarks/codec_of_builds.py dist/horovod-*-cp311-*.whl
    python benchmarks/codec_of_builds.py ../older/horovod/_native.cpython-311-x86_64-linux-gnu.so

Each build has its own process. Both do the same operation in turn, on arrays that begin at a page boundary:
the place of the arrays made a difference of up to 10 % between two processes of one build.
"""

from __future__ import annotations

import argparse
import mmap
import sys
import tempfile
import time
import zipfile
from contextlib import ExitStack
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from typing import Any

import numpy as np
import report
from jobs import Answers

CODECS = ("bit8/128", "bit8/128/e5m2", "bit16", "int8/128", "int4/128")
OPERATIONS = ("encode", "decode", "decode-add")
FLOAT32 = 6  # the core's number for float32


def library_of(build: str, folder: Path) -> str:
    """Return the path of the core's library; a wheel is unpacked into `folder`."""
    if not build.endswith(".whl"):
        return str(Path(build).resolve())
    with zipfile.ZipFile(build) as wheel:
        (name,) = (each for each in wheel.namelist() if "/_native." in each and each.endswith(".so"))
        return wheel.extract(name, folder)


def filled(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return a copy that begins at a page boundary."""
    array = np.frombuffer(mmap.mmap(-1, max(1, values.nbytes)), values.dtype, values.size)
    array[:] = values
    return array


def work(library: str, count: int) -> None:
    """Be the process of one build: read a codec and an operation from each line, and write its seconds.

    It loads the library by its path and nothing from an installed package, which would load another library.
    """
    loader = ExtensionFileLoader("_native", library)
    spec = spec_from_loader("_native", loader)
    assert spec is not None
    native: Any = module_from_spec(spec)
    loader.exec_module(native)
    source = filled(np.random.default_rng(0).standard_normal(count, dtype=np.float32))
    target = filled(np.zeros(count, np.float32))
    encoded: dict[str, Any] = {}
    for line in sys.stdin:
        name, operation = line.split()
        codec = native.codec_named(name)
        if name not in encoded:
            encoded[name] = filled(np.zeros(codec.encoded_bytes(count), np.uint8))
            codec.encode(source.ctypes.data, FLOAT32, count, encoded[name].ctypes.data)
        codes, target[:] = encoded[name].ctypes.data, 0
        begin = time.perf_counter()
        if operation == "encode":
            codec.encode(source.ctypes.data, FLOAT32, count, codes)
        elif operation == "decode":
            codec.decode(codes, count, target.ctypes.data, FLOAT32)
        else:
            codec.decode_add(codes, count, target.ctypes.data)
        print(time.perf_counter() - begin, flush=True)


def rows_of(here: Answers, other: Answers, rounds: int) -> list[list[str]]:
    from horovod.tune.paired import gain_of

    rows = []
    for codec in CODECS:
        for operation in OPERATIONS:
            pairs = []
            for number in range(rounds + 1):
                builds = (here, other) if number % 2 else (other, here)
                took = {build: build.to(f"{codec} {operation}") for build in builds}
                if number:  # the first round also loads what is read for the first time
                    pairs.append((took[here], took[other]))
            fastest = report.time_text(min(pair[0] for pair in pairs))
            rows.append([codec, operation, fastest, str(gain_of(pairs))])
    return rows


def main(words: list[str]) -> int:
    if words[:1] == ["--worker"]:
        work(words[1], int(words[2]))
        return 0
    from horovod import _native

    parser = argparse.ArgumentParser(description="The codecs of another build beside this environment's.")
    parser.add_argument("build", help="a wheel for this Python, or a library _native")
    parser.add_argument("--mb", type=float, default=100, help="of float32 (default 100)")
    parser.add_argument("--rounds", type=int, default=41)
    options = parser.parse_args(words)
    count = int(options.mb * 1e6) // 4
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        libraries = [str(_native.__file__), library_of(options.build, folder)]
        words = [[__file__, "--worker", library, str(count)] for library in libraries]
        here, other = (stack.enter_context(Answers(each[2], each)) for each in words)
        rows = rows_of(here, other, options.rounds)
    headings = ["codec", "operation", "here, at best", "the other is faster by (95 %)"]
    print(report.table(headings, rows, left=2))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
