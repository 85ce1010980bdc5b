"""What each rank puts into an operation, made alike on every rank, and what must come out.

The dtypes are the rows of Horovod's table (docs/compatibility.md), and those it refuses and we serve.
"""

from collections.abc import Iterable

import torch

import horovod.torch as hvd

REDUCED = [torch.int32, torch.int64, torch.float16, torch.float32, torch.float64]
MOVED = [torch.uint8, torch.int8, torch.int16, *REDUCED]
BEYOND_HOROVOD = [torch.bfloat16, torch.bool]
SHAPES = [(17,), (17, 17), (17, 17, 17)]
CLOSE = {torch.float16: 2e-3, torch.bfloat16: 2e-2, torch.float32: 1e-6, torch.float64: 1e-12}


def served(ops: Iterable[int], dtype: torch.dtype) -> list[int]:
    """Without the Average of truth values, which is refused: test_api_allreduce.py."""
    return [op for op in ops if (op, dtype) != (hvd.Average, torch.bool)]


def numbers(rank: int, dtype: torch.dtype, shape: tuple[int, ...], limit: int = 100) -> torch.Tensor:
    """Whole numbers of at most `limit`, so that sums of four are exact in float32 and float16."""
    generator = torch.Generator().manual_seed(31 * rank + len(shape))
    lowest = 0 if dtype in (torch.uint8, torch.bool) else -limit
    highest = 1 if dtype == torch.bool else limit
    return torch.randint(lowest, highest + 1, shape, generator=generator).to(dtype)


def reduction(op: int, parts: list[torch.Tensor]) -> torch.Tensor:
    """What allreduce makes of the ranks' parts: computed wide, rounded once; integers truncate."""
    dtype = parts[0].dtype
    stack = torch.stack(parts).double()
    if op == hvd.Min:
        return stack.amin(0).to(dtype)
    if op == hvd.Max:
        return stack.amax(0).to(dtype)
    if op == hvd.Product:
        return stack.prod(0).to(dtype)
    total = stack.sum(0)
    if op == hvd.Average:
        total = total / len(parts)
        return total.to(dtype) if dtype.is_floating_point else total.trunc().to(dtype)
    return total.to(dtype)


def reduced(
    op: int, ranks: Iterable[int], dtype: torch.dtype, shape: tuple[int, ...], limit: int = 100
) -> torch.Tensor:
    return reduction(op, [numbers(rank, dtype, shape, limit) for rank in ranks])


def assert_close(result: torch.Tensor, want: torch.Tensor) -> None:
    """Equal to rounding in the dtype; integers exactly. (torch.testing takes seconds to be imported.)"""
    tolerance = CLOSE.get(result.dtype, 0.0)
    assert torch.allclose(result, want.to(result.dtype), rtol=tolerance, atol=tolerance), f"{result} {want}"


def assert_usable() -> None:
    """The job goes on after an error, and a name that failed can be used again."""
    total = hvd.allreduce(torch.ones(4), name="still usable", op=hvd.Sum)
    assert torch.equal(total, torch.full((4,), float(hvd.size())))


def share(rows: int, rank: int, size: int) -> slice:
    """The rows of dimension 0 that reducescatter gives to a rank: the first ones get one row more."""
    least, more = divmod(rows, size)
    begin = rank * least + min(rank, more)
    return slice(begin, begin + least + (rank < more))
