"""Complex tensors in every operation: as if real and imaginary parts had been given by themselves."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from api_cases import assert_usable
from torch import nn

import horovod.torch as hvd

DTYPES = [torch.complex64, torch.complex128]
COMPRESSIONS = ["none", "fp16", "bf16", "bit16", "bit8", "int8", "int4", "topk", "powersgd"]
LAYOUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "plain": torch.clone,
    "conjugated": lambda x: x.conj().resolve_conj().conj(),
    "transposed": lambda x: x.t().contiguous().t(),
    "conjugated and transposed": lambda x: x.clone().mH.resolve_conj().mH,
}
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


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_allreduce(form: str, layout: str, dtype: torch.dtype, size: int, rank: int) -> None:
    own = LAYOUTS[layout](numbers(rank, dtype))
    before = own.clone()
    assert torch.equal(own, numbers(rank, dtype))
    result = FORMS[form](own, op=hvd.Sum, name="sum")
    assert result.dtype == dtype and torch.equal(result, total(size, dtype))
    assert (result is own) if form.endswith("_") else torch.equal(own, before)
    result = FORMS[form](LAYOUTS[layout](numbers(rank, dtype)), op=hvd.Average, name="average")
    assert torch.allclose(result, total(size, dtype) / size)
    result += 1j  # a result is the caller's to change


@pytest.mark.parametrize(
    "compression", ["none", "fp16", "bf16", "bit16", "bit8", "int8", "int4", "topk", "powersgd"]
)
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


@pytest.mark.parametrize("op", ["Min", "Max", "Product", "Adasum"])
@pytest.mark.parametrize("form", FORMS)
def test_ops_that_do_not_add_are_refused(form: str, op: str) -> None:
    with pytest.raises(ValueError, match=rf"allreduce\.phases: op={op} of torch\.complex64: .*view_as_real"):
        FORMS[form](torch.ones(3, dtype=torch.complex64), op=getattr(hvd, op), name="phases")
    assert_usable()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_what_moves_tensors(layout: str, dtype: torch.dtype, rank: int, size: int) -> None:
    own = LAYOUTS[layout](numbers(rank, dtype))
    everything = torch.cat([numbers(r, dtype) for r in range(size)])
    assert torch.equal(hvd.allgather(own), everything)
    both = hvd.grouped_allgather([own, torch.ones(1)])
    assert torch.equal(both[0], everything) and both[1].shape == (size,)
    assert torch.equal(hvd.broadcast(own, 1), numbers(1, dtype))
    assert torch.equal(own, numbers(rank, dtype)), "none of these writes to its input"
    assert hvd.broadcast_(own, 1) is own and torch.equal(own, numbers(1, dtype))
    splits = torch.tensor([1] * size, dtype=torch.int32)
    rows, received = hvd.alltoall(numbers(rank, dtype), splits)
    assert torch.equal(rows, torch.stack([numbers(r, dtype)[rank] for r in range(size)]))
    assert received.tolist() == [1] * size


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


def test_numbers_without_dimensions(rank: int, size: int) -> None:
    own = torch.tensor(1 + 2j) * (rank + 1)
    assert hvd.allreduce(own, op=hvd.Sum) == (1 + 2j) * sum(range(1, size + 1))
    assert hvd.broadcast(own, 1) == 2 + 4j
    for operation in (hvd.allgather, hvd.alltoall, hvd.reducescatter, hvd.reducescatter_async):
        with pytest.raises(ValueError, match=r"reshape it to \(1,\)"):
            operation(own, name="scalar")
    assert_usable()


def test_gradients_pass(rank: int, size: int) -> None:
    """Of the sum of all real and imaginary parts, times 1 and 2: the pairs' gradients, as complex numbers."""

    def gradient(own: torch.Tensor, operation: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
        own = own.clone().requires_grad_()
        result = operation(own)
        parts = torch.view_as_real(result) if result.is_complex() else result
        (parts * torch.tensor([1.0, 2.0])).sum().backward()
        assert own.grad is not None
        return torch.view_as_real(own.grad) if own.is_complex() else own.grad

    own = numbers(rank, torch.complex64, (size, 3))
    for operation in (
        hvd.allreduce,
        hvd.allgather,
        hvd.alltoall,
        hvd.reducescatter,
        lambda x: hvd.broadcast(x, 1),
        lambda x: hvd.grouped_allreduce([x])[0],
    ):
        assert torch.equal(gradient(own, operation), gradient(torch.view_as_real(own), operation))


def test_sparse(rank: int, size: int) -> None:
    own = torch.sparse_coo_tensor(torch.tensor([[0, rank]]), torch.tensor([1j, 2.0]), (5,))
    want = torch.zeros(5, dtype=torch.complex64)
    want[0] = 1j * size
    for r in range(size):
        want[r] += 2
    assert torch.allclose(hvd.sparse_allreduce_async(own, "s", hvd.Sum)().to_dense(), want)
    assert torch.allclose(hvd.sparse_allreduce_async(own, "s", hvd.Average)().to_dense(), want / size)


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
    with pytest.raises(ValueError, match=rf"gradient of 'weight': op={op} of torch\.complex64"):
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
