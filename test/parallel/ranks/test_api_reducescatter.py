"""reducescatter as a Horovod user calls it: which rows go where, ops, factors, errors."""

from collections.abc import Callable

import pytest
import torch
from api_cases import (
    BEYOND_HOROVOD,
    REDUCED,
    SHAPES,
    assert_close,
    assert_usable,
    numbers,
    reduced,
    served,
    share,
)

import horovod.torch as hvd

ALL = [*REDUCED, *BEYOND_HOROVOD]


@pytest.mark.parametrize("dtype", ALL, ids=str)
@pytest.mark.parametrize("op", ["Average", "Sum"])
def test_values(dtype: torch.dtype, op: str, rank: int, size: int) -> None:
    """17 rows do not divide evenly: the first ranks get one more."""
    number = getattr(hvd, op)
    for shape in (*SHAPES, (4 * size, 3)) if served([number], dtype) else ():
        own = numbers(rank, dtype, shape)
        want = reduced(number, range(size), dtype, shape)[share(shape[0], rank, size)]
        result = hvd.reducescatter(own, op=number)
        assert result.dtype == dtype and torch.equal(result, want)
        assert torch.equal(own, numbers(rank, dtype, shape)), "the input is left alone"
        handle = hvd.reducescatter_async(own, f"named.{len(shape)}", number)
        assert isinstance(handle, int) and torch.equal(hvd.synchronize(handle), want)


def test_the_default_op_is_average(rank: int, size: int) -> None:
    own = torch.full((size, 2), float(rank))
    want = torch.full((1, 2), (size - 1) / 2)
    assert torch.equal(hvd.reducescatter(own), want)
    assert torch.equal(hvd.synchronize(hvd.reducescatter_async(own)), want)


@pytest.mark.parametrize("rows", [0, 1, 2, 3, 5, 7])
def test_fewer_rows_than_ranks_and_odd_ones(rows: int, rank: int, size: int) -> None:
    own = torch.arange(float(rows * 3)).reshape(rows, 3) + rank
    result = hvd.reducescatter(own, op=hvd.Sum)
    whole = size * torch.arange(float(rows * 3)).reshape(rows, 3) + sum(range(size))
    assert torch.equal(result, whole[share(rows, rank, size)])
    assert result.shape == (rows // size + (rank < rows % size), 3)
    assert hvd.reducescatter(torch.ones(size, 0)).shape == (1, 0)


def test_arguments_by_position(rank: int, size: int) -> None:
    """The order of the two differs, and users' calls rely on it."""
    own, want = torch.full((size,), float(rank)), torch.full((1,), float(sum(range(size))))
    everyone = hvd.global_process_set
    handle = hvd.reducescatter_async(own, "p", hvd.Sum, everyone, 0.5, 8.0)
    assert torch.equal(hvd.synchronize(handle), want * 4)
    result = hvd.reducescatter(own, "p", hvd.Compression.none, hvd.Sum, everyone, 0.5, 8.0)
    assert torch.equal(result, want * 4)


@pytest.mark.parametrize("dtype", [*REDUCED, torch.bfloat16], ids=str)
@pytest.mark.parametrize("factors", [(0.5, 1.0), (1.0, 0.5), (0.7, 1.0), (1.0, 0.7), (0.25, 3.0)], ids=str)
def test_factors(dtype: torch.dtype, factors: tuple[float, float], rank: int, size: int) -> None:
    pre, post = factors
    for shape in SHAPES:
        parts = [numbers(r, dtype, shape).double() * pre for r in range(size)]
        if not dtype.is_floating_point:
            parts = [part.trunc() for part in parts]
        want = (torch.stack(parts).sum(0) * post)[share(17, rank, size)]
        result = hvd.reducescatter(
            numbers(rank, dtype, shape), op=hvd.Sum, prescale_factor=pre, postscale_factor=post
        )
        if dtype.is_floating_point:
            # Of a sum of 4 x 100, not of the result: partial sums round too.
            assert (result.double() - want).abs().max() <= {2: 3.2 if dtype == torch.bfloat16 else 0.8}.get(
                dtype.itemsize, 1e-4
            )
        else:
            assert torch.equal(result, want.trunc().to(dtype))


def test_factors_with_average_and_with_a_large_tensor(rank: int, size: int) -> None:
    own = torch.full((size, 1 << 18), float(rank))
    result = hvd.reducescatter(own, prescale_factor=2.0, postscale_factor=0.25)
    assert_close(result, torch.full((1, 1 << 18), (size - 1) / 4))


def test_compression_fp16(rank: int, size: int) -> None:
    own = numbers(rank, torch.float32, (17, 3))
    result = hvd.reducescatter(own, compression=hvd.Compression.fp16, op=hvd.Sum)
    want = reduced(hvd.Sum, range(size), torch.float32, (17, 3))[share(17, rank, size)]
    assert result.dtype == torch.float32 and torch.equal(result, want)


def test_many_in_flight_of_all_dtypes(rank: int, size: int) -> None:
    waiting = []
    seen_unfinished = False
    for dtype in ALL:
        for shape in SHAPES:
            handle = hvd.reducescatter_async(
                numbers(rank, dtype, shape), name=f"fused.{dtype}.{len(shape)}", op=hvd.Sum
            )
            seen_unfinished |= not hvd.poll(handle)
            waiting.append((handle, dtype, shape))
    assert seen_unfinished
    for handle, dtype, shape in reversed(waiting):
        want = reduced(hvd.Sum, range(size), dtype, shape)[share(17, rank, size)]
        assert torch.equal(hvd.synchronize(handle), want)


def test_views(rank: int, size: int) -> None:
    base = torch.arange(float(3 * 2 * size)).reshape(3, 2 * size)
    assert torch.equal(hvd.reducescatter(base.t(), op=hvd.Sum), size * base.t()[2 * rank : 2 * rank + 2])


@pytest.mark.parametrize("op", ["Adasum", "Min", "Max", "Product"])
def test_ops_that_are_not_sums(op: str) -> None:
    """Horovod users expect a RuntimeError here, where they expect a ValueError for other arguments."""
    for operation in (hvd.reducescatter, hvd.reducescatter_async):
        with pytest.raises(RuntimeError) as raised:
            operation(torch.ones(8, 2), op=getattr(hvd, op))
        assert isinstance(raised.value, hvd.HorovodInternalError)
        assert not isinstance(raised.value, ValueError)
    assert_usable()


def test_no_rows_to_scatter(rank: int, size: int) -> None:
    for operation in (hvd.reducescatter, hvd.reducescatter_async):
        with pytest.raises(ValueError):
            operation(torch.tensor(1.0), name="scalar")
    assert torch.equal(hvd.reducescatter(torch.ones(size), name="scalar"), torch.ones(1))


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2], ids=str)
def test_dtypes_that_nobody_serves(dtype: torch.dtype) -> None:
    with pytest.raises(ValueError, match=r"Tensor type .* is not supported"):
        hvd.reducescatter(torch.ones(8).to(dtype))
    assert_usable()


MISMATCHES: dict[str, Callable[[int], object]] = {
    "rows": lambda rank: hvd.reducescatter(torch.ones(17 + rank, 3), "m"),
    "trailing dimension": lambda rank: hvd.reducescatter(torch.ones(17, 3 + rank), "m"),
    "number of dimensions": lambda rank: hvd.reducescatter(torch.ones((16, 2) if rank else (32,)), "m"),
    "dtype": lambda rank: hvd.reducescatter(
        torch.ones(17, dtype=torch.int32 if rank % 2 else torch.float32), "m"
    ),
    "op": lambda rank: hvd.reducescatter(torch.ones(17), "m", op=hvd.Sum if rank else hvd.Average),
    "prescale": lambda rank: hvd.reducescatter(torch.ones(17), "m", prescale_factor=1.0 + rank),
    "postscale": lambda rank: hvd.reducescatter(torch.ones(17), "m", postscale_factor=1.0 + rank),
}


@pytest.mark.parametrize("what", MISMATCHES)
@pytest.mark.parametrize("known", [False, True], ids=["new", "known"])
def test_mismatch_is_an_error_everywhere(what: str, known: bool, rank: int, size: int) -> None:
    for _ in range(2 * known):
        hvd.reducescatter(torch.ones(17, 3), "m")
    with pytest.raises((torch.FatalError, RuntimeError)) as raised:
        MISMATCHES[what](rank)
    assert isinstance(raised.value, hvd.HorovodInternalError)
    assert_usable()
    assert torch.equal(hvd.reducescatter(torch.ones(size), "m"), torch.ones(1))
