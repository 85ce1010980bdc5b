"""Complex tensors travel as pairs of reals: with one dimension more, of 2, and the dtype of their parts.

The core knows reals only. What is added, moved and compressed are real and imaginary parts, each by itself;
so compressors see twice the elements.
"""

from __future__ import annotations

from typing import Any

import torch

from horovod.torch import errors
from horovod.torch.reduce_ops import OP_NAMES, Average, Sum

__all__ = [
    "as_given", "as_reals", "as_rows_of_reals", "check_added", "differentiable_reals", "given_back",
    "real_target",
]  # fmt: skip


def _is_complex(tensor: Any) -> bool:
    """Sparse ones are refused, or taken apart, before."""
    return isinstance(tensor, torch.Tensor) and tensor.dtype.is_complex and tensor.layout == torch.strided


def check_added(tensor: torch.Tensor, operation: str, op: int) -> None:
    """Raise ValueError for an op that complex numbers, or their pairs of reals, do not have."""
    if _is_complex(tensor) and op not in (Average, Sum):
        raise errors.complex_op(tensor=operation, op=OP_NAMES[op], dtype=str(tensor.dtype))


def differentiable_reals(tensor: torch.Tensor) -> torch.Tensor:
    """A complex tensor as pairs of reals, in sight of autograd; any other as it is."""
    return torch.view_as_real(tensor.resolve_conj()) if _is_complex(tensor) else tensor


def as_reals(tensor: torch.Tensor) -> torch.Tensor:
    """As ``differentiable_reals``, without history: the same memory, or a copy of a conjugated tensor."""
    return differentiable_reals(tensor.detach()) if _is_complex(tensor) else tensor


def as_rows_of_reals(tensor: torch.Tensor, operation: str) -> torch.Tensor:
    """As ``as_reals``, for what cuts tensors by rows. ValueError where a complex tensor has none."""
    if _is_complex(tensor) and tensor.dim() == 0:
        raise errors.no_rows(tensor=operation)
    return as_reals(tensor)


def as_given(result: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """A new result as what was given: a complex tensor that has the memory of its pairs, or itself.

    It is no view: those that a function of autograd has made nobody may change.
    """
    if not _is_complex(like):
        return result
    pairs = result.contiguous()
    given = torch.empty(0, dtype=like.dtype, device=pairs.device)
    begin = pairs.storage_offset() // 2  # results begin where 16 bytes do
    given.set_(pairs.untyped_storage(), begin, pairs.shape[:-1])  # type: ignore[call-overload]
    return given


def real_target(
    tensor: torch.Tensor, reals: torch.Tensor, target: torch.Tensor | None
) -> torch.Tensor | None:
    """The reals of a result's target: those of the tensor itself if the target is that."""
    if target is None or target is tensor:
        return None if target is None else reals
    return as_reals(target)


def given_back(placed: torch.Tensor, tensor: torch.Tensor, target: torch.Tensor | None) -> torch.Tensor:
    """The caller's result: its own tensor if it has given one, else a new one.

    ``placed`` is in its real target, or new.
    """
    if target is None:
        return as_given(placed, tensor)
    if _is_complex(target) and target.is_conj():  # whose reals were a copy
        with torch.no_grad():
            target.copy_(torch.view_as_complex(placed))
    return target
