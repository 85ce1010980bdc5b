"""Gradients that DDP does not copy into its buckets: the same bits as of those that it copies."""

import copy
import io
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import torch
import torch.distributed as dist
from ddp_training import Training, all_equal
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.utils.checkpoint import checkpoint

from horovod.torch import Compression
from horovod.torch.ddp import originals
from horovod.torch.ddp.reducer import Gradient, GroupReducer

COMPRESSIONS = {
    "bit8": "bit8",
    "int8 with error feedback": "int8:error_feedback=1",
    "topk": "topk:ratio=0.05",
    "powersgd": "powersgd:rank=2",
    "rules": {"0.weight": "bit8", "2.weight": Compression.none, "*": "fp16"},
}
WEIGHTS = 3  # of the model's 6 parameters


class Counted:
    """How many gradients were reduced, and how many of them were not copied."""

    def __init__(self) -> None:
        self.all = self.uncopied = 0

    def add(self, gradients: Sequence[Gradient]) -> None:
        self.all += len(gradients)
        self.uncopied += sum(gradient.source is not None for gradient in gradients)


@pytest.fixture(autouse=True)
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counted]:
    """The model is small: here all of its weights are large."""
    found, start = Counted(), GroupReducer.start

    def counting(self: GroupReducer, gradients: Sequence[Gradient], *more: Any) -> Any:
        found.add(gradients)
        return start(self, gradients, *more)

    monkeypatch.setattr(GroupReducer, "start", counting)
    monkeypatch.setattr(originals, "LEAST_ELEMENTS", 90)
    yield found


def views(compression: Any = "bit8", **how: Any) -> Training:
    return Training(compression, gradient_as_bucket_view=True, **how)


@pytest.mark.parametrize("compression", COMPRESSIONS.values(), ids=COMPRESSIONS.keys())
def test_the_result_is_that_of_copies(compression: Any, counted: Counted) -> None:
    copied = Training(compression).run(range(6))
    assert counted.uncopied == 0
    before = counted.all
    uncopied = views(compression).run(range(6))
    # Not in the first step, after which DDP rebuilds its buckets, nor in the next, which finds out where.
    assert counted.uncopied == 4 * WEIGHTS < counted.all - before
    assert torch.equal(uncopied.flat(), copied.flat())
    wanted = copied.gradients()
    assert all(torch.equal(gradient, wanted[name]) for name, gradient in uncopied.gradients().items())
    assert all_equal(uncopied.flat())


def test_gradients_that_were_kept_lie_in_the_bucket_already(counted: Counted) -> None:
    kept = views(keeps_gradients=True).run(range(5))
    assert counted.uncopied == 0
    assert torch.equal(kept.flat(), Training("bit8").run(range(5)).flat())


def accumulated(training: Training) -> Training:
    for step in range(4):
        training.optimizer.zero_grad()
        with training.model.no_sync():
            training.loss(step).backward()
            training.loss(10 + step).backward()
        own = training.gradients()
        assert step == 0 or dist.get_world_size() == 1 or not all_equal(own["0.weight"])
        training.loss(20 + step).backward()
        training.optimizer.step()
    return training


def test_accumulation_without_synchronisation() -> None:
    assert torch.equal(accumulated(views()).flat(), accumulated(Training("bit8")).flat())


def test_who_looks_at_gradients_sees_them(counted: Counted) -> None:
    """A hook of the parameter: its own rank's gradient, which is the same however it is reduced."""
    seen: dict[bool, list[torch.Tensor]] = {True: [], False: []}
    for is_view in seen:
        training = Training("bit8", gradient_as_bucket_view=is_view).run(range(3))
        weight = training.model.module[2].weight

        def look(parameter: torch.Tensor, found: list[torch.Tensor] = seen[is_view]) -> None:
            found.append(parameter.grad.clone())

        weight.register_post_accumulate_grad_hook(look)
        training.run(range(3, 6))
    # Three more steps of the others' two.
    assert counted.uncopied == 1 * WEIGHTS + 3 * (WEIGHTS - 1)
    assert len(seen[True]) == 3
    assert all(map(torch.equal, seen[True], seen[False]))


class Failure(torch.autograd.Function):
    """The identity, whose backward fails when it is told to."""

    fails = False

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        if Failure.fails:
            raise ArithmeticError("told to fail")
        return gradient


class MayFail(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(30, 40), nn.Linear(40, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.second(Failure.apply(torch.tanh(self.first(x))))
        return out


@pytest.mark.parametrize("set_to_none", [True, False])
def test_a_backward_pass_that_failed_leaves_nothing(set_to_none: bool, counted: Counted) -> None:
    """In no_sync(): a synchronised one that fails half way leaves DDP itself waiting for the rest."""
    flat = []
    for fails in (True, False):
        training = views(make=MayFail).run(range(3))
        before = counted.uncopied
        with training.model.no_sync():
            loss = training.loss(100)
            Failure.fails = fails
            training.optimizer.zero_grad(set_to_none=True)
            if fails:
                with pytest.raises(ArithmeticError):
                    loss.backward()
            else:
                loss.backward()
        Failure.fails = False
        training.optimizer.zero_grad(set_to_none=set_to_none)
        training.loss(3).backward()
        training.optimizer.step()
        training.run(range(4, 6))
        assert counted.uncopied > before
        flat.append(training.flat())
    assert torch.equal(*flat)


class Reentrant(nn.Module):
    """A backward pass inside the backward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.inside, self.last = nn.Linear(30, 40), nn.Linear(40, 40), nn.Linear(40, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.tanh(self.first(x))
        out: torch.Tensor = self.last(checkpoint(self.inside, x, use_reentrant=True))
        return out


def test_activation_checkpoints() -> None:
    uncopied, copied = views(make=Reentrant).run(range(6)), Training("bit8", make=Reentrant).run(range(6))
    assert torch.equal(uncopied.flat(), copied.flat())


def test_steps_with_and_without_compression() -> None:
    """As may_turn_off alternates them; after the 24 steps that it measures ranks may choose either."""
    trained = [
        Training("bit8", how={"may_turn_off": True}, gradient_as_bucket_view=is_view).run(range(24))
        for is_view in (True, False)
    ]
    assert torch.equal(trained[0].flat(), trained[1].flat())


def test_ranks_that_run_out_of_inputs(rank: int) -> None:
    """The others' gradients are then divided by another number than that of all ranks."""
    flat = []
    for training in (views(), Training("bit8")):
        with Join([training.model], divide_by_initial_world_size=False):
            training.run(range(4 + rank))
        flat.append(training.flat())
    assert torch.equal(*flat)


def test_a_model_can_be_copied_and_saved() -> None:
    training = views().run(range(4))
    copied, file = copy.deepcopy(training.model), io.BytesIO()
    torch.save(training.model, file)
    file.seek(0)
    for other in (copied, torch.load(file, weights_only=False)):
        after = torch.cat([parameter.detach().reshape(-1) for parameter in other.parameters()])
        assert torch.equal(after, training.flat())
    assert torch.equal(training.run(range(4, 6)).flat(), views().run(range(6)).flat())


@pytest.mark.parametrize("is_closed", [False, True])
def test_nothing_is_kept_once_it_is_closed(is_closed: bool) -> None:
    """What is kept is not in the parameter's gradient before the backward pass ends."""
    training = views().run(range(3))
    weight = training.model.module[2].weight
    if is_closed:
        assert training.state is not None
        training.state.close()
    accumulating = weight.expand_as(weight).grad_fn.next_functions[0][0]
    at_first: list[torch.Tensor] = []
    accumulating.register_hook(lambda *_: at_first.append(weight.grad.clone()))
    training.optimizer.zero_grad()
    with training.model.no_sync():
        training.loss(3).backward()
    assert torch.equal(at_first[0], weight.grad) is is_closed
