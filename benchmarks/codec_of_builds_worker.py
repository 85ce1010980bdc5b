"""The process of one build for codec_of_builds.py: `codec_of_builds_worker.py LIBRARY COUNT`.

It loads the library by its path and nothing from an installed package, which would load another library.
"""

from __future__ import annotations

import mmap
import sys
import time
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_loader
from typing import Any

import numpy as np

FLOAT32 = 6  # the core's number for float32


def filled(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return a copy that begins at a page boundary."""
    array = np.frombuffer(mmap.mmap(-1, max(1, values.nbytes)), values.dtype, values.size)
    array[:] = values
    return array


def main(library: str, count: int) -> None:
    """Read a codec and an operation from each line, and write the seconds that it took."""
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


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
