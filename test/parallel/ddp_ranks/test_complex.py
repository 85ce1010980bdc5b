"""Complex parameters under native DDP, FSDP and the backend: ranks get the results of pairs of reals."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist
from complex_pairs import Pairs
from ddp_training import all_equal
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from horovod.torch import ddp
from horovod.torch_autoload import register_backend

register_backend()

COMPRESSIONS = {  # none for all has its own test: the order of DDP's sums depends on its buckets
    "fp16": "fp16",
    "bit8": "bit8",
    "int4 with error feedback": "int4:error_feedback=1",
    "topk": "topk:ratio=0.1",
    "powersgd": "powersgd:rank=2",
    "rules": {"weight": "none", "*": "bit8"},
}
EVERY = pytest.mark.parametrize("compression", COMPRESSIONS.values(), ids=COMPRESSIONS.keys())
DTYPES = pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128], ids=str)


def trained(dtype: torch.dtype, is_complex: bool, compression: Any, **options: Any) -> list[torch.Tensor]:
    """Train three steps; parameters of one name and shape are compressed alike, except the pairs' bias."""
    model = DistributedDataParallel(Pairs(dtype, is_complex), **options)
    if compression is not None:
        rules = compression if isinstance(compression, dict) else {"bias": "none", "*": compression}
        ddp.compress(model, rules)
    # Powers of two are exact in products with complex numbers and with reals.
    optimizer = torch.optim.SGD(model.parameters(), lr=2**-7, momentum=0.5)
    for step in range(3):
        optimizer.zero_grad()
        model(dist.get_rank(), step).backward()
        optimizer.step()
    values = [parameter.detach() for parameter in model.parameters()]
    return [torch.view_as_real(value) if value.is_complex() else value for value in values]


@EVERY
@DTYPES
@pytest.mark.parametrize("is_view", [False, True], ids=["own gradients", "views of buckets"])
def test_they_are_compressed_as_pairs_of_reals(dtype: torch.dtype, compression: Any, is_view: bool) -> None:
    ours = trained(dtype, True, compression, gradient_as_bucket_view=is_view)
    pairs = trained(dtype, False, compression, gradient_as_bucket_view=is_view)
    for name, own, theirs in zip(("weight", "other", "bias", "real"), ours, pairs, strict=True):
        assert torch.equal(own, theirs), name
        assert all_equal(own.contiguous()), name


@DTYPES
@pytest.mark.parametrize("is_view", [False, True], ids=["own gradients", "views of buckets"])
def test_none_is_plain_ddp(dtype: torch.dtype, is_view: bool) -> None:
    """Three ranks too, for which the division is not exact."""
    ours = trained(dtype, True, "none", gradient_as_bucket_view=is_view)
    plain = trained(dtype, True, None, gradient_as_bucket_view=is_view)
    assert all(map(torch.equal, ours, plain))


def test_the_backend_compresses_sums_of_complex_tensors(
    rank: int, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOROVOD_COMPRESSION", "bit8")
    group = dist.new_group(backend="horovod")
    own = torch.randn(20_000, dtype=torch.complex64, generator=torch.Generator().manual_seed(rank))
    pairs, conjugated = torch.view_as_real(own).clone(), own.conj().resolve_conj().conj()
    exact = own.clone()
    dist.all_reduce(exact)
    dist.all_reduce(own, group=group)
    dist.all_reduce(pairs, group=group)
    assert torch.equal(torch.view_as_real(own), pairs)
    assert size == 1 or not torch.equal(own, exact), "it was compressed"
    assert all_equal(torch.view_as_real(own).contiguous())
    assert conjugated.is_conj()
    dist.barrier()
    dist.destroy_process_group(group)


@pytest.mark.parametrize("compression", ["bit8", "fp16"])
def test_fsdp(compression: str, rank: int, size: int) -> None:
    """Each rank's shard of the mean is within the rounding of one quantisation."""

    class Complex(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            generator = torch.Generator().manual_seed(5)
            self.weight = nn.Parameter(torch.randn(64, 48, dtype=torch.complex64, generator=generator))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (torch.view_as_real(self.weight) * x).sum()

    model = Complex()
    fully_shard(model)
    ddp.compress_fsdp(model, compression)
    x = torch.randn(size, 64, 48, 2, generator=torch.Generator().manual_seed(9))
    model(x[rank]).backward()
    gradient = model.weight.grad
    assert isinstance(gradient, DTensor)
    own = torch.view_as_real(gradient.to_local())
    rows = -(-64 // size)
    want = x.mean(0)[rank * rows : (rank + 1) * rows]
    # The error of bit8 is at most 1/16 of each rank's element; that of fp16 2^-11, and again for the result.
    bound = x.abs().mean(0)[rank * rows : (rank + 1) * rows] / 16 + 1e-3
    assert own.shape == want.shape and bool(((own - want).abs() <= bound).all())
