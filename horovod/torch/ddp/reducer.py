"""Averages gradients in place over the ranks of a process group, compressed, by the core's engine.

A reducer has its own job (`group_job.py`). It submits gradients to the job's engine under their names, as a
DistributedOptimizer does: with the same routes, bytes, residuals and random numbers.
"""

from __future__ import annotations

import contextlib
import os
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist

from horovod.common import waiting
from horovod.common.basics import basics
from horovod.common.exceptions import HorovodInternalError
from horovod.common.options import BY_VARIABLE
from horovod.common.process_sets import global_process_set
from horovod.torch import autotune, devices
from horovod.torch.ddp import errors, group_job
from horovod.torch.ddp.agreement import check_agreement, terms_as_bytes, terms_from_bytes
from horovod.torch.ddp.completion import CompletionThread
from horovod.torch.reduce_ops import Average, ReduceArguments, Sum
from horovod.torch.reduction import Gradient, Reduction
from horovod.torch.tensors import check_served, is_addressable
from horovod.torch.workloads import own_knob, weakly

BUCKET_MB = "HOROVOD_DDP_BUCKET_MB"


class GroupReducer:
    """Reduces gradients in place over the ranks of a process group.

    All ranks make one together, and start the same reductions in one order. ValueError for an unknown
    algorithm, and as ``hvd.init`` for ranks that do not fit.

    Args:
        reduction: of the model that has the gradients.
        process_group: None is the default one.
        algorithm: overrides HOROVOD_ALLREDUCE_ALGORITHM unless None.

    Attributes:
        rank, size: of this process in the group.
    """

    def __init__(
        self,
        reduction: Reduction,
        process_group: dist.ProcessGroup | None = None,
        *,
        algorithm: str | None = None,
    ) -> None:
        group = process_group if process_group is not None else dist.group.WORLD
        if group is None:
            raise errors.no_process_group()
        self.rank, self.size = group.rank(), group.size()
        self._reduction = reduction
        self.gather(BY_VARIABLE[BUCKET_MB].read(os.environ))
        reduction.tuned.add(own_knob(BUCKET_MB, weakly(self.gather)))
        self._held_bytes: int | None = None  # bytes submitted while the engine is held
        self._is_closed = False
        self._last_metrics: dict[str, int] = {}
        self._under_way: dict[str, torch.futures.Future[None]] = {}  # by gradient, its last reduction
        self._origins: dict[int, devices.Origin] = {}  # by device
        self._job = group_job.begin(group, algorithm)
        self._completion = CompletionThread(self._job)
        weakref.finalize(self, self._completion.close_soon).atexit = False  # group_job leaves jobs at exit

    def agree(self, terms: Mapping[str, str]) -> None:
        """Compare the terms of all ranks. Collective.

        ValueError with each rank's terms, on every rank, unless all have the same in one order.
        """
        self._check_open()
        with self._job.entered():
            texts = basics.member().allgathered("terms", terms_as_bytes(terms))
        check_agreement([terms_from_bytes(text) for text in texts])

    def start(
        self, gradients: Sequence[Gradient], op: int = Average, *, is_last: bool = True
    ) -> torch.futures.Future[None]:
        """Start to average (or, with Sum, add) gradients over all ranks, in place.

        All ranks start the same reductions in the same order. With ``is_last=False`` these may wait for
        further ones, until HOROVOD_DDP_BUCKET_MB are submitted, or a last call or ``let_go`` ends the wait.

        The tensors belong to the reducer until the future is done. On a GPU that is when the work is on its
        stream, and a stream that waits for the future continues after it.

        On failure the future has the error: HorovodInternalError, on all ranks, if they disagree or one is
        lost. An error of this rank alone, such as a compressor's, ends the job, and later calls raise it
        again.

        Raises:
            ValueError: a tensor cannot be reduced, or the op is neither Average nor Sum.
            HorovodInternalError: the job has failed before.
            RuntimeError: the reducer was closed.
        """
        self._check_open()
        device = _checked(gradients, op)
        future, arguments = devices.new_future(device), ReduceArguments(op, 1.0, 1.0)
        if self.size == 1 or not gradients:
            for gradient in gradients:
                gradient.fill()
            future.set_result(None)
            return future
        if self._completion.is_idle:
            self._reduction.begin()
        if device not in self._origins:
            self._origins[device] = devices.Origin.beside(device)
        origin = self._origins[device]
        origin.wait_for_caller()
        is_inference = any(gradient.tensor.is_inference() for gradient in gradients)
        mode = torch.inference_mode() if is_inference else torch.no_grad()
        self._await_earlier(gradients)
        started: list[int] = []
        self._under_way.update((gradient.name, future) for gradient in gradients)
        try:
            with self._job.entered(), mode, origin.resumed(), self._gathered(gradients, is_last):
                for one in gradients:  # announced together
                    started.append(self._reduction.reduce([one], one.name, arguments, global_process_set))
        except HorovodInternalError as error:
            raise self._completion.failure or error from None
        except BaseException as error:
            self._completion.fail(error)
            raise
        finally:  # operations that were started still need their tensors
            self._completion.complete(started, origin, future, is_inference)
        return future

    def _await_earlier(self, gradients: Sequence[Gradient]) -> None:
        """Wait until names are free, as a failed backward pass may leave reductions under way."""
        for gradient in gradients:
            earlier = self._under_way.pop(gradient.name, None)
            if earlier is not None and not earlier.done():
                with contextlib.suppress(Exception):  # its own waiter gets the error
                    earlier.wait()

    @contextlib.contextmanager
    def _gathered(self, gradients: Sequence[Gradient], is_last: bool) -> Iterator[None]:
        """Announce operations started inside at the end of the block, unless more are to follow."""
        if self._held_bytes is None:
            self._held_bytes = 0
            basics.member().engine.hold()
        try:
            yield
        finally:
            self._held_bytes += sum(gradient.tensor.nbytes for gradient in gradients)
            if is_last or self._held_bytes >= self._gathered_bytes:
                self.let_go()

    def gather(self, mb: float | str) -> None:
        """Set the MB to submit before an announcement (HOROVOD_DDP_BUCKET_MB); equal on all ranks."""
        self._gathered_bytes = int(float(mb) * 1e6)

    def let_go(self) -> None:
        """Announce all that is held back, as nothing more follows. Idempotent."""
        member = self._job.member
        if self._held_bytes is not None and member is not None:
            self._held_bytes = None
            member.engine.let_go()

    def note_wait(self, seconds: float) -> None:
        """Count the seconds for which a backward pass has waited."""
        self._job.run(waiting.count, seconds)

    def metrics(self) -> dict[str, int]:
        """Return the counters of hvd.metrics() for this reducer; also after it is closed."""
        if self._job.member is None:
            return dict(self._last_metrics)
        return self._job.run(basics.metrics)

    def note_step(self, trained: Callable[[], tuple[str, Sequence[torch.Tensor]]]) -> None:
        """Report that ranks have made a step since the last call; see ``Reduction.step_ended``."""
        if self.size > 1 and not self._is_closed and self._completion.failure is None:
            self._job.run(self._reduction.step_ended, "ddp", trained)

    @property
    def is_tuned(self) -> bool:
        """Whether the autotuner is on, in this job."""
        return self._job.run(autotune.is_on)

    def tuning(self) -> dict[str, Any]:
        """Return the result of ``hvd.tuning`` for this job; off after it is closed."""
        return autotune.nothing() if self._job.member is None else self._job.run(autotune.tuning)

    def close(self) -> None:
        """Finish the started reductions, then leave the job."""
        self.let_go()
        self._last_metrics = self.metrics()
        self._is_closed = True
        self._completion.close()

    def _check_open(self) -> None:
        if self._is_closed:
            raise errors.closed()
        self._job.refuse_child()
        if self._completion.failure is not None:
            raise self._completion.failure


def _checked(gradients: Sequence[Gradient], op: int) -> int:
    """Return the device of all gradients. ValueError unless they can be reduced together."""
    if op not in (Average, Sum):
        raise errors.wrong_op(value=op)
    names = [gradient.name for gradient in gradients]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise errors.same_name(name=twice)
    for name, tensor, *_ in gradients:
        check_served(tensor, name)
        if not is_addressable(tensor):
            raise errors.not_contiguous(tensor=name)
    return devices.common_device([gradient.tensor for gradient in gradients], ", ".join(names[:3]))
