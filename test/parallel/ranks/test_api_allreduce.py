"""allreduce as a Horovod user calls it: every form, dtype, number of dimensions, op and factor."""

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from api_cases import BEYOND_HOROVOD, REDUCED, SHAPES, assert_close, assert_usable, numbers, reduced, served
from refusals import refused

import horovod.torch as hvd
from horovod.common.exceptions import Disagreement

OPS = ["Average", "Sum", "Min", "Max", "Product"]


def in_place(tensor: torch.Tensor, **how: Any) -> torch.Tensor:
    result = hvd.allreduce_(tensor, **how)
    assert result is tensor
    return result


def in_place_async(tensor: torch.Tensor, **how: Any) -> torch.Tensor:
    result = hvd.synchronize(hvd.allreduce_async_(tensor, **how))
    assert result is tensor
    return result


def out_of_place(tensor: torch.Tensor, **how: Any) -> torch.Tensor:
    before = tensor.clone()
    result = hvd.allreduce(tensor, **how)
    assert torch.equal(tensor, before) and result is not tensor
    return result


def out_of_place_async(tensor: torch.Tensor, **how: Any) -> torch.Tensor:
    return hvd.synchronize(hvd.allreduce_async(tensor, **how))


FORMS: dict[str, Callable[..., torch.Tensor]] = {
    "allreduce": out_of_place,
    "allreduce_": in_place,
    "allreduce_async": out_of_place_async,
    "allreduce_async_": in_place_async,
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", [*REDUCED, *BEYOND_HOROVOD], ids=str)
@pytest.mark.parametrize("op", OPS)
def test_values(form: str, op: str, dtype: torch.dtype, rank: int, size: int) -> None:
    number = getattr(hvd, op)
    limit = 3 if op == "Product" else 100
    for shape in SHAPES if served([number], dtype) else []:
        result = FORMS[form](numbers(rank, dtype, shape, limit), op=number, name=f"{op}.{len(shape)}")
        assert result.dtype == dtype and result.shape == shape
        want = reduced(number, range(size), dtype, shape, limit)
        assert torch.equal(result, want), f"{form} of {shape}: {(result != want).sum()} elements differ"


def test_the_default_op_is_average(rank: int, size: int) -> None:
    mean = (size - 1) / 2
    for form in FORMS.values():
        assert torch.equal(form(torch.full((5,), float(rank))), torch.full((5,), mean))
        assert torch.equal(form(torch.full((5,), float(rank)), op=None), torch.full((5,), mean))


@pytest.mark.parametrize("form", FORMS)
def test_average_is_deprecated(form: str, rank: int, size: int) -> None:
    total = float(sum(range(size)))
    for average, want in ((True, total / size), (False, total)):
        with pytest.warns(DeprecationWarning):
            result = FORMS[form](torch.full((3,), float(rank)), average=average)
        assert torch.equal(result, torch.full((3,), want))
    with pytest.raises(ValueError), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        FORMS[form](torch.ones(3), average=True, op=hvd.Sum)
    assert_usable()


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64], ids=str)
def test_integer_average_truncates_towards_zero(dtype: torch.dtype, rank: int, size: int) -> None:
    # Their sums are 1 - size, -1, 0, 1 and size + 1.
    own = torch.tensor([1 - size, -1, 0, 1, size + 1] if rank == 0 else [0] * 5, dtype=dtype)
    assert hvd.allreduce(own, op=hvd.Average).tolist() == [0, 0, 0, 0, 1]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", [*REDUCED, torch.bfloat16], ids=str)
@pytest.mark.parametrize("factors", [(0.5, 1.0), (1.0, 0.5), (0.7, 1.0), (1.0, 0.7), (0.25, 3.0)], ids=str)
def test_factors(form: str, dtype: torch.dtype, factors: tuple[float, float], rank: int, size: int) -> None:
    """Integers are scaled in float64 and truncated, before the reduction and after it."""
    pre, post = factors
    for shape in SHAPES:
        parts = [numbers(r, dtype, shape).double() * pre for r in range(size)]
        if not dtype.is_floating_point:
            parts = [part.trunc() for part in parts]
        want = torch.stack(parts).sum(0) * post
        result = FORMS[form](
            numbers(rank, dtype, shape), op=hvd.Sum, prescale_factor=pre, postscale_factor=post
        )
        if dtype.is_floating_point:
            # Of a sum of 4 x 100, not of the result: partial sums round too.
            assert (result.double() - want).abs().max() <= {2: 3.2 if dtype == torch.bfloat16 else 0.8}.get(
                dtype.itemsize, 1e-4
            )
        else:
            assert torch.equal(result, want.trunc().to(dtype))


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64], ids=str)
def test_factors_with_average(dtype: torch.dtype, rank: int, size: int) -> None:
    result = hvd.allreduce(
        torch.full((17,), rank + 1, dtype=dtype), op=hvd.Average, prescale_factor=0.5, postscale_factor=4.0
    )
    assert_close(result, torch.full((17,), (size + 1.0), dtype=dtype))


def test_arguments_by_position(rank: int, size: int) -> None:
    own, want = torch.full((3,), float(rank)), torch.full((3,), float(sum(range(size))))
    assert torch.equal(hvd.allreduce(own, None, "p", hvd.Compression.none, hvd.Sum, 1.0, 2.0), want * 2)
    assert torch.equal(hvd.synchronize(hvd.allreduce_async(own, None, "p", hvd.Sum, 3.0, 1.0)), want * 3)
    everyone = hvd.global_process_set
    assert torch.equal(hvd.allreduce_(own.clone(), None, "p", hvd.Sum, 1.0, 1.0, everyone), want)
    handle = hvd.allreduce_async_(own, None, "p", hvd.Sum, 1.0, 1.0, everyone)
    assert torch.equal(hvd.synchronize(handle), want)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64], ids=str)
def test_compression_fp16(dtype: torch.dtype, rank: int, size: int) -> None:
    own = numbers(rank, dtype, (17, 17))
    result = hvd.allreduce(own, op=hvd.Sum, compression=hvd.Compression.fp16)
    assert result.dtype == dtype
    assert torch.equal(result, reduced(hvd.Sum, range(size), dtype, (17, 17)))


@pytest.mark.parametrize("shape", [(), (1,), (0,), (3, 0, 2), (1, 1, 1, 1, 1, 1)], ids=str)
def test_unusual_shapes(shape: tuple[int, ...], rank: int, size: int) -> None:
    for form in FORMS.values():
        result = form(torch.full(shape, float(rank)), op=hvd.Sum)
        assert torch.equal(result, torch.full(shape, float(sum(range(size)))))


def test_async_is_truly_asynchronous_and_fuses(rank: int, size: int) -> None:
    """Many tensors of all dtypes are in flight at once, and poll is seen False before they are done."""
    waiting = []
    seen_unfinished = False
    for dtype in REDUCED:
        for shape in SHAPES:
            for copy in range(3):
                own = numbers(rank, dtype, shape)
                handle = hvd.allreduce_async(own, name=f"fused.{dtype}.{len(shape)}.{copy}", op=hvd.Sum)
                assert isinstance(handle, int)
                seen_unfinished |= not hvd.poll(handle)
                waiting.append((handle, dtype, shape))
    assert seen_unfinished
    while any(not hvd.poll(handle) for handle, _, _ in waiting):
        pass
    for handle, dtype, shape in reversed(waiting):
        assert torch.equal(hvd.synchronize(handle), reduced(hvd.Sum, range(size), dtype, shape))


def test_unnamed_tensors_in_flight_together(rank: int, size: int) -> None:
    handles = [hvd.allreduce_async_(torch.full((50,), float(rank + i)), op=hvd.Sum) for i in range(64)]
    for i, handle in enumerate(handles):
        assert torch.equal(hvd.synchronize(handle), torch.full((50,), sum(range(size)) + i * float(size)))


MISMATCHES: dict[str, Callable[[int], dict[str, Any]]] = {
    "shape": lambda rank: {"tensor": torch.ones((17 + rank,) * 3)},
    "number of dimensions": lambda rank: {"tensor": torch.ones((17,) * (rank % 2 + 2))},
    "shape of as many elements": lambda rank: {"tensor": torch.ones((17, 23) if rank else (23, 17))},
    "dtype": lambda rank: {"tensor": torch.ones(17, dtype=torch.float32 if rank % 2 else torch.int32)},
    "width": lambda rank: {"tensor": torch.ones(17, dtype=torch.float64 if rank else torch.float32)},
    "op": lambda rank: {"tensor": torch.ones(17), "op": hvd.Min if rank else hvd.Max},
    "average or sum": lambda rank: {"tensor": torch.ones(17), "op": hvd.Average if rank else hvd.Sum},
    "prescale": lambda rank: {"tensor": torch.ones(17), "prescale_factor": 1.0 / (rank + 1)},
    "postscale": lambda rank: {"tensor": torch.ones(17), "postscale_factor": 1.0 / (rank + 1)},
}


@pytest.mark.parametrize("what", MISMATCHES)
@pytest.mark.parametrize("form", FORMS)
def test_mismatch_is_an_error_everywhere(form: str, what: str, rank: int) -> None:
    with pytest.raises((torch.FatalError, RuntimeError)) as raised:
        FORMS[form](**MISMATCHES[what](rank), name="mismatch")
    assert isinstance(raised.value, hvd.HorovodInternalError)
    assert torch.equal(hvd.allreduce(torch.ones(17), name="mismatch"), torch.ones(17))


def test_the_error_comes_with_synchronize(rank: int) -> None:
    handle = hvd.allreduce_async(torch.ones(3 + rank), name="late error")
    good = hvd.allreduce_async(torch.ones(3), name="unharmed")
    assert torch.equal(hvd.synchronize(good), torch.ones(3))
    with pytest.raises(hvd.HorovodInternalError):
        hvd.synchronize(handle)
    assert hvd.synchronize(handle) is None, "a handle is used up, also by an error"


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2], ids=str)
def test_dtypes_that_nobody_serves(dtype: torch.dtype) -> None:
    for form in FORMS.values():
        with pytest.raises(ValueError, match=r"Tensor type .* is not supported"):
            form(torch.ones(3).to(dtype), name="served?")
    assert_usable()


@pytest.mark.parametrize("op", [7, -1, "sum"])
def test_unknown_op(op: Any) -> None:
    with pytest.raises(ValueError):
        hvd.allreduce(torch.ones(3), op=op)
    assert_usable()


EXTREMES = {
    torch.uint8: [0, 1, 200, 255],
    torch.int8: [-128, -1, 100, 127],
    torch.int16: [-(2**15), -3, 20000, 2**15 - 1],
    torch.int32: [-(2**31), -3, 2**30 + 1, 2**31 - 1],
    torch.int64: [-(2**63), -3, 2**62 + 1, 2**63 - 1],
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", EXTREMES, ids=str)
def test_an_average_of_integers_does_not_wrap(form: str, dtype: torch.dtype, rank: int, size: int) -> None:
    alike = torch.tensor(EXTREMES[dtype], dtype=dtype)
    assert torch.equal(FORMS[form](alike.clone(), op=hvd.Average), alike)
    one_less = alike - (alike > 0).to(dtype) if rank == 0 else alike
    want = [x - (x > 0) for x in EXTREMES[dtype]]  # towards zero
    assert FORMS[form](one_less.clone(), op=hvd.Average).tolist() == want


@pytest.mark.parametrize("dtype", EXTREMES, ids=str)
def test_reducescatter_and_groups_average_integers_alike(dtype: torch.dtype, rank: int, size: int) -> None:
    own = torch.tensor(EXTREMES[dtype] * size, dtype=dtype)
    assert hvd.reducescatter(own, op=hvd.Average).tolist() == EXTREMES[dtype]
    integers, floats = hvd.grouped_allreduce([own, torch.full((3,), float(rank))], op=hvd.Average)
    assert torch.equal(integers, own) and torch.equal(floats, torch.full((3,), (size - 1) / 2))


@pytest.mark.parametrize("form", FORMS)
def test_the_average_of_bool_is_refused(form: str) -> None:
    with pytest.raises(ValueError, match=r"flags: op=Average of torch\.bool.*rank \d.*float\(\).*hvd\.Max"):
        FORMS[form](torch.tensor([True, False]), op=hvd.Average, name="flags")
    assert_usable()
    with pytest.raises(ValueError, match=r"flags: op=Average of torch\.bool"):
        hvd.reducescatter(torch.ones(8, dtype=torch.bool), op=hvd.Average, name="flags")
    assert_usable()


def test_ranks_that_disagree_about_integers_hear_of_it(rank: int) -> None:
    """What is added in a wider type is agreed on by its own."""
    own = torch.ones(3, dtype=torch.int32 if rank == 0 else torch.int64)
    with refused(Disagreement, "disagree", property="dtype"):
        hvd.allreduce(own, op=hvd.Average, name="integers")
    with refused(Disagreement, "disagree", property="reduce op"):
        hvd.allreduce(own.int(), op=hvd.Average if rank == 0 else hvd.Sum, name="integers")
    assert_usable()
