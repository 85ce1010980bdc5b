"""alltoall as a Horovod user calls it: with splits and without, and all that can be wrong with them."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from api_cases import BEYOND_HOROVOD, MOVED, assert_usable, numbers

import horovod.torch as hvd

ALL = [*MOVED, *BEYOND_HOROVOD]
TRAILING = [(), (3,), (3, 2)]


def int32(*numbers: int) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.int32)


def rows_for(sender: int, receiver: int) -> int:
    """How many rows `sender` gives to `receiver` in the tests with uneven splits."""
    return (sender + 2 * receiver) % 4


def sent(sender: int, size: int, dtype: torch.dtype, trailing: tuple[int, ...]) -> torch.Tensor:
    return numbers(sender, dtype, (sum(rows_for(sender, r) for r in range(size)), *trailing))


def received(
    rank: int, size: int, dtype: torch.dtype, trailing: tuple[int, ...]
) -> tuple[torch.Tensor, list[int]]:
    parts = []
    for sender in range(size):
        begin = sum(rows_for(sender, r) for r in range(rank))
        parts.append(sent(sender, size, dtype, trailing)[begin : begin + rows_for(sender, rank)])
    return torch.cat(parts), [len(part) for part in parts]


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_equal_parts(dtype: torch.dtype, rank: int, size: int) -> None:
    for trailing in TRAILING:
        own = numbers(rank, dtype, (3 * size, *trailing))
        want = torch.cat(
            [numbers(r, dtype, (3 * size, *trailing))[3 * rank : 3 * rank + 3] for r in range(size)]
        )
        result = hvd.alltoall(own)
        assert isinstance(result, torch.Tensor), "the output alone, without splits"
        assert result.dtype == dtype and torch.equal(result, want)
        assert torch.equal(own, numbers(rank, dtype, (3 * size, *trailing)))


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_splits(dtype: torch.dtype, rank: int, size: int) -> None:
    splits = int32(*(rows_for(rank, r) for r in range(size)))
    for trailing in TRAILING:
        want, counts = received(rank, size, dtype, trailing)
        result, received_splits = hvd.alltoall(sent(rank, size, dtype, trailing), splits, name="uneven")
        assert result.dtype == dtype and torch.equal(result, want)
        assert received_splits.dtype == torch.int32 and received_splits.tolist() == counts
        assert received_splits.device.type == "cpu" and received_splits.shape == (size,)


def test_the_handle_gives_output_and_received_splits(rank: int, size: int) -> None:
    want, counts = received(rank, size, torch.float32, (2,))
    splits = int32(*(rows_for(rank, r) for r in range(size)))
    handle = hvd.alltoall_async(
        sent(rank, size, torch.float32, (2,)), splits, "named", hvd.global_process_set
    )
    assert isinstance(handle, int)
    result, received_splits = hvd.synchronize(handle)
    assert torch.equal(result, want) and received_splits.tolist() == counts
    result, received_splits = hvd.synchronize(hvd.alltoall_async(torch.full((size,), rank)))
    assert result.tolist() == list(range(size)) and received_splits.tolist() == [1] * size
    assert received_splits.dtype == torch.int32


def test_splits_as_a_list(rank: int, size: int) -> None:
    result, received_splits = hvd.alltoall(torch.full((2 * size,), rank), [2] * size)
    assert result.tolist() == [r for r in range(size) for _ in range(2)]
    assert received_splits.tolist() == [2] * size


def test_rows_that_no_split_names_stay_behind(rank: int, size: int) -> None:
    own = torch.arange(size + 5) + 100 * rank
    result, received_splits = hvd.alltoall(own, int32(*([1] * size)))
    assert result.tolist() == [100 * r + rank for r in range(size)]
    assert received_splits.tolist() == [1] * size


def test_splits_of_zero(rank: int, size: int) -> None:
    """Only rank 0 receives; then nobody does."""
    own = torch.full((2, 3), float(rank))
    result, received_splits = hvd.alltoall(own, int32(2, *([0] * (size - 1))))
    expected = torch.arange(float(size)).repeat_interleave(2).unsqueeze(1).expand(-1, 3)
    assert torch.equal(result, expected if rank == 0 else torch.empty(0, 3))
    assert received_splits.tolist() == [2 if rank == 0 else 0] * size
    for rows in (0, 4):
        result, received_splits = hvd.alltoall(torch.ones(rows, 3), int32(*([0] * size)), name="nothing")
        assert result.shape == (0, 3) and received_splits.tolist() == [0] * size
    assert hvd.alltoall(torch.empty(0, 4)).shape == (0, 4)


def test_one_rank_sends_to_one_rank(rank: int, size: int) -> None:
    rows = 5 if rank == size - 1 else 0
    splits = [0] * size
    splits[0] = rows
    result, received_splits = hvd.alltoall(torch.full((rows, 2), float(rank)), int32(*splits))
    assert torch.equal(result, torch.full((5 if rank == 0 else 0, 2), size - 1.0))
    assert received_splits.tolist() == [0] * (size - 1) + [5 if rank == 0 else 0]


def test_splits_on_some_ranks_only(rank: int, size: int) -> None:
    """None means equal parts, and is no disagreement with ranks that say so or something else."""
    own = torch.arange(2 * size) + 100 * rank
    if rank == 0:
        result = hvd.alltoall(own, name="mixed")
    else:
        result, received_splits = hvd.alltoall(own, int32(*([1] * size)), name="mixed")
        assert received_splits.tolist() == [2] + [1] * (size - 1)
    others = [100 * r + rank for r in range(1, size)]
    assert result.tolist() == [2 * rank, 2 * rank + 1, *others]


def test_splits_may_change_under_one_name(rank: int, size: int) -> None:
    for step in range(6):
        counts = [(step + r) % 3 for r in range(size)]
        result, received_splits = hvd.alltoall(
            torch.full((sum(counts),), rank), int32(*counts), name="changing"
        )
        assert received_splits.tolist() == [counts[rank]] * size
        assert result.tolist() == [r for r in range(size) for _ in range(counts[rank])]


def test_many_in_flight(rank: int, size: int) -> None:
    handles = []
    seen_unfinished = False
    for i in range(40):
        handles.append(hvd.alltoall_async(torch.full((size, i), rank + i), name=f"flight.{i}"))
        seen_unfinished |= not hvd.poll(handles[-1])
    assert seen_unfinished
    for i, handle in reversed(list(enumerate(handles))):
        result, _ = hvd.synchronize(handle)
        assert torch.equal(result, (torch.arange(size) + i).unsqueeze(1).expand(size, i))


def test_views(rank: int, size: int) -> None:
    own = (torch.arange(float(size * 6)).reshape(3, 2 * size) + 100 * rank).t()
    want = torch.cat([own[2 * rank : 2 * rank + 2] + 100 * (r - rank) for r in range(size)])
    assert torch.equal(hvd.alltoall(own), want)


WRONG: dict[str, Callable[[int], tuple[torch.Tensor, Any]]] = {
    "two-dimensional splits": lambda size: (torch.ones(size), torch.ones(size, 1, dtype=torch.int32)),
    "scalar splits": lambda size: (torch.ones(size), torch.tensor(1, dtype=torch.int32)),
    "int64 splits": lambda size: (torch.ones(size), torch.ones(size, dtype=torch.int64)),
    "float splits": lambda size: (torch.ones(size), torch.ones(size)),
    "too few splits": lambda size: (torch.ones(size), int32(*([1] * (size - 1)))),
    "too many splits": lambda size: (torch.ones(size + 1), int32(*([1] * (size + 1)))),
    "more than there is": lambda size: (torch.ones(size), int32(*([2] * size))),
    "negative": lambda size: (torch.ones(size), int32(-1, *([1] * (size - 1)))),
    "not divisible": lambda size: (torch.ones(size + 1), None),
    "less than ranks": lambda size: (torch.ones(1), None),
}


@pytest.mark.parametrize("what", WRONG)
def test_wrong_splits_are_refused_before_anything_is_sent(what: str, size: int) -> None:
    tensor, splits = WRONG[what](size)
    for operation in (hvd.alltoall, hvd.alltoall_async):
        with pytest.raises((torch.FatalError, ValueError)) as raised:
            operation(tensor, splits, name="wrong")
        assert isinstance(raised.value, ValueError)
    assert hvd.alltoall(torch.zeros(size), name="wrong").tolist() == [0] * size


def test_wrong_splits_on_one_rank_leave_the_others_waiting_for_a_right_call(rank: int, size: int) -> None:
    if rank == 1:
        with pytest.raises(ValueError):
            hvd.alltoall(torch.ones(size), int32(*([9] * size)), name="corrected")
    result, _ = hvd.alltoall(torch.full((size,), rank), int32(*([1] * size)), name="corrected")
    assert result.tolist() == list(range(size))


MISMATCHES: dict[str, Callable[[int, int], torch.Tensor]] = {
    "dtype": lambda rank, size: torch.ones(size, dtype=torch.int32 if rank % 2 else torch.float32),
    "trailing dimension": lambda rank, size: torch.ones(size, 17 + rank),
    "number of dimensions": lambda rank, size: torch.ones((size,) + (2,) * (1 + rank % 2)),
    "no dimension": lambda rank, size: torch.tensor(1.0),
}


@pytest.mark.parametrize("what", MISMATCHES)
@pytest.mark.parametrize("known", [False, True], ids=["new", "known"])
def test_mismatch_is_an_error_everywhere(what: str, known: bool, rank: int, size: int) -> None:
    for _ in range(2 * known):
        hvd.alltoall(torch.ones(size, 17), name="m")
    tensor = MISMATCHES[what](rank, size)
    # Without a dimension there is nothing to divide: Horovod finds out while negotiating, not before.
    splits = int32(*([1] * size)) if what != "no dimension" else None
    with pytest.raises((torch.FatalError, RuntimeError)) as raised:
        hvd.alltoall(tensor, splits, name="m")
    assert isinstance(raised.value, hvd.HorovodInternalError)
    assert_usable()
    assert hvd.alltoall(torch.full((size,), rank), name="m").tolist() == list(range(size))


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2], ids=str)
def test_dtypes_that_nobody_serves(dtype: torch.dtype, size: int) -> None:
    with pytest.raises(ValueError, match=r"Tensor type .* is not supported"):
        hvd.alltoall(torch.ones(size).to(dtype))
    assert_usable()
