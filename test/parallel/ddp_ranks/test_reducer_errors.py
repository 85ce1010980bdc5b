"""The errors of GroupReducer when ranks disagree, or a tensor cannot be reduced."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from reducer_cases import Halves, Positives, assert_same_on_all_ranks, new_reducer
from refusals import refused

from horovod.common.exceptions import Disagreement
from horovod.torch import errors as of_tensors
from horovod.torch.compression import Compression, resolved
from horovod.torch.ddp import errors
from horovod.torch.ddp.reducer import GroupReducer
from horovod.torch.reduce_ops import Max, Sum
from horovod.torch.reduction import Gradient

bit8 = resolved(Compression.bit8)


@pytest.fixture
def reducer() -> Iterator[GroupReducer]:
    made = new_reducer()
    yield made
    made.close()


def works(reducer: GroupReducer, rank: int, size: int) -> None:
    x = torch.full((64, 64), float(rank))
    reducer.start([Gradient("works", x, resolved(Compression.none))], Sum).wait()
    assert torch.all(x == size * (size - 1) / 2)


def test_agree(reducer: GroupReducer, rank: int, size: int) -> None:
    reducer.agree({"compression": "bit8", "a.weight": "[3, 4]"})
    if size == 1:
        reducer.agree({"compression": "anything"})
        return
    differing = {"compression": [*["bit8"] * (size - 1), "int8"]}
    with refused(errors.ranks_disagree, terms=differing):
        reducer.agree({"compression": "int8" if rank == size - 1 else "bit8", "a.weight": "[3, 4]"})
    with refused(errors.ranks_disagree, terms={"b.weight": [None, *["x"] * (size - 1)]}):
        reducer.agree({} if rank == 0 else {"b.weight": "x"})
    with refused(errors.ranks_disagree, terms={"order": ["a, b", *["b, a"] * (size - 1)]}):
        reducer.agree({"a": "1", "b": "2"} if rank == 0 else {"b": "2", "a": "1"})
    works(reducer, rank, size)


def test_a_rank_that_disagrees_is_named_on_all_ranks(reducer: GroupReducer, rank: int, size: int) -> None:
    if size == 1:
        pytest.skip("there is nobody to disagree with")
    last = rank == size - 1
    cases = [
        (
            Gradient("w", torch.ones(40, 50), resolved(Compression.int8) if last else bit8),
            "bit8/128",
            "int8/128",
        ),
        (Gradient("w", torch.ones(40, 51 if last else 50), bit8), "(40, 50)", "(40, 51)"),
        (Gradient("w", torch.ones(9).double() if last else torch.ones(9), bit8), "float32", "float64"),
        (Gradient("v" if last else "w", torch.ones(9), bit8), "'allreduce.w'", "'allreduce.v'"),
    ]
    for gradient, first, other in cases:
        before = gradient.tensor.clone()
        behind = torch.full((30, 30), float(rank))
        future = reducer.start([gradient])
        next_one = reducer.start([Gradient("behind", behind, resolved(Compression.none))], Sum)
        with pytest.raises(Disagreement) as caught:
            future.wait()
        values = caught.value.values
        assert (values[0], values[size - 1]) == (first, other) and len(values) == size
        assert caught.value.code == "orders_differ" or caught.value.tensor == "allreduce.w"
        next_one.wait()
        assert torch.equal(gradient.tensor, before) and torch.all(behind == size * (size - 1) / 2)
    with refused(Disagreement, "disagree", tensor="allreduce.w", property="reduce op"):
        reducer.start([Gradient("w", torch.ones(9), bit8)], Sum if last else 0).wait()
    works(reducer, rank, size)


def test_what_cannot_be_reduced(reducer: GroupReducer, rank: int, size: int) -> None:
    x = torch.ones(4, 6)
    with refused(errors.wrong_op, value=Max):
        reducer.start([Gradient("x", x, bit8)], Max)
    with refused(errors.not_contiguous, tensor="x"):
        reducer.start([Gradient("x", x.t(), bit8)])
    with refused(errors.same_name, name="x"):
        reducer.start([Gradient("x", x, bit8), Gradient("x", x.clone(), bit8)])
    with refused(of_tensors.wrong_layout, tensor="x"):
        reducer.start([Gradient("x", x.to_sparse(), bit8)])
    with pytest.raises(ValueError, match="tree"):
        new_reducer(algorithm="tree")
    reducer.start([]).wait()
    works(reducer, rank, size)


def test_close(rank: int, size: int) -> None:
    reducer = new_reducer()
    x = torch.full((200, 300), float(rank))
    future = reducer.start([Gradient("x", x, resolved(Positives))], Sum)
    reducer.close()
    assert future.done() and torch.all(x == size * (size - 1) / 2)
    reducer.close()
    with refused(errors.closed):
        reducer.start([Gradient("x", x, bit8)])
    assert_same_on_all_ranks([x])


def test_counters_stay_when_it_is_closed(rank: int, size: int) -> None:
    reducer = new_reducer()
    reducer.start([Gradient("x", torch.ones(64, 64), bit8)]).wait()
    counted = reducer.metrics()
    assert counted["operations"] == 1 + (size > 1)  # ranks have exchanged their settings
    reducer.close()
    assert reducer.metrics()["operations"] == counted["operations"]


def test_a_wrong_setting_of_one_rank_is_told_to_all(
    monkeypatch: pytest.MonkeyPatch, rank: int, size: int
) -> None:
    if rank == size - 1:
        monkeypatch.setenv("HOROVOD_CYCLE_TIME", "soon")
    with refused(errors.wrong_settings) as caught:
        new_reducer()
    assert list(caught.value.values) == [size - 1] and "HOROVOD_CYCLE_TIME" in caught.value.values[size - 1]
    monkeypatch.delenv("HOROVOD_CYCLE_TIME", raising=False)
    made = new_reducer()
    works(made, rank, size)
    made.close()


class Leaves(Halves):
    """The last rank ends its thread instead of continuing."""

    @staticmethod
    def rounds(tensor: torch.Tensor, state: Any) -> Any:
        yield tensor.clone()
        if dist.get_rank() == dist.get_world_size() - 1:
            raise SystemExit("enough")
        return (yield tensor.clone())


def test_what_would_end_a_thread_is_an_error_of_the_gradients(rank: int, size: int) -> None:
    if size == 1:
        pytest.skip("nothing travels")
    reducer = new_reducer()
    future = reducer.start([Gradient("x", torch.ones(64, 64), resolved(Leaves))])
    said = "SystemExit: enough" if rank == size - 1 else "shut down"  # by the future, which keeps the text
    with pytest.raises(RuntimeError, match=said):
        future.wait()
    with pytest.raises(RuntimeError, match=said):
        reducer.start([Gradient("y", torch.ones(64, 64), bit8)]).wait()
    reducer.close()
