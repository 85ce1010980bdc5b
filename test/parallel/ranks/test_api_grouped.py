"""Grouped operations as a Horovod user calls them: one call, one handle, all members or none."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from api_cases import BEYOND_HOROVOD, MOVED, REDUCED, SHAPES, assert_usable, numbers, reduced, served, share

import horovod.torch as hvd

Group = Sequence[torch.Tensor]


def as_given(tensors: list[torch.Tensor], **how: Any) -> Group:
    before = [tensor.clone() for tensor in tensors]
    results = hvd.grouped_allreduce(tensors, **how)
    assert isinstance(results, list) and all(map(torch.equal, tensors, before))
    return results


def as_given_async(tensors: list[torch.Tensor], **how: Any) -> Group:
    handle = hvd.grouped_allreduce_async(tensors, **how)
    assert isinstance(handle, int)
    return hvd.synchronize(handle)


def in_place(tensors: list[torch.Tensor], **how: Any) -> Group:
    results = hvd.grouped_allreduce_(tensors, **how)
    assert isinstance(results, tuple)
    assert all(result is tensor for result, tensor in zip(results, tensors, strict=True))
    return results


def in_place_async(tensors: list[torch.Tensor], **how: Any) -> Group:
    results = hvd.synchronize(hvd.grouped_allreduce_async_(tensors, **how))
    assert all(result is tensor for result, tensor in zip(results, tensors, strict=True))
    return results


ALLREDUCES: dict[str, Callable[..., Group]] = {
    "grouped_allreduce": as_given,
    "grouped_allreduce_": in_place,
    "grouped_allreduce_async": as_given_async,
    "grouped_allreduce_async_": in_place_async,
}


@pytest.mark.parametrize("form", ALLREDUCES)
@pytest.mark.parametrize("dtype", [*REDUCED, *BEYOND_HOROVOD], ids=str)
def test_allreduce(form: str, dtype: torch.dtype, rank: int, size: int) -> None:
    for op in served((hvd.Average, hvd.Sum, hvd.Min, hvd.Max), dtype):
        group = [numbers(rank, dtype, shape) for shape in (*SHAPES, (5,), ())]
        results = ALLREDUCES[form](group, op=op, name="group")
        assert len(results) == 5
        for result, tensor in zip(results, group, strict=True):
            assert torch.equal(result, reduced(op, range(size), dtype, tuple(tensor.shape)))


@pytest.mark.parametrize("form", ALLREDUCES)
def test_groups_of_one_and_of_none(form: str, rank: int, size: int) -> None:
    (only,) = ALLREDUCES[form]([torch.full((3,), float(rank))], op=hvd.Sum)
    assert torch.equal(only, torch.full((3,), float(sum(range(size)))))
    assert len(ALLREDUCES[form]([])) == 0
    assert_usable()


@pytest.mark.parametrize("form", ALLREDUCES)
def test_factors_average_and_tuples(form: str, rank: int, size: int) -> None:
    group = [torch.full((4,), float(rank + i)) for i in range(3)]
    results = ALLREDUCES[form](group, prescale_factor=0.5, postscale_factor=4.0)
    for i, result in enumerate(results):
        assert torch.equal(result, torch.full((4,), 2.0 * ((size - 1) / 2 + i)))
    with pytest.warns(DeprecationWarning):
        (total,) = ALLREDUCES[form]([torch.ones(2)], average=False)
    assert torch.equal(total, torch.full((2,), float(size)))
    with pytest.raises(ValueError):
        ALLREDUCES[form]([torch.ones(2)], average=True, op=hvd.Sum)


def test_arguments_by_position(rank: int, size: int) -> None:
    group = [torch.full((2,), float(rank)), torch.ones(3)]
    want = [torch.full((2,), float(sum(range(size)))), torch.full((3,), float(size))]
    assert all(map(torch.equal, hvd.grouped_allreduce(group, None, "g", hvd.Compression.fp16, hvd.Sum), want))
    handle = hvd.grouped_allreduce_async(group, None, "g", hvd.Sum, 1.0, 1.0, hvd.global_process_set)
    assert all(map(torch.equal, hvd.synchronize(handle), want))
    assert all(map(torch.equal, hvd.grouped_allreduce_(group, None, "g", hvd.Sum), want))


def test_a_group_of_several_dtypes(rank: int, size: int) -> None:
    dtypes = [torch.float32, torch.int64, torch.float16, torch.float32]
    results = hvd.grouped_allreduce([numbers(rank, dtype, (17, 17)) for dtype in dtypes], op=hvd.Sum)
    for result, dtype in zip(results, dtypes, strict=True):
        assert torch.equal(result, reduced(hvd.Sum, range(size), dtype, (17, 17)))


def test_many_groups_in_flight_in_any_order(rank: int, size: int) -> None:
    order = range(20) if rank % 2 else reversed(range(20))
    handles = {
        i: hvd.grouped_allreduce_async([torch.full((9,), float(i)), torch.ones(5)], name=f"g{i}", op=hvd.Sum)
        for i in order
    }
    for i in range(20):
        first, second = hvd.synchronize(handles[i])
        assert torch.equal(first, torch.full((9,), float(i * size)))
        assert torch.equal(second, torch.full((5,), float(size)))


def test_poll(rank: int) -> None:
    if rank == 0:
        handle = hvd.grouped_allreduce_async([torch.ones(3), torch.ones(4)], name="polled")
        assert not hvd.poll(handle)
    hvd.barrier()
    if rank > 0:
        handle = hvd.grouped_allreduce_async([torch.ones(3), torch.ones(4)], name="polled")
    while not hvd.poll(handle):
        pass
    assert len(hvd.synchronize(handle)) == 2 and hvd.synchronize(handle) is None


@pytest.mark.parametrize("dtype", [*MOVED, *BEYOND_HOROVOD], ids=str)
def test_allgather(dtype: torch.dtype, rank: int, size: int) -> None:
    """First dimensions differ by rank and by member; one member gets nothing from some ranks."""
    rows = [[(r + i) % 3 for r in range(size)] for i in range(4)]
    group = [numbers(rank, dtype, (rows[i][rank], *(3,) * i)) for i in range(4)]
    handle = hvd.grouped_allgather_async(group, name="rows")
    for results in (hvd.grouped_allgather(group), hvd.synchronize(handle)):
        assert isinstance(results, list | tuple) and len(results) == 4
        for i, result in enumerate(results):
            want = [numbers(r, dtype, (rows[i][r], *(3,) * i)) for r in range(size)]
            assert result.dtype == dtype and torch.equal(result, torch.cat(want))
    (only,) = hvd.grouped_allgather([torch.full((2,), float(rank))], "single", hvd.global_process_set)
    assert only.tolist() == [float(r) for r in range(size) for _ in range(2)]


@pytest.mark.parametrize("dtype", [*REDUCED, *BEYOND_HOROVOD], ids=str)
def test_reducescatter(dtype: torch.dtype, rank: int, size: int) -> None:
    shapes = [(size * 2,), (size + 1, 3), (1, 4), (4 * size + 3, 2, 2)]
    group = [numbers(rank, dtype, shape) for shape in shapes]
    for op in served((hvd.Average, hvd.Sum), dtype):
        handle = hvd.grouped_reducescatter_async(group, "parts", op)
        for results in (hvd.grouped_reducescatter(group, op=op), hvd.synchronize(handle)):
            assert isinstance(results, list | tuple) and len(results) == 4
            for result, shape in zip(results, shapes, strict=True):
                want = reduced(op, range(size), dtype, shape)[share(shape[0], rank, size)]
                assert result.dtype == dtype and torch.equal(result, want)


def test_reducescatter_factors_and_compression(rank: int, size: int) -> None:
    group = [torch.full((size, 2), float(rank)), torch.ones(size + 1)]
    factors = {"prescale_factor": 0.5, "postscale_factor": 6.0}
    first, second = hvd.grouped_reducescatter(group, op=hvd.Sum, compression=hvd.Compression.fp16, **factors)
    assert torch.equal(first, torch.full((1, 2), 3.0 * sum(range(size))))
    assert torch.equal(second, torch.full((2 if rank == 0 else 1,), 3.0 * size))
    first, _ = hvd.synchronize(hvd.grouped_reducescatter_async(group, **factors))
    assert torch.equal(first, torch.full((1, 2), 3.0 * (size - 1) / 2)), "the default op is Average"


MISMATCHES: dict[str, Callable[[int], Any]] = {
    "allreduce: shape": lambda rank: hvd.grouped_allreduce([torch.ones(4), torch.ones(4 + rank)], name="m"),
    "allreduce: dtype": lambda rank: hvd.grouped_allreduce(
        [torch.ones(4, dtype=torch.float64 if rank else torch.float32)] * 2, name="m"
    ),
    "allreduce: op": lambda rank: hvd.grouped_allreduce(
        [torch.ones(4)] * 2, name="m", op=hvd.Max if rank else hvd.Sum
    ),
    "allreduce: members": lambda rank: hvd.grouped_allreduce([torch.ones(4)] * (2 + rank % 2), name="m"),
    "allgather: trailing dimension": lambda rank: hvd.grouped_allgather(
        [torch.ones(2, 3), torch.ones(2, 3 + rank)], "m"
    ),
    "allgather: dtype": lambda rank: hvd.grouped_allgather(
        [torch.ones(2, dtype=torch.int8 if rank else torch.uint8)] * 2, "m"
    ),
    "reducescatter: shape": lambda rank: hvd.grouped_reducescatter(
        [torch.ones(4, 3), torch.ones(4, 3 + rank)], "m"
    ),
    "reducescatter: dtype": lambda rank: hvd.grouped_reducescatter(
        [torch.ones(4, dtype=torch.int32 if rank else torch.float32)] * 2, "m"
    ),
}


@pytest.mark.parametrize("what", MISMATCHES)
def test_one_member_that_differs_fails_the_group_everywhere(what: str, rank: int) -> None:
    with pytest.raises(hvd.HorovodInternalError):
        MISMATCHES[what](rank)
    assert_usable()
    assert torch.equal(hvd.grouped_allreduce([torch.ones(4)] * 2, name="m")[1], torch.ones(4))


@pytest.mark.parametrize("op", ["Min", "Max", "Product", "Adasum"])
def test_reducescatter_adds_only(op: str) -> None:
    with pytest.raises(hvd.HorovodInternalError):
        hvd.grouped_reducescatter([torch.ones(4), torch.ones(4)], op=getattr(hvd, op))
    assert_usable()


def test_a_bad_member_is_refused_before_anything_is_sent(rank: int) -> None:
    bad = torch.ones(2).to(torch.float8_e5m2)
    for operation in (hvd.grouped_allreduce, hvd.grouped_allgather, hvd.grouped_reducescatter):
        with pytest.raises(ValueError):
            operation([bad, torch.ones(2)], name="bad")
        with pytest.raises(ValueError):
            operation([torch.ones(2), bad], name="bad")
    with pytest.raises(ValueError):
        hvd.grouped_reducescatter([torch.ones(2), torch.tensor(1.0)], name="bad")
    assert torch.equal(hvd.grouped_allreduce([torch.ones(2)], name="bad")[0], torch.ones(2))


MIXED = [
    lambda tensors, name: hvd.grouped_allreduce(tensors, name=name, op=hvd.Sum),
    lambda tensors, name: hvd.grouped_allgather(tensors, name=name),
    lambda tensors, name: hvd.grouped_reducescatter(tensors, name=name, op=hvd.Sum),
]


@pytest.mark.parametrize("operation", MIXED, ids=["allreduce", "allgather", "reducescatter"])
def test_a_group_of_several_dtypes_is_one_operation(operation: Any, rank: int, size: int) -> None:
    """Refused or carried out as a whole: nothing of it stays in flight, and its name is free again."""
    big = torch.ones(100_000, dtype=torch.int32)
    for _ in range(5):
        with pytest.raises(hvd.HorovodInternalError):
            operation([torch.ones(3, 1 + rank), big], "mixed")
        with pytest.raises(hvd.HorovodInternalError):
            operation([torch.ones(3), big if rank else torch.ones(3)], "mixed")
        with pytest.raises(hvd.HorovodInternalError):
            operation([torch.ones(3)] + [big] * rank, "mixed")
    first, second, third = operation([torch.ones(5), big, torch.ones(7, dtype=torch.float64)], "mixed")
    assert (first.dtype, second.dtype, third.dtype) == (torch.float32, torch.int32, torch.float64)
    assert first.sum() > 0 and second.sum() > 0
