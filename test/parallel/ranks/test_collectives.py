"""Every operation on every dtype has exactly the values it must have, whatever the order of submission."""

import os
import random
import resource
import warnings
from functools import reduce
from itertools import accumulate

import pytest
import torch

import horovod.torch as hvd

INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
DTYPES = [*INTEGERS, *FLOATS, torch.bool]
OPS = {"Average": hvd.Average, "Sum": hvd.Sum, "Min": hvd.Min, "Max": hvd.Max, "Product": hvd.Product}


def values(rank: int, dtype: torch.dtype, shape: tuple[int, ...] = (5, 7)) -> torch.Tensor:
    """Small numbers that differ by rank; sums and products of four are exact in every dtype."""
    numbers = torch.arange(torch.Size(shape).numel())
    if dtype == torch.bool:
        return ((numbers + rank) % 3 == 0).reshape(shape)
    signs = 1 if dtype == torch.uint8 else 1 - 2 * (numbers % 2)
    return (((numbers + rank) % 3 + 1) * signs).reshape(shape).to(dtype)


def expected(op: str, dtype: torch.dtype, size: int, shape: tuple[int, ...] = (5, 7)) -> torch.Tensor:
    ranks = [values(rank, dtype, shape) for rank in range(size)]
    if dtype == torch.bool:
        everywhere, somewhere = torch.stack(ranks).all(0), torch.stack(ranks).any(0)
        return everywhere if op in ("Min", "Product") else somewhere
    wide = [tensor.double() for tensor in ranks]
    by_op = {"Min": torch.minimum, "Max": torch.maximum, "Product": torch.mul}
    result = reduce(by_op.get(op, torch.add), wide)
    if op == "Average":
        result = result / size if dtype.is_floating_point else (result / size).trunc()
    return result.to(dtype)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_allreduce_in_all_its_forms(op: str, dtype: torch.dtype, rank: int, size: int) -> None:
    if (op, dtype) == ("Average", torch.bool):
        return  # refused: see test_api_allreduce.py
    own, want = values(rank, dtype), expected(op, dtype, size)
    result = hvd.allreduce(own, op=OPS[op])
    assert result.dtype == dtype and torch.equal(result, want)
    assert torch.equal(own, values(rank, dtype)), "out of place leaves its input alone"
    assert torch.equal(hvd.synchronize(hvd.allreduce_async(own, op=OPS[op])), want)
    in_place = own.clone()
    assert hvd.allreduce_(in_place, op=OPS[op]) is in_place and torch.equal(in_place, want)
    in_place = own.clone()
    assert hvd.synchronize(hvd.allreduce_async_(in_place, op=OPS[op])) is in_place
    assert torch.equal(in_place, want)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_grouped_allreduce(dtype: torch.dtype, rank: int, size: int) -> None:
    shapes = [(3,), (), (4, 5), (0, 2), (1000,)]
    group = [values(rank, dtype, shape) for shape in shapes]
    want = [expected("Sum", dtype, size, shape) for shape in shapes]
    result = hvd.grouped_allreduce(group, op=hvd.Sum, name=f"group.{dtype}")
    assert isinstance(result, list) and all(map(torch.equal, result, want))
    handle = hvd.grouped_allreduce_async(group, op=hvd.Sum)
    assert all(map(torch.equal, hvd.synchronize(handle), want))
    in_place = hvd.grouped_allreduce_(group, None, f"group.{dtype}", hvd.Sum)
    assert isinstance(in_place, tuple) and all(a is b for a, b in zip(in_place, group, strict=True))
    assert all(map(torch.equal, group, want))


def test_a_group_may_mix_dtypes(rank: int, size: int) -> None:
    group = [values(rank, dtype) for dtype in (torch.float32, torch.int64, torch.float32, torch.float16)]
    result = hvd.grouped_allreduce(group, op=hvd.Sum, name="mixed")
    for tensor, original in zip(result, group, strict=True):
        assert torch.equal(tensor, expected("Sum", original.dtype, size))


def test_positions_of_horovods_arguments(rank: int, size: int) -> None:
    want = torch.full((3,), float(sum(range(size))))
    tensor = torch.full((3,), float(rank))
    assert torch.equal(hvd.allreduce(tensor, None, "positions", hvd.Compression.none, hvd.Sum), want)
    assert torch.equal(hvd.synchronize(hvd.allreduce_async(tensor, None, "positions", hvd.Sum)), want)
    scaled = hvd.allreduce(tensor, None, "positions", hvd.Compression.none, hvd.Sum, 0.5, 4.0)
    assert torch.equal(scaled, want * 2)
    assert torch.equal(hvd.allreduce_(tensor, None, "positions", hvd.Sum), want)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert torch.equal(hvd.allreduce(torch.ones(2), False), torch.full((2,), float(size)))
        assert torch.equal(hvd.allreduce(torch.ones(2), average=True), torch.ones(2))
    assert [warning.category for warning in caught] == [DeprecationWarning] * 2


@pytest.mark.parametrize("dtype", [*FLOATS, torch.int32, torch.int64], ids=str)
def test_scale_factors(dtype: torch.dtype, rank: int, size: int) -> None:
    tensor = torch.full((9,), 4 * (rank + 1), dtype=dtype)
    total = 4 * sum(range(1, size + 1))
    scaled = hvd.allreduce(tensor, op=hvd.Sum, prescale_factor=0.5, postscale_factor=3.0)
    assert torch.equal(scaled, torch.full((9,), total // 2 * 3, dtype=dtype))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_allgather_with_differing_first_dimensions(dtype: torch.dtype, rank: int, size: int) -> None:
    rows = [(3 * r + 1) % 4 for r in range(size)]  # rank 1 contributes nothing
    parts = [values(r, dtype, (rows[r], 2, 3)) for r in range(size)]
    assert torch.equal(hvd.allgather(parts[rank]), torch.cat(parts))
    handle = hvd.allgather_async(parts[rank], name=f"rows.{dtype}")
    assert torch.equal(hvd.synchronize(handle), torch.cat(parts))


def test_allgather_of_nothing_at_all() -> None:
    result = hvd.allgather(torch.empty(0, 4, dtype=torch.int16))
    assert result.shape == (0, 4) and result.dtype == torch.int16


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (3, 4)], ids=str)
def test_broadcast_from_every_root(dtype: torch.dtype, shape: tuple[int, ...], rank: int, size: int) -> None:
    for root in range(size):
        own, want = values(rank, dtype, shape), values(root, dtype, shape)
        assert torch.equal(hvd.broadcast(own, root), want)
        assert torch.equal(own, values(rank, dtype, shape))
        assert torch.equal(hvd.synchronize(hvd.broadcast_async(own, root, "named")), want)
        assert hvd.broadcast_(own, root_rank=root) is own and torch.equal(own, want)


@pytest.mark.parametrize("compression", [hvd.Compression.none, hvd.Compression.bit8])
def test_views_that_are_not_contiguous(compression: type, rank: int, size: int) -> None:
    want = torch.full((6, 4), float(sum(range(size))))
    base = torch.full((4, 6, 2), -1.0)
    base[:, :, 0] = rank
    view = base[:, :, 0].t()
    assert torch.equal(hvd.allreduce(view, op=hvd.Sum, compression=compression), want)
    assert hvd.allreduce_(view, op=hvd.Sum, compression=compression) is view
    assert torch.equal(view, want) and torch.equal(base[:, :, 1], torch.full((4, 6), -1.0))
    assert torch.equal(hvd.broadcast_(torch.full((4, 6), float(rank)).t(), 1), torch.ones(6, 4))
    assert torch.equal(hvd.allgather(torch.full((2, 3), float(rank)).t())[3:6], torch.ones(3, 2))


def test_names_out_of_order_and_unsynchronized_handles(rank: int) -> None:
    names = [f"tensor.{i}" for i in range(40)]
    random.Random(rank).shuffle(names)
    handles = {name: hvd.allreduce_async(torch.full((4,), float(name[7:])), name=name) for name in names}
    hvd.allreduce_async(torch.ones(3), name="nobody waits for me")
    random.Random(rank + 100).shuffle(names)
    for name in names:
        assert torch.equal(hvd.synchronize(handles[name]), torch.full((4,), float(name[7:])))
        assert hvd.synchronize(handles[name]) is None


def test_barrier_while_operations_are_outstanding(rank: int) -> None:
    late = None if rank else hvd.allreduce_async(torch.ones(5), name="pending", op=hvd.Sum)
    hvd.barrier()
    if late is None:
        late = hvd.allreduce_async(torch.ones(5), name="pending", op=hvd.Sum)
    assert torch.equal(hvd.synchronize(late), torch.full((5,), float(hvd.size())))


def test_poll_is_false_until_everybody_came(rank: int) -> None:
    handle = None
    if rank == 0:
        handle = hvd.allreduce_async(torch.ones(1000), name="polled")
        assert not hvd.poll(handle)
    hvd.barrier()
    if handle is None:
        handle = hvd.allreduce_async(torch.ones(1000), name="polled")
    while not hvd.poll(handle):
        pass
    assert torch.equal(hvd.synchronize(handle), torch.ones(1000))
    with pytest.raises(ValueError, match="not in flight"):
        hvd.poll(handle)


def test_thousands_of_names_in_random_order(rank: int, size: int) -> None:
    """Ten thousand, for two ranks that share memory; others need longer for each."""
    others = {"HOROVOD_TRANSPORT", "HOROVOD_TEST_EMULATED_GPU"} & os.environ.keys()
    names = 10_000 if size == 2 and not others else 2_000

    def one_round() -> None:
        order = list(range(names))
        random.Random(rank).shuffle(order)
        handles = {}
        for i in order:
            handles[i] = hvd.allreduce_async(torch.full((3,), i + rank), name=f"n{i}", op=hvd.Sum)
        offset = sum(range(size))
        for i in reversed(order):
            assert torch.equal(hvd.synchronize(handles[i]), torch.full((3,), size * i + offset))

    for _ in range(2):
        one_round()  # caches and allocators fill
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(2):
        one_round()
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    # 0.8 KB for each operation: less than a tensor, its handle and its request take when they are kept.
    assert grown < 16 * 1024, f"the peak of memory grew by {grown} KB when nothing new was asked for"


def test_large_and_small_tensors_together(rank: int, size: int) -> None:
    sizes = [1, 1 << 20, 3, 70_001, 0, 1 << 16]
    handles = []
    for n in sizes:
        handles.append(hvd.allreduce_async_(torch.full((n,), float(rank)), name=f"many.{n}", op=hvd.Sum))
    for n, handle in zip(sizes, handles, strict=True):
        assert torch.equal(hvd.synchronize(handle), torch.full((n,), float(sum(range(size)))))


def test_gradients_of_collectives(rank: int, size: int) -> None:
    x = torch.full((3, 2), float(rank), requires_grad=True)
    hvd.allreduce(x, op=hvd.Sum).backward(torch.full((3, 2), float(rank)))
    assert torch.equal(x.grad, torch.full((3, 2), float(sum(range(size)))))

    y = torch.full((3,), 1.0, requires_grad=True)
    first, second = hvd.grouped_allreduce([y, y * 2], op=hvd.Average, prescale_factor=2.0)
    (first + second).sum().backward()
    assert torch.equal(y.grad, torch.full((3,), 6.0))

    rows = [r + 1 for r in range(size)]
    z = torch.ones(rows[rank], 2, requires_grad=True)
    gathered = hvd.allgather(z)
    weights = torch.arange(float(sum(rows))).reshape(-1, 1).expand(-1, 2)
    (gathered * weights).sum().backward()
    start = [0, *accumulate(rows)][rank]
    assert torch.equal(z.grad, weights[start : start + rows[rank]]), "averaged, as in Horovod"

    w = torch.full((2,), float(rank), requires_grad=True)
    (hvd.broadcast(w, 1) * (rank + 1)).sum().backward()
    average = sum(range(1, size + 1)) / size
    assert torch.equal(w.grad, torch.full((2,), average if rank == 1 else 0.0))


def test_sparse_allreduce(rank: int, size: int) -> None:
    own = torch.sparse_coo_tensor([[rank, size]], [[1.0, 2.0], [3.0, 4.0]], (size + 1, 2))
    result = hvd.sparse_allreduce_async(own, name="sparse", op=hvd.Average)().to_dense()
    want = torch.full((size + 1, 2), 0.0)
    want[:size] = torch.tensor([1.0, 2.0]) / size
    want[size] = torch.tensor([3.0, 4.0])
    assert torch.equal(result, want)


def test_shutdown_and_init_again(rank: int, size: int) -> None:
    pending = hvd.allreduce_async(torch.ones(3), name=f"only rank {rank} asks for this")
    hvd.barrier()  # a rank that leaves first would stop the others from asking
    hvd.shutdown()
    assert not hvd.is_initialized()
    with pytest.raises(hvd.HorovodInternalError):
        hvd.synchronize(pending)
    with pytest.raises(ValueError, match="not been initialized"):
        hvd.rank()
    with pytest.raises(hvd.HorovodInternalError):
        hvd.allreduce(torch.ones(3))
    hvd.init()
    assert (hvd.rank(), hvd.size()) == (rank, size)
    assert torch.equal(hvd.allreduce(torch.ones(3), op=hvd.Sum), torch.full((3,), float(size)))
