"""Complex tensors travel as pairs of reals, with an additional last dimension of 2.

The core knows reals only. It adds, moves and compresses real and imaginary parts independently, so
compressors see twice the elements.
"""

from __future__ import annotations

from typing import Any

import torch

from horovod.torch import errors
from horovod.torch.reduce_ops import OP_NAMES, Average, Sum
from horovod.torch.tensors import laid_out


def _is_complex(tensor: Any) -> bool:
    """Return whether it is a dense complex tensor. Sparse ones were refused, or taken apart."""
    return isinstance(tensor, torch.Tensor) and tensor.dtype.is_complex and tensor.layout == torch.strided


def check_added(tensor: torch.Tensor, operation: str, op: int) -> None:
    """Raise ValueError for an op that complex numbers, or their pairs of reals, do not have."""
    if _is_complex(tensor) and op not in (Average, Sum):
        raise errors.complex_op(tensor=operation, op=OP_NAMES[op], dtype=str(tensor.dtype))


def differentiable_reals(tensor: torch.Tensor) -> torch.Tensor:
    """Return a complex tensor as pairs of reals, visible to autograd; any other unchanged."""
    return torch.view_as_real(tensor.resolve_conj()) if _is_complex(tensor) else tensor


def as_reals(tensor: torch.Tensor) -> torch.Tensor:
    """Like ``differentiable_reals``, but detached: the same memory, or a copy if conjugated."""
    return differentiable_reals(tensor.detach()) if _is_complex(tensor) else tensor


def as_rows_of_reals(tensor: torch.Tensor, operation: str) -> torch.Tensor:
    """Like ``as_reals``, for operations that cut tensors by rows. ValueError for a complex scalar."""
    if _is_complex(tensor) and tensor.dim() == 0:
        raise errors.no_rows(tensor=operation)
    return as_reals(tensor)


def as_given(result: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Return ``result`` as complex if ``like`` is, in the same memory; otherwise unchanged.

    It is not a view, because views that an autograd function returns cannot be changed in place.
    """
    if not _is_complex(like):
        return result
    pairs = result.contiguous()
    begin = int(pairs.storage_offset()) * pairs.itemsize  # aligned, as all results
    return laid_out(pairs.untyped_storage(), begin, pairs.shape[:-1], like)


def real_target(
    tensor: torch.Tensor, reals: torch.Tensor, target: torch.Tensor | None
) -> torch.Tensor | None:
    """Return the target as reals; ``reals`` if the target is the tensor itself."""
    if target is None or target is tensor:
        return None if target is None else reals
    return as_reals(target)


def given_back(placed: torch.Tensor, tensor: torch.Tensor, target: torch.Tensor | None) -> torch.Tensor:
    """Return the caller's result: ``target`` if it was given, else a new tensor.

    ``placed`` lies in the target's reals, or is new.
    """
    if target is None:
        return as_given(placed, tensor)
    if _is_complex(target) and target.is_conj():  # its reals were a copy
        with torch.no_grad():
            target.copy_(torch.view_as_complex(placed))
    return target
