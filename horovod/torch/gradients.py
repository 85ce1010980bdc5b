"""How one gradient, or a group of them, is reduced in place, whatever its layout and compression."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from horovod.common.basics import basics
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.torch import errors
from horovod.torch.compression import Compression, Rules, short_name
from horovod.torch.handles import operation_of, synchronize, wait_or_yield
from horovod.torch.movements import start_sparse_allreduce
from horovod.torch.object_exchange import ProcessSetPeers
from horovod.torch.reduce_ops import OP_NAMES, Adasum, Average, Max, ReduceArguments, Sum, reduce_arguments
from horovod.torch.reduction import Gradient, Reduction
from horovod.torch.submission import start_allreduce

__all__ = ["GradientReducer", "Pending", "Wait", "wait_for_all"]

Wait = Callable[[], object]
Entry = tuple[str, torch.Tensor, torch.Tensor]  # name, parameter, what is reduced for it


class Pending:
    """The reduction of a gradient or a group that has been started.

    Attributes:
        is_over: it has been waited for: gradients are reduced, or it has failed.
        is_completed: some rank lacked a gradient of it, and took part with zeros; known once it is over.
    """

    def __init__(self, handles: Sequence[int], finish: Wait) -> None:
        self.is_over = self.is_completed = False
        self.handles = list(handles)
        self._operations = [found for handle in handles if (found := operation_of(handle)) is not None]
        self._finish = finish

    @classmethod
    def of_all(cls, parts: Sequence[Pending], then: Wait | None = None) -> Pending:
        """Several as one, and what to do when they are over."""
        if len(parts) == 1 and then is None:
            return parts[0]

        def finish() -> None:
            wait_for_all([part.wait for part in parts])
            if then is not None:
                then()

        return cls([handle for part in parts for handle in part.handles], finish)

    def wait(self) -> None:
        """Wait until gradients are reduced. Does nothing when repeated."""
        if self.is_over:
            return
        try:
            self._finish()
        except KeyboardInterrupt:
            raise  # it goes on, and can be waited for again
        except BaseException:
            self.is_over = True
            raise
        self.is_over = True
        self.is_completed = any(operation.is_completed for operation in self._operations)
        self._operations.clear()  # their tensors are no longer needed

    def wait_or_yield(self) -> bool:
        """Wait until ``wait`` would not, and return True.

        Or return False, as ranks that have to take part will do so only after something that this one does
        later.
        """
        return self.is_over or all(wait_or_yield(handle) for handle in self.handles)


class GradientReducer(Reduction):
    """The Reduction of a DistributedOptimizer: op, factors and ranks, decided once for all gradients.

    ``has_sparse_gradients`` says that gradients are sparse also where none has been seen yet. ValueError when
    ``compression`` is nothing that Rules takes, or its codes cannot be reduced by ``op``.

    Attributes:
        in_flight: handles of reductions that have been started, and not waited for.
        suffix: of the names of operations, not of parameters; another optimizer may have equal names.
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
        is_of_all = process_set is global_process_set  # some ranks alone could not agree on anything
        super().__init__(Rules(compression), ProcessSetPeers(process_set), is_tuned=is_of_all)
        self.op = op
        self.sparse_as_dense = sparse_as_dense
        self.in_flight: set[int] = set()
        self.suffix = ""
        self._process_set = process_set
        self._has_sparse_gradients = has_sparse_gradients
        # Average divides by size() in the core; predividing moves part of that before the sum.
        self._arguments: ReduceArguments = reduce_arguments(op, 1.0 / predivide_factor, predivide_factor)
        self._sparse_dims: dict[torch.Tensor, int] = {}  # of the parameters whose gradient was sparse before
        for compressor in self.rules.compressors if op not in (Average, Sum) else []:
            _check_not_added(op, compressor, self.rules.said)

    def end_step(self) -> None:
        """All gradients of a step have been reduced, or there is nobody to reduce them with."""
        if not self.first_step.is_over and self._process_set.included() and self.is_compressed:
            self.first_step.end(self._process_set.rank() or 0, self._process_set.size() or 1)

    def fill_missing(self, parameter: torch.Tensor) -> None:
        """Give a parameter without gradient a zero one, so that this rank can take part in reducing it."""
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
        """Whether the parameter has a gradient without any element other than zero.

        The host has to know, and waits for the GPU. It is asked of frozen parameters only.
        """
        gradient = parameter.grad
        assert gradient is not None
        values = gradient._values() if gradient.is_sparse else gradient
        return not torch.count_nonzero(values)

    def operation_name(self, name: str, parameter: torch.Tensor, grouped: bool, again: int = 0) -> str:
        """The operation by which ``start`` reduces it, or a group of which it is the first."""
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

        ``again`` tells further contributions to one step from the first, which is 0.
        """
        parts: list[Pending] = []
        dense: list[Entry] = []
        with waiting_on_failure(parts):
            for name, parameter in zip(names, parameters, strict=True):
                gradient = _gradient_of(name, parameter)
                if gradient.is_sparse:
                    self._sparse_dims[parameter] = gradient.sparse_dim()
                if gradient.is_sparse and not self.sparse_as_dense:
                    parts.append(self._start_sparse(name, parameter, gradient, again))
                else:
                    dense.append((name, parameter, gradient.to_dense() if gradient.is_sparse else gradient))
            if dense or not parts:
                parts.append(self.start_dense(dense, grouped, again))

        def give_back_sparse() -> None:
            for _, parameter, gradient in dense:
                if parameter in self._sparse_dims:
                    parameter.grad = gradient.to_sparse(self._sparse_dims[parameter])

        return Pending.of_all(parts, give_back_sparse if dense and self._sparse_dims else None)

    def start_dense(self, entries: Sequence[Entry], grouped: bool, again: int = 0) -> Pending:
        """Start to reduce dense tensors in place; if ``grouped``, all that travel alike together."""
        self.tuned.before_reduction()
        parts: list[Pending] = []
        alike: dict[int, tuple[Any, list[Entry]]] = {}
        for number, entry in enumerate(entries):
            compressor = self.compressor_of(*entry[:2])
            alike.setdefault(id(compressor) if grouped else number, (compressor, []))[1].append(entry)
        with waiting_on_failure(parts):
            for compressor, members in alike.values():
                parts.append(self._start_alike(members, compressor, grouped, again))
        return Pending.of_all(parts)

    def _start_alike(self, entries: Sequence[Entry], compressor: Any, grouped: bool, again: int) -> Pending:
        if not self.in_flight:
            self.begin()
        gradients = [Gradient(name, tensor, compressor) for name, _, tensor in entries]
        label = self._label(gradients[0].name, grouped, again)
        handle = self.reduce(gradients, label, self._arguments, self._process_set, grouped=grouped)
        self.in_flight.add(handle)

        def wait() -> None:
            try:
                synchronize(handle)
            except KeyboardInterrupt:
                raise  # it goes on, and can be waited for again
            except BaseException:
                self.in_flight.discard(handle)
                raise
            self.in_flight.discard(handle)

        return Pending([handle], wait)

    def agree_on(self, number: int) -> tuple[int, int]:
        """The smallest and the largest of the numbers that ranks have. All ranks make the call."""
        value = torch.tensor([-number, number])
        name = "DistributedOptimizer.names"
        arguments = reduce_arguments(Max, 1.0, 1.0)
        handle = start_allreduce([value], name, arguments, Compression.none, self._process_set, into=[value])
        synchronize(handle)
        return -int(value[0]), int(value[1])

    def reduced_loss(self, loss: Any) -> torch.Tensor:
        """A closure's loss (a tensor of one element, or a number), reduced as gradients are."""
        value = torch.as_tensor(loss).detach().clone()
        name = "DistributedOptimizer.loss"
        handle = start_allreduce(
            [value], name, self._arguments, Compression.none, self._process_set, into=[value]
        )
        synchronize(handle)
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


def _gradient_of(name: str, parameter: torch.Tensor) -> torch.Tensor:
    """ValueError where a hook has taken it away, which ran before the optimizer's own."""
    if parameter.grad is None:
        raise errors.no_gradient(tensor=name, ranks=[basics.rank()])
    return parameter.grad


def _check_not_added(op: int, compressor: Any, said: str) -> None:
    """ValueError unless a compressor works with an op that does not add."""
    name = short_name(compressor)
    if getattr(compressor, "combine", "sum") != "sum":
        raise errors.codes_op(said=said, compressor=name, op=OP_NAMES[op])
    if getattr(compressor, "error_feedback", False):
        raise errors.feedback_op(said=said, compressor=name, op=OP_NAMES[op])
    if op == Adasum and compressor is Compression.bf16:
        raise errors.bf16_adasum(said=said)


def wait_for_all(waits: Sequence[Wait]) -> None:
    """Wait for everything, also after a failure or Ctrl-C, so that nothing writes to a gradient afterwards;
    then raise. A second Ctrl-C ends the waiting.
    """
    failure: BaseException | None = None
    for wait in waits:
        try:
            wait()
        except Exception as error:
            failure = failure or error
        except BaseException as interruption:
            failure = interruption
            with contextlib.suppress(Exception):  # the interruption is what is raised
                wait()
    if failure is not None:
        try:
            raise failure
        finally:
            del failure  # it holds this frame, which would hold it, until a collection


@contextlib.contextmanager
def waiting_on_failure(parts: Sequence[Pending]) -> Iterator[None]:
    """Waits for reductions started inside the block if the block fails: nobody else knows of them."""
    try:
        yield
    except BaseException:
        with contextlib.suppress(Exception):  # the block's own failure is what is raised
            wait_for_all([part.wait for part in parts])
        raise
