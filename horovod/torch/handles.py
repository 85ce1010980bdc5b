"""Handles: integers that stand for operations in flight, from submission to ``synchronize``.

An operation keeps all tensors alive that the core's thread may still access. GPU tensors are kept until
`synchronize`, although the GPU may use them longer; devices.py explains why that suffices.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import torch

from horovod import _native as native
from horovod.common import belongings, jobs, waiting
from horovod.common.exceptions import HorovodInternalError
from horovod.torch import devices, errors, storage
from horovod.torch.compiling import breaks_graphs

Output = torch.Tensor | tuple[torch.Tensor, ...] | None


@dataclass(slots=True)
class Operation:
    """Requests handed to the engine as one operation, and how to make its output of their results."""

    engine: native.Engine
    waits: list[int] = field(default_factory=list)
    tensors: list[torch.Tensor] = field(default_factory=list)
    steppers: list[waiting.Stepper] = field(default_factory=list)  # take several requests, one by one
    results: list[native.Result] = field(default_factory=list)
    finish: Callable[[list[native.Result]], Output] = lambda results: None
    origin: devices.Origin = devices.HOST  # where it was started
    label: str = ""  # the name in errors
    lent: list[tuple[torch.Tensor, int]] = field(default_factory=list)  # the caller reaches; with addresses
    written: list[torch.Tensor] = field(default_factory=list)  # of the lent, those written in place

    @property
    def is_completed(self) -> bool:
        """Return whether a rank lacked the gradient, and took part because others did. Known at the end."""
        parts: list[waiting.Stepper | native.Result] = [*self.steppers, *self.results]
        return any([part.is_completed for part in parts])

    def lend(self, label: str, read: Sequence[torch.Tensor], written: Sequence[torch.Tensor] = ()) -> None:
        self.label = label
        self.lent += [(tensor, tensor.data_ptr()) for tensors in (read, written) for tensor in tensors]
        if written:
            self.written += written
            storage.mark_written(written)

    def complete(self) -> Output:
        """Sleep until all requests are done, and return the output; raise the first failure.

        On a GPU a request is done when the core has enqueued all of it: later work on the caller's stream
        comes after it. Written tensors' versions are raised again, to invalidate what autograd has saved
        meanwhile.
        """
        try:
            return self._completed()
        finally:
            if self.written:
                storage.mark_written(self.written)

    def _completed(self) -> Output:
        with self.origin.resumed():
            while self.waits:
                result = waiting.wait(self.engine, self.waits[0])
                del self.waits[0]
                devices.order(result, self.origin.device)
                self.results.append(result)
            storage.require_unchanged(self.label, self.lent)
            for stepper in self.steppers:
                waiting.finish(stepper)
            output = self.finish(self.results)
        if output is not None and self.origin.stream is not None:
            given = [output] if isinstance(output, torch.Tensor) else output
            device = self.origin.device
            self.origin.hand_over([tensor for tensor in given if devices.device_of(tensor) == device])
        return output

    def complete_or_yield(self) -> bool:
        """Sleep until ``complete`` would not, and return True; or return False, as waiting.wait_or_yield."""
        with self.origin.resumed():
            requests = (waiting.wait_or_yield(self.engine, wait) for wait in self.waits)
            parts = (waiting.finish_or_yield(stepper) for stepper in self.steppers)
            return all(requests) and all(parts)


class _InFlight:
    """The operations of a job by their handles, and abandoned operations, for which no caller waits.

    Abandoned operations keep their tensors alive. All are forgotten when the job ends. Thread-safe: one call
    of a dict is atomic, and the list is changed under the lock.
    """

    def __init__(self) -> None:
        self.operations: dict[int, Operation] = {}
        self.lock = threading.Lock()
        self.abandoned: list[Operation] = []


# For all jobs, and never reset, so that a handle of an earlier init() is never valid again.
_numbers = itertools.count()


def _in_flight() -> _InFlight:
    return belongings.own(_InFlight)


def register(operation: Operation) -> int:
    handle = next(_numbers)
    _in_flight().operations[handle] = operation
    return handle


def abandon(operation: Operation) -> None:
    """Keep the tensors of an operation that failed in part, if other requests may be under way."""
    if not operation.waits:
        return
    flight = _in_flight()
    with flight.lock:
        flight.abandoned[:] = [other for other in flight.abandoned if not _is_over(other)] + [operation]


def _is_over(operation: Operation) -> bool:
    """Return whether no request of an abandoned operation is under way. The engine then forgets it."""
    if not all(operation.engine.poll(wait) for wait in operation.waits):
        return False
    for wait in operation.waits:
        with contextlib.suppress(HorovodInternalError):  # the operation was abandoned because of an error
            operation.engine.wait(wait)
    return True


@contextlib.contextmanager
def together(engine: native.Engine) -> Iterator[None]:
    """Announce the operations requested inside the block together, at its end."""
    engine.hold()
    try:
        yield
    finally:
        engine.let_go()


@breaks_graphs
def poll(handle: int) -> bool:
    """Return whether the operation is done, so that ``synchronize`` would not wait.

    ValueError on an unknown handle; HorovodInternalError in a forked child.
    """
    jobs.refuse_forked()  # before any lock is taken, whose owner may not exist in the child
    operation = operation_of(handle)
    if operation is None:
        raise errors.not_in_flight(handle=handle)
    waiting.advance_all()
    is_done = all(operation.engine.poll(wait) for wait in operation.waits)
    return all(stepper.advance() for stepper in operation.steppers) and is_done


@breaks_graphs
def synchronize(handle: int) -> Output:
    """Wait for an asynchronous operation and return its output: a tensor, or a tuple for a group.

    Returns None for an unknown or already synchronized handle. Raises HorovodInternalError if the operation
    failed, and in a forked child.
    """
    jobs.refuse_forked()  # as in poll
    in_flight = _in_flight().operations
    operation = in_flight.pop(handle, None)
    if operation is None:
        return None
    try:
        return operation.complete()
    except KeyboardInterrupt:
        in_flight[handle] = operation  # can be waited for again
        raise
    except BaseException:
        del operation.waits[:1]  # the engine forgets the request that failed
        abandon(operation)
        raise


def operation_of(handle: int) -> Operation | None:
    """Return the operation of a handle; None unless it is in flight."""
    return _in_flight().operations.get(handle)


def is_done_within(handle: int, seconds: float) -> bool:
    """Sleep until ``synchronize`` would not wait, for at most ``seconds``. Return whether that is so.

    For threads that do nothing else; see waiting.has_result_within. True for an unknown handle.
    """
    operation = operation_of(handle)
    if operation is None:
        return True
    deadline = time.monotonic() + seconds
    return all(
        waiting.has_result_within(operation.engine, wait, deadline - time.monotonic())
        for wait in operation.waits
    ) and all(waiting.is_over_within(stepper, deadline - time.monotonic()) for stepper in operation.steppers)


def complete_all(handles: Sequence[int]) -> list[Output]:
    """Synchronize every handle, even after a failure; then raise the first failure."""
    outputs: list[Output] = []
    failure: Exception | None = None
    for handle in handles:
        try:
            outputs.append(synchronize(handle))
        except Exception as error:
            failure = failure or error
    if failure is not None:
        try:
            raise failure
        finally:
            del failure  # breaks the reference cycle with this frame
    return outputs
