"""When ranks disagree, every rank is told what, about which tensor and who; and the job goes on."""

from collections.abc import Callable

import pytest
import torch
from refusals import refused

import horovod.torch as hvd
from horovod.common.exceptions import Disagreement, WrongArgument

ALLREDUCE_BY_RANK: dict[str, Callable[[int], torch.Tensor]] = {
    "shape": lambda rank: hvd.allreduce(torch.ones(3 + (rank > 0)), name="apple"),
    "dimensions": lambda rank: hvd.allreduce(torch.ones((2, 2) if rank else (4,)), name="apple"),
    "dtype": lambda rank: hvd.allreduce(torch.ones(3, dtype=torch.float64 if rank else None), name="apple"),
    "op": lambda rank: hvd.allreduce(torch.ones(3), name="apple", op=hvd.Max if rank else hvd.Sum),
    "prescale": lambda rank: hvd.allreduce(torch.ones(3), name="apple", prescale_factor=1.0 + rank),
    "postscale": lambda rank: hvd.allreduce(torch.ones(3), name="apple", postscale_factor=1.0 + rank),
    "codec": lambda rank: hvd.allreduce(
        torch.ones(3), name="apple", compression=hvd.Compression.bit8 if rank else hvd.Compression.bit16
    ),
    "block size": lambda rank: hvd.allreduce(
        torch.ones(3), name="apple", compression=hvd.Compression.bit8(block_size=32 if rank else 64)
    ),
    "codec or none": lambda rank: hvd.allreduce_(
        torch.ones(3), name="apple", compression=hvd.Compression.bit8 if rank else hvd.Compression.none
    ),
    "group": lambda rank: hvd.grouped_allreduce([torch.ones(3)] * (2 + (rank > 0)), name="apple")[0],
    "shape in a group": lambda rank: hvd.grouped_allreduce(
        [torch.ones(3), torch.ones(3 + rank)], name="apple"
    )[0],
    "fp16 or none": lambda rank: hvd.allreduce(
        torch.ones(3), name="apple", compression=hvd.Compression.fp16 if rank else hvd.Compression.none
    ),
}
WORDS = {
    "shape": ["(3,)", "(4,)"],
    "dtype": ["float32", "float64"],
    "op": ["Sum", "Max"],
    "codec": ["bit8/128", "bit16"],
    "block size": ["bit8/32", "bit8/64"],
    "codec or none": ["none", "bit8/128"],
}


def assert_job_goes_on() -> None:
    assert torch.equal(
        hvd.allreduce(torch.ones(4), name="apple", op=hvd.Sum), torch.full((4,), float(hvd.size()))
    )


@pytest.mark.parametrize("what", ALLREDUCE_BY_RANK)
@pytest.mark.parametrize("repetition", ["new", "known"])
def test_allreduce(what: str, repetition: str, rank: int, size: int) -> None:
    if repetition == "known":  # the response cache knows the name by now
        for _ in range(2):
            assert_job_goes_on()
    with refused(Disagreement, "disagree", ranks=tuple(range(size))) as raised:
        ALLREDUCE_BY_RANK[what](rank)
    assert "apple" in raised.value.tensor
    first, *others = raised.value.values.values()
    differ_all = what in ("prescale", "postscale", "shape in a group")
    assert first not in others and len(set(others)) == (size - 1 if differ_all else 1)
    assert [first, others[0]] == WORDS.get(what, [first, others[0]])
    assert_job_goes_on()


@pytest.mark.parametrize(
    ("collective", "values"),
    [
        (lambda rank: hvd.broadcast(torch.ones(3), rank, "pear"), ["0", "1"]),
        (lambda rank: hvd.broadcast(torch.ones(3 + rank), 0, "pear"), ["(3,)", "(4,)"]),
        (
            lambda rank: hvd.broadcast_(torch.ones(3).to(torch.int8 if rank else None), 1, "pear"),
            ["float32", "int8"],
        ),
        (lambda rank: hvd.allgather(torch.ones(2, 3 + rank), "pear"), ["(3,)", "(4,)"]),
        (lambda rank: hvd.allgather(torch.ones((2, 3) if rank else (2,)), "pear"), ["1", "2"]),
        (
            lambda rank: hvd.allgather(torch.ones(2, dtype=torch.float16 if rank else None), "pear"),
            ["float32", "float16"],
        ),
        (lambda rank: hvd.allgather(torch.tensor(1.0), "pear"), []),
    ],
    ids=["root", "shape", "dtype", "trailing dimensions", "number of dimensions", "gathered dtype", "0-dim"],
)
def test_broadcast_and_allgather(
    collective: Callable[[int], torch.Tensor], values: list[str], rank: int
) -> None:
    with refused(Disagreement, "disagree" if values else "no_dimension") as raised:
        collective(rank)
    assert raised.value.tensor.endswith(".pear")
    assert [*raised.value.values.values()][:2] == values
    assert_job_goes_on()


def test_name_in_flight_is_an_error_on_this_rank_only(rank: int) -> None:
    if rank == 1:
        hvd.barrier()
    first = hvd.allreduce_async(torch.ones(3), name="twice")
    if rank == 0:
        with refused(WrongArgument, "already_in_flight", tensor="allreduce.twice", ranks=(0,)):
            hvd.allreduce_async(torch.ones(3), name="twice")
        hvd.barrier()
    elif rank > 1:
        hvd.barrier()
    assert torch.equal(hvd.synchronize(first), torch.ones(3))


def test_root_outside_of_the_job_is_an_error_before_anything_is_sent() -> None:
    for root in (-1, hvd.size()):
        with pytest.raises(ValueError, match="root"):
            hvd.broadcast(torch.ones(3), root)
    assert_job_goes_on()


class Rounding:
    """A user's compressor whose codes are gathered."""

    combine = "gather"

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, torch.Size]:
        return tensor.round().to(torch.int8), tensor.shape

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: torch.Size) -> torch.Tensor:
        return tensor.float().reshape(ctx)


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (lambda rank: {"tensor": torch.ones(3 + rank)}, "shape"),
        (lambda rank: {"tensor": torch.ones(3), "op": hvd.Sum if rank else hvd.Average}, "op"),
        (lambda rank: {"tensor": torch.ones(3), "prescale_factor": 1.0 + rank}, "prescale"),
        (lambda rank: {"tensor": torch.ones(3).to(torch.float64 if rank else torch.float32)}, "dtype"),
    ],
    ids=["shape", "op", "prescale", "dtype"],
)
def test_disagreement_in_the_gathered_route(arguments: Callable[[int], dict], word: str, rank: int) -> None:
    expected = rf"allreduce\.plum.*disagree about its {word}.*rank 1 has"
    with pytest.raises(hvd.HorovodInternalError, match=expected):
        hvd.allreduce(**arguments(rank), name="plum", compression=Rounding)
    assert_job_goes_on()


def test_gathered_route_on_some_ranks_only(rank: int) -> None:
    with refused(Disagreement, "disagree", tensor="allreduce.plum", property="operation"):
        hvd.allreduce(torch.ones(3), name="plum", compression=Rounding if rank else hvd.Compression.none)
    assert_job_goes_on()
