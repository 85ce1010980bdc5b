"""Gradients accessed between backward() and step() are reduced by then, or an error explains why not."""

# private: _finish_pass: the moment at which a pass waits

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from mirrored_job import MirroredEngine
from refusals import refused
from torch import nn
from torch.utils.checkpoint import checkpoint

import horovod.torch as hvd
from horovod.torch import errors


def make_model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))


def wrapped(model: nn.Module, op: int = hvd.Sum, **options: Any) -> Any:
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    return hvd.DistributedOptimizer(sgd, model.named_parameters(), op=op, **options)


def backward(model: nn.Module, **how: Any) -> None:
    model(torch.ones(2, 4)).pow(2).sum().backward(**how)


def gradients(model: nn.Module) -> list[torch.Tensor | None]:
    return [p.grad if p.grad is None else p.grad.clone() for p in model.parameters()]


def local_gradients(run: Callable[[nn.Module], None] = backward) -> list[torch.Tensor | None]:
    model = make_model()
    run(model)
    return gradients(model)


def are_times(model: nn.Module, times: float, local: list[torch.Tensor | None]) -> bool:
    pairs = zip(gradients(model), local, strict=True)
    return all(ours is theirs or torch.equal(ours, times * theirs) for ours, theirs in pairs)  # type: ignore[operator]


def test_without_waiting_a_touched_gradient_is_an_error_that_says_what_to_do(engine: MirroredEngine) -> None:
    def touch_version(model: nn.Module) -> None:
        nn.utils.clip_grad_value_([model[1].weight], 1e-3)  # type: ignore[index]

    def touch_identity(model: nn.Module) -> None:
        model[1].weight.grad = model[1].weight.grad * 0.5  # type: ignore[index]

    def drop(model: nn.Module) -> None:
        model[1].weight.grad = None  # type: ignore[index]

    for touch in (touch_version, touch_identity, drop):
        model = make_model()
        optimizer = wrapped(model, wait_in_backward=False)
        backward(model)
        assert not any(request.waited for request in engine.requests)
        touch(model)
        with refused(errors.gradient_changed, names=["1.weight"], ranks=(0,)):
            optimizer.step()
        assert all(request.waited for request in engine.requests), "nothing writes to a gradient any more"
        optimizer.zero_grad()
        backward(model)
        optimizer.synchronize()
        touch_version(model)
        with optimizer.skip_synchronize():
            optimizer.step()
        del engine.requests[:]


def test_a_group_that_is_not_complete_is_reduced_before_it_may_be_changed(engine: MirroredEngine) -> None:
    model = make_model()
    optimizer = wrapped(model, groups=[list(model.parameters())])
    model[1](torch.ones(1, 3)).sum().backward()
    assert engine.names() == ["allreduce.group.0.weight"]
    assert not model[0].weight.grad.any() and torch.equal(model[1].bias.grad, torch.full((2,), 2.0))
    nn.utils.clip_grad_value_(model.parameters(), 0.25)
    optimizer.step()
    assert torch.equal(model[1].bias.grad, torch.full((2,), 0.25)) and len(engine.requests) == 1


def test_only_a_pass_that_lacks_something_asks_the_other_ranks(engine: MirroredEngine) -> None:
    model = make_model()
    optimizer = wrapped(model)
    for _ in range(3):
        optimizer.zero_grad()
        backward(model)
        optimizer.step()
    assert not engine.questions
    optimizer.zero_grad()
    model[1](torch.ones(1, 3)).sum().backward()
    assert engine.questions == [["allreduce.0.weight", "allreduce.0.bias"]]
    optimizer.step()
    assert len(engine.questions) == 1, "no rank has had what another lacked"


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoints(engine: MirroredEngine, reentrant: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reentrant checkpoint runs a backward pass within the backward pass."""

    def run(model: nn.Module) -> None:
        x = torch.ones(2, 4, requires_grad=True)
        first = functools.partial(checkpoint, use_reentrant=reentrant)
        model[1](first(model[0], x)).pow(2).sum().backward()  # type: ignore[index]

    model = make_model()
    optimizer = wrapped(model)
    waits = optimizer._finish_pass
    ends: list[int] = []
    monkeypatch.setattr(optimizer, "_finish_pass", lambda: (ends.append(len(engine.requests)), waits()))
    run(model)
    assert ends == [4], "it is waited for once, at the end of the outer pass"
    assert are_times(model, 2, local_gradients(run))
    optimizer.step()


def test_a_pass_that_fails_does_not_keep_the_next_from_waiting(engine: MirroredEngine) -> None:
    class Failing(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
            return x.clone()

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
            raise ArithmeticError("as the test wants")

    model = make_model()
    optimizer = wrapped(model)
    with pytest.raises(ArithmeticError):
        model[1](Failing.apply(model[0](torch.ones(2, 4)))).sum().backward()
    with refused(errors.zeroed_too_early):
        optimizer.zero_grad()
    optimizer.synchronize()
    optimizer.zero_grad()
    backward(model)
    assert are_times(model, 2, local_gradients())


ZEROES: dict[str, Callable[[nn.Module, Any], None]] = {
    "optimizer": lambda model, optimizer: optimizer.zero_grad(),
    "model": lambda model, optimizer: model.zero_grad(),
    "in place": lambda model, optimizer: model.zero_grad(set_to_none=False),
}


@pytest.mark.parametrize(
    ("op", "zero"), [*((hvd.Average, zero) for zero in ZEROES), (hvd.Sum, "model"), (hvd.Max, "model")]
)
def test_a_step_may_be_skipped(engine: MirroredEngine, op: int, zero: str) -> None:
    """A GradScaler skips a step without a call of the optimizer. Gradients reduced for that step must not
    enter the next one.
    """
    model = make_model()
    optimizer = wrapped(model, op=op)
    backward(model)
    nn.utils.clip_grad_norm_(model.parameters(), 1e-3)
    ZEROES[zero](model, optimizer)
    model[1](torch.ones(1, 3)).sum().backward()  # the others are not used this time
    assert len(engine.requests) == 6
    optimizer.step()
    total = 2.0 if op == hvd.Sum else 1.0
    assert len(engine.requests) == 8 and torch.equal(model[1].bias.grad, torch.full((2,), total))


def test_a_second_pass_that_nobody_announced_is_an_error(engine: MirroredEngine) -> None:
    model = make_model()
    optimizer = wrapped(model)
    backward(model)
    with refused(errors.too_many_passes, tensor="1.bias", passes=1):
        backward(model)
    optimizer.zero_grad()
    backward(model)
    model[1].bias.grad.mul_(0.5)  # it may or may not be zeroed, and a sum of sums would be wrong
    with refused(errors.too_many_passes, with_op=" with op=Sum"):
        backward(model)


def test_a_hook_that_comes_later_is_found_out(engine: MirroredEngine) -> None:
    model = make_model()
    optimizer = wrapped(model)

    def double(parameter: torch.Tensor) -> None:
        parameter.grad.mul_(2.0)  # type: ignore[union-attr]

    model[1].bias.register_post_accumulate_grad_hook(double)
    with refused(errors.gradient_changed, names=["1.bias"]):
        backward(model)
    optimizer.zero_grad()


def test_sparse_gradients_are_reduced_by_the_end_of_backward(engine: MirroredEngine) -> None:
    for sparse_as_dense in (False, True):
        model = nn.Embedding(5, 2, sparse=True)
        optimizer = wrapped(model, sparse_as_dense=sparse_as_dense)
        model(torch.tensor([1, 3])).sum().backward()
        assert model.weight.grad.is_sparse
        assert torch.equal(model.weight.grad.to_dense().sum(1), torch.tensor([0.0, 4, 0, 4, 0]))
        model.weight.grad = model.weight.grad * 0.5
        optimizer.step()
        del engine.requests[:]
