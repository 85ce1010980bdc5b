"""Several optimizers in one script, with backward passes that reach only some; ranks are threads."""

from __future__ import annotations

import gc
import threading
from typing import Any

import pytest
import torch
from thread_ranks import run_ranks

import horovod.torch as hvd


def parameter() -> torch.nn.Parameter:
    return torch.nn.Parameter(torch.ones(2))


def sgd(name: str, of: torch.nn.Parameter, **options: Any) -> Any:
    return hvd.DistributedOptimizer(torch.optim.SGD([of], lr=0.1), [(name, of)], **options)


def test_an_optimizer_of_one_rank_only() -> None:
    """The other ranks end before that rank, and wait for it elsewhere."""
    end = threading.Barrier(2)

    def work() -> list[float]:
        p, q = parameter(), parameter()
        optimizer, kept = sgd("p", p), sgd("q", q) if hvd.rank() == 1 else None
        for _ in range(3):
            p.sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        end.wait(20)
        del kept
        return p.tolist()

    assert run_ranks(2, work) == [pytest.approx([0.7, 0.7])] * 2


def test_one_rank_has_freed_an_optimizer() -> None:
    end = threading.Barrier(2)

    def work() -> list[float]:
        p, q = parameter(), parameter()
        optimizer, other = sgd("p", p), sgd("q", q)
        (p.sum() + q.sum()).backward()
        optimizer.step()
        other.step()
        kept = other if hvd.rank() == 1 else None
        del other
        gc.collect()
        optimizer.zero_grad()
        p.sum().backward()
        end.wait(20)
        optimizer.step()
        del kept
        return p.tolist()

    assert run_ranks(2, work) == [pytest.approx([0.8, 0.8])] * 2


def test_a_pass_that_fails_on_one_rank_holds_nobody() -> None:
    """That rank is busy elsewhere before its next call."""
    caught = threading.Barrier(2)

    def work() -> tuple[list[float], bool]:
        p, q = parameter(), parameter()
        optimizers = [sgd("p", p), sgd("q", q)]

        def fail(gradient: torch.Tensor) -> None:
            if hvd.rank() == 1:
                raise MemoryError

        late = torch.ones(2, requires_grad=True)
        late.register_hook(fail)
        loss = late.exp().log().sum() + p.sum()  # autograd begins with the latest parameter: p
        has_failed = False
        try:
            loss.backward()
        except MemoryError:
            has_failed = True
        caught.wait(20)
        for optimizer in optimizers:
            optimizer.step()
        return p.tolist(), has_failed

    first, second = run_ranks(2, work)
    assert first[0] == second[0] and second[1] and not first[1]


def test_a_pass_after_shutdown_that_reduces_nothing() -> None:
    def work() -> list[float]:
        p = parameter()
        optimizer = sgd("p", p, backward_passes_per_step=2)
        hvd.shutdown()
        p.sum().backward()
        hvd.init()
        assert p.grad is not None and optimizer.param_groups
        return p.grad.tolist()

    assert run_ranks(2, work) == [[1.0, 1.0]] * 2
