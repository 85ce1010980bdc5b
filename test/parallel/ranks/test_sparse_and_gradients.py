"""Sparse allreduces; and autograd with operations, beyond the cases of test_contract.py."""

from typing import Any

import pytest
import torch
from places import Place
from rank_fixtures import seeded

import horovod.torch as hvd


def sparse(rank: int, dtype: torch.dtype, place: Place) -> torch.Tensor:
    """Return row `rank`, and row 0 twice: duplicates must be added."""
    indices = torch.tensor([[rank, 0, 0], [1, 2, 2]])
    return place.put(torch.sparse_coo_tensor(indices, torch.tensor([1, 2, 3]).to(dtype), (5, 3)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64, torch.complex64], ids=str)
@pytest.mark.parametrize("op", ["Average", "Sum"])
@pytest.mark.parametrize("over", ["all", "parity"])
def test_sparse_allreduce(
    dtype: torch.dtype, op: str, over: str, place: Place, parity: list[Any], rank: int
) -> None:
    mine = parity[rank % 2] if over == "parity" else hvd.global_process_set
    own = sparse(rank, dtype, place)
    before = own.clone()
    finishes = [hvd.sparse_allreduce_async(own, f"sparse.{i}", getattr(hvd, op), mine) for i in range(3)]
    total = sum(sparse(r, dtype, place).to_dense() for r in mine.ranks)
    mean = torch.div(total, mine.size(), rounding_mode="trunc" if dtype == torch.int64 else None)
    for finish in reversed(finishes):
        result = finish()
        assert result.is_sparse and result.dtype == dtype and result.shape == (5, 3)
        assert result.device == place.device
        assert torch.allclose(result.to_dense(), mean if op == "Average" else total, rtol=1e-6)
    assert torch.equal(own.to_dense(), before.to_dense())


@pytest.mark.parametrize("value", [2**62, -(2**63), -7, 1])
def test_sparse_average_of_integers_is_exact(value: int, place: Place, rank: int, size: int) -> None:
    values = place.put(torch.tensor([value + (rank == 0)]))
    own = torch.sparse_coo_tensor(place.put(torch.tensor([[2]])), values, (5,))
    result = hvd.sparse_allreduce_async(own, "sparse", hvd.Average)().to_dense()
    want = value + 1 if value < 0 or size == 1 else value  # value + 1 / size, towards zero
    assert result.dtype == torch.int64 and result.tolist() == [0, 0, want, 0, 0]


def test_sparse_allreduce_when_some_have_nothing(place: Place, rank: int, size: int) -> None:
    """Also with values that are rows, such as gradients of embeddings."""
    rows = torch.sparse_coo_tensor([[size]], [[3.0, 4.0]], (size + 1, 2))
    empty = torch.sparse_coo_tensor(torch.empty(1, 0, dtype=torch.int64), torch.empty(0, 2), (size + 1, 2))
    own = place.put(rows if rank == 0 else empty)
    finishes = [hvd.sparse_allreduce_async(own, f"sparse.{i}", hvd.Sum) for i in range(4)]
    for finish in reversed(finishes):
        assert torch.equal(finish().to_dense().cpu(), rows.to_dense())


def test_sparse_allreduce_needs_its_name_and_op(place: Place) -> None:
    for arguments in ((), ("named",)):
        with pytest.raises(TypeError):
            hvd.sparse_allreduce_async(sparse(0, torch.float32, place), *arguments)


def test_results_differentiate_only_when_asked(place: Place, size: int) -> None:
    """test_contract.py tests the blocking forms."""
    x = place.put(torch.ones(size, 2)).requires_grad_()
    handles = [
        hvd.allreduce_async(x), hvd.allgather_async(x), hvd.broadcast_async(x, 0), hvd.reducescatter_async(x),
    ]  # fmt: skip
    assert not any(hvd.synchronize(handle).requires_grad for handle in handles)
    with torch.no_grad():
        assert not hvd.allreduce(x).requires_grad
    assert not hvd.allgather(x.detach()).requires_grad


def test_one_chain_through_all(place: Place, rank: int, size: int) -> None:
    """Unnamed operations of a backward pass run in the same order on every rank, mixed with forward ones."""
    x = place.put(torch.full((size, 2), float(rank))).requires_grad_()
    y = hvd.allreduce(x, op=hvd.Sum)  # equal on every rank from here on
    y = hvd.allgather(hvd.reducescatter(y, op=hvd.Average))
    y = hvd.alltoall(hvd.alltoall(y))
    hvd.broadcast(y, 0).sum().backward()
    # Ones at root, twice there and back, 1 / size by the average, gathered, and summed.
    assert torch.equal(x.grad.cpu(), torch.full((size, 2), 1.0))


def test_gradients_in_a_training_step(rank: int, size: int) -> None:
    """A tensor-parallel layer: ranks hold columns of its weight, and its outputs are gathered."""
    with seeded(5):
        weight, x = torch.randn(4 * size, 3), torch.randn(2, 3)
    own = weight[4 * rank : 4 * rank + 4].clone().requires_grad_()
    outputs = hvd.allgather(own @ x.t())
    outputs.square().sum().backward()
    whole = weight.clone().requires_grad_()
    (whole @ x.t()).square().sum().backward()
    assert torch.allclose(own.grad, whole.grad[4 * rank : 4 * rank + 4], rtol=1e-5, atol=1e-6)
