"""Compressed operations: errors are bounded, no other data is lost, and all ranks end with the same bits.

On a GPU they are the CPU's bits. test_contract.py tests that exactly represented values are summed exactly.
"""

import threading
from collections.abc import Sequence
from itertools import product
from typing import Any

import pytest
import torch
from compressors import CASTS, CODECS, EVERY, OF_PYTHON, ROTATED, Overridden
from contract import FLOATS, assert_same_bits_everywhere
from places import Place

import horovod.torch as hvd
from horovod.torch.compression import Compressor

C = hvd.Compression
DTYPES = [getattr(torch, name) for name in FLOATS]
# Mean square error over mean square of N(0, 1) for one encoding, from docs/compression.md. Stochastic
# rounding doubles it. TopHalf drops the smaller half, at most a tenth of the energy.
NMSE = {
    "bit16": 4.3e-8, "bit8": 7.0e-4, "bit8 of 32": 7.0e-4, "e5m2": 2.8e-3, "e5m2 of 32": 2.8e-3,
    "e3m4": 1.75e-4, "random bit8": 1.4e-3, "int8": 4.2e-5, "int8 of 32": 2.9e-5,
    "random int8 of 1024": 1.27e-4, "int4": 1.4e-2, "int4 of 32": 9.5e-3, "random int4": 2.8e-2,
    "hadamard": 1.4e-2, "lloyd": 9.4e-3, "random hadamard": 2.8e-2, "Overridden": 7.0e-4, "TopHalf": 0.05,
}  # fmt: skip
RANDOM = [name for name in EVERY if "random" in name]
SIZES = [0, 1, 31, 127, 128, 129, 5003]


def noise(rank: int, *shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(1000 * rank + shape[0]))


def lost(result: torch.Tensor, exact: torch.Tensor) -> float:
    return float((result.cpu().double() - exact).square().sum() / exact.square().sum())


@pytest.mark.parametrize("name", [*NMSE, *CASTS, "none", "Halving"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_what_sums_lose(name: str, dtype: torch.dtype, place: Place, rank: int, size: int) -> None:
    """In all forms contributions are encoded once, the sum perhaps once more."""
    compression = EVERY[name]
    parts = [noise(r, 101, 129).to(dtype) for r in range(size)]
    exact = torch.stack([part.double() for part in parts]).sum(0)
    # A fifth more for statistical scatter of 13,000 samples, whose last blocks are short, and half a unit in
    # the last place of the dtype. Casts round at worst to bfloat16: values, their sum, the result.
    rounding = (torch.finfo(dtype).eps / 2) ** 2 * 3
    limit = 2 * NMSE[name] * 1.2 + rounding if name in NMSE else (3 * 2.0**-9) ** 2
    own = place.put(parts[rank])
    summed = hvd.allreduce(own, name=f"sum.{name}", op=hvd.Sum, compression=compression)
    assert summed.dtype == dtype and summed.shape == (101, 129) and summed.device == place.device
    least = NMSE.get(name, 0.0) * (0.25 if name != "TopHalf" else 0.0)
    assert (least if size > 1 else 0.0) <= lost(summed, exact) <= limit
    factors = {"prescale_factor": 4.0, "postscale_factor": 0.125}
    average = hvd.allreduce_(own.clone(), name=f"average.{name}", compression=compression, **factors)
    assert lost(average.double() * size * 2, exact) <= limit
    group = hvd.grouped_allreduce([own, own[:50].clone()], op=hvd.Sum, compression=compression)
    assert lost(group[1], exact[:50]) <= limit * 1.1
    assert_same_bits_everywhere(summed, average, *group)


@pytest.mark.parametrize("name", EVERY)
def test_what_is_not_finite_reaches_every_rank(name: str, place: Place, rank: int, size: int) -> None:
    """Only the culprit's own blocks are affected, or elements in its row or column."""
    for culprit, poison in ((0, float("nan")), (size - 1, float("inf")), (size - 1, -float("inf"))):
        x = noise(rank, 5, 3000)
        if rank == culprit:
            x[3, 1234] = poison
        result = hvd.allreduce(place.put(x), name=f"poisoned.{name}", compression=EVERY[name]).cpu()
        assert not torch.isfinite(result[3, 1234])
        if name != "powersgd":
            assert torch.isfinite(result[:3]).all() and torch.isfinite(result[4]).all()
        if name in ("bit16", "bit8", "e5m2", "int8", "int4", "none", *CASTS):
            flat = torch.isfinite(result.reshape(-1))
            begin = (3 * 3000 + 1234) // 128 * 128
            flat[begin : begin + 128] = True
            assert flat.all()
        assert_same_bits_everywhere(torch.isfinite(result))


@pytest.mark.parametrize("name", [*CODECS, *ROTATED])
def test_zeros_and_small_tensors(name: str, place: Place) -> None:
    for shape in ((), (0,), (1,), (33,), (3, 0)):
        zeros = place.put(torch.zeros(shape))
        assert torch.equal(hvd.allreduce(zeros, compression=EVERY[name]), zeros)
    assert (hvd.allreduce(place.put(torch.ones(1)), compression=EVERY[name]) - 1).abs() < 0.7


@pytest.mark.parametrize("count", [33, 100_000])
def test_what_is_cast_overflows_and_averages_do_not(count: int, place: Place, rank: int) -> None:
    large = torch.full((count,), 60_000.0)
    for compression in CASTS.values():
        average = hvd.allreduce(place.put(large), compression=compression)
        assert torch.allclose(average.cpu(), large, rtol=2.0**-8)
        assert_same_bits_everywhere(average)
    large[-1] = 70_000.0 if rank == 0 else 0.0  # infinite as a half, and a number in bfloat16
    for op in (hvd.Sum, hvd.Average):
        assert hvd.allreduce(place.put(large), op=op, compression=C.fp16)[-1] == float("inf")
        assert hvd.allreduce(place.put(large), op=op, compression=C.bf16)[-1].isfinite()


@pytest.mark.parametrize(("name", "dtype"), [("fp16", torch.float16), ("bf16", torch.bfloat16)])
def test_casts_are_torchs_and_added_as_they_are(
    name: str, dtype: torch.dtype, place: Place, rank: int
) -> None:
    if not place.is_gpu:
        pytest.skip("the core casts on the CPU, and adds in float32")
    x = place.put(noise(rank, 40 * 50))
    want = hvd.allreduce(x.to(dtype), name=f"plain.{name}").float()
    assert torch.equal(hvd.allreduce(x, name=f"cast.{name}", compression=CASTS[name]), want)


@pytest.mark.parametrize("name", RANDOM)
def test_random_numbers_are_others_each_time_and_right_on_average(
    name: str, place: Place, rank: int, size: int
) -> None:
    """In training, where each parameter's random numbers start again, they are the CPU's."""
    x = place.put(noise(rank, 1000))
    want = hvd.allreduce(x, name="exact").cpu()
    results = [hvd.allreduce(x, name=name, compression=EVERY[name]).cpu() for _ in range(16)]
    if size == 1:  # nothing is sent, so nothing is rounded
        assert all(torch.equal(each, want) for each in results)
        return
    assert not torch.equal(results[0], results[1])
    errors = [float((each - want).square().mean().sqrt()) for each in results]
    of_mean = float((torch.stack(results).mean(0) - want).square().mean().sqrt())
    assert of_mean < 0.5 * sum(errors) / len(errors)


def test_outliers_are_what_the_rotation_is_for(place: Place, size: int) -> None:
    """Ratios of normal numbers have heavy tails: a few elements are much larger than the others."""
    if size == 1:
        pytest.skip("alone nothing is lost")
    x = place.put(noise(0, 300, 128) / (noise(1, 300, 128).square() + noise(2, 300, 128).square()).sqrt())
    rotation = C.int4(rotation="hadamard", levels="lloyd")
    plain, rotated = (hvd.allreduce(x, compression=compression) for compression in (C.int4, rotation))
    plain_error, rotated_error = ((y - x).square().sum() / x.square().sum() for y in (plain, rotated))
    assert 2 * rotated_error < plain_error and rotated_error < 2e-2
    assert (plain == 0).float().mean() > 0.3 > (rotated == 0).float().mean()


def test_an_overridden_method_is_called(size: int) -> None:
    """The method runs once, in Python; with one rank it does not, because nothing is sent."""
    own = threading.get_ident()
    before = Overridden.calls[own]
    hvd.allreduce(torch.ones(300), compression=Overridden)
    assert Overridden.calls[own] == before + (size > 1)


def test_a_compressor_that_depends_on_rank_local_context_says_so(rank: int, size: int) -> None:
    if size == 1:
        pytest.skip("there is one rank")

    class ScaleInContext(Compressor):
        combine = "gather"

        @staticmethod
        def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, int]:
            return tensor.repeat(rank + 1), rank + 1

        @staticmethod
        def decompress(tensor: torch.Tensor, ctx: int) -> torch.Tensor:
            return tensor.reshape(ctx, -1)[0]

    with pytest.raises(hvd.HorovodInternalError, match="ScaleInContext"):
        hvd.allreduce(torch.ones(6), compression=ScaleInContext)


# ---- a GPU's bits are the CPU's ----


def grouped(where: str, x: Sequence[torch.Tensor], how: Any) -> Sequence[torch.Tensor]:
    return hvd.grouped_allreduce(list(x), name=where, compression=how)


def in_place_anywhere(where: str, x: Sequence[torch.Tensor], how: Any) -> Sequence[torch.Tensor]:
    """Kernels read 16 bytes at a time if they can; these addresses are no multiples of 16."""
    parts = [x[-1][begin : begin + 1031] for begin in (1, 1040, 2075, 3110)]
    hvd.synchronize(hvd.grouped_allreduce_async_(parts, name=f"{where}.parts", compression=how))
    return x[-1:]


def scattered(where: str, x: Sequence[torch.Tensor], how: Any) -> Sequence[torch.Tensor]:
    return [hvd.reducescatter(x[-1][:4096].reshape(32, 128), name=where, compression=how)]


def more_than_a_buffer_holds(where: str, x: Sequence[torch.Tensor], how: Any) -> Sequence[torch.Tensor]:
    return [hvd.allreduce(x[-1].repeat(201), name=f"{where}.large", compression=how)]


LIKE_THE_CPU = [
    *product([name for name in [*CODECS, *ROTATED, *OF_PYTHON] if name not in RANDOM], DTYPES[:3], [grouped]),
    *product(["bit16", "bit8", "int8", "int4"], DTYPES[:3], [in_place_anywhere]),
    *product(["bit16", "bit8", "int4"], [torch.float32], [scattered]),
    *product(["bit8", "int4"], [torch.float32], [more_than_a_buffer_holds]),
]


@pytest.mark.parametrize(("name", "dtype", "operation"), LIKE_THE_CPU)
def test_bits_on_a_gpu_are_the_cpus(
    name: str, dtype: torch.dtype, operation: Any, place: Place, rank: int
) -> None:
    if not place.is_gpu:
        pytest.skip("on the CPU they are what they are")
    for attempt in range(2):  # first negotiated, then from the response cache
        given, want = place.twice(
            lambda where, x: operation(f"{where}.{name}.{dtype}", x, EVERY[name]),
            [noise(rank, count).to(dtype) for count in SIZES],
        )
        for one, other in zip(given, want, strict=True):
            assert one.device == place.device
            assert torch.equal(one.cpu(), other), f"{name} {dtype} {len(other)} elements, {attempt}"
