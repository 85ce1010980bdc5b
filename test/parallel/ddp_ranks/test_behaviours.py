"""The behaviours of scripts under native DDP hold with the hook: a table of programs.

With none, gradients and parameters are plain DDP's, to the bit: the hook divides and sums likewise. With
bit8, ranks end with the same bits, and gradients differ from plain DDP's by the codes' error. Gradients that
are views of buckets, which DDP does not copy, have the same bits as copied ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from ddp_training import Training, all_equal, layers
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

from horovod.torch import Compression, ddp
from horovod.torch.ddp import originals

BIT8 = Compression.bit8(min_elements=0)
ERROR = 2.0**-4  # of e4m3, to nearest: half a unit of 3 mantissa bits, and as much for the scale
Make = Callable[..., Training]  # makes a Training, compressed in one way, with options of DDP
Program = Callable[[Make], Training]  # the last step does not zero gradients afterwards


class Branches(nn.Module):
    """A model of which the caller chooses the active layers, by rank and step."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(30, 40)
        self.ways = nn.ModuleList(nn.Linear(40, 3) for _ in range(3))
        self.way = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.ways[self.way](torch.tanh(self.first(x)))
        return out


class Checkpointed(nn.Module):
    """The same layer twice, which DDP allows in a static graph only.

    DDP learns the order in the first step, and reduces that step's buckets at its end. A reentrant checkpoint
    runs a pass inside the pass.
    """

    def __init__(self, reentrant: bool = False) -> None:
        super().__init__()
        self.low, self.shared, self.out = nn.Linear(30, 30), nn.Linear(30, 30), nn.Linear(30, 3)
        self.reentrant = reentrant

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.low(x)
        for _ in range(2):
            x = checkpoint(self.shared, torch.tanh(x), use_reentrant=self.reentrant)
        out: torch.Tensor = self.out(torch.tanh(x))
        return out


class Reentrant(nn.Module):
    """The inner pass completes a bucket that the outer one has begun."""

    def __init__(self) -> None:
        super().__init__()
        self.low, self.inside, self.middle = nn.Linear(30, 20), nn.Linear(20, 20), nn.Linear(20, 40)
        self.top = nn.Sequential(nn.Linear(40, 30), nn.Linear(30, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = checkpoint(self.inside, torch.tanh(self.low(x)), use_reentrant=True)
        out: torch.Tensor = self.top(torch.tanh(self.middle(x)))
        return out


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.frozen = nn.Linear(30, 30).requires_grad_(False)
        self.there, self.back, self.out = nn.Linear(30, 40), nn.Linear(40, 30), nn.Linear(30, 3)
        self.again = nn.Linear(30, 40)
        self.again.weight = self.there.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.back(torch.tanh(self.there(self.frozen(x))))
        out: torch.Tensor = self.out(self.back(self.again(x)))
        return out


class Cast(nn.Module):
    """A model in another dtype."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.inner, self.dtype = layers().to(dtype), dtype

    def forward(self, x: torch.Tensor) -> Any:
        return self.inner(x.to(self.dtype))


class TwoDtypes(nn.Module):
    """DDP makes separate buckets for each dtype."""

    def __init__(self) -> None:
        super().__init__()
        self.wide, self.narrow = nn.Linear(30, 40), nn.Linear(40, 3).to(torch.bfloat16)

    def forward(self, x: torch.Tensor) -> Any:
        return self.narrow(torch.tanh(self.wide(x)).to(torch.bfloat16))


def running(steps: int = 4, **options: Any) -> Program:
    return lambda make: make(**options).run(range(steps))


def several_steps(make: Make) -> Training:
    training = make().run(range(4))
    assert training.model._has_rebuilt_buckets
    sizes = training.model.logger._get_ddp_logging_data().strs_map
    assert "," in sizes["rebuilt_bucket_sizes"] and "," not in sizes["bucket_sizes"]
    return training


def unused_parameters(make: Make) -> Training:
    """Only some ranks use one layer, and none uses the last layer, which keeps having no gradient."""
    training = make(make=Branches, find_unused_parameters=True)
    for step in range(4):
        training.model.module.way = (dist.get_rank() + step) % 2
        training.run(range(step, step + 1))
    assert training.model.module.ways[2].weight.grad is None
    return training


def accumulated(make: Make) -> Training:
    """The place of a complete gradient differs from step to step."""
    training = make()
    for step in range(5):
        training.optimizer.zero_grad(set_to_none=step % 2 == 0)
        with training.model.no_sync():
            training.loss(step).backward()
            training.loss(10 + step).backward()
        own = training.gradients()
        assert step == 0 or dist.get_world_size() == 1 or not all_equal(own["0.weight"])
        training.loss(20 + step).backward()
        training.optimizer.step()
    return training


def tied_and_frozen(make: Make) -> Training:
    training = make(make=Tied).run(range(4))
    assert {"again.weight", "frozen.weight"}.isdisjoint(training.gradients())
    return training


def frozen_in_turns(make: Make) -> Training:
    """Each step trains one part; the other part's last gradients still lie in the buckets."""
    training = make(find_unused_parameters=True)
    for step in range(6):
        trained, frozen = training.model.module[step % 2 * 2], training.model.module[2 - step % 2 * 2]
        trained.zero_grad()
        frozen.requires_grad_(step == 0)
        training.loss(step).backward()
        frozen.requires_grad_(True)
        training.optimizer.step()
    return training


def several_models(make: Make) -> Training:
    """Trained in turn, and by one backward pass through both."""
    one, other = make(), make(seed=1)
    for step in range(3):
        one.run(range(step, step + 1))
        other.run(range(10 + step, 11 + step))
    for training in (one, other):
        training.optimizer.zero_grad()
    (one.loss(20) + other.loss(21)).backward()
    for training in (one, other):
        training.optimizer.step()
    assert all_equal(other.flat())
    return one


def uneven_inputs(initially: bool) -> Program:
    """Rank r has r steps more than rank 0: the others continue without it, and end with one model."""

    def program(make: Make) -> Training:
        training = make()
        with training.model.join(divide_by_initial_world_size=initially):
            training.run(range(3 + dist.get_rank()))
        dist.barrier()
        for parameter in training.model.parameters():
            parameter.grad = None  # a rank's own gradient of its last step
        return training

    return program


def autocast(make: Make) -> Training:
    """The forward pass computes in bfloat16; gradients are float32."""
    training = make()
    for step in range(4):
        training.optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = training.loss(step)
        loss.backward()
        training.optimizer.step()
    assert {gradient.dtype for gradient in training.gradients().values()} == {torch.float32}
    return training


def scaled(make: Make) -> Training:
    """One rank's overflow reaches all ranks: all skip the step and halve the scale."""
    training = make()
    scaler, scales = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=2), []
    if training.state is not None:
        training.state.set_loss_scale(scaler)  # residuals are in units of the loss' scale
    for step in range(6):
        training.optimizer.zero_grad()
        loss = training.loss(step)
        overflow = step == 3 and dist.get_rank() == dist.get_world_size() - 1
        scaler.scale(loss * float("inf") if overflow else loss).backward()
        before = training.flat()
        scaler.step(training.optimizer)
        assert torch.equal(before, training.flat()) == (step == 3)
        scaler.update()
        scales.append(scaler.get_scale())
    assert scales == [2.0**10, 2.0**11, 2.0**11, 2.0**10, 2.0**10, 2.0**11]
    return training


PROGRAMS: dict[str, Program] = {
    "several steps": several_steps,
    "gradients are zeroed": running(5, keeps_gradients=True),
    "unused parameters": unused_parameters,
    "a static graph": running(make=Checkpointed, static_graph=True),
    "a static graph, reentrant": running(6, make=lambda: Checkpointed(True), static_graph=True),
    "a pass inside the pass": running(6, make=Reentrant),
    "accumulated": accumulated,
    "tied and frozen": tied_and_frozen,
    "frozen in turns": frozen_in_turns,
    "several models": several_models,
    "uneven inputs, of all ranks": uneven_inputs(True),
    "uneven inputs, of those with inputs": uneven_inputs(False),
    "autocast": autocast,
    "a gradient scaler": scaled,
    "two dtypes": running(make=TwoDtypes),
    **{
        f"a model of {dtype}": running(10, make=lambda dtype=dtype: Cast(dtype))
        for dtype in (torch.bfloat16, torch.float16, torch.float64)
    },
}
EITHER = pytest.mark.parametrize("is_view", [False, True], ids=["own gradients", "views of buckets"])
FEEDBACK = Compression.bit8(min_elements=0, error_feedback=True)


@pytest.mark.parametrize("name", PROGRAMS)
@EITHER
def test_none_is_plain_ddp(name: str, is_view: bool) -> None:
    plain = PROGRAMS[name](lambda **how: Training(gradient_as_bucket_view=is_view, **how))
    hooked = PROGRAMS[name](lambda **how: Training("none", gradient_as_bucket_view=is_view, **how))
    ours, theirs = hooked.gradients(), plain.gradients()
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[each], theirs[each]) for each in ours)
    assert torch.equal(hooked.flat(), plain.flat()) and all_equal(hooked.flat())


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("compression", [BIT8, FEEDBACK], ids=["bit8", "with error feedback"])
def test_bit8_is_near_plain_ddp(
    name: str, compression: Any, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bits are the same if DDP does not copy gradients into buckets; all count as large here."""
    monkeypatch.setattr(originals, "LEAST_BYTES", 4 * 90)
    plain = PROGRAMS[name](Training)
    hooked = PROGRAMS[name](lambda **how: Training(compression, **how))
    views = PROGRAMS[name](lambda **how: Training(compression, gradient_as_bucket_view=True, **how))
    assert all_equal(hooked.flat()) and all_equal(views.flat())
    # The old value of a frozen parameter in the view of a bucket is reduced, as in plain DDP.
    assert torch.equal(views.flat(), hooked.flat()) or (name == "frozen in turns" and size > 1)
    assert (views.flat() - hooked.flat()).abs().max() < 0.2
    assert (hooked.flat() - plain.flat()).abs().max() < 0.2
    ours, theirs = hooked.gradients(), plain.gradients()
    assert ours.keys() == theirs.keys()
    for each in ours:
        # Parameters differ by now: the tolerance is larger by an order of magnitude.
        assert (ours[each] - theirs[each]).abs().max() <= 10 * ERROR * theirs[each].abs().max(), each


@EITHER
@pytest.mark.parametrize("keeps", [False, True], ids=["gradients are dropped", "gradients are zeroed"])
def test_a_hundred_steps_give_the_bits_of_plain_ddp(is_view: bool, keeps: bool) -> None:
    options = {"gradient_as_bucket_view": is_view, "keeps_gradients": keeps}
    plain = Training(**options).run(range(100))
    hooked = Training(Compression.none, **options).run(range(100))
    assert torch.equal(hooked.flat(), plain.flat())
    assert hooked.model.logger._get_ddp_logging_data().strs_map["comm_hook"] == "compression_hook"


def test_a_parameter_that_is_frozen_for_a_while() -> None:
    def trained(*compression: Any) -> torch.Tensor:
        training = Training()
        weight = training.model.module[0].weight
        weight.requires_grad_(False)  # trainable when wrapped, frozen when compression is set
        if compression:
            ddp.compress(training.model, *compression)
        weight.requires_grad_(True)
        return training.run(range(5)).flat()

    assert torch.equal(trained("none"), trained())


@pytest.mark.parametrize("compression", ["none", "bit8"])
def test_sparse_gradients_are_reduced_as_ddp_does(compression: str, rank: int) -> None:
    class Words(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.out = nn.Embedding(50, 30, sparse=True), nn.Linear(30, 3)

        def forward(self, words: torch.Tensor) -> Any:
            return self.out(self.embed(words))

    def gradient(*compression: Any) -> torch.Tensor:
        training = Training(*compression, make=Words)
        training.model(torch.arange(4) * (rank + 1)).square().sum().backward()
        found = training.model.module.embed.weight.grad
        assert found.is_sparse
        return found.to_dense()

    assert torch.equal(gradient(compression), gradient())


def test_a_model_over_some_of_the_ranks(rank: int, size: int) -> None:
    """Its gradients use its own process group, which the other ranks do not know."""
    members = list(range(0, size, 2))
    group = dist.new_group(members)
    if rank in members:
        training = Training(BIT8, process_group=group).run(range(3))
        plain = Training(process_group=group).run(range(3))
        assert all_equal(training.flat(), group)
        assert torch.allclose(training.flat(), plain.flat(), atol=0.05)


def test_ddps_own_mixed_precision_is_refused_with_what_to_do_instead() -> None:
    """It registers a communication hook, and torch allows only one.

    Without the hook, torch wraps the model on the CPU too, and fails in the first step.
    """
    from torch.nn.parallel.distributed import _MixedPrecision

    try:
        model = DistributedDataParallel(
            layers(), mixed_precision=_MixedPrecision(torch.bfloat16, torch.float32)
        )
    except RuntimeError as error:  # no CPU build of torch has it
        assert "support" in str(error)
        model = DistributedDataParallel(layers())
        model.mixed_precision = _MixedPrecision(torch.bfloat16, torch.float32)
    with pytest.raises(ValueError, match=r"mixed_precision=.*of its own.*torch\.autocast"):
        ddp.compress(model, "bit8")
    dist.barrier()
