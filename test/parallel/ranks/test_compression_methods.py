"""Compressors that send fewer elements, and compressors of users: their expected results."""

import itertools

import pytest
import torch
from contract import assert_same_bits_everywhere
from rank_fixtures import process_sets

import horovod.torch as hvd
from horovod.torch.compression import Compressor

FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


def noise(rank: int, *shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(100 * seed + rank))


def low_rank(rank: int, columns: int) -> torch.Tensor:
    """Return a (30, 50) matrix whose sum over ranks has this many independent columns."""
    return noise(rank, 30, columns) @ noise(7, columns, 50)


def top(tensor: torch.Tensor, k: int) -> torch.Tensor:
    """Return the k largest, the first of equal ones, all else zero; by sorting."""
    flat = tensor.reshape(-1)
    order = sorted(range(flat.numel()), key=lambda i: (-abs(float(flat[i])), i))[:k]
    kept = torch.zeros_like(flat)
    kept[order] = flat[order]
    return kept.reshape(tensor.shape)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_topk_sums_what_each_rank_sends(dtype: torch.dtype, rank: int, size: int) -> None:
    parts = [(noise(r, 20, 30) * 4).round().to(dtype) for r in range(size)]  # many are equal
    compression = hvd.Compression.topk(k=50)
    sums = sum(top(part, 50).double() for part in parts)
    summed = hvd.allreduce(parts[rank], name="topk", op=hvd.Sum, compression=compression)
    assert summed.dtype == dtype and torch.equal(summed, sums.to(dtype))
    average = hvd.allreduce(
        parts[rank], name="topk", compression=compression, prescale_factor=2.0, postscale_factor=0.25
    )
    assert torch.equal(average, (sums * 0.5 / size).to(dtype))
    assert_same_bits_everywhere(average)
    a_tenth = hvd.allreduce(parts[rank], op=hvd.Sum, compression=hvd.Compression.topk(ratio=0.1))
    assert torch.equal(a_tenth, sum(top(part, 60).double() for part in parts).to(dtype))


def test_topk_moves_few_bytes(rank: int, size: int) -> None:
    before = hvd.metrics()["wire_bytes"]
    hvd.allreduce(noise(rank, 1000, 100), name="few", compression=hvd.Compression.topk)
    sent = hvd.metrics()["wire_bytes"] - before
    assert sent <= (size - 1) * (1000 * 8 + 1500), "1000 values and places, and a header"


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_powersgd_has_matrices_of_low_rank_exactly(dtype: torch.dtype, rank: int, size: int) -> None:
    compression = hvd.Compression.powersgd(rank=3)
    want = sum(low_rank(r, 3).to(dtype).double() for r in range(size))
    tolerance = {torch.float16: 2e-3, torch.bfloat16: 2e-2}.get(dtype, 1e-5) * want.abs().max()
    x = low_rank(rank, 3).to(dtype).reshape(30, 5, 10)
    result = hvd.allreduce(x, name="low", op=hvd.Sum, compression=compression)
    assert result.dtype == dtype and result.shape == x.shape
    assert (result.reshape(30, 50).double() - want).abs().max() <= tolerance
    result = hvd.allreduce(
        x, name="low", compression=compression, prescale_factor=4.0, postscale_factor=0.5
    ).reshape(30, 50)
    assert (result.double() * size / 2 - want).abs().max() <= tolerance
    group = hvd.grouped_allreduce([x, x * 2, x[0, 0]], op=hvd.Sum, compression=compression)
    assert torch.equal(group[1], group[0] * 2) and group[2].shape == (10,)
    exact = hvd.allreduce(x[0, 0], op=hvd.Sum)
    assert torch.equal(group[2], exact), "vectors travel exactly"


def test_powersgd_has_matrices_of_lower_rank_exactly_too(rank: int, size: int) -> None:
    """Superfluous columns must neither count twice, nor be lost for later steps."""
    for x in (torch.ones(60, 70), torch.eye(60, 70) * (torch.arange(60) < 2).float().unsqueeze(1)):
        for _ in range(3):
            average = hvd.allreduce(x, name="lower", compression=hvd.Compression.powersgd)
            assert (average - x).abs().max() < 1e-5
    full = low_rank(rank, 4)
    want = sum(low_rank(r, 4) for r in range(size))
    for x, total in ((torch.ones(30, 50), torch.full((30, 50), float(size))), (full, want)):
        for _ in range(3):
            summed = hvd.allreduce(x, name="more", op=hvd.Sum, compression=hvd.Compression.powersgd)
        assert (summed - total).abs().max() < 1e-4 * total.abs().max()


def test_powersgd_projects_and_is_the_same_everywhere(rank: int, size: int) -> None:
    """The error is orthogonal to the result; each step starts from the last, and so improves."""
    x, want = noise(rank, 60, 80), sum(noise(r, 60, 80) for r in range(size))
    best = want - torch.linalg.svd(want).U[:, :2] @ (torch.linalg.svd(want).U[:, :2].t() @ want)
    errors = {}
    for warm_start in (True, False):
        compression = hvd.Compression.powersgd(rank=2, warm_start=warm_start, seed=3)
        for _ in range(30):
            result = hvd.allreduce(x, name="same", op=hvd.Sum, compression=compression)
            assert (result.t() @ (want - result)).abs().max() < 1e-3 * want.square().sum().sqrt()
            errors[warm_start] = float((want - result).norm())
        assert_same_bits_everywhere(result)
    assert errors[True] < 1.02 * best.norm() < errors[False]


def test_powersgd_shows_what_is_not_finite_and_recovers(rank: int, size: int) -> None:
    compression = hvd.Compression.powersgd(rank=1)
    x = low_rank(0, 1)
    for poison in (float("nan"), float("inf"), -float("inf")):
        bad = x.clone()
        if rank == size - 1:
            bad[3, 4] = poison
        result = hvd.allreduce(bad, name="poisoned", compression=compression)
        assert not torch.isfinite(result[3, 4])
        good = hvd.allreduce(x, name="poisoned", compression=compression)
        assert torch.allclose(good, x, atol=1e-5 * float(x.abs().max()))
    for _ in range(2):
        zeros = hvd.allreduce(torch.zeros(30, 50), name="poisoned", compression=compression)
        assert torch.equal(zeros, torch.zeros(30, 50))
    assert torch.allclose(hvd.allreduce(x, name="poisoned", compression=compression), x, atol=1e-4)


def test_powersgd_moves_few_bytes(rank: int, size: int) -> None:
    before = hvd.metrics()
    hvd.allreduce(noise(rank, 500, 300), name="few", compression=hvd.Compression.powersgd(rank=2))
    after = hvd.metrics()
    assert after["tensor_bytes"] - before["tensor_bytes"] == (500 + 300) * 2 * 4


@pytest.mark.parametrize("compression", [hvd.Compression.topk(ratio=1), hvd.Compression.powersgd(rank=3)])
def test_process_sets(compression: Compressor, parity: list[hvd.ProcessSet], rank: int) -> None:
    mine = parity[rank % 2]
    want = sum(low_rank(r, 3) for r in mine.ranks)
    summed = hvd.allreduce(low_rank(rank, 3), op=hvd.Sum, compression=compression, process_set=mine)
    assert torch.allclose(summed, want, atol=1e-4)
    average = hvd.allreduce(low_rank(rank, 3), name="even", compression=compression, process_set=mine)
    assert torch.allclose(average, want / mine.size(), atol=1e-4)


def test_one_rank_alone_loses_nothing(rank: int, size: int) -> None:
    x = noise(rank, 40, 50)
    with process_sets(*([r] for r in range(size))) as alone:
        for compression in (hvd.Compression.topk, hvd.Compression.powersgd, hvd.Compression.bit8):
            assert torch.equal(hvd.allreduce(x, compression=compression, process_set=alone[rank]), x)


def test_a_registered_compressor_works_by_name(rank: int, size: int) -> None:
    class Signs(Compressor):
        """One significant bit in a byte, and a magnitude."""

        combine = "gather"

        def __init__(self, factor: float = 1.0) -> None:
            self.factor = factor

        def compress(self, tensor):
            magnitude = (tensor.abs().mean() * self.factor).float().reshape(1)
            signs = tensor.sign().to(torch.int8).reshape(-1)
            return torch.cat([magnitude.view(torch.int8), signs]), tensor.shape

        def decompress(self, tensor, ctx):
            return (tensor[4:] * tensor[:4].clone().view(torch.float32)).reshape(ctx)

    hvd.Compression.register("signs", Signs())
    hvd.Compression.register("scaled_signs", Signs)
    x = torch.full((4, 400), 2.0 * (-1) ** rank)
    want = 0.0 if size % 2 == 0 else 2.0
    assert torch.all(hvd.allreduce(x, op=hvd.Sum, compression=hvd.Compression.signs) == want)
    double = hvd.Compression.from_text("scaled_signs:factor=2")
    assert torch.all(hvd.allreduce(x.abs(), compression=double) == 4.0)


def test_replicas_stay_identical(rank: int, size: int) -> None:
    """A hundred steps of gradients that depend on the weights: a wrong bit would persist."""
    compressions = [hvd.Compression.topk(ratio=0.05), hvd.Compression.powersgd(rank=2), hvd.Compression.bit8]
    for i, compression in enumerate(compressions):
        weights = noise(99, 50, 70)
        for step in range(100):
            gradient = (weights * noise(rank, 50, 70, seed=step)).tanh()
            weights -= 0.1 * hvd.allreduce(gradient, name=f"weights.{i}", compression=compression)
        assert_same_bits_everywhere(weights)


def test_every_order_of_waiting(rank: int) -> None:
    names = ["a", "b", "c"]
    compressions = [hvd.Compression.powersgd(rank=1), hvd.Compression.topk, hvd.Compression.powersgd(rank=2)]
    for number, order in enumerate(itertools.permutations(names)):
        handles = {
            name: hvd.allreduce_async_(noise(rank, 30, 40), name=name, compression=compression)
            for name, compression in zip(names, compressions, strict=True)
        }
        for name in order if (number + rank) % 2 else names:
            assert hvd.synchronize(handles[name]).shape == (30, 40)
