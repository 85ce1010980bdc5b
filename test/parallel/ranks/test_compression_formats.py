"""Allreduces in every format of the core, with every option: the error is the format's, and ranks agree."""

import pytest
import torch
from refusals import refused

import horovod.torch as hvd
from horovod.common.exceptions import Disagreement

bit8, int8, int4 = hvd.Compression.bit8, hvd.Compression.int8, hvd.Compression.int4
# Mean square error over mean square of N(0, 1), when it is encoded once: docs/compression.md derives them.
# Stochastic rounding doubles them.
NMSE = {
    hvd.Compression.bit16: 4.3e-8,
    bit8: 7.0e-4,
    bit8(block_size=32): 7.0e-4,
    bit8(format="e5m2"): 2.8e-3,
    bit8(format="e3m4"): 1.75e-4,
    bit8(rounding="stochastic", seed=3): 1.4e-3,
    int8: 4.2e-5,
    int8(block_size=32): 2.9e-5,
    int8(block_size=1024, rounding="stochastic"): 1.27e-4,
    int4: 1.4e-2,
    int4(block_size=32): 9.5e-3,
    int4(rounding="stochastic"): 2.8e-2,
    int4(rotation="hadamard"): 1.4e-2,
    int4(rotation="hadamard", levels="lloyd", seed=11): 9.4e-3,
    int4(rotation="hadamard", rounding="stochastic"): 2.8e-2,
}
FORMATS = list(NMSE)


def noise(rank: int, *shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(100 * seed + rank))


def codec_name(compression: object) -> str:
    return compression.codec.name


def assert_same_bits_everywhere(tensor: torch.Tensor) -> None:
    bits = tensor.contiguous().reshape(-1).view(torch.uint8)
    assert torch.equal(hvd.allgather(bits).reshape(hvd.size(), -1), bits.expand(hvd.size(), -1))


@pytest.mark.parametrize("compression", FORMATS, ids=codec_name)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
def test_error_of_sums(compression: object, dtype: torch.dtype, rank: int, size: int) -> None:
    parts = [noise(r, 101, 129).to(dtype) for r in range(size)]
    exact = sum(part.double() for part in parts)
    # Contributions are encoded once, the sum perhaps once more; a fifth more for the luck of 13,000 samples
    # that two blocks in a tensor's last rows are short, and half a unit in the last place of the dtype.
    rounding = (torch.finfo(dtype).eps / 2) ** 2 * 3
    limit = 2 * NMSE[compression] * 1.2 + rounding
    summed = hvd.allreduce(parts[rank], name="sum", op=hvd.Sum, compression=compression)
    assert summed.dtype == dtype and summed.shape == (101, 129)
    assert_same_bits_everywhere(summed)
    error = (summed.double() - exact).square().sum() / exact.square().sum()
    assert 0.25 * NMSE[compression] <= error <= limit
    factors = {"prescale_factor": 4.0, "postscale_factor": 0.125}
    average = hvd.allreduce_(parts[rank].clone(), name="avg", compression=compression, **factors)
    error = (average.double() * size * 2 - exact).square().sum() / exact.square().sum()
    assert error <= limit
    group = hvd.grouped_allreduce([parts[rank], parts[rank][:50]], op=hvd.Sum, compression=compression)
    error = (group[1].double() - exact[:50]).square().sum() / exact[:50].square().sum()
    assert error <= limit * 1.1
    assert_same_bits_everywhere(group[0])


@pytest.mark.parametrize("compression", FORMATS, ids=codec_name)
def test_not_a_number_arrives(compression: object, rank: int, size: int) -> None:
    for poison in (float("nan"), float("inf"), -float("inf")):
        x = noise(rank, 5, 3000)
        if rank == size - 1:
            x[3, 1234] = poison
        result = hvd.allreduce(x, name="poisoned", compression=compression)
        assert not torch.isfinite(result[3, 1234])
        assert torch.isfinite(result[:3]).all() and torch.isfinite(result[4]).all()
        assert_same_bits_everywhere(torch.isfinite(result))


@pytest.mark.parametrize("compression", FORMATS, ids=codec_name)
def test_zeros_small_and_empty_tensors(compression: object, rank: int, size: int) -> None:
    for shape in ((), (0,), (1,), (33,), (3, 0)):
        assert torch.equal(hvd.allreduce(torch.zeros(shape), compression=compression), torch.zeros(shape))
    ones = hvd.allreduce(torch.ones(1), compression=compression)
    assert (ones - 1).abs() < 0.7
    integers = torch.tensor([2**40 + 1, rank])
    assert torch.equal(
        hvd.allreduce(integers, op=hvd.Sum, compression=compression),
        torch.tensor([size * (2**40 + 1), size * (size - 1) // 2]),
    )
    for op in (hvd.Min, hvd.Max, hvd.Product):
        with pytest.raises(ValueError, match="use Sum or Average"):
            hvd.allreduce(torch.ones(3), op=op, compression=compression)


def test_options_must_agree(rank: int) -> None:
    for mine, others in [
        (int8, int8(block_size=64)), (int4, int4(rotation="hadamard")), (bit8, bit8(format="e5m2")),
        (int4(rotation="hadamard", seed=1), int4(rotation="hadamard", seed=2)),
    ]:  # fmt: skip
        with refused(Disagreement, "disagree", tensor="allreduce.differs", property="compression codec"):
            hvd.allreduce(torch.ones(300), name="differs", compression=mine if rank == 0 else others)


def test_outliers_are_what_the_rotation_is_for(rank: int) -> None:
    """Ratios of normal numbers have heavy tails: a few elements are many times as large as the others."""
    x = noise(0, 300, 128) / (noise(1, 300, 128).square() + noise(2, 300, 128).square()).sqrt()
    plain, rotated = (
        hvd.allreduce(x, compression=compression)
        for compression in (int4, int4(rotation="hadamard", levels="lloyd"))
    )
    plain_error, rotated_error = ((y - x).square().sum() / x.square().sum() for y in (plain, rotated))
    assert 2 * rotated_error < plain_error and rotated_error < 2e-2
    assert (plain == 0).float().mean() > 0.3 > (rotated == 0).float().mean()
