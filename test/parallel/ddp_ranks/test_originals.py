"""Gradients that DDP does not copy into its buckets have the same bits as copied ones.

test_behaviours.py compares both for every kind of script.
"""

# private: _model, _originals: the state of another model; an end without measuring

import copy
import io
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import torch
import torch.distributed as dist
from ddp_training import BUCKET_MB, Training, all_equal, flat, mean_over_ranks
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from horovod.torch import Compression, ddp
from horovod.torch.ddp import originals
from horovod.torch.ddp.reducer import GroupReducer
from horovod.torch.reduction import Gradient

COMPRESSIONS = {
    "bit8": "bit8",
    "int8 with error feedback": "int8:error_feedback=1",
    "topk": "topk:ratio=0.05",
    "powersgd": "powersgd:rank=2",
    "rules": {"0.weight": "bit8", "2.weight": Compression.none, "*": "fp16"},
}
UNCOPIED = 1  # of the model's 6 parameters: the weight that is not in the first bucket


class Counted:
    """The number of reduced gradients, and how many of them were not copied."""

    def __init__(self) -> None:
        self.all = self.uncopied = 0

    def add(self, gradients: Sequence[Gradient]) -> None:
        self.all += len(gradients)
        self.uncopied += sum(gradient.source is not None for gradient in gradients)


@pytest.fixture(autouse=True)
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counted]:
    """The counts; all weights of the small model count as large here."""
    found, start = Counted(), GroupReducer.start

    def counting(self: GroupReducer, gradients: Sequence[Gradient], *more: Any, **named: Any) -> Any:
        found.add(gradients)
        return start(self, gradients, *more, **named)

    monkeypatch.setattr(GroupReducer, "start", counting)
    monkeypatch.setattr(originals, "LEAST_BYTES", 4 * 90)
    yield found


def views(compression: Any = "bit8", **how: Any) -> Training:
    return Training(compression, gradient_as_bucket_view=True, **how)


@pytest.mark.parametrize("compression", COMPRESSIONS.values(), ids=COMPRESSIONS.keys())
def test_the_result_is_that_of_copies(compression: Any, counted: Counted) -> None:
    copied = Training(compression).run(range(6))
    assert counted.uncopied == 0
    before = counted.all
    uncopied = views(compression).run(range(6))
    # Not in the first step, after which DDP rebuilds its buckets, nor in the next, which finds their places.
    assert counted.uncopied == 4 * UNCOPIED < counted.all - before
    assert torch.equal(uncopied.flat(), copied.flat())
    wanted = copied.gradients()
    assert all(torch.equal(gradient, wanted[name]) for name, gradient in uncopied.gradients().items())
    assert all_equal(uncopied.flat())


def test_gradients_that_were_kept_lie_in_the_bucket_already(counted: Counted) -> None:
    kept = views(keeps_gradients=True).run(range(5))
    assert counted.uncopied == 0
    assert torch.equal(kept.flat(), Training("bit8").run(range(5)).flat())


def test_who_looks_at_gradients_sees_them(counted: Counted) -> None:
    """A hook of the parameter sees its own rank's gradient, which is equal for every way of reduction."""
    seen: dict[bool, list[torch.Tensor]] = {True: [], False: []}
    for is_view in seen:
        training = Training("bit8", gradient_as_bucket_view=is_view).run(range(3))
        weight = training.model.module[0].weight

        def look(parameter: torch.Tensor, found: list[torch.Tensor] = seen[is_view]) -> None:
            found.append(parameter.grad.clone())

        weight.register_post_accumulate_grad_hook(look)
        training.run(range(3, 6))
    assert counted.uncopied == UNCOPIED  # before that hook was registered
    assert len(seen[True]) == 3
    assert all(map(torch.equal, seen[True], seen[False]))


class Failure(torch.autograd.Function):
    """The identity, whose backward fails on request."""

    fails = False

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        if Failure.fails:
            raise ArithmeticError("told to fail")
        return gradient


def first_bucket() -> nn.Module:
    return nn.Sequential(nn.Linear(40, 30), nn.Linear(30, 3))


class Interrupted(nn.Module):
    """The two lower layers share a bucket, which is complete only if nothing happens between them."""

    def __init__(self) -> None:
        super().__init__()
        self.low, self.middle, self.top = nn.Linear(30, 20), nn.Linear(20, 40), first_bucket()
        self.is_low_used = True

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.low(x) if self.is_low_used else x[:, :20]
        out: torch.Tensor = self.top(torch.tanh(self.middle(Failure.apply(x))))
        return out


@pytest.mark.parametrize("set_to_none", [True, False])
def test_a_pass_that_failed_leaves_nothing(set_to_none: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """DDP itself is unusable afterwards: the model is wrapped again, with the same state."""
    trained = []
    for fails in (True, False):
        training = views(make=Interrupted).run(range(4))
        if fails:
            training.optimizer.zero_grad()
            monkeypatch.setattr(Failure, "fails", True)
            with pytest.raises(ArithmeticError):
                training.loss(100).backward()
            monkeypatch.undo()
            training.optimizer.zero_grad(set_to_none=set_to_none)
        state = training.state
        training.model = DistributedDataParallel(training.model.module, gradient_as_bucket_view=True)
        state._model = weakref.ref(training.model)
        training.model.register_comm_hook(state, ddp.compression_hook)
        trained.append(training.run(range(4, 8)).flat())
    assert torch.equal(*trained)


def test_a_bucket_that_is_never_complete() -> None:
    """DDP reports it in the next step. Until then gradients are the rank's own, as without the hook."""
    own = []
    for training in (views(make=Interrupted), Training("bit8", make=Interrupted)):
        training.run(range(4))
        training.model.module.is_low_used = False
        training.optimizer.zero_grad()
        training.loss(4).backward()
        own.append(training.gradients()["middle.weight"])
    assert torch.equal(*own)


def test_parameters_of_several_models(counted: Counted) -> None:
    """Only one of them reduces a pass, with or without a hook; or none does."""
    one = views().run(range(4))
    inner = one.model.module
    options = {"gradient_as_bucket_view": True, "bucket_cap_mb": BUCKET_MB}
    plain, again = DistributedDataParallel(inner, **options), DistributedDataParallel(inner, **options)
    ddp.compress(again, "bit8")
    gradients = []
    for model in (inner, plain, again, again, again, one.model):
        inner.zero_grad()
        one.model, (x, y) = model, (torch.ones(8, 30) * dist.get_rank(), torch.zeros(8, 3))
        nn.functional.mse_loss(one.model(x), y).backward()
        gradients.append(inner[0].weight.grad.clone())
    own, average, *compressed = gradients
    assert torch.allclose(average, mean_over_ranks(own).float(), rtol=1e-4, atol=1e-6)
    assert all(torch.equal(each, compressed[0]) for each in compressed)
    assert counted.uncopied == (2 + 1 + 1) * UNCOPIED


def test_steps_with_and_without_compression() -> None:
    """may_turn_off alternates them; after the 24 steps that it measures ranks may choose either."""
    trained = [
        Training("bit8", how={"may_turn_off": True}, gradient_as_bucket_view=is_view).run(range(24))
        for is_view in (True, False)
    ]
    assert torch.equal(trained[0].flat(), trained[1].flat())


def test_a_model_can_be_copied_and_saved() -> None:
    training = views().run(range(4))
    copied, file = copy.deepcopy(training.model), io.BytesIO()
    torch.save(training.model, file)
    file.seek(0)
    for other in (copied, torch.load(file, weights_only=False)):
        assert torch.equal(flat(other), training.flat())
    assert torch.equal(training.run(range(4, 6)).flat(), views().run(range(6)).flat())


def test_nothing_is_kept_once_it_is_closed(counted: Counted) -> None:
    """The same happens when compression turns out not to pay."""
    training = views().run(range(3))
    assert training.state is not None and counted.uncopied == UNCOPIED
    training.state._originals.stop()
    training.run(range(3, 4))
    assert counted.uncopied == UNCOPIED
