"""Complex tensors are compressed and trained like separate real and imaginary parts.

test_contract.py covers every operation, also with compressors of scripts.
"""

from itertools import product

import pytest
import torch
from complex_pairs import Pairs
from contract import (
    ALLREDUCES,
    COMPRESSED,
    LAYOUTS,
    Case,
    assert_same_bits_everywhere,
    assert_usable,
    call,
)
from refusals import refused
from torch import nn

import horovod.torch as hvd
from horovod.torch import errors

COMPRESSIONS = ["none", "fp16", "bf16", "bit16", "bit8", "int8", "int4", "topk", "powersgd"]


def numbers(rank: int) -> torch.Tensor:
    """Return whole numbers, with exact sums and different parts."""
    generator = torch.Generator().manual_seed(rank)
    real, imaginary = torch.randint(-50, 50, (2, 6, 4), generator=generator).float()
    return torch.complex(real, imaginary)


@pytest.mark.parametrize(
    ("form", "compression"),
    [
        (form, compression)
        for form, compression in product(COMPRESSED, COMPRESSIONS)
        if form in ALLREDUCES or compression not in ("topk", "powersgd")  # they do not scatter rows
    ],
)
@pytest.mark.parametrize("layout", ["plain", "conjugated"])
def test_compressed_as_the_pairs_of_reals_are(form: str, compression: str, layout: str, rank: int) -> None:
    own = torch.randn(40, 30, dtype=torch.complex64, generator=torch.Generator().manual_seed(rank))
    how = {"op": hvd.Average, "compression": hvd.Compression.from_text(compression)}
    reduced = hvd.allreduce if form in ALLREDUCES else hvd.reducescatter
    pairs = reduced(torch.view_as_real(own).clone(), name=f"pairs.{form}.{compression}.{layout}", **how)
    given = [LAYOUTS[layout](own.clone()), torch.ones(3)]
    result, _ = call(Case(form), given, f"complex.{form}.{compression}.{layout}", **how)
    assert torch.equal(torch.view_as_real(result.resolve_conj()), pairs)


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
    """Parameters end like pairs of reals, bit for bit: factors are powers of two, which do not round."""
    models = [Pairs(torch.complex64, is_complex) for is_complex in (True, False)]
    for model, what in zip(models, ("complex", "pairs"), strict=True):
        rules = {"*.weight": compression, "*": "none"}
        named = [(f"{what}.{name}", parameter) for name, parameter in model.named_parameters()]
        sgd = torch.optim.SGD(model.parameters(), lr=2**-7, momentum=0.5)
        optimizer = hvd.DistributedOptimizer(sgd, named, compression=rules, groups=groups)
        for step in range(4):
            optimizer.zero_grad()
            model(rank, step).backward()
            optimizer.step()
    for ours, theirs in zip(models[0].parameters(), models[1].parameters(), strict=True):
        own = torch.view_as_real(ours.detach()) if ours.is_complex() else ours
        assert torch.equal(own, theirs)
    assert_same_bits_everywhere(*models[0].parameters())


@pytest.mark.parametrize("op", ["Min", "Max", "Product", "Adasum"])
def test_an_optimizer_that_would_not_add_is_refused_when_it_is_wrapped(op: str) -> None:
    model = Pairs(torch.complex64, True)
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    with refused(
        errors.complex_op, tensor="DistributedOptimizer, gradient of 'weight'", op=op, dtype="torch.complex64"
    ):
        hvd.DistributedOptimizer(sgd, model.named_parameters(), op=getattr(hvd, op))
    assert_usable()


def test_broadcast_of_parameters_and_optimizer_state(rank: int) -> None:
    parameter = nn.Parameter(numbers(rank))
    optimizer = torch.optim.Adam([parameter], lr=0.1)
    parameter.grad = numbers(rank + 7)
    optimizer.step()
    want = numbers(1)
    hvd.broadcast_optimizer_state(optimizer, root_rank=1)
    first = optimizer.state[parameter]["exp_avg"]
    assert torch.allclose(first, 0.1 * numbers(8)) and first.dtype == torch.complex64
    with torch.no_grad():
        parameter.copy_(numbers(rank))
    hvd.broadcast_parameters([("w", parameter)], root_rank=1)
    assert torch.equal(parameter, want) and parameter.requires_grad
