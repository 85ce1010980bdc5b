"""Measure speed and error of the codecs on one thread, beside memcpy, torch's casts and ml_dtypes.

    python benchmarks/codec.py                      # 100 MB of N(0,1), about a minute
    python benchmarks/codec.py --codecs bit8/128 int8/128
    python benchmarks/codec.py --level scalar       # the defining twin instead of this machine's best kernel
    python benchmarks/codec.py --out codec.json
    python benchmarks/codec.py --device cuda        # a GPU's kernels, beside its own copies

GB/s counts the float32 side of a call (count * 4 bytes), whatever the encoded size, so that all rows compare.
Every contender runs once per round, in an order that rotates by one each round; figures are medians.
"""

from __future__ import annotations

import argparse
import ctypes
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import ml_dtypes
import numpy as np
import report
import torch
from contenders import nmse
from report import Record

from horovod import _native

FLOAT32 = 6  # the core's number for float32
CODECS = (
    *("bit8/128", "bit8/32", "bit8/256", "bit8/128/e5m2", "bit8/256/e3m4", "bit8/128/stochastic"),
    *("int8/128", "int8/32", "int8/128/stochastic"),
    *("int4/128", "int4/32", "int4/128/stochastic", "int4/128/hadamard", "int4/128/stochastic/hadamard"),
    *("int4/128/hadamard/lloyd", "int4/1024/hadamard/lloyd"),
    "bit16",
)
OUTSIDE = "ml_dtypes.float8_e4m3fn"  # the other implementation that encode speed is compared with

GPU_SIZES_MB = [16.0, 64.0, 256.0, 1024.0]
COLUMNS: report.Columns = {
    "codec": "{contender}",
    "operation": "{operation}",
    "GB/s": "{gb_per_s:.2f}",
    "spread": "{spread:.0%}",
    "x memcpy": "{versus_memcpy:.2f}",
    "x ml_dtypes": "{versus_ml_dtypes:.1f}",
    "NMSE": "{nmse:.1e}",
    "bits/element": "{bits_per_element:.4f}",
}


@dataclass
class Contender:
    """One operation to time. `operation` is encode, decode, decode-add or memcpy."""

    name: str
    operation: str
    run: Callable[[], object]
    bits: float = 32.0
    nmse: float = 0.0
    seconds: list[float] = field(default_factory=list)


@dataclass
class Buffers:
    """Arrays that every contender uses, touched before timing so that no page fault is measured."""

    source: np.ndarray[Any, np.dtype[np.float32]]
    decoded: np.ndarray[Any, np.dtype[np.float32]]
    accumulator: np.ndarray[Any, np.dtype[np.float32]]


def make_buffers(count: int, seed: int) -> Buffers:
    source = np.random.default_rng(seed).standard_normal(count, dtype=np.float32)
    # np.zeros would map pages lazily; full() writes them.
    return Buffers(source, np.full(count, 0, np.float32), np.full(count, 0, np.float32))


def memcpy_contender(buffers: Buffers) -> Contender:
    libc = ctypes.CDLL(None)
    libc.memcpy.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
    libc.memcpy.restype = ctypes.c_void_p
    target, source, size = buffers.decoded.ctypes.data, buffers.source.ctypes.data, buffers.source.nbytes
    return Contender("memcpy", "memcpy", lambda: libc.memcpy(target, source, size))


def codec_contenders(name: str, level: str, buffers: Buffers) -> list[Contender]:
    """Encode, decode and decode-add of one of our codecs; the NMSE is that of one untimed round trip."""
    codec = _native.codec_named(name, level=level)
    count = buffers.source.size
    size = codec.encoded_bytes(count)
    encoded = np.full(size, 0, np.uint8)
    source, codes = buffers.source.ctypes.data, encoded.ctypes.data
    decoded, accumulator = buffers.decoded.ctypes.data, buffers.accumulator.ctypes.data
    codec.encode(source, FLOAT32, count, codes)
    codec.decode(codes, count, decoded, FLOAT32)
    bits, error = size * 8 / count, nmse(buffers.source, buffers.decoded)

    # `encoded` is bound as a default so that the array lives as long as the contender that has its address.
    def encode(keep: object = encoded) -> object:
        return codec.encode(source, FLOAT32, count, codes)

    def decode(keep: object = encoded) -> None:
        codec.decode(codes, count, decoded, FLOAT32)

    def decode_add(keep: object = encoded) -> None:
        codec.decode_add(codes, count, accumulator)

    operations = (("encode", encode), ("decode", decode), ("decode-add", decode_add))
    return [Contender(codec.name, operation, run, bits, error) for operation, run in operations]


def cast_contenders(
    name: str, buffers: Buffers, narrow: Any, encode: Callable[[], object], decode: Callable[[], object]
) -> list[Contender]:
    """Bare casts into existing memory, as our codec receives it; the NMSE is of one untimed round trip."""
    encode()
    decode()
    bits, error = narrow.itemsize * 8.0, nmse(buffers.source, buffers.decoded)
    return [Contender(name, "encode", encode, bits, error), Contender(name, "decode", decode, bits, error)]


def torch_contenders(name: str, dtype: torch.dtype, buffers: Buffers) -> list[Contender]:
    source, decoded = torch.from_numpy(buffers.source), torch.from_numpy(buffers.decoded)
    narrow = source.to(dtype)
    return cast_contenders(name, buffers, narrow, lambda: narrow.copy_(source), lambda: decoded.copy_(narrow))


def ml_dtypes_contenders(buffers: Buffers) -> list[Contender]:
    """A bare E4M3 cast with ml_dtypes through NumPy."""
    narrow = np.zeros(buffers.source.shape, ml_dtypes.float8_e4m3fn)

    def cast(target: Any, source: Any) -> Callable[[], object]:
        return lambda: np.copyto(target, source, casting="unsafe")

    encode, decode = cast(narrow, buffers.source), cast(buffers.decoded, narrow)
    return cast_contenders(OUTSIDE, buffers, narrow, encode, decode)


def make_contenders(codecs: Sequence[str], level: str, buffers: Buffers) -> list[Contender]:
    contenders = [memcpy_contender(buffers)]
    for name in codecs:
        contenders += codec_contenders(name, level, buffers)
    contenders += torch_contenders("torch.half", torch.half, buffers)
    contenders += torch_contenders("torch.float8_e4m3fn", torch.float8_e4m3fn, buffers)
    return contenders + ml_dtypes_contenders(buffers)


def measure(contenders: list[Contender], buffers: Buffers, rounds: int) -> None:
    """Time every contender once per round; the first round is a warm-up and does not count."""
    for number, order in report.rounds_of(contenders, rounds + 1):
        # decode-add grows the accumulator; each round begins at zero so that it never overflows.
        buffers.accumulator.fill(0)
        for contender in order:
            begin = time.perf_counter()
            contender.run()
            elapsed = time.perf_counter() - begin
            if number:
                contender.seconds.append(elapsed)


def records(contenders: list[Contender], size: int) -> list[Record]:
    """Return one dictionary per contender: the content of the JSON document and of the table."""
    reference = median(contenders[0].seconds)
    outside = next(median(c.seconds) for c in contenders if (c.name, c.operation) == (OUTSIDE, "encode"))
    rows = []
    for contender in contenders:
        seconds = median(contender.seconds)
        rows.append(
            {
                "contender": contender.name,
                "operation": contender.operation,
                "seconds": seconds,
                "gb_per_s": size / seconds / report.GIGA,
                "spread": report.spread(contender.seconds),
                "versus_memcpy": reference / seconds,
                "versus_ml_dtypes": outside / seconds if contender.operation == "encode" else None,
                "nmse": contender.nmse,
                "bits_per_element": contender.bits,
            }
        )
    return rows


def table_of(rows: list[Record]) -> str:
    return report.table_of(rows, COLUMNS, left=2)


def arguments(words: list[str]) -> argparse.Namespace:
    about = "Codec speed, error and size beside memcpy, torch and ml_dtypes."
    parser = report.options(about, "device rounds out quick", rounds=11)
    option = parser.add_argument
    option("--size-mb", type=float, nargs="+", help="MB of 10^6 bytes (default 100; cuda 16 to 1024)")
    option("--dtype", choices=["float32", "float16", "bfloat16"], default="float32", help="of cuda's input")
    option("--codecs", nargs="+", default=CODECS, metavar="NAME", help="like bit8/128/e5m2 (default: many)")
    option("--level", default="", help="scalar, baseline, x86-64-v3, x86-64-v4 (default: the best here)")
    option("--seed", type=int, default=0, help="of the random input (default 0)")
    chosen = parser.parse_args(words)
    on_gpu = chosen.device == "cuda"
    chosen.size_mb = chosen.size_mb or (GPU_SIZES_MB if on_gpu else [100.0])
    if chosen.quick:
        chosen.size_mb, chosen.rounds = [0.1 if on_gpu else 1.0], 2
    levels = _native.simd_levels()
    if chosen.level and chosen.level not in levels:
        parser.error(f"--level {chosen.level}: this machine and build run {', '.join(levels)}")
    if chosen.rounds < 1 or min(chosen.size_mb) * report.MEGA < 4:
        parser.error("--rounds must be at least 1 and --size-mb at least one element")
    if not on_gpu and (len(chosen.size_mb) > 1 or chosen.dtype != "float32"):
        parser.error("several sizes and other dtypes than float32 need --device cuda")
    if on_gpu and chosen.level:
        parser.error("--level is about processors: leave it out with --device cuda")
    return chosen


def main(words: list[str]) -> int:
    chosen = arguments(words)
    torch.set_num_threads(1)
    if chosen.device == "cuda":
        import codec_on_gpu

        return codec_on_gpu.main(chosen)
    count = int(chosen.size_mb[0] * report.MEGA) // 4
    level = chosen.level or _native.simd_level()
    facts = report.machine() | {"torch": torch.__version__, "simd": level}
    print(f"{report.size_text(count * 4)} of N(0,1) float32, one thread, median of {chosen.rounds} rounds,")
    print("contenders interleaved; GB/s of the float32 side; spread = quartile distance / median.")
    print(report.machine_text(facts), flush=True)
    buffers = make_buffers(count, chosen.seed)
    contenders = make_contenders(chosen.codecs, chosen.level, buffers)
    measure(contenders, buffers, chosen.rounds)
    rows = records(contenders, count * 4)
    print(table_of(rows), flush=True)
    settings = {"bytes": count * 4, "rounds": chosen.rounds, "seed": chosen.seed}
    about = {"benchmark": "codec", "machine": facts, "settings": settings}
    report.write_json(chosen.out, about | {"rows": rows})
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
