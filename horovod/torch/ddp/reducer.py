"""Gradients averaged in place over the ranks of a process group, compressed, by the core's engine.

A reducer has a job of its own (`group_job.py`), to whose engine gradients go as those of a
DistributedOptimizer do, under their names: the same routes, bytes, residuals and random numbers.
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

__all__ = ["BUCKET_MB", "GroupReducer"]

BUCKET_MB = "HOROVOD_DDP_BUCKET_MB"


class GroupReducer:
    """Reduces gradients in place over the ranks of a process group.

    All ranks make one together, and start the same reductions in one order. ValueError for an unknown
    algorithm, and as ``hvd.init`` for ranks that do not fit.

    Args:
        reduction: of the model whose gradients they are.
        process_group: None is the default one.
        algorithm: as HOROVOD_ALLREDUCE_ALGORITHM, which counts where it is None.

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
        self._held_bytes: int | None = None  # of what is gathered, while the engine is held
        self._is_closed = False
        self._last_metrics: dict[str, int] = {}
        self._under_way: dict[str, torch.futures.Future[None]] = {}  # by gradient, of the last time
        self._origins: dict[int, devices.Origin] = {}  # by device
        self._job = group_job.begin(group, algorithm)
        self._completion = CompletionThread(self._job)
        weakref.finalize(self, self._completion.close_soon).atexit = False  # group_job sees to that

    def agree(self, terms: Mapping[str, str]) -> None:
        """Have all ranks compare their terms; all ranks call it, and wait for each other.

        ValueError on every rank, which says what each of them has, unless all have the same in one order.
        """
        self._check_open()
        with self._job.entered():
            texts = basics.member().allgathered("terms", terms_as_bytes(terms))
        check_agreement([terms_from_bytes(text) for text in texts])

    def start(
        self, gradients: Sequence[Gradient], op: int = Average, *, is_last: bool = True
    ) -> torch.futures.Future[None]:
        """Begin to average (or, with Sum, add) gradients over all ranks, in place.

        All ranks start the same reductions in the same order. With ``is_last=False`` more is to come, for
        which these may wait, until HOROVOD_DDP_BUCKET_MB are there; the last of them says so, or ``let_go``
        does. The tensors belong to the reducer until the future is done; on a GPU that is when the work is
        on its stream, behind which whoever waits goes on. The future has the error of what fails:
        HorovodInternalError, on all ranks where they disagree, or where one is lost. What fails on this
        rank alone, as a compressor may, ends the job: later calls raise it again.

        Raises:
            ValueError: a tensor cannot be reduced, or the op is neither Average nor Sum.
            HorovodInternalError: the job has failed before.
            RuntimeError: the reducer was closed.
        """
        self._check_open()
        device = _checked(gradients, op)
        if self.size == 1 or not gradients:
            for gradient in gradients:
                gradient.fill()
            return devices.done_future(device)
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
        future, arguments = devices.new_future(device), ReduceArguments(op, 1.0, 1.0)
        self._under_way.update((gradient.name, future) for gradient in gradients)
        try:
            with self._job.entered(), mode, origin.resumed(), self._gathered(gradients, is_last):
                for one in gradients:  # announced together
                    started.append(self._reduction.reduce([one], one.name, arguments, global_process_set))
        except HorovodInternalError as error:
            raise self._completion.failure or error from None
        except BaseException as error:
            own = error if isinstance(error, Exception) else RuntimeError(f"{type(error).__name__}: {error}")
            self._completion.fail(own)
            raise
        finally:  # those that could be started still need their tensors
            self._completion.complete(started, origin, future, is_inference)
        return future

    def _await_earlier(self, gradients: Sequence[Gradient]) -> None:
        """Names are free again: a backward pass that has failed may leave some under way, on all ranks."""
        for gradient in gradients:
            earlier = self._under_way.pop(gradient.name, None)
            if earlier is not None and not earlier.done():
                with contextlib.suppress(Exception):  # whoever waits for those hears of it
                    earlier.wait()

    @contextlib.contextmanager
    def _gathered(self, gradients: Sequence[Gradient], is_last: bool) -> Iterator[None]:
        """Operations started inside are announced at its end, unless more are to be gathered."""
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
        """How much waits for more from now on: HOROVOD_DDP_BUCKET_MB, the same on all ranks."""
        self._gathered_bytes = int(float(mb) * 1e6)

    def let_go(self) -> None:
        """Nothing more is to come: what is gathered travels. Harmless where nothing is."""
        member = self._job.member
        if self._held_bytes is not None and member is not None:
            self._held_bytes = None
            member.engine.let_go()

    def note_wait(self, seconds: float) -> None:
        """A backward pass has waited so long for what was started."""
        self._job.run(waiting.count, seconds)

    def metrics(self) -> dict[str, int]:
        """The counters of hvd.metrics(), of what this reducer has done; also when it is closed."""
        if self._job.member is None:
            return dict(self._last_metrics)
        return self._job.run(basics.metrics)

    def note_step(self, trained: Callable[[], tuple[str, Sequence[torch.Tensor]]]) -> None:
        """Ranks have made a step since the last call: see ``Reduction.step_ended``."""
        if self.size > 1 and not self._is_closed and self._completion.failure is None:
            self._job.run(self._reduction.step_ended, "ddp", trained)

    @property
    def is_tuned(self) -> bool:
        """Whether the autotuner is on, in this job."""
        return self._job.run(autotune.is_on)

    def tuning(self) -> dict[str, Any]:
        """See ``hvd.tuning``; nothing more once it is closed."""
        return autotune.nothing() if self._job.member is None else self._job.run(autotune.tuning)

    def close(self) -> None:
        """Finish what was started, then leave the job."""
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
    """The device of all gradients. ValueError unless they can be reduced together."""
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
