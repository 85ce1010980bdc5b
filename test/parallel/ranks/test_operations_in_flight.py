"""barrier, poll, synchronize, names: the promises about operations in flight."""

import random
import time
from itertools import product

import busy
import pytest
import torch
from contract import ALL, ALLREDUCES, COMPLEX, FORMS, Case, Run, assert_usable, begin, finish, ops_of, served
from places import Place
from refusals import refused

import horovod.torch as hvd
from horovod.torch import errors

ASYNC = [form for form in FORMS if "async" in form]


def start(form: str, tensor: torch.Tensor, name: str | None) -> int:
    how = {"root_rank": 0} if form.startswith("broadcast") else {}
    handle = getattr(hvd, form)(
        [tensor, tensor * 2] if form.startswith("grouped") else tensor, name=name, **how
    )
    assert type(handle) is int
    return handle


@pytest.fixture
def tensor(size: int, place: Place) -> torch.Tensor:
    return place.put(torch.ones(size, 3))


@pytest.mark.parametrize("named", [True, False])
def test_everything_at_once(named: bool, place: Place, rank: int, size: int) -> None:
    """All operations of all dtypes, fused. With names each rank submits them in another order."""
    kinds = [(form, dtype, ops_of(form, dtype)) for form, dtype in product(ASYNC, [*ALL, *COMPLEX])]
    cases = [Case(form, dtype, ops[i % len(ops)]) for i, (form, dtype, ops) in enumerate(kinds)]
    runs = [Run(case, place) for case in filter(served, cases)]
    order = list(range(len(runs)))
    if named:
        random.Random(rank).shuffle(order)
    under_way, seen_unfinished = {}, False
    for i in order:
        own = runs[i].own()
        handles = begin(runs[i].case, own, f"{i}" if named else None, **runs[i].how)
        seen_unfinished |= not all(map(hvd.poll, handles))
        under_way[i] = own, handles
        if i == len(runs) // 2 and not named:
            hvd.barrier()
    assert seen_unfinished
    if named:
        for _, handles in under_way.values():
            while not all(map(hvd.poll, handles)):
                pass
    random.Random(rank + 50).shuffle(order)
    for i in order:
        own, handles = under_way[i]
        runs[i].check(finish(runs[i].case, own, handles), f"{i}")


@pytest.mark.parametrize("form", ASYNC)
@pytest.mark.parametrize("place_of_first", [0, -1])
def test_an_operation_that_one_rank_has_begun(
    form: str, place_of_first: int, tensor: torch.Tensor, rank: int, size: int
) -> None:
    """Its name is taken on that rank, unnoticed by the others, which may run other operations before it."""
    is_first = rank == place_of_first % size
    if is_first:
        handle = start(form, tensor, "twice")
        for _ in range(5):
            assert hvd.poll(handle) is False or size == 1
            with pytest.raises((torch.FatalError, ValueError), match=r"twice") as raised:
                start(form, tensor, "twice")
            assert isinstance(raised.value, ValueError)
    hvd.barrier()
    if not is_first:
        handle = start(form, tensor, "twice")
    end = busy.limit(10)
    while not hvd.poll(handle):
        assert time.monotonic() < end
    assert hvd.poll(handle) is True
    assert hvd.synchronize(handle) is not None
    with refused(errors.not_in_flight, handle=handle):
        hvd.poll(handle)
    assert hvd.synchronize(handle) is None
    for _ in range(3):
        assert hvd.synchronize(start(form, tensor, "twice")) is not None, "the name is free again"


def test_one_name_for_different_operations(tensor: torch.Tensor, rank: int) -> None:
    """The operation's kind is part of the name on the wire."""
    kinds = [f"{kind}_async" for kind in ("allreduce", "allgather", "broadcast", "alltoall", "reducescatter")]
    random.Random(rank).shuffle(kinds)
    handles = [start(kind, tensor, "shared") for kind in kinds]
    assert all(hvd.synchronize(handle) is not None for handle in handles)


@pytest.mark.parametrize("handle", [-1, 1 << 30])
def test_unknown_handles(handle: int) -> None:
    with pytest.raises(ValueError):
        hvd.poll(handle)
    assert hvd.synchronize(handle) is None


def test_handles_are_different_and_need_not_be_synchronized(tensor: torch.Tensor) -> None:
    handles = [start(form, tensor.clone(), f"{form}.{i}") for form in ASYNC for i in range(3)]
    assert len(set(handles)) == len(handles)
    for handle in handles[::2]:
        hvd.synchronize(handle)
    hvd.barrier()
    assert_usable()


def test_barrier_waits_for_the_slowest(rank: int, size: int) -> None:
    for slow in range(size):
        hvd.barrier()
        started = time.monotonic()
        if rank == slow:
            time.sleep(0.1)
        hvd.barrier()
        assert time.monotonic() - started > 0.09 or rank == slow


def test_barrier_returns_nothing_and_takes_a_set() -> None:
    assert hvd.barrier() is None
    assert hvd.barrier(hvd.global_process_set) is None
    assert hvd.barrier(process_set=hvd.global_process_set) is None


def test_tensors_may_be_dropped_while_in_flight(place: Place, rank: int, size: int) -> None:
    """The operation keeps its tensors alive."""
    handles = [
        hvd.allreduce_async(place.put(torch.full((10_000,), float(rank + i))), op=hvd.Sum, name=f"drop.{i}")
        for i in range(20)
    ]
    for i, handle in enumerate(handles):
        want = torch.full((10_000,), float(sum(range(size)) + i * size))
        assert torch.equal(hvd.synchronize(handle).cpu(), want)


def test_names_of_any_kind(tensor: torch.Tensor) -> None:
    for name in ("", "a b", "gewicht.Ä.λ", "x" * 5000, 'quote "', "new\nline", "allreduce.noname.1"):
        assert torch.equal(hvd.allreduce(tensor, name=name), tensor)


def test_large_and_small_tensors_together(place: Place, rank: int, size: int) -> None:
    sizes = [1, 1 << 20, 3, 70_001, 0, 1 << 16]
    given = [place.put(torch.full((n,), float(rank))) for n in sizes]
    handles = [hvd.allreduce_async_(x, name=f"many.{x.numel()}", op=hvd.Sum) for x in given]
    for x, handle in zip(given, handles, strict=True):
        assert hvd.synchronize(handle) is x and (x == sum(range(size))).all()


# ---- positional arguments in Horovod's order ----


def test_arguments_by_position(place: Place, rank: int, size: int) -> None:
    """The orders of reducescatter and reducescatter_async differ, and users' calls rely on it."""
    own, total = place.put(torch.full((size,), float(rank))), float(sum(range(size)))
    everyone, none = hvd.global_process_set, hvd.Compression.none
    by_position = {
        "allreduce": (2.0, (None, "p", none, hvd.Sum, 1.0, 2.0)),
        "allreduce_async": (3.0, (None, "p", hvd.Sum, 3.0, 1.0)),
        "allreduce_": (1.0, (None, "p", hvd.Sum, 1.0, 1.0, everyone)),
        "allreduce_async_": (1.0, (None, "p", hvd.Sum, 1.0, 1.0, everyone)),
        "grouped_allreduce": (1.0, (None, "g", hvd.Compression.fp16, hvd.Sum)),
        "grouped_allreduce_async": (1.0, (None, "g", hvd.Sum, 1.0, 1.0, everyone)),
        "grouped_allreduce_": (1.0, (None, "g", hvd.Sum)),
        "reducescatter_async": (4.0, ("p", hvd.Sum, everyone, 0.5, 8.0)),
        "reducescatter": (4.0, ("p", none, hvd.Sum, everyone, 0.5, 8.0)),
    }
    for form, (factor, arguments) in by_position.items():
        case, given = Case(form), [own.clone()]
        begun = getattr(hvd, form)(given if case.is_grouped else given[0], *arguments)
        (result,) = finish(case, given, [begun])
        assert (result == factor * total).all() and len(result) == (1 if "scatter" in form else size), form
    (gathered,) = hvd.grouped_allgather([own[:1]], "single", everyone)
    assert gathered.tolist() == list(range(size))
    splits = torch.ones(size, dtype=torch.int32)
    received, _ = hvd.synchronize(hvd.alltoall_async(own, splits, "named", everyone))
    assert received.tolist() == list(range(size))
    assert hvd.synchronize(hvd.allgather_async(own[:1], "named")).tolist() == list(range(size))
    assert torch.equal(hvd.synchronize(hvd.broadcast_async(own, 0, "named")), own * 0)


@pytest.mark.parametrize("form", ALLREDUCES)
def test_average_is_deprecated(form: str, rank: int, size: int) -> None:
    total, case = float(sum(range(size))), Case(form)
    for average, want in ((True, total / size), (False, total)):
        given = [torch.full((3,), float(rank))]
        with pytest.warns(DeprecationWarning):
            begun = begin(case, given, None, average=average)
        assert torch.equal(finish(case, given, begun)[0], torch.full((3,), want))
    with pytest.raises(ValueError):
        begin(case, [torch.ones(3)], None, average=True, op=hvd.Sum)
    with pytest.warns(DeprecationWarning):
        assert torch.equal(hvd.allreduce(torch.ones(2), False), torch.full((2,), float(size)))
    assert_usable()
