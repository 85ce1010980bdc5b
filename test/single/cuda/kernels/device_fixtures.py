"""Fixtures for tests of GPU kernels: the GPU, and buckets that are freed afterwards."""

from collections.abc import Iterator

import pytest
from device_kernels import Bucket
from device_trials import Gpu

__all__ = ["buckets", "gpu"]


@pytest.fixture(scope="module")
def gpu() -> Gpu:
    return Gpu(0)


@pytest.fixture
def buckets() -> Iterator[list[Bucket]]:
    made: list[Bucket] = []
    yield made
    for bucket in made:
        bucket.free()
