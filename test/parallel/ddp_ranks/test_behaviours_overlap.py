"""Gradients travel during the backward pass: the hook returns before its bucket is reduced."""

import threading
from typing import Any, ClassVar

import pytest
import torch
from ddp_training import Training, all_equal

from horovod.torch.compression import Bit8Compressor


class Patient(Bit8Compressor):
    """A codec whose decoding waits until the test releases it."""

    may_read = threading.Event()
    waited: ClassVar[list[bool]] = []

    def decompress(self, tensor: torch.Tensor, ctx: Any) -> torch.Tensor:  # type: ignore[override]
        self.waited.append(self.may_read.wait(20))
        return super().decompress(tensor, ctx)


def test_the_backward_pass_goes_on_while_a_bucket_is_reduced(size: int) -> None:
    """The last layer's bucket waits until the first layer has its gradient: a waiting hook would hang."""
    if size == 1:
        pytest.skip("a world of one compresses nothing")
    Patient.may_read.set()
    training = Training({"4.weight": Patient(min_elements=0)}).run(range(2))  # after rebuilding buckets
    assert training.model._has_rebuilt_buckets
    Patient.may_read.clear()
    Patient.waited.clear()
    training.model.module[0].weight.register_hook(lambda _: Patient.may_read.set())
    training.run(range(2, 3))
    assert Patient.waited == [True] * size
    assert all_equal(training.flat())
