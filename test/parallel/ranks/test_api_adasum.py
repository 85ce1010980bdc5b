"""op=Adasum: sums that leave out what gradients have in common, pair by pair (Maleki et al. 2020).

adasum(a, b) = (1 - a.b / 2|a|^2) a + (1 - a.b / 2|b|^2) b
"""

from collections.abc import Callable

import pytest
import torch
from api_cases import SHAPES, assert_usable, numbers

import horovod.torch as hvd

FLOATS = [torch.float16, torch.float32, torch.float64]
TOLERANCE = {torch.float16: 5e-3, torch.float32: 1e-5, torch.float64: 1e-10}


def pair(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    dot, aa, bb = (a * b).sum(), (a * a).sum(), (b * b).sum()
    of_a = 1.0 if aa == 0 else 1 - dot / (2 * aa)
    of_b = 1.0 if bb == 0 else 1 - dot / (2 * bb)
    return of_a * a + of_b * b


def adasum(parts: list[torch.Tensor]) -> torch.Tensor:
    """Neighbours first, then pairs of pairs, in float64."""
    while len(parts) > 1:
        parts = [pair(a.double(), b.double()) for a, b in zip(parts[::2], parts[1::2], strict=True)]
    return parts[0]


def assert_near(result: torch.Tensor, want: torch.Tensor, dtype: torch.dtype) -> None:
    assert result.dtype == dtype
    tolerance = TOLERANCE[dtype]
    least = tolerance * max(1.0, want.abs().max().item())
    assert torch.allclose(result.double(), want.double(), rtol=tolerance, atol=least)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_values(dtype: torch.dtype, rank: int, size: int) -> None:
    for shape in SHAPES:
        parts = [numbers(r, dtype, shape, limit=3) for r in range(size)]
        want = adasum(parts)
        assert_near(hvd.allreduce(parts[rank], op=hvd.Adasum, name=f"a{len(shape)}"), want, dtype)
        handle = hvd.allreduce_async(parts[rank], op=hvd.Adasum)
        assert_near(hvd.synchronize(handle), want, dtype)
        own = parts[rank].clone()
        assert hvd.allreduce_(own, op=hvd.Adasum) is own
        assert_near(own, want, dtype)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_equal_opposite_and_orthogonal(dtype: torch.dtype, rank: int, size: int) -> None:
    """Of equal vectors one is left; orthogonal ones are added; zeros change nothing."""
    same = numbers(0, dtype, (50,), limit=3)
    assert_near(hvd.allreduce(same, op=hvd.Adasum), same, dtype)
    unit = torch.zeros(size, dtype=dtype)
    unit[rank] = rank + 1
    assert_near(hvd.allreduce(unit, op=hvd.Adasum), torch.arange(1.0, size + 1), dtype)
    only = same if rank == 1 else torch.zeros_like(same)
    assert_near(hvd.allreduce(only, op=hvd.Adasum), same, dtype)
    assert torch.equal(hvd.allreduce(torch.zeros(5, dtype=dtype), op=hvd.Adasum), torch.zeros(5, dtype=dtype))


def test_each_tensor_is_combined_by_itself(rank: int, size: int) -> None:
    """Also those that travel together: fused ones, and members of a group."""
    parts = [[numbers(r + 7 * i, torch.float64, (i + 3,), 3) for i in range(10)] for r in range(size)]
    wants = [adasum([parts[r][i] for r in range(size)]) for i in range(10)]
    handles = [hvd.allreduce_async(t, op=hvd.Adasum, name=f"f{i}") for i, t in enumerate(parts[rank])]
    for handle, want in zip(handles, wants, strict=True):
        assert_near(hvd.synchronize(handle), want, torch.float64)
    for result, want in zip(hvd.grouped_allreduce(parts[rank], op=hvd.Adasum), wants, strict=True):
        assert_near(result, want, torch.float64)


def test_all_ranks_have_the_same_bits(rank: int, size: int) -> None:
    result = hvd.allreduce(numbers(rank, torch.float32, (1001,)) / 7, op=hvd.Adasum)
    assert all(torch.equal(row, result) for row in hvd.allgather(result.unsqueeze(0)))


@pytest.mark.parametrize(
    ("dtype", "scale"),
    [(torch.float16, 2.0**12), (torch.float32, 2.0**100), (torch.float32, 2.0**-60)],
    ids=str,
)
def test_squares_beyond_the_dtype(dtype: torch.dtype, scale: float, rank: int, size: int) -> None:
    """Dot products are wide: Adasum of scaled gradients is the scaled Adasum."""
    parts = [numbers(r, dtype, (50,), limit=3) for r in range(size)]
    result = hvd.allreduce(parts[rank] * scale, op=hvd.Adasum)
    assert_near(result / scale, adasum(parts), dtype)


REFUSED: dict[str, Callable[[], object]] = {
    "int32": lambda: hvd.allreduce(torch.ones(3, dtype=torch.int32), op=hvd.Adasum),
    "int64": lambda: hvd.allreduce(torch.ones(3, dtype=torch.int64), op=hvd.Adasum),
    "bool": lambda: hvd.allreduce(torch.ones(3, dtype=torch.bool), op=hvd.Adasum),
}


@pytest.mark.parametrize("what", REFUSED)
def test_integers_are_refused(what: str) -> None:
    with pytest.raises((ValueError, hvd.HorovodInternalError)):
        REFUSED[what]()
    assert_usable()


def test_mismatch_is_an_error_everywhere(rank: int) -> None:
    for tensor in (torch.ones(3 + rank), torch.ones(3, dtype=torch.float64 if rank else torch.float32)):
        with pytest.raises(hvd.HorovodInternalError):
            hvd.allreduce(tensor, op=hvd.Adasum, name="mismatch")
    with pytest.raises(hvd.HorovodInternalError):
        hvd.allreduce(torch.ones(3), op=hvd.Adasum if rank else hvd.Sum, name="mismatch")
    assert_usable()


def test_only_over_all_ranks(rank: int, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    hvd.shutdown()
    sets = [hvd.ProcessSet([r]) for r in range(size)]
    hvd.init(process_sets=sets)
    try:
        with pytest.raises(NotImplementedError):
            hvd.allreduce(torch.ones(3), op=hvd.Adasum, process_set=sets[rank])
        hvd.barrier()
    finally:
        hvd.shutdown()
        hvd.init()
