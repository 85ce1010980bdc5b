"""The communication hook, which DistributedDataParallel calls with each complete bucket of gradients.

If nothing of a model is compressed, its buckets are reduced as without a hook: divided as DDP divides, and by
one all_reduce of the model's process group. Otherwise a GroupReducer reduces them. The hook returns a future,
for which DDP waits at the end of the backward pass.
"""

# No `from __future__ import annotations`: DDP checks the hook's annotations, and rejects strings.
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from horovod.common.sentences import type_name
from horovod.torch.compression import UNSET
from horovod.torch.ddp import alone, errors
from horovod.torch.ddp.state import CompressionState


def compress(
    model: torch.nn.Module,
    compression: Any = UNSET,
    *,
    algorithm: str | None = None,
    may_turn_off: bool = False,
) -> CompressionState:
    """Compress a model's gradients from now on. Collective: all ranks call it with the same arguments.

    Args:
        model: wrapped, and without a communication hook; or torch.compile's version of such a model. In a
            single process, in which libraries do not wrap it, it need not be wrapped: a log line reports that
            nothing is done.

    The other arguments are those of CompressionState, which is returned. Its state belongs in checkpoints.

    Raises:
        TypeError: ``model`` is not a DistributedDataParallel, and there are several processes.
        ValueError: it has a hook, as with ``mixed_precision=``; an argument is wrong; or arguments differ
            between ranks, on every rank.
    """
    compiled = getattr(model, "_orig_mod", None)  # torch.compile's model contains the wrapped one
    model = compiled if isinstance(compiled, DistributedDataParallel) else model
    if not isinstance(model, DistributedDataParallel):
        if not alone.is_alone():
            raise errors.not_wrapped(got=type_name(model), **alone.who_else())
        if not isinstance(model, torch.nn.Module):
            raise errors.not_ddp(got=type_name(model))
        state = CompressionState(compression, model, algorithm=algorithm, may_turn_off=may_turn_off)
        alone.tell_alone("ddp.compress()")
        return state
    if model.mixed_precision is not None:
        raise errors.mixed_precision()
    if getattr(model, "_use_python_reducer", False):
        raise errors.python_reducer()
    if getattr(model, "_comm_hooks", None):
        raise errors.hooked_already()
    state = CompressionState(compression, model, algorithm=algorithm, may_turn_off=may_turn_off)
    state.begin()
    model.register_comm_hook(state, compression_hook)
    return state


def compression_hook(
    state: CompressionState,
    bucket: dist.GradBucket,  # type: ignore[name-defined]  # torch's own stubs leave it out
) -> torch.futures.Future[torch.Tensor]:
    """Average a bucket over all ranks: ``model.register_comm_hook(state, compression_hook)``.

    ``state`` is the model's CompressionState. The future's value is the bucket's buffer. On failure the
    future has the error, and ``backward()`` raises a RuntimeError with it.
    """
    buffer = bucket.buffer()
    if bucket.index() == 0:
        if not isinstance(state, CompressionState):
            raise errors.wrong_state(got=type_name(state))
        state.begin_step(buffer.device)
    gradients = state.gradients(bucket)
    is_last = bucket.is_last()
    end = state.end_step if is_last and not state.first_step.is_over else _nothing
    if not gradients:
        if is_last:
            state.begin().let_go()
        state.division.divide(bucket, state.divisor)
        work = dist.all_reduce(buffer, group=state.process_group, async_op=True)
        return _then(work.get_future(), buffer, end)
    reducer = state.begin()
    if state.divisor != reducer.size:
        buffer.mul_(reducer.size / state.divisor)
    if not is_last:
        return _then(reducer.start(gradients, is_last=False), buffer, end)
    begun = time.perf_counter()  # the backward pass has computed everything, and waits from here on

    def end_of_wait() -> None:
        reducer.note_wait(time.perf_counter() - begun)
        end()

    return _then(reducer.start(gradients), buffer, end_of_wait)


def _nothing() -> None:
    """Do nothing, at the end of most buckets."""


def _then(
    future: torch.futures.Future[Any], buffer: torch.Tensor, end: Callable[[], None]
) -> torch.futures.Future[torch.Tensor]:
    """Return a future of the buffer, or of the error in the only form that DDP reads.

    ``end`` is called before it is done.
    """

    def reduced(done: torch.futures.Future[Any]) -> torch.Tensor:
        done.value()
        end()
        return buffer

    return future.then(reduced)
