"""allgather, broadcast and sparse allreduce as a Horovod user calls them."""

from collections.abc import Callable

import pytest
import torch
from api_cases import BEYOND_HOROVOD, MOVED, SHAPES, assert_close, assert_usable, numbers

import horovod.torch as hvd

ALL = [*MOVED, *BEYOND_HOROVOD]
ROWS = [17, 32, 81, 12]  # by rank


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_allgather(dtype: torch.dtype, rank: int, size: int) -> None:
    for shape in SHAPES:
        own = numbers(rank, dtype, shape)
        want = torch.cat([numbers(r, dtype, shape) for r in range(size)])
        result = hvd.allgather(own)
        assert result.dtype == dtype and result.shape == (17 * size, *shape[1:])
        assert torch.equal(result, want) and torch.equal(own, numbers(rank, dtype, shape))
        handle = hvd.allgather_async(own, f"named.{len(shape)}")
        assert isinstance(handle, int) and torch.equal(hvd.synchronize(handle), want)


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_allgather_of_different_numbers_of_rows(dtype: torch.dtype, rank: int, size: int) -> None:
    for trailing in ((), (17,), (3, 5)):
        parts = [numbers(r, dtype, (ROWS[r], *trailing)) for r in range(size)]
        assert torch.equal(hvd.allgather(parts[rank], name="rows"), torch.cat(parts))


@pytest.mark.parametrize("silent", [0, 1])
def test_allgather_when_a_rank_has_no_rows(silent: int, rank: int, size: int) -> None:
    rows = [0 if r == silent else r + 2 for r in range(size)]
    parts = [torch.full((rows[r], 2, 3), r, dtype=torch.int64) for r in range(size)]
    assert torch.equal(hvd.allgather(parts[rank]), torch.cat(parts))
    assert hvd.allgather(torch.empty(0, 5)).shape == (0, 5)
    assert hvd.allgather(torch.empty(2, 0)).shape == (2 * size, 0)


def test_the_number_of_rows_may_change_under_one_name(rank: int, size: int) -> None:
    for step in range(6):
        parts = [torch.full((step % 3 + r, 2), float(r)) for r in range(size)]
        assert torch.equal(hvd.allgather(parts[rank], name="changing"), torch.cat(parts))


def test_allgathers_fuse_and_are_asynchronous(rank: int, size: int) -> None:
    waiting = []
    seen_unfinished = False
    for dtype in ALL:
        for shape in SHAPES[:2]:
            handle = hvd.allgather_async(numbers(rank, dtype, shape), name=f"fused.{dtype}.{len(shape)}")
            seen_unfinished |= not hvd.poll(handle)
            waiting.append((handle, dtype, shape))
    assert seen_unfinished
    for handle, dtype, shape in waiting:
        want = torch.cat([numbers(r, dtype, shape) for r in range(size)])
        assert torch.equal(hvd.synchronize(handle), want)


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_broadcast(dtype: torch.dtype, rank: int, size: int) -> None:
    for shape in ((), *SHAPES):
        for root in range(size):
            own, want = numbers(rank, dtype, shape), numbers(root, dtype, shape)
            result = hvd.broadcast(own, root)
            assert result.dtype == dtype and torch.equal(result, want)
            assert torch.equal(own, numbers(rank, dtype, shape))
            handle = hvd.broadcast_async(own, root, "named")
            assert torch.equal(hvd.synchronize(handle), want)


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_broadcast_in_place(dtype: torch.dtype, rank: int, size: int) -> None:
    for shape in ((), *SHAPES):
        for root in range(size):
            own, want = numbers(rank, dtype, shape), numbers(root, dtype, shape)
            assert hvd.broadcast_(own, root_rank=root) is own and torch.equal(own, want)
            own = numbers(rank, dtype, shape)
            handle = hvd.broadcast_async_(own, root, name="in place")
            assert hvd.synchronize(handle) is own and torch.equal(own, want)


def test_broadcast_of_views(rank: int, size: int) -> None:
    """Horovod refuses what is not contiguous; here it works, and what lies between is left alone."""
    base = torch.full((6, 8), float(rank))
    view = base[:, ::2].t()
    hvd.broadcast_(view, root_rank=size - 1)
    assert torch.equal(view, torch.full((4, 6), size - 1.0))
    assert torch.equal(base[:, 1::2], torch.full((6, 4), float(rank)))
    gathered = hvd.allgather(torch.arange(6.0).reshape(2, 3).t())
    assert torch.equal(gathered, torch.arange(6.0).reshape(2, 3).t().repeat(size, 1))


def test_broadcast_of_parameters_in_place(rank: int) -> None:
    parameter = torch.nn.Parameter(torch.full((3, 4), float(rank)))
    hvd.broadcast_(parameter.data, 0)
    assert torch.count_nonzero(parameter) == 0 and parameter.requires_grad
    hvd.broadcast_parameters([("p", parameter)], root_rank=1)
    assert parameter.grad_fn is None


def test_broadcasts_in_flight_together(rank: int, size: int) -> None:
    tensors = [torch.full((100,), float(rank * 100 + i)) for i in range(30)]
    handles = [hvd.broadcast_async_(tensor, i % size, f"b{i}") for i, tensor in enumerate(tensors)]
    for i, handle in enumerate(handles):
        assert torch.equal(hvd.synchronize(handle), torch.full((100,), float(i % size * 100 + i)))


MISMATCHES: dict[str, Callable[[int], object]] = {
    "allgather: trailing dimension": lambda rank: hvd.allgather(torch.ones(17, 17 + rank, 17), "m"),
    "allgather: number of dimensions": lambda rank: hvd.allgather(torch.ones((17,) * (1 + rank % 2)), "m"),
    "allgather: dtype": lambda rank: hvd.allgather(
        torch.ones(17, dtype=torch.int32 if rank % 2 else torch.float32), "m"
    ),
    "allgather: no dimension": lambda rank: hvd.allgather(torch.tensor(1.0), "m"),
    "broadcast: shape": lambda rank: hvd.broadcast(torch.ones((17 + rank,) * 3), 0, "m"),
    "broadcast: number of dimensions": lambda rank: hvd.broadcast_(
        torch.ones((4, 4) if rank else 16), 0, "m"
    ),
    "broadcast: dtype": lambda rank: hvd.broadcast(
        torch.ones(17, dtype=torch.int32 if rank % 2 else torch.float32), 0, "m"
    ),
    "broadcast: root": lambda rank: hvd.broadcast(torch.ones(17, 17), rank, "m"),
    "broadcast_: root": lambda rank: hvd.broadcast_(torch.ones(17, 17), int(rank > 0), "m"),
}


@pytest.mark.parametrize("what", MISMATCHES)
@pytest.mark.parametrize("known", [False, True], ids=["new", "known"])
def test_mismatch_is_an_error_everywhere(what: str, known: bool, rank: int, size: int) -> None:
    if known:  # the response cache has seen the name
        for _ in range(2):
            hvd.allgather(torch.ones(17, 2), "m")
            hvd.broadcast(torch.ones(17, 17), 0, "m")
    with pytest.raises((torch.FatalError, RuntimeError)) as raised:
        MISMATCHES[what](rank)
    assert isinstance(raised.value, hvd.HorovodInternalError)
    assert_usable()
    assert hvd.allgather(torch.ones(2), "m").shape == (2 * size,)
    assert hvd.broadcast(torch.tensor(rank), 1, "m") == 1


@pytest.mark.parametrize("root", [-1, 10, 1 << 20])
def test_root_that_does_not_exist(root: int) -> None:
    for operation in (hvd.broadcast, hvd.broadcast_, hvd.broadcast_async, hvd.broadcast_async_):
        with pytest.raises(ValueError):
            operation(torch.ones(3), root)
    assert_usable()


def sparse(rank: int, dtype: torch.dtype) -> torch.Tensor:
    """Row `rank` and row 0 twice: duplicates must be added."""
    indices = torch.tensor([[rank, 0, 0], [1, 2, 2]])
    return torch.sparse_coo_tensor(indices, torch.tensor([1, 2, 3]).to(dtype), (5, 3))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64], ids=str)
@pytest.mark.parametrize("op", ["Average", "Sum"])
def test_sparse_allreduce(dtype: torch.dtype, op: str, rank: int, size: int) -> None:
    finish = hvd.sparse_allreduce_async(sparse(rank, dtype), name="sparse", op=getattr(hvd, op))
    assert callable(finish)
    result = finish()
    assert result.is_sparse and result.dtype == dtype and result.shape == (5, 3)
    total = sum(sparse(r, dtype).to_dense() for r in range(size))
    mean = total / size if dtype.is_floating_point else torch.div(total, size, rounding_mode="trunc")
    assert_close(result.to_dense(), mean if op == "Average" else total)


@pytest.mark.parametrize("value", [2**62, -(2**63), -7, 1])
def test_sparse_average_of_integers_is_exact(value: int, rank: int, size: int) -> None:
    own = torch.sparse_coo_tensor(torch.tensor([[2]]), torch.tensor([value + (rank == 0)]), (5,))
    result = hvd.sparse_allreduce_async(own, "sparse", hvd.Average)().to_dense()
    want = value + 1 if value < 0 else value  # value + 1 / size, towards zero
    assert result.dtype == torch.int64 and result.tolist() == [0, 0, want, 0, 0]


def test_sparse_allreduce_with_several_in_flight_and_nothing_to_say(rank: int, size: int) -> None:
    nothing = torch.sparse_coo_tensor(torch.empty(2, 0, dtype=torch.int64), torch.empty(0), (5, 3))
    own = sparse(rank, torch.float32) if rank == 0 else nothing
    finishes = [hvd.sparse_allreduce_async(own, f"sparse.{i}", hvd.Sum) for i in range(4)]
    for finish in reversed(finishes):
        assert torch.equal(finish().to_dense(), sparse(0, torch.float32).to_dense())


def test_sparse_allreduce_needs_its_name_and_op() -> None:
    with pytest.raises(TypeError):
        hvd.sparse_allreduce_async(sparse(0, torch.float32))
    with pytest.raises(TypeError):
        hvd.sparse_allreduce_async(sparse(0, torch.float32), "named")
