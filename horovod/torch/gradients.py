"""How one gradient, or a group of them, is reduced in place, whatever its layout and compression."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from horovod.common.process_sets import global_process_set
from horovod.torch.compression import Compression, resolved
from horovod.torch.exchange import sparse_allreduce_async
from horovod.torch.handles import synchronize
from horovod.torch.reduce_ops import ReduceArguments, reduce_arguments
from horovod.torch.submission import start_allreduce

__all__ = ["GradientReducer", "Wait", "wait_for_all"]

Wait = Callable[[], None]


class GradientReducer:
    """The reduction of a DistributedOptimizer: op, factors and compression, decided once for all
    gradients.
    """

    def __init__(self, op: int, predivide_factor: float, compression: Any, sparse_as_dense: bool) -> None:
        self.op = op
        self.sparse_as_dense = sparse_as_dense
        self.compressor = resolved(compression)
        # Average divides by size() in the core; predividing moves part of that before the sum.
        self._arguments: ReduceArguments = reduce_arguments(op, 1.0 / predivide_factor, predivide_factor)
        self._sparse_dims: dict[torch.Tensor, int] = {}  # of the parameters whose gradient was sparse before

    def compressor_for(self, parameter: torch.Tensor) -> Any:
        """Compression of a parameter's gradient: none for vectors and for what is too small to be worth it.

        Norms and biases are a fraction of a percent of the bytes, and most of the damage quantisation does.
        """
        smallest = getattr(self.compressor, "min_elements", None)
        if smallest is not None and (parameter.dim() < 2 or parameter.numel() < smallest):
            return Compression.none
        return self.compressor

    def fill_missing(self, parameter: torch.Tensor) -> None:
        """Give a parameter without gradient a zero one, so that this rank can take part in reducing it."""
        if parameter.grad is not None:
            return
        if parameter in self._sparse_dims and not self.sparse_as_dense:
            dims = self._sparse_dims[parameter]
            nothing = torch.empty(0, *parameter.shape[dims:], dtype=parameter.dtype)
            parameter.grad = torch.sparse_coo_tensor(
                torch.empty(dims, 0), nothing, parameter.shape, check_invariants=False
            )
        else:
            parameter.grad = torch.zeros_like(parameter)

    def start(self, names: Sequence[str], parameters: Sequence[torch.Tensor], grouped: bool) -> Wait:
        """Start to reduce the parameters' gradients, as a group if ``grouped``; returns what waits for it."""
        waits: list[Wait] = []
        dense: dict[Any, list[tuple[str, torch.Tensor]]] = {}
        for name, parameter in zip(names, parameters, strict=True):
            gradient = parameter.grad
            assert gradient is not None
            if gradient.is_sparse:
                self._sparse_dims[parameter] = gradient.sparse_dim()
            if gradient.is_sparse and not self.sparse_as_dense:
                waits.append(self._start_sparse(name, parameter, gradient))
            else:
                key = self.compressor_for(parameter) if grouped else parameter
                dense.setdefault(key, []).append((name, parameter))
        for members in dense.values():
            waits.append(self._start_dense(members, grouped))
        return lambda: wait_for_all(waits)

    def _start_dense(self, members: list[tuple[str, torch.Tensor]], grouped: bool) -> Wait:
        names, parameters = zip(*members, strict=True)
        compressor = self.compressor_for(parameters[0])
        name = f"group.{names[0]}" if grouped else names[0]
        gradients = [p.grad.to_dense() if p.grad.is_sparse else p.grad for p in parameters]
        handle = start_allreduce(
            gradients, name, self._arguments, compressor, global_process_set, in_place=True, grouped=grouped
        )

        def wait() -> None:
            synchronize(handle)
            for parameter, gradient in zip(parameters, gradients, strict=True):
                if parameter in self._sparse_dims:
                    parameter.grad = gradient.to_sparse(self._sparse_dims[parameter])

        return wait

    def _start_sparse(self, name: str, parameter: torch.Tensor, gradient: torch.Tensor) -> Wait:
        finish = sparse_allreduce_async(gradient, name, self.op)

        def wait() -> None:
            parameter.grad = finish()

        return wait


def wait_for_all(waits: Sequence[Wait]) -> None:
    """Wait for everything, also after a failure, so that nothing writes to a gradient afterwards; then
    raise.
    """
    failure: Exception | None = None
    for wait in waits:
        try:
            wait()
        except Exception as error:
            failure = failure or error
    if failure is not None:
        raise failure
