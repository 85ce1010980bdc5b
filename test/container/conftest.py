"""One image for all tests here, built from this tree; skipped, with the reason, where none can be built."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from image import Container, Image, why_not


@pytest.fixture(scope="session")
def image() -> Iterator[Image]:
    reason = why_not()
    if reason:
        pytest.skip(reason)
    with Image() as built:
        began = time.monotonic()
        built.build(["--build-arg", "VERSION=1.2.3", "--build-arg", "REVISION=abc"])
        seconds = time.monotonic() - began
        print(f"\nthe image took {seconds:.0f} s to build, and has {built.size() / 1e6:.0f} MB")
        yield built


@pytest.fixture(scope="session")
def container(image: Image) -> Container:
    return image.container()
