"""Encoding and decoding on an emulated GPU give the CPU codecs' bytes for all sizes and alignments."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from codec_cases import (
    NAMES,
    assert_same_bits,
    bits,
    float32_sweep,
    gradient_like,
    half_boundaries,
    in_blocks_of_scale_one,
    minifloat_boundaries,
    random_patterns,
    with_specials,
)
from native_codec import widened
from numpy.typing import NDArray

from horovod.common.numpy_codec import E3M4, E4M3, E5M2, decode_minifloat

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "emulated_cuda"))

from cuda_twin import decoded_message, encoded_message
from device_kernels import Bucket, Tensor, saturated
from device_trials import Gpu, refused_there

pytest_plugins = ["device_fixtures"]
COUNTS = (1, 0, 31, 127, 128, 129, 1000, 4095, 0, 4096, 4097, 6001)
GRIDS = {"bit8/128": E4M3, "bit8/128/e5m2": E5M2, "bit8/256/e3m4": E3M4}


def many_tensors(dtype: str = "float32", *, special: bool = True, feedback: bool = False) -> list[Tensor]:
    """Tensors of all sizes, at aligned addresses and between them, with and without residuals."""
    tensors = []
    for i, count in enumerate(COUNTS):
        x = gradient_like(count, seed=i)
        x = with_specials(x) if special and i % 3 == 1 else x
        residual = gradient_like(count, seed=100 + i) if feedback and i % 2 == 0 else None
        first = 2**32 - 700 if i == 6 else 5000 * i
        tensors.append(Tensor(widened(x, dtype), residual, key=17 * i, first=first, skew=i % 5))
    return tensors


def assert_encodes(
    gpu: Gpu, buckets: list[Bucket], tensors: list[Tensor], name: str, *, prescale: float = 1.0, skew: int = 0
) -> None:
    """Message, residuals, count of saturated values, and the decoded message equal the CPU's."""
    dtype = tensors[0].values.dtype.name
    bucket = Bucket(gpu, tensors, name, skew, dtype)
    buckets.append(bucket)
    saturated(gpu)
    message, residuals = bucket.encode(prescale)
    expected = encoded_message(bucket.codec, tensors, prescale)
    assert_same_bits(message, expected.message, f"{name}: ")
    assert saturated(gpu) == expected.saturated
    for residual, wanted in zip(residuals, expected.residuals, strict=True):
        assert_same_bits(residual, wanted, f"{name}, residuals: ")
    values = decoded_message(bucket.codec, tensors, message)
    for got, value in zip(bucket.decode(message), values, strict=True):
        assert_same_bits(got, value, f"{name}, decoded: ")


@pytest.mark.parametrize("name", NAMES)
def test_a_bucket_of_all_sizes(gpu: Gpu, buckets: list[Bucket], name: str) -> None:
    assert_encodes(gpu, buckets, many_tensors(), name, skew=1 + NAMES.index(name) % 7)


@pytest.mark.parametrize("name", NAMES)
def test_error_feedback(gpu: Gpu, buckets: list[Bucket], name: str) -> None:
    tensors = many_tensors(feedback=True)
    assert_encodes(gpu, buckets, tensors, name, prescale=1 / 3, skew=NAMES.index(name) % 5)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
@pytest.mark.parametrize("name", ["bit16", "bit8/128", "int8/32/stochastic/seed9", "int4/128/hadamard/lloyd"])
def test_dtypes(gpu: Gpu, buckets: list[Bucket], name: str, dtype: str) -> None:
    assert_encodes(gpu, buckets, many_tensors(dtype, feedback=True), name, prescale=0.5, skew=3)


@pytest.mark.parametrize("block", [32, 64, 128, 256, 512, 1024])
@pytest.mark.parametrize("codec", ["bit8", "int4/hadamard", "int4/hadamard/lloyd"])
def test_blocks(gpu: Gpu, buckets: list[Bucket], codec: str, block: int) -> None:
    format_name, *options = codec.split("/")
    name = "/".join([format_name, str(block), *options])
    whole = [Tensor(gradient_like(8192, seed=block)), Tensor(gradient_like(2 * block + 40, seed=1))]
    assert_encodes(gpu, buckets, whole, name)


@pytest.mark.parametrize("name", NAMES)
def test_whole_runs_in_place(gpu: Gpu, buckets: list[Bucket], name: str) -> None:
    """Aligned memory without special values takes the fast path, which has separate code."""
    assert_encodes(gpu, buckets, [Tensor(gradient_like(8192), gradient_like(8192, seed=2))], name)


def test_many_elements_and_many_tensors(gpu: Gpu, buckets: list[Bucket]) -> None:
    assert_encodes(gpu, buckets, [Tensor(gradient_like(1_000_003))], "bit8/128")
    little = [Tensor(gradient_like(1 + i % 70, seed=i)) for i in range(1100)]
    assert_encodes(gpu, buckets, little, "int8/128")


@pytest.mark.parametrize("name", GRIDS)
def test_every_place_where_rounding_changes(gpu: Gpu, buckets: list[Bucket], name: str) -> None:
    fmt = GRIDS[name]
    largest = float(decode_minifloat(np.array([fmt.max_code], np.uint8), fmt)[0])
    x = in_blocks_of_scale_one(minifloat_boundaries(fmt), int(name.split("/")[1]), largest)
    assert_encodes(gpu, buckets, [Tensor(x)], name)


@pytest.mark.parametrize("name", ["bit16", "bit8/32", "int8/128", "int4/128"])
def test_every_exponent(gpu: Gpu, buckets: list[Bucket], name: str) -> None:
    sweep = float32_sweep()
    finite = sweep[np.isfinite(sweep)]
    by_size = finite[np.argsort(np.abs(finite), kind="stable")]
    x = by_size if name == "bit16" else by_size[::7]
    assert_encodes(gpu, buckets, [Tensor(x.copy()), Tensor(random_patterns(5000))], name)


def test_every_half(gpu: Gpu, buckets: list[Bucket]) -> None:
    assert_encodes(gpu, buckets, [Tensor(half_boundaries())], "bit16")


@pytest.mark.parametrize("name", ["bit16", *GRIDS, "int8/128", "int4/128"])
def test_every_code_decodes(gpu: Gpu, buckets: list[Bucket], name: str) -> None:
    """All codes with every scale byte, including codes that no encoder writes."""
    count = 3 * 4096 + 100
    bucket = Bucket(gpu, [Tensor(np.zeros(count, np.float32))], name)
    buckets.append(bucket)
    random = np.random.default_rng(3)
    in_order = np.arange(bucket.code_bytes).astype(np.uint8)
    for message in (random.integers(0, 256, bucket.code_bytes, np.uint8), in_order):
        (values,) = bucket.decode(message)
        (expected,) = decoded_message(bucket.codec, bucket.tensors, message)
        same: NDArray[np.bool_] = (bits(values) == bits(expected)) | (np.isnan(values) & np.isnan(expected))
        assert same.all()


def test_an_empty_bucket(gpu: Gpu, buckets: list[Bucket]) -> None:
    assert_encodes(gpu, buckets, [Tensor(np.zeros(0, np.float32))], "bit8/128")


def test_what_is_refused(gpu: Gpu, buckets: list[Bucket]) -> None:
    bucket = Bucket(gpu, [Tensor(np.zeros(4, np.int32))], "bit8/128")
    buckets.append(bucket)
    bucket.dtype = "float32"
    bucket.device_codec.block = 48
    with refused_there("WrongArgument", "gpu_block_wrong", value="48"):
        bucket.encode()
