"""Reduces a gradient, or a group of them, in place, for every layout and compression."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from horovod.common.basics import basics
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.torch import errors
from horovod.torch.compression import Compression, Rules, short_name
from horovod.torch.functions import peers_in
from horovod.torch.handles import operation_of, synchronize
from horovod.torch.movements import start_sparse_allreduce
from horovod.torch.reduce_ops import OP_NAMES, Adasum, Average, Max, ReduceArguments, Sum, reduce_arguments
from horovod.torch.reduction import Gradient, Reduction
from horovod.torch.submission import start_allreduce

Wait = Callable[[], object]
Entry = tuple[str, torch.Tensor, torch.Tensor]  # name, parameter, tensor that is reduced for it


class Pending:
    """A started reduction of a gradient or a group.

    Attributes:
        is_over: it was waited for, and the gradients are reduced or it failed.
        is_completed: some rank lacked a gradient of it, and took part with zeros. Known once it is over.
    """

    def __init__(self, handles: Sequence[int], finish: Wait) -> None:
        self.is_over = self.is_completed = False
        self.handles = list(handles)
        self._operations = [found for handle in handles if (found := operation_of(handle)) is not None]
        self._finish = finish

    @classmethod
    def of_all(cls, parts: Sequence[Pending], then: Wait | None = None) -> Pending:
        """Combine several into one, with an optional function to call when all are over."""
        if len(parts) == 1 and then is None:
            return parts[0]

        def finish() -> None:
            wait_for_all([part.wait for part in parts])
            if then is not None:
                then()

        return cls([handle for part in parts for handle in part.handles], finish)

    def wait(self) -> None:
        """Wait until gradients are reduced. Idempotent."""
        if self.is_over:
            return
        try:
            self._finish()
        except KeyboardInterrupt:
            raise  # can be waited for again
        except BaseException:
            self.is_over = True
            raise
        self.is_over = True
        self.is_completed = any([operation.is_completed for operation in self._operations])
        self._operations.clear()  # frees their tensors

    def wait_or_yield(self) -> bool:
        """Wait until ``wait`` would return at once, and return True.

        Or return False if ranks whose part is missing wait for something that this rank does later.
        """
        return self.is_over or all(each.complete_or_yield() for each in self._operations)


class GradientReducer(Reduction):
    """The Reduction of a DistributedOptimizer: op, factors and ranks, fixed for all gradients.

    With ``has_sparse_gradients``, gradients are sparse even if none has been seen yet. ValueError if Rules
    does not accept ``compression``, or ``op`` cannot reduce its codes.

    Attributes:
        in_flight: handles of reductions that were started, and not waited for.
        suffix: of operations' names, not of parameters', as another optimizer may have equal names.
    """

    def __init__(
        self,
        op: int,
        predivide_factor: float,
        compression: Any,
        sparse_as_dense: bool,
        process_set: ProcessSet = global_process_set,
        has_sparse_gradients: bool = False,
    ) -> None:
        is_of_all = process_set is global_process_set  # a subset of ranks could not agree on settings
        super().__init__(Rules(compression), peers_in(process_set), is_tuned=is_of_all)
        self.op = op
        self.sparse_as_dense = sparse_as_dense
        self.in_flight: set[int] = set()
        self.suffix = ""
        self._process_set = process_set
        self._has_sparse_gradients = has_sparse_gradients
        # Average divides by size() in the core. Predividing moves part of the division before the sum.
        self._arguments: ReduceArguments = reduce_arguments(op, 1.0 / predivide_factor, predivide_factor)
        self._sparse_dims: dict[torch.Tensor, int] = {}  # of the parameters whose gradient was sparse before
        for compressor in self.rules.compressors if op not in (Average, Sum) else []:
            _check_not_added(op, compressor, self.rules.said)

    def end_step(self) -> None:
        """Note that all gradients of a step are reduced, or that there are no other ranks."""
        if not self.first_step.is_over and self._process_set.included() and self.is_compressed:
            self.first_step.end(self._process_set.rank() or 0, self._process_set.size() or 1)

    def fill_missing(self, parameter: torch.Tensor) -> None:
        """Give a parameter without gradient a zero one, so that this rank can take part."""
        if parameter.grad is not None:
            return
        dims = self._sparse_dims.get(parameter, 1 if self._has_sparse_gradients else None)
        if dims is None or self.sparse_as_dense:
            parameter.grad = torch.zeros_like(parameter)
        else:
            nothing = parameter.detach().new_empty(0, *parameter.shape[dims:])
            nowhere = torch.empty(dims, 0, dtype=torch.int64, device=parameter.device)
            shape = parameter.shape
            parameter.grad = torch.sparse_coo_tensor(nowhere, nothing, shape, check_invariants=False)

    def is_zero(self, parameter: torch.Tensor) -> bool:
        """Return whether all elements of the parameter's gradient are zero.

        The host waits for a GPU to know it. Only called for frozen parameters.
        """
        gradient = parameter.grad
        assert gradient is not None
        values = gradient._values() if gradient.is_sparse else gradient
        return not torch.count_nonzero(values)

    def operation_name(self, name: str, parameter: torch.Tensor, grouped: bool, again: int = 0) -> str:
        """Return the operation with which ``start`` reduces it, or the group whose first member it is."""
        label = self._label(name, grouped, again)
        is_sparse = parameter in self._sparse_dims or self._has_sparse_gradients
        if is_sparse and not self.sparse_as_dense:
            return f"allgather.{label.removeprefix('group.')}.indices"
        return f"allreduce.{label}"

    def _label(self, name: str, grouped: bool, again: int) -> str:
        return f"{'group.' if grouped else ''}{name}{f'.again{again}' if again else ''}{self.suffix}"

    def start(
        self, names: Sequence[str], parameters: Sequence[torch.Tensor], grouped: bool, again: int = 0
    ) -> Pending:
        """Start to reduce the parameters' gradients, as a group if ``grouped``.

        ``again`` numbers the contributions to one step; the first is 0.
        """
        parts: list[Pending] = []
        dense: list[Entry] = []
        try:
            for name, parameter in zip(names, parameters, strict=True):
                gradient = parameter.grad
                if gradient is None:  # a hook that ran before the optimizer's own has removed it
                    raise errors.no_gradient(tensor=name, ranks=[basics.rank()])
                if gradient.is_sparse:
                    self._sparse_dims[parameter] = gradient.sparse_dim()
                if gradient.is_sparse and not self.sparse_as_dense:
                    parts.append(self._start_sparse(name, parameter, gradient, again))
                else:
                    dense.append((name, parameter, gradient.to_dense() if gradient.is_sparse else gradient))
            if dense or not parts:
                parts.append(self.start_dense(dense, grouped, again))
        except BaseException:
            _wait_after_failure(parts)
            raise

        def give_back_sparse() -> None:
            for _, parameter, gradient in dense:
                if parameter in self._sparse_dims:
                    parameter.grad = gradient.to_sparse(self._sparse_dims[parameter])

        return Pending.of_all(parts, give_back_sparse if dense and self._sparse_dims else None)

    def start_dense(self, entries: Sequence[Entry], grouped: bool, again: int = 0) -> Pending:
        """Start to reduce dense tensors in place. If ``grouped``, equal compressors travel together."""
        self.tuned.before_reduction()
        parts: list[Pending] = []
        alike: dict[int, tuple[Any, list[Entry]]] = {}
        for number, entry in enumerate(entries):
            compressor = self.compressor_of(*entry[:2])
            alike.setdefault(id(compressor) if grouped else number, (compressor, []))[1].append(entry)
        try:
            for compressor, members in alike.values():
                if not self.in_flight:
                    self.begin()
                gradients = [Gradient(name, tensor, compressor) for name, _, tensor in members]
                label = self._label(gradients[0].name, grouped, again)
                handle = self.reduce(gradients, label, self._arguments, self._process_set, grouped=grouped)
                self.in_flight.add(handle)
                parts.append(Pending([handle], functools.partial(self._synchronize, handle)))
        except BaseException:
            _wait_after_failure(parts)
            raise
        return Pending.of_all(parts)

    def _synchronize(self, handle: int) -> None:
        try:
            synchronize(handle)
        finally:
            if operation_of(handle) is None:  # otherwise Ctrl-C came, and it can be waited for again
                self.in_flight.discard(handle)

    def agree_on(self, number: int) -> tuple[int, int]:
        """Collective. Return the smallest and the largest of all ranks' numbers."""
        value = self._reduced("names", torch.tensor([-number, number]), reduce_arguments(Max, 1.0, 1.0))
        return -int(value[0]), int(value[1])

    def reduced_loss(self, loss: Any) -> torch.Tensor:
        """Return a closure's loss (a tensor of one element, or a number), reduced as gradients are."""
        return self._reduced("loss", torch.as_tensor(loss).detach().clone(), self._arguments)

    def _reduced(self, what: str, value: torch.Tensor, arguments: ReduceArguments) -> torch.Tensor:
        name, process_set = f"DistributedOptimizer.{what}", self._process_set
        synchronize(start_allreduce([value], name, arguments, Compression.none, process_set, into=[value]))
        return value

    def _start_sparse(
        self, name: str, parameter: torch.Tensor, gradient: torch.Tensor, again: int
    ) -> Pending:
        self.first_step.note(name, gradient._values(), Compression.none)
        label = self._label(name, False, again)
        handles, finish = start_sparse_allreduce(gradient, label, self.op, self._process_set)

        def wait() -> None:
            parameter.grad = finish()

        return Pending(handles, wait)


def _check_not_added(op: int, compressor: Any, said: str) -> None:
    """Raise ValueError unless a compressor works with an op that does not add."""
    name = short_name(compressor)
    if getattr(compressor, "combine", "sum") != "sum":
        raise errors.codes_op(said=said, compressor=name, op=OP_NAMES[op])
    if getattr(compressor, "error_feedback", False):
        raise errors.feedback_op(said=said, compressor=name, op=OP_NAMES[op])
    if op == Adasum and compressor is Compression.bf16:
        raise errors.bf16_adasum(said=said)


def wait_for_all(waits: Sequence[Wait]) -> None:
    """Wait for all, even after a failure or Ctrl-C; then raise the first failure.

    So nothing writes to a gradient afterwards. A second Ctrl-C ends the waiting.
    """
    failure: BaseException | None = None
    for wait in waits:
        try:
            wait()
        except Exception as error:
            failure = failure or error
        except BaseException as interruption:
            failure = interruption
            with contextlib.suppress(Exception):  # the interruption is raised instead
                wait()
    if failure is not None:
        try:
            raise failure
        finally:
            del failure  # breaks the reference cycle with this frame


def _wait_after_failure(parts: Sequence[Pending]) -> None:
    """Wait for reductions that no other code knows, because a later one could not be started."""
    with contextlib.suppress(Exception):  # the caller raises the first failure
        wait_for_all([part.wait for part in parts])
