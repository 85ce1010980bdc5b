"""Sums and copies of elements on an emulated GPU equal the CPU's results, bit for bit."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from codec_cases import NAMES, assert_same_bits, gradient_like, with_specials
from native_codec import Bytes, Float32s, as_floats, widened
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "emulated_cuda"))

from cuda_twin import decoded_message, encoded_message, prescaled, summed
from device_kernels import ALL_DTYPES, Asked, Bucket, Tensor, dtype_of
from device_trials import Gpu, refused_there

pytest_plugins = ["device_fixtures"]
COUNTS = (1, 129, 0, 4096, 1000, 4097, 2048)
MANY = (1, 2, 3, 4, 8)


def tensors_of(rank: int, dtype: str, *, feedback: bool = False) -> list[Tensor]:
    tensors = []
    for i, count in enumerate(COUNTS):
        values = widened(gradient_like(count, seed=50 * rank + i) * np.float32(1e-3), dtype)
        residual = gradient_like(count, seed=i + 7) if feedback and i % 2 == 0 else None
        tensors.append(Tensor(values, residual, key=rank + i, first=10 * i, skew=i % 4))
    return tensors


def results_of(values: Sequence[Float32s], tensors: Sequence[Tensor]) -> list[Tensor]:
    """The sums as tensors, the input of their encoding."""
    pairs = zip(values, tensors, strict=True)
    return [Tensor(value, tensor.residual, tensor.key, tensor.first) for value, tensor in pairs]


def assert_all_same(actual: Sequence[NDArray[Any]], expected: Sequence[NDArray[Any]], what: str) -> None:
    for i, (got, wanted) in enumerate(zip(actual, expected, strict=True)):
        assert_same_bits(got, wanted, f"{what} of tensor {i}: ")


@pytest.mark.parametrize("name", NAMES)
def test_codes_to_codes(gpu: Gpu, buckets: list[Bucket], name: str) -> None:
    """Decode, sum, scale, write, and encode again, with residuals."""
    count = MANY[NAMES.index(name) % len(MANY)]
    own = tensors_of(0, "float32", feedback=True)
    bucket = Bucket(gpu, own, name, message_skew=NAMES.index(name) % 4)
    buckets.append(bucket)
    messages = [encoded_message(bucket.codec, tensors_of(rank, "float32")).message for rank in range(count)]
    asked = Asked(factor=0.5, divisor=count)
    result = bucket.reduce(messages, asked)
    sums = summed([decoded_message(bucket.codec, own, message) for message in messages], asked)
    expected = encoded_message(bucket.codec, results_of(sums, own))
    assert_all_same(bucket.results(), sums, "the sum")
    assert_same_bits(result, expected.message, "the result's message: ")
    assert_all_same(bucket.kept(), expected.residuals, "the residual")


@pytest.mark.parametrize("count", MANY)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_codes_to_elements(gpu: Gpu, buckets: list[Bucket], dtype: str, count: int) -> None:
    own = tensors_of(0, dtype)
    bucket = Bucket(gpu, own, "bit8/128", message_skew=count, dtype=dtype)
    buckets.append(bucket)
    messages = [encoded_message(bucket.codec, tensors_of(rank, dtype)).message for rank in range(count)]
    asked = Asked(to_codes=False, divisor=count)
    result = bucket.reduce(messages, asked)
    floats = [decoded_message(bucket.codec, own, message, "float32") for message in messages]
    sums = [widened(total, dtype) for total in summed(floats, asked)]
    assert_all_same(bucket.results(), sums, "the sum")
    assert_same_bits(result, np.concatenate(sums).view(np.uint8), "the message of elements: ")


@pytest.mark.parametrize("count", MANY)
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("name", ["", "bit8/128", "int4/64/hadamard/seed18446744073709551615"])
def test_elements_to_codes_and_elements(
    gpu: Gpu, buckets: list[Bucket], name: str, dtype: str, count: int
) -> None:
    """The rank's own contribution is read in place, the others from messages of elements."""
    own = tensors_of(0, dtype, feedback=bool(name))
    bucket = Bucket(gpu, own, name, message_skew=count, dtype=dtype)
    buckets.append(bucket)
    asked = Asked(of_codes=False, to_codes=bool(name), prescale=1 / 3, factor=2.0, divisor=count)
    contributions: list[Bytes | None] = [packed(tensors_of(rank, dtype)) for rank in range(count)]
    contributions[0] = None
    result = bucket.reduce(contributions, asked)
    sums = summed([prescaled(tensors_of(rank, dtype), asked.prescale) for rank in range(count)], asked)
    rounded = [widened(total, dtype) for total in sums]
    assert_all_same(bucket.results(), rounded, "the sum")
    if not name:
        assert_same_bits(result, np.concatenate(rounded).view(np.uint8), "the message of elements: ")
        return
    expected = encoded_message(bucket.codec, results_of(sums, own))
    assert_same_bits(result, expected.message, "the result's message: ")
    assert_all_same(bucket.kept(), expected.residuals, "the residual")


def packed(tensors: Sequence[Tensor]) -> Bytes:
    return np.concatenate([np.ascontiguousarray(tensor.values).view(np.uint8) for tensor in tensors])


def test_the_most_contributions_and_one_more(gpu: Gpu, buckets: list[Bucket]) -> None:
    tensor = [Tensor(gradient_like(300))]
    bucket = Bucket(gpu, tensor, "int8/64")
    buckets.append(bucket)
    message = encoded_message(bucket.codec, tensor).message
    bucket.reduce([message] * 64, Asked(has_result=False))
    (values,) = decoded_message(bucket.codec, tensor, message)
    assert_all_same(bucket.results(), summed([[values]] * 64, Asked()), "the sum")
    with refused_there("WrongArgument", "gpu_sum_count_wrong", most="64", count="65"):
        bucket.reduce([message] * 65, Asked())
    with refused_there("WrongArgument", "gpu_contribution_without_codes", number="1"):
        bucket.reduce([message, None], Asked())


def test_what_is_not_finite_spreads_as_on_the_cpu(gpu: Gpu, buckets: list[Bucket]) -> None:
    own = [Tensor(with_specials(gradient_like(5000)), gradient_like(5000, seed=3))]
    bucket = Bucket(gpu, own, "bit8/128")
    buckets.append(bucket)
    contributions = (own, [Tensor(gradient_like(5000))])
    messages = [encoded_message(bucket.codec, tensors).message for tensors in contributions]
    bucket.reduce(messages, Asked())
    (expected,) = summed([decoded_message(bucket.codec, own, message) for message in messages], Asked())
    (actual,) = bucket.results()
    assert np.array_equal(actual, expected, equal_nan=True) and not np.isfinite(actual).all()
    assert all(np.isfinite(residual).all() for residual in bucket.kept())


def any_values(dtype: str, count: int, seed: int) -> NDArray[Any]:
    random = np.random.default_rng(seed)
    if dtype == "bool":
        return random.integers(0, 2, count).astype(bool)
    kind = dtype_of(dtype)
    if kind.kind in "iu":
        limits = np.iinfo(kind)
        return random.integers(limits.min, limits.max, count, kind, endpoint=True)
    return widened(gradient_like(count, seed), dtype) if dtype != "float64" else random.standard_normal(count)


def scaled(x: NDArray[Any], factor: float, divisor: float) -> NDArray[Any]:
    """x * factor / divisor, as docs and collective/reduce.h say for each dtype."""
    if x.dtype == bool:
        return x & (factor / divisor != 0)
    with np.errstate(all="ignore"):
        if x.dtype == np.float64:
            return x * (factor / divisor)
        if x.dtype.kind not in "iu":
            return widened(as_floats(x) * np.float32(factor / divisor), x.dtype.name)
        if factor == 1.0:
            quotient = np.abs(x.astype(object)) // int(divisor)
            return (np.sign(x.astype(object)) * quotient).astype(x.dtype)
        limits = np.iinfo(x.dtype)
        products = x.astype(np.float64) * (factor / divisor)
        return np.array([min(max(int(value), limits.min), limits.max) for value in products], x.dtype)


@pytest.mark.parametrize("dtype", ALL_DTYPES)
def test_pack_and_unpack(gpu: Gpu, buckets: list[Bucket], dtype: str) -> None:
    counts = (5000, 0, 33, 4096, 9)
    tensors = [Tensor(any_values(dtype, count, i), skew=i % 3) for i, count in enumerate(counts)]
    aligned = [Tensor(any_values(dtype, 4096 * 2, 9))]
    for bucket in (Bucket(gpu, tensors, message_skew=1, dtype=dtype), Bucket(gpu, aligned, dtype=dtype)):
        buckets.append(bucket)
        values = [tensor.values for tensor in bucket.tensors]
        for prescale in (1.0, 0.25, -3.0, 0.0):
            expected = [scaled(x, prescale, 1.0) if prescale != 1.0 else x for x in values]
            message = np.concatenate([x.view(np.uint8) for x in expected])
            assert_same_bits(bucket.pack(prescale), message, f"{dtype} times {prescale}: ")
        message = np.concatenate([x.view(np.uint8) for x in values])
        for factor, divisor in ((1.0, 1.0), (1.0, 3.0), (0.5, 1.0), (2.5, 4.0)):
            results = bucket.unpack(message, factor, divisor)
            is_moved = factor == divisor == 1.0
            expected = values if is_moved else [scaled(x, factor, divisor) for x in values]
            assert_all_same(results, expected, f"{dtype} times {factor} / {divisor}")
