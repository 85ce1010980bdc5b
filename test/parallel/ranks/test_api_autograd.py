"""Gradients of every operation, as Horovod defines them: where they differ from the true adjoint, they are
averages (allgather, broadcast) or carry a factor (reducescatter).
"""

import pytest
import torch
from api_cases import SHAPES, assert_close, numbers, share
from rank_fixtures import seeded

import horovod.torch as hvd

FLOATS = [torch.float32, torch.float64]
FACTORS = [(1.0, 1.0), (0.5, 4.0), (3.0, 1.0)]


def leaf(rank: int, dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor:
    return numbers(rank, dtype, shape).requires_grad_()


def gradient(rank: int, dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor:
    """What comes from above: other numbers on every rank."""
    return numbers(rank + 10, dtype, shape)


def summed_gradients(size: int, dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor:
    return sum((gradient(r, dtype, shape) for r in range(size)), torch.zeros(shape, dtype=dtype))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("op", ["Average", "Sum"])
@pytest.mark.parametrize("factors", FACTORS, ids=str)
def test_allreduce(dtype: torch.dtype, op: str, factors: tuple[float, float], rank: int, size: int) -> None:
    """The gradient is allreduced with the same op and factors."""
    pre, post = factors
    how = {"op": getattr(hvd, op), "prescale_factor": pre, "postscale_factor": post}
    for shape in SHAPES:
        want = summed_gradients(size, dtype, shape) * pre * post / (size if op == "Average" else 1)
        x = leaf(rank, dtype, shape)
        hvd.allreduce(x, **how).backward(gradient(rank, dtype, shape))
        assert_close(x.grad, want)
        group = [leaf(rank, dtype, shape) for _ in range(3)]
        results = hvd.grouped_allreduce(group, **how)
        torch.autograd.backward(results, [gradient(rank, dtype, shape) for _ in results])
        for x in group:
            assert_close(x.grad, want)


@pytest.mark.parametrize("op", ["Average", "Sum"])
def test_allreduce_of_equal_gradients(op: str, size: int) -> None:
    x = torch.ones(17, 17, requires_grad=True)
    hvd.allreduce(x, op=getattr(hvd, op)).backward(torch.ones(17, 17))
    assert torch.equal(x.grad, torch.full((17, 17), 1.0 if op == "Average" else float(size)))


def test_allreduce_through_compression(rank: int, size: int) -> None:
    x = torch.full((17,), float(rank), requires_grad=True)
    hvd.allreduce(x, op=hvd.Sum, compression=hvd.Compression.fp16).backward(torch.full((17,), rank + 1.0))
    assert torch.equal(x.grad, torch.full((17,), float(sum(range(1, size + 1)))))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_allgather(dtype: torch.dtype, rank: int, size: int) -> None:
    """The gradients of all ranks are averaged, and each takes the rows it gave."""
    rows = [3, 0, 5, 1][:size]
    begin = sum(rows[:rank])
    for trailing in ((), (17,), (2, 3)):
        whole = (sum(rows), *trailing)
        want = (summed_gradients(size, dtype, whole) / size)[begin : begin + rows[rank]]
        x = leaf(rank, dtype, (rows[rank], *trailing))
        hvd.allgather(x).backward(gradient(rank, dtype, whole))
        assert_close(x.grad, want)
        group = [leaf(rank, dtype, (rows[rank], *trailing)) for _ in range(2)]
        results = hvd.grouped_allgather(group)
        torch.autograd.backward(list(results), [gradient(rank, dtype, whole) for _ in results])
        for x in group:
            assert_close(x.grad, want)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_broadcast(dtype: torch.dtype, rank: int, size: int) -> None:
    """The average at root, zeros elsewhere."""
    for shape in ((), *SHAPES):
        for root in range(size):
            x = leaf(rank, dtype, shape)
            hvd.broadcast(x, root).backward(gradient(rank, dtype, shape))
            want = summed_gradients(size, dtype, shape) / size
            assert_close(x.grad, want if rank == root else torch.zeros_like(want))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_alltoall(dtype: torch.dtype, rank: int, size: int) -> None:
    """Rows of the gradient go back to where the rows came from."""
    x = leaf(rank, dtype, (2 * size, 3))
    hvd.alltoall(x).backward(torch.full((2 * size, 3), float(rank), dtype=dtype))
    want = torch.arange(float(size)).repeat_interleave(2).unsqueeze(1).expand(-1, 3)
    assert torch.equal(x.grad, want.to(dtype))

    counts = [(rank + 2 * r) % 4 for r in range(size)]
    x = leaf(rank, dtype, (sum(counts), 2))
    result, received_splits = hvd.alltoall(x, torch.tensor(counts, dtype=torch.int32))
    assert not received_splits.requires_grad
    result.backward(torch.full(result.shape, float(rank + 1), dtype=dtype))
    want = torch.arange(1.0, size + 1).repeat_interleave(torch.tensor(counts))
    assert torch.equal(x.grad, want.unsqueeze(1).expand(-1, 2).to(dtype))


def test_alltoall_of_rows_that_stay_behind(rank: int, size: int) -> None:
    """They have no part in the result, so their gradient is zero."""
    x = torch.ones(size + 2, requires_grad=True)
    result, _ = hvd.alltoall(x, torch.ones(size, dtype=torch.int32))
    result.sum().backward()
    assert x.grad.tolist() == [1.0] * size + [0.0] * 2


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("op", ["Average", "Sum"])
@pytest.mark.parametrize("factors", FACTORS, ids=str)
def test_reducescatter(
    dtype: torch.dtype, op: str, factors: tuple[float, float], rank: int, size: int
) -> None:
    """The gathered gradient, times the factors; for Sum also times size."""
    pre, post = factors
    how = {"op": getattr(hvd, op), "prescale_factor": pre, "postscale_factor": post}
    for shape in SHAPES:
        parts = []
        for r in range(size):
            mine = share(17, r, size)
            parts.append(gradient(r, dtype, (mine.stop - mine.start, *shape[1:])))
        want = torch.cat(parts) * pre * post * (size if op == "Sum" else 1)
        x = leaf(rank, dtype, shape)
        above = parts[rank].clone()
        hvd.reducescatter(x, **how).backward(above)
        assert_close(x.grad, want)
        assert torch.equal(above, parts[rank]), "what came from above is left alone"
        group = [leaf(rank, dtype, shape) for _ in range(2)]
        results = hvd.grouped_reducescatter(group, **how)
        torch.autograd.backward(list(results), [parts[rank].clone() for _ in results])
        for x in group:
            assert_close(x.grad, want)


def test_results_differentiate_only_when_asked(rank: int, size: int) -> None:
    x = torch.ones(size, 2, requires_grad=True)
    operations = {
        "allreduce": hvd.allreduce(x), "allgather": hvd.allgather(x), "broadcast": hvd.broadcast(x, 0),
        "alltoall": hvd.alltoall(x), "reducescatter": hvd.reducescatter(x),
        "grouped_allreduce": hvd.grouped_allreduce([x])[0],
        "grouped_allgather": hvd.grouped_allgather([x])[0],
        "grouped_reducescatter": hvd.grouped_reducescatter([x])[0],
    }  # fmt: skip
    assert all(result.requires_grad for result in operations.values()), operations
    handles = [
        hvd.allreduce_async(x), hvd.allgather_async(x), hvd.broadcast_async(x, 0), hvd.reducescatter_async(x),
    ]  # fmt: skip
    assert not any(hvd.synchronize(handle).requires_grad for handle in handles)
    with torch.no_grad():
        assert not hvd.allreduce(x).requires_grad
    assert not hvd.allgather(x.detach()).requires_grad


def test_one_chain_through_all(rank: int, size: int) -> None:
    """Unnamed operations of a backward pass run in the same order on every rank, mixed with forward ones."""
    x = torch.full((size, 2), float(rank), requires_grad=True)
    y = hvd.allreduce(x, op=hvd.Sum)  # every rank has the same from here on
    y = hvd.allgather(hvd.reducescatter(y, op=hvd.Average))
    y = hvd.alltoall(hvd.alltoall(y))
    hvd.broadcast(y, 0).sum().backward()
    # Ones at root, twice there and back, 1 / size by the average, gathered, and summed.
    assert torch.equal(x.grad, torch.full((size, 2), 1.0))


def test_gradients_in_a_training_step(rank: int, size: int) -> None:
    """A tensor-parallel layer: its weight's columns are spread over ranks, its outputs are gathered."""
    with seeded(5):
        weight, x = torch.randn(4 * size, 3), torch.randn(2, 3)
    own = weight[4 * rank : 4 * rank + 4].clone().requires_grad_()
    outputs = hvd.allgather(own @ x.t())
    outputs.square().sum().backward()
    whole = weight.clone().requires_grad_()
    (whole @ x.t()).square().sum().backward()
    assert torch.allclose(own.grad, whole.grad[4 * rank : 4 * rank + 4], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("what", ["allreduce", "allgather", "broadcast", "alltoall", "reducescatter"])
def test_backward_within_a_process_set_of_all(what: str, rank: int, size: int) -> None:
    """The gradient travels in the set the operation ran over, given by keyword."""
    everyone = hvd.global_process_set
    x = torch.ones(size, requires_grad=True)
    root = (0,) if what == "broadcast" else ()
    result = getattr(hvd, what)(x, *root, process_set=everyone)
    result.backward(torch.ones_like(result))
    want = torch.zeros(size) if what == "broadcast" and rank > 0 else torch.ones(size)
    assert torch.equal(x.grad, want)
