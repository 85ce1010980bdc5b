"""Process sets added and removed while the job runs. test_contract.py tests each operation over them."""

import numpy as np
import pytest
import torch
from contract import FORMS, assert_usable

import horovod.torch as hvd
from horovod.torch.mpi_ops import _basics


@pytest.fixture
def mine(parity: list[hvd.ProcessSet], rank: int) -> hvd.ProcessSet:
    return parity[rank % 2]


@pytest.fixture
def other(parity: list[hvd.ProcessSet], rank: int) -> hvd.ProcessSet:
    return parity[1 - rank % 2]


def test_what_a_set_knows(rank: int, size: int) -> None:
    everyone = hvd.global_process_set
    assert (everyone.process_set_id, everyone.ranks) == (0, list(range(size)))
    assert (everyone.size(), everyone.rank(), everyone.included()) == (size, rank, True)
    process_set = hvd.ProcessSet([1, 0] if size > 2 else [1])
    assert process_set.process_set_id is None and process_set.ranks == ([0, 1] if size > 2 else [1])
    assert process_set.size() is None and process_set.rank() is None
    assert hvd.add_process_set(process_set) is process_set
    assert process_set.process_set_id == 1 and process_set.size() == len(process_set.ranks)
    assert process_set.included() is (rank in process_set.ranks)
    if process_set.included():
        assert process_set.rank() == process_set.ranks.index(rank)
    text = str(process_set)
    assert "1" in text and str(process_set.ranks) in text
    assert hvd.remove_process_set(process_set) is True
    assert process_set.process_set_id is None and process_set.size() is None


def test_ids_are_counted_from_one_and_used_again(rank: int, size: int) -> None:
    first = hvd.add_process_set([0])
    second = hvd.add_process_set(hvd.ProcessSet([1]))
    assert (first.process_set_id, second.process_set_id) == (1, 2)
    registered = _basics._get_process_set_ids_and_ranks()
    assert registered == {0: list(range(size)), 1: [0], 2: [1]}
    assert hvd.remove_process_set(first) is True
    assert _basics._get_process_set_ids_and_ranks() == {0: list(range(size)), 2: [1]}
    third = hvd.add_process_set([0])
    assert third.process_set_id == 1
    assert hvd.remove_process_set(second) is True and hvd.remove_process_set(third) is True
    assert _basics._get_process_set_ids_and_ranks() == {0: list(range(size))}


def test_removing_what_is_not_there(parity: list[hvd.ProcessSet]) -> None:
    assert hvd.remove_process_set(hvd.global_process_set) is False
    assert hvd.remove_process_set(hvd.ProcessSet([0])) is False
    assert hvd.remove_process_set(parity[1]) is True
    assert hvd.remove_process_set(parity[1]) is False


def test_duplicates_are_refused(rank: int, size: int) -> None:
    first = hvd.add_process_set([0])
    for again in ([0], hvd.ProcessSet([0]), first):
        with pytest.raises(ValueError):
            hvd.add_process_set(again)
    with pytest.raises(ValueError):
        hvd.add_process_set(list(reversed(range(size))))  # the global set
    assert hvd.remove_process_set(first) is True
    again = hvd.add_process_set([0])
    assert again.process_set_id == 1 and hvd.remove_process_set(again) is True


def test_one_rank_that_refuses_does_not_hold_up_the_others(rank: int, size: int) -> None:
    first = hvd.add_process_set([0])
    with pytest.raises(ValueError if rank == 0 else hvd.HorovodInternalError):
        hvd.add_process_set([rank])
    assert hvd.remove_process_set(first) is True
    assert_usable()


def test_ranks_of_any_integer_type(size: int) -> None:
    one, others = {np.int64(0)}, (rank for rank in range(1, size))
    several = (range(0, 1), (0,), np.arange(size - 1), one, others, torch.tensor([size - 1]))
    for ranks in several:
        made = hvd.add_process_set(ranks)
        assert all(type(rank) is int for rank in made.ranks) and hvd.remove_process_set(made) is True
    for wrong in ([0.5], ["0"]):
        with pytest.raises(ValueError, match="ranks are whole numbers"):
            hvd.ProcessSet(wrong)


@pytest.mark.parametrize("ranks", [[0, 99], [-1]], ids=str)
def test_ranks_that_do_not_exist(ranks: list[int]) -> None:
    with pytest.raises(ValueError):
        hvd.add_process_set(ranks)
    assert_usable()


def assert_refused_everywhere(process_set: hvd.ProcessSet) -> None:
    """Check for a ValueError on the calling rank, before anything is sent."""
    for form in FORMS:
        how = {"root_rank": 0} if form.startswith("broadcast") else {}
        given = [torch.ones(4)] * 2 if form.startswith("grouped") else torch.ones(4)
        with pytest.raises(ValueError):
            getattr(hvd, form)(given, process_set=process_set, **how)
    with pytest.raises(ValueError):
        hvd.barrier(process_set)
    with pytest.raises(ValueError):
        hvd.sparse_allreduce_async(torch.eye(2).to_sparse(), "sparse", hvd.Sum, process_set)


def test_operations_on_a_set_that_this_rank_is_not_in(other: hvd.ProcessSet) -> None:
    assert other.included() is False
    assert_refused_everywhere(other)
    assert_usable()


def test_operations_on_a_set_that_is_not_registered(mine: hvd.ProcessSet) -> None:
    assert_refused_everywhere(hvd.ProcessSet([0, 1]))
    copy = hvd.ProcessSet([0, 1])
    copy.process_set_id = 77
    assert_refused_everywhere(copy)
    assert_usable()


def test_operations_on_a_set_that_was_removed(parity: list[hvd.ProcessSet], mine: hvd.ProcessSet) -> None:
    for process_set in parity:
        assert hvd.remove_process_set(process_set) is True
    assert_refused_everywhere(mine)
    assert_usable()


def test_other_operations(mine: hvd.ProcessSet, rank: int, size: int) -> None:
    hvd.barrier(process_set=mine)
    obj = hvd.broadcast_object({"rank": rank}, root_rank=mine.ranks[-1], process_set=mine)
    assert obj == {"rank": mine.ranks[-1]}


def test_root_outside_of_the_set(mine: hvd.ProcessSet, rank: int) -> None:
    for operation in (hvd.broadcast, hvd.broadcast_, hvd.broadcast_async, hvd.broadcast_async_):
        with pytest.raises(ValueError):
            operation(torch.ones(3), 1 - rank % 2, process_set=mine)
    hvd.barrier(mine)


def test_mismatch_within_a_set_fails_that_set_only(
    parity: list[hvd.ProcessSet], mine: hvd.ProcessSet, rank: int
) -> None:
    if mine is parity[0] and mine.size() > 1:
        with pytest.raises(hvd.HorovodInternalError):
            hvd.allreduce(torch.ones(3 + rank), name="m", process_set=mine)
    assert torch.equal(hvd.allreduce(torch.ones(3), name="m", process_set=mine), torch.ones(3))
    assert_usable()


def test_one_name_in_several_sets_at_once(mine: hvd.ProcessSet, rank: int, size: int) -> None:
    """Names are per set, also those of unnamed operations."""
    if rank % 2:
        handles = [hvd.allreduce_async(torch.ones(3), name="n", op=hvd.Sum)]
        handles.append(hvd.allreduce_async(torch.ones(3), name="n", op=hvd.Sum, process_set=mine))
    else:
        second = hvd.allreduce_async(torch.ones(3), name="n", op=hvd.Sum, process_set=mine)
        handles = [hvd.allreduce_async(torch.ones(3), name="n", op=hvd.Sum), second]
    assert hvd.synchronize(handles[0])[0] == size and hvd.synchronize(handles[1])[0] == mine.size()


def test_unnamed_operations_on_a_set_do_not_disturb_others(
    parity: list[hvd.ProcessSet], mine: hvd.ProcessSet, rank: int, size: int
) -> None:
    """Only one set runs unnamed operations; afterwards all ranks' unnamed operations still match."""
    if mine is parity[1]:
        for _ in range(3):
            hvd.allreduce(torch.ones(2), process_set=mine)
    assert hvd.allreduce(torch.ones(2), op=hvd.Sum)[0] == size


def test_a_stalled_operation_holds_up_its_set_only(
    parity: list[hvd.ProcessSet], mine: hvd.ProcessSet, rank: int, size: int
) -> None:
    """Rank 0 waits for all ranks in the global set; the odd ranks work in their set, then join in."""
    if mine is parity[1]:
        for i in range(20):
            assert hvd.allreduce(torch.ones(3), op=hvd.Sum, name=f"{i}", process_set=mine)[0] == mine.size()
        hvd.barrier(mine)
        hvd.barrier()
    else:
        pending = hvd.allreduce_async(torch.ones(3), name="late", op=hvd.Sum)
        hvd.barrier()
        assert not hvd.poll(pending)
    hvd.barrier()  # the odd ranks come when all others have checked
    if mine is parity[1]:
        pending = hvd.allreduce_async(torch.ones(3), name="late", op=hvd.Sum)
    assert hvd.synchronize(pending)[0] == size


def test_a_barrier_waits_for_its_set_only(
    parity: list[hvd.ProcessSet], mine: hvd.ProcessSet, rank: int
) -> None:
    if mine is parity[0]:
        hvd.barrier(mine)  # the odd ranks have not been in this barrier
        hvd.barrier()
    else:
        hvd.barrier()  # the even ranks have therefore passed theirs
        hvd.barrier(mine)


def test_sets_that_overlap(rank: int, size: int) -> None:
    """One rank's operations in two sets, submitted in different orders, do not wait for each other."""
    if size < 4:
        pytest.skip("needs four ranks")
    left, right = hvd.add_process_set([0, 1, 2]), hvd.add_process_set([1, 2, 3])
    for _ in range(5):
        order = [left, right] if rank % 2 else [right, left]
        handles = [
            (s, hvd.allreduce_async(torch.tensor(float(rank)), op=hvd.Sum, name="o", process_set=s))
            for s in order
            if s.included()
        ]
        for process_set, handle in reversed(handles):
            assert hvd.synchronize(handle) == sum(process_set.ranks)
    assert hvd.remove_process_set(left) and hvd.remove_process_set(right)


def test_adding_and_removing_while_operations_are_pending(rank: int, size: int) -> None:
    for i in range(5):
        pending = hvd.allreduce_async(torch.ones(3), name=f"pending.{i}") if rank == 0 else None
        process_set = hvd.add_process_set([0, 1, 2] if size > 3 else [i % 2])
        if process_set.included():
            gathered = hvd.allgather(torch.tensor([rank]), process_set=process_set)
            assert gathered.tolist() == process_set.ranks
        assert hvd.remove_process_set(process_set) is True
        pending = hvd.allreduce_async(torch.ones(3), name=f"pending.{i}") if pending is None else pending
        assert torch.equal(hvd.synchronize(pending), torch.ones(3))
