"""compression=none is DistributedDataParallel as it is, bit for bit: the hook divides and sums likewise."""

from typing import Any

import pytest
import torch
import torch.distributed as dist
from ddp_training import Training
from torch import nn

from horovod.torch import Compression, ddp

EITHER = pytest.mark.parametrize("is_view", [False, True], ids=["own gradients", "views of buckets"])


@EITHER
@pytest.mark.parametrize("keeps", [False, True], ids=["gradients are dropped", "gradients are zeroed"])
def test_a_hundred_steps_give_the_bits_of_plain_ddp(is_view: bool, keeps: bool) -> None:
    options = {"gradient_as_bucket_view": is_view, "keeps_gradients": keeps}
    plain = Training(**options).run(range(100))
    hooked = Training(Compression.none, **options).run(range(100))
    assert torch.equal(hooked.flat(), plain.flat())
    assert hooked.model.logger._get_ddp_logging_data().strs_map["comm_hook"] == "compression_hook"


@EITHER
def test_gradients_that_are_accumulated_keep_their_bits(is_view: bool) -> None:
    """Where a gradient lies when it is complete differs from step to step."""

    def trained(*compression: Any) -> torch.Tensor:
        training = Training(*compression, gradient_as_bucket_view=is_view)
        for step in range(9):
            training.optimizer.zero_grad(set_to_none=step % 2 == 0)
            with training.model.no_sync():
                training.loss(step).backward()
            training.loss(100 + step).backward()
            training.optimizer.step()
        return training.flat()

    assert torch.equal(trained("none"), trained())


def test_a_parameter_that_is_frozen_for_a_while() -> None:
    def trained(*compression: Any) -> torch.Tensor:
        training = Training()
        weight = training.model.module[0].weight
        weight.requires_grad_(False)  # wrapped as trainable, and not when compression is said
        if compression:
            ddp.compress(training.model, *compression)
        weight.requires_grad_(True)
        return training.run(range(5)).flat()

    assert torch.equal(trained("none"), trained())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_dtypes_keep_their_bits(dtype: torch.dtype) -> None:
    def trained(*compression: Any) -> torch.Tensor:
        training = Training(*compression, make=lambda: nn.Linear(30, 3).to(dtype))
        for step in range(10):
            training.optimizer.zero_grad()
            generator = torch.Generator().manual_seed(1000 * step + dist.get_rank())
            training.model(torch.randn(8, 30, generator=generator).to(dtype)).sum().backward()
            training.optimizer.step()
        return training.flat()

    assert torch.equal(trained("none"), trained())


@pytest.mark.parametrize("compression", ["none", "bit8"])
def test_sparse_gradients_are_reduced_as_ddp_does(compression: str, rank: int) -> None:
    class Words(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.out = nn.Embedding(50, 30, sparse=True), nn.Linear(30, 3)

        def forward(self, words: torch.Tensor) -> Any:
            return self.out(self.embed(words))

    def gradient(*compression: Any) -> torch.Tensor:
        training = Training(*compression, make=Words)
        training.model(torch.arange(4) * (rank + 1)).square().sum().backward()
        found = training.model.module.embed.weight.grad
        assert found.is_sparse
        return found.to_dense()

    assert torch.equal(gradient(compression), gradient())
