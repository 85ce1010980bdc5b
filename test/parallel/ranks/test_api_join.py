"""join: ranks with uneven work. A joined rank changes nothing in the others' allreduces."""

import time
from contextlib import nullcontext

import pytest
import torch
from contract import (
    ALL,
    ALLREDUCES,
    FORMS,
    Case,
    assert_same_bits_everywhere,
    filled,
    reduction,
    same,
    served,
    tensor_of,
)
from places import Place
from rank_fixtures import seeded

import horovod.torch as hvd


def same_everywhere(number: int) -> bool:
    return len(set(hvd.allgather(torch.tensor([number])).tolist())) == 1


@pytest.mark.parametrize("dtype", ALL)
@pytest.mark.parametrize("op", ["Average", "Sum", "Min", "Max", "Product"])
@pytest.mark.parametrize("known", [False, True], ids=["new", "known"])
def test_allreduce_while_a_rank_has_joined(
    dtype: str, op: str, known: bool, place: Place, rank: int, size: int
) -> None:
    """It counts as zeros in sums. The average divides by all ranks, including joined ones."""
    case = Case("allreduce", dtype, op)
    for early in range(size if served(case) else 0):
        for shape in ((17,), (5, 7)):
            parts = [filled(case, r, 0, shape) for r in range(size)]
            name, own = f"{op}.{len(shape)}.{dtype}", place.put(tensor_of(parts[rank]))
            for _ in range(2 * known):
                hvd.allreduce(own, name=name, op=getattr(hvd, op))
            if rank != early:
                if op in ("Average", "Sum"):
                    parts[early] = parts[early] * parts[early].dtype.type(0)
                else:
                    del parts[early]
                result = hvd.allreduce(own, name=name, op=getattr(hvd, op))
                same(result, reduction(op, parts), 0.0, place, case)
            last = hvd.join()
            assert isinstance(last, int) and 0 <= last < size and same_everywhere(last)


@pytest.mark.parametrize("latest", ["first rank", "last rank"])
def test_join_names_the_rank_that_came_last(latest: str, rank: int, size: int) -> None:
    last = 0 if latest == "first rank" else size - 1
    if rank == last:
        time.sleep(0.3)
    assert hvd.join() == last


@pytest.mark.parametrize("device", [-1, 0, 3])
def test_all_join_at_once_again_and_again(device: int) -> None:
    for _ in range(4):
        assert all(map(same_everywhere, (hvd.join(), hvd.join(device), hvd.join(device=device))))


@pytest.mark.parametrize("named", [False, True])
def test_uneven_work(named: bool, rank: int, size: int) -> None:
    """Rank r has r + 1 batches. Unnamed operations match afterwards, as named operations do."""
    for epoch in range(3):
        for batch in range(rank + 1):
            name = f"batch.{batch}" if named else None
            working = [r for r in range(size) if r >= batch]
            result = hvd.allreduce(torch.full((7,), float(rank)), op=hvd.Sum, name=name)
            assert torch.equal(result, torch.full((7,), float(sum(working))))
        assert same_everywhere(hvd.join())
        assert torch.equal(hvd.allreduce(torch.full((2,), float(epoch))), torch.full((2,), float(epoch)))
        assert hvd.allgather(torch.tensor([rank])).tolist() == list(range(size))


def test_all_forms_of_allreduce(place: Place, rank: int, size: int) -> None:
    total = place.put(torch.full((5,), float(sum(range(1, size)))))
    own = place.put(torch.full((5,), float(rank)))
    if rank > 0:
        assert torch.equal(hvd.allreduce_(own.clone(), op=hvd.Sum, name="a"), total)
        first, second = hvd.grouped_allreduce([own, own * 2], op=hvd.Sum, name="b")
        assert torch.equal(first, total) and torch.equal(second, total * 2)
        compressed = hvd.allreduce(own, op=hvd.Sum, name="c", compression=hvd.Compression.fp16)
        assert torch.equal(compressed, total)
        ones = hvd.allreduce(torch.ones_like(own), op=hvd.Sum, name="bit8", compression=hvd.Compression.bit8)
        assert torch.equal(ones, torch.full_like(own, size - 1.0))
        scaled = hvd.allreduce(own, op=hvd.Sum, name="d", prescale_factor=2.0, postscale_factor=3.0)
        assert torch.equal(scaled, total * 6)
        handles = [hvd.allreduce_async(own, op=hvd.Sum, name=f"e.{i}") for i in range(20)]
        assert all(torch.equal(hvd.synchronize(handle), total) for handle in handles)
    hvd.join()


def test_two_ranks_have_joined(rank: int, size: int) -> None:
    if size < 3:
        pytest.skip("needs three ranks")
    working = [1, 2] if size == 4 else [1]
    if rank in working:
        result = hvd.allreduce(torch.full((3,), float(rank)), op=hvd.Sum, name="two joined")
        assert torch.equal(result, torch.full((3,), float(sum(working))))
        time.sleep(0.2)
    assert hvd.join() in working


def test_what_was_submitted_before_join_is_finished(rank: int, size: int) -> None:
    """The background thread runs while join blocks: a pending operation is this rank's own."""
    if rank == 0:
        pending = hvd.allreduce_async(torch.full((4,), 7.0), op=hvd.Sum, name="before join")
        hvd.join()
        result = hvd.synchronize(pending)
    else:
        time.sleep(0.1)
        result = hvd.allreduce(torch.full((4,), float(rank)), op=hvd.Sum, name="before join")
        hvd.join()
    assert torch.equal(result, torch.full((4,), 7.0 + sum(range(1, size))))


REFUSED = [form for form in FORMS if form not in ALLREDUCES]


def start(form: str, place: Place) -> None:
    given = place.put(torch.ones(hvd.size()))
    how = {"root_rank": 1} if form.startswith("broadcast") else {}
    result = getattr(hvd, form)([given] * 2 if form.startswith("grouped") else given, name="refused", **how)
    if "async" in form:
        hvd.synchronize(result)


@pytest.mark.parametrize("what", REFUSED)
@pytest.mark.parametrize("known", [False, True], ids=["new", "known"])
def test_other_collectives_fail_and_the_others_go_on(
    what: str, known: bool, place: Place, rank: int, size: int
) -> None:
    for _ in range(2 * known):
        start(what, place)
    for _ in range(2):
        if rank > 0:
            with pytest.raises((torch.FatalError, RuntimeError)) as raised:
                start(what, place)
            assert isinstance(raised.value, hvd.HorovodInternalError)
            result = hvd.allreduce(torch.ones(3), op=hvd.Sum, name="after the error")
            assert torch.equal(result, torch.full((3,), size - 1.0))
        assert same_everywhere(hvd.join())
        start(what, place)  # works now, under the same name


def test_mismatch_among_those_that_work(rank: int, size: int) -> None:
    if rank > 0:
        with pytest.raises(hvd.HorovodInternalError) if size > 2 else nullcontext():
            hvd.allreduce(torch.ones(3 + rank), name="mismatch")
    assert same_everywhere(hvd.join())


def test_training_with_uneven_batches(rank: int, size: int) -> None:
    """The usual loop: DistributedOptimizer, more batches on some ranks, join, equal models at the end."""
    with seeded(3):
        model = torch.nn.Linear(4, 2)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), named_parameters=model.named_parameters()
    )
    for batch in range(2 + rank):
        optimizer.zero_grad()
        model(torch.full((1, 4), float(batch))).sum().backward()
        optimizer.step()
    last = hvd.join()
    # The ranks that stopped early lack the last steps: the last rank to join has them all.
    hvd.broadcast_parameters(model.state_dict(), root_rank=last)
    assert_same_bits_everywhere(model.weight)


def test_barrier_after_join(rank: int) -> None:
    if rank > 0:
        hvd.allreduce(torch.ones(2), name="before")
    hvd.join()
    hvd.barrier()
