"""op=Adasum: pairwise sums that leave out what gradients have in common (Maleki et al. 2020).

test_contract.py compares all forms and dtypes with the twin; this file tests Adasum's special properties.

adasum(a, b) = (1 - a.b / 2|a|^2) a + (1 - a.b / 2|b|^2) b
"""

import pytest
import torch
from contract import Case, adasum_of, filled, tensor_of

import horovod.torch as hvd

FLOATS = [torch.float16, torch.float32, torch.float64]
TOLERANCE = {torch.float16: 5e-3, torch.float32: 1e-5, torch.float64: 1e-10}


def numbers(rank: int, dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor:
    return tensor_of(filled(Case("allreduce", str(dtype).removeprefix("torch."), "Adasum"), rank, 0, shape))


def assert_near(result: torch.Tensor, want: torch.Tensor, dtype: torch.dtype) -> None:
    assert result.dtype == dtype
    tolerance = TOLERANCE[dtype]
    least = tolerance * max(1.0, want.abs().max().item())
    assert torch.allclose(result.double(), want.double(), rtol=tolerance, atol=least)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_equal_opposite_and_orthogonal(dtype: torch.dtype, rank: int, size: int) -> None:
    """Of equal vectors one is left; orthogonal vectors are added; zeros change nothing."""
    same = numbers(0, dtype, (50,))
    assert_near(hvd.allreduce(same, op=hvd.Adasum), same, dtype)
    unit = torch.zeros(size, dtype=dtype)
    unit[rank] = rank + 1
    assert_near(hvd.allreduce(unit, op=hvd.Adasum), torch.arange(1.0, size + 1), dtype)
    only = same if rank == 1 else torch.zeros_like(same)
    assert_near(hvd.allreduce(only, op=hvd.Adasum), same, dtype)
    assert torch.equal(hvd.allreduce(torch.zeros(5, dtype=dtype), op=hvd.Adasum), torch.zeros(5, dtype=dtype))


def test_each_tensor_is_combined_by_itself(rank: int, size: int) -> None:
    """The same holds for tensors that travel together: fused tensors, and members of a group."""
    parts = [[numbers(r + 7 * i, torch.float64, (i + 3,)) for i in range(10)] for r in range(size)]
    wants = [adasum_of([parts[r][i] for r in range(size)]) for i in range(10)]
    handles = [hvd.allreduce_async(t, op=hvd.Adasum, name=f"f{i}") for i, t in enumerate(parts[rank])]
    for handle, want in zip(handles, wants, strict=True):
        assert_near(hvd.synchronize(handle), want, torch.float64)
    for result, want in zip(hvd.grouped_allreduce(parts[rank], op=hvd.Adasum), wants, strict=True):
        assert_near(result, want, torch.float64)


@pytest.mark.parametrize(
    ("dtype", "scale"),
    [(torch.float16, 2.0**12), (torch.float32, 2.0**100), (torch.float32, 2.0**-60)],
    ids=str,
)
def test_squares_beyond_the_dtype(dtype: torch.dtype, scale: float, rank: int, size: int) -> None:
    """Dot products have a wide range: Adasum of scaled gradients is the scaled Adasum."""
    parts = [numbers(r, dtype, (50,)) for r in range(size)]
    result = hvd.allreduce(parts[rank] * scale, op=hvd.Adasum)
    assert_near(result / scale, adasum_of(parts), dtype)


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
