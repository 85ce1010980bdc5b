"""Jobs in which tests of horovod.torch run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture
def alone() -> Iterator[None]:
    """A job of one."""
    import horovod.torch as hvd  # here: most folders' tests need no torch

    hvd.init()
    yield
    hvd.shutdown()


@pytest.fixture
def engine() -> Iterator[Any]:
    """Of two ranks that do the same: a Sum doubles a tensor, and what is asked for is written down."""
    from mirrored_job import mirrored_job

    with mirrored_job(2) as engine:
        yield engine
