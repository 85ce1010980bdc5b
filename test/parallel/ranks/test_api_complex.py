"""Complex tensors are compressed and trained as if real and imaginary parts had been given by themselves.

Every operation has them in test_contract.py.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from contract import assert_usable
from refusals import refused
from torch import nn

import horovod.torch as hvd
from horovod.torch import errors

COMPRESSIONS = ["none", "fp16", "bf16", "bit16", "bit8", "int8", "int4", "topk", "powersgd"]
FORMS: dict[str, Callable[..., torch.Tensor]] = {
    "allreduce": hvd.allreduce,
    "allreduce_": hvd.allreduce_,
    "allreduce_async": lambda x, **how: hvd.synchronize(hvd.allreduce_async(x, **how)),
    "allreduce_async_": lambda x, **how: hvd.synchronize(hvd.allreduce_async_(x, **how)),
    "grouped_allreduce": lambda x, **how: hvd.grouped_allreduce([x, torch.ones(3)], **how)[0],
    "grouped_allreduce_": lambda x, **how: hvd.grouped_allreduce_([x, torch.ones(3)], **how)[0],
}


def numbers(rank: int, dtype: torch.dtype, shape: tuple[int, ...] = (6, 4)) -> torch.Tensor:
    """Whole numbers, whose sums are exact, and whose parts differ."""
    generator = torch.Generator().manual_seed(rank)
    real, imaginary = torch.randint(-50, 50, (2, *shape), generator=generator).double()
    return torch.complex(real, imaginary).to(dtype)


def total(size: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.stack([numbers(rank, dtype) for rank in range(size)]).sum(0)


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("form", FORMS)
def test_compressed_as_the_pairs_of_reals_are(form: str, compression: str, rank: int) -> None:
    own = torch.randn(40, 30, dtype=torch.complex64, generator=torch.Generator().manual_seed(rank))
    how = {"op": hvd.Average, "compression": hvd.Compression.from_text(compression)}
    pairs = hvd.allreduce(torch.view_as_real(own).clone(), name=f"pairs.{form}.{compression}", **how)
    result = FORMS[form](own.clone(), name=f"complex.{form}.{compression}", **how)
    assert torch.equal(torch.view_as_real(result), pairs)


class Halves(hvd.Compression.none):  # type: ignore[misc,name-defined]
    """Of the kind that scripts bring: it never sees a complex number."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        assert tensor.dtype == torch.float32
        return tensor / 2, None

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        return tensor * 2


def test_a_compressor_of_the_script(rank: int, size: int) -> None:
    own = numbers(rank, torch.complex64)
    want = total(size, torch.complex64)
    assert torch.equal(hvd.allreduce(own, op=hvd.Sum, compression=Halves), want)
    assert torch.equal(hvd.allreduce_(own.clone(), op=hvd.Sum, compression=Halves), want)
    assert torch.equal(hvd.grouped_allreduce([own], op=hvd.Sum, compression=Halves)[0], want)


@pytest.mark.parametrize("compression", ["none", "fp16", "bit8"])
def test_reducescatter(compression: str, rank: int, size: int) -> None:
    how = {"op": hvd.Sum, "compression": hvd.Compression.from_text(compression)}
    own = numbers(rank, torch.complex64, (2 * size, 64))
    pairs = hvd.reducescatter(torch.view_as_real(own), **how)
    assert torch.equal(torch.view_as_real(hvd.reducescatter(own.conj().resolve_conj().conj(), **how)), pairs)
    (grouped,) = hvd.grouped_reducescatter([own], **how)
    assert torch.equal(torch.view_as_real(grouped), pairs)
    if compression == "none":
        assert torch.equal(hvd.synchronize(hvd.reducescatter_async(own, op=hvd.Sum)), grouped)


class Pairs(nn.Module):
    """A complex model, or the same with its parameters as pairs of reals."""

    def __init__(self, is_complex: bool) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(3)
        weight = torch.randn(40, 30, dtype=torch.complex64, generator=generator)
        bias = torch.randn(2000, dtype=torch.complex64, generator=generator)
        self.weight = nn.Parameter(weight if is_complex else torch.view_as_real(weight).clone())
        self.bias = nn.Parameter(bias if is_complex else torch.view_as_real(bias).clone())

    def loss(self, rank: int, step: int) -> torch.Tensor:
        generator = torch.Generator().manual_seed(100 * step + rank)
        loss = torch.zeros(())
        for parameter in (self.weight, self.bias):
            reals = torch.view_as_real(parameter) if parameter.is_complex() else parameter
            loss = loss + ((reals - torch.randn(reals.shape, generator=generator)) ** 2).sum()
        return loss


OPTIMIZED = {
    "none": "none",
    "fp16": "fp16",
    "bit8": "bit8:min_elements=0",
    "int4 with error feedback": "int4:error_feedback=1",
    "topk": "topk:ratio=0.1",
    "powersgd": "powersgd:rank=2",
}


@pytest.mark.parametrize("compression", OPTIMIZED.values(), ids=OPTIMIZED.keys())
@pytest.mark.parametrize("groups", [None, 1])
def test_optimizer(compression: str, groups: int | None, rank: int) -> None:
    """Parameters end as pairs of reals would, bit for bit: factors are powers of two, and round nothing."""
    models = Pairs(True), Pairs(False)
    for model, what in zip(models, ("complex", "pairs"), strict=True):
        rules = {"*.weight": compression, "*": "none"}
        named = [(f"{what}.{name}", parameter) for name, parameter in model.named_parameters()]
        sgd = torch.optim.SGD(model.parameters(), lr=2**-7, momentum=0.5)
        optimizer = hvd.DistributedOptimizer(sgd, named, compression=rules, groups=groups)
        for step in range(4):
            optimizer.zero_grad()
            model.loss(rank, step).backward()
            optimizer.step()
    for ours, theirs in zip(models[0].parameters(), models[1].parameters(), strict=True):
        assert torch.equal(torch.view_as_real(ours.detach()), theirs.detach())
    everybodys = hvd.allgather_object([parameter.detach() for parameter in models[0].parameters()])
    assert all(torch.equal(a, b) for other in everybodys for a, b in zip(everybodys[0], other, strict=True))


@pytest.mark.parametrize("op", ["Min", "Max", "Product", "Adasum"])
def test_an_optimizer_that_would_not_add_is_refused_when_it_is_wrapped(op: str) -> None:
    model = Pairs(True)
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    with refused(
        errors.complex_op, tensor="DistributedOptimizer, gradient of 'weight'", op=op, dtype="torch.complex64"
    ):
        hvd.DistributedOptimizer(sgd, model.named_parameters(), op=getattr(hvd, op))
    assert_usable()


def test_broadcast_of_parameters_and_optimizer_state(rank: int) -> None:
    parameter = nn.Parameter(numbers(rank, torch.complex64))
    optimizer = torch.optim.Adam([parameter], lr=0.1)
    parameter.grad = numbers(rank + 7, torch.complex64)
    optimizer.step()
    want = numbers(1, torch.complex64)
    hvd.broadcast_optimizer_state(optimizer, root_rank=1)
    first = optimizer.state[parameter]["exp_avg"]
    assert torch.allclose(first, 0.1 * numbers(8, torch.complex64)) and first.dtype == torch.complex64
    with torch.no_grad():
        parameter.copy_(numbers(rank, torch.complex64))
    hvd.broadcast_parameters([("w", parameter)], root_rank=1)
    assert torch.equal(parameter, want) and parameter.requires_grad
