"""Jobs in which tests of horovod.torch run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture
def alone() -> Iterator[None]:
    """A job of one rank."""
    import horovod.torch as hvd  # imported here, as most folders' tests need no torch

    hvd.init()
    yield
    hvd.shutdown()


@pytest.fixture
def engine() -> Iterator[Any]:
    """The engine of a mirrored job of two ranks: a Sum doubles a tensor, and requests are recorded."""
    from mirrored_job import mirrored_job

    with mirrored_job(2) as engine:
        yield engine
