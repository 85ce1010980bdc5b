"""Error feedback of DistributedOptimizer: no gradient is lost permanently, under any compression."""

import copy
from typing import Any

import pytest
import torch
from contract import assert_same_bits_everywhere
from refusals import refused
from torch import nn

import horovod.torch as hvd
from horovod.torch import errors

STEPS = 12


class Coarse:
    """A user's compressor, whose output is summed: multiples of 1/4."""

    combine = "sum"
    error_feedback = True

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        return (tensor * 4).round(), tensor.dtype

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        return tensor / 4


class CoarseCodes(Coarse):
    combine = "gather"


COMPRESSIONS = {
    "bit8": hvd.Compression.bit8(error_feedback=True, min_elements=0),
    "int4": hvd.Compression.int4(error_feedback=True, min_elements=0),
    "int4 stochastic": hvd.Compression.int4(rounding="stochastic", error_feedback=True, min_elements=0),
    "topk": hvd.Compression.topk(ratio=0.05, min_elements=0),
    "powersgd": hvd.Compression.powersgd(rank=2, min_elements=0),
    "own sum": Coarse,
    "own codes": CoarseCodes,
}
EVERY = pytest.mark.parametrize("compression", COMPRESSIONS.values(), ids=COMPRESSIONS.keys())
SHAPES = {"wide": (40, 60), "tall": (100, 7)}


def noise(*key: int, shape: tuple[int, ...] = (40, 60)) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(hash(key) % 2**31))


class Given(nn.Module):
    """Parameters with given gradients."""

    def __init__(self) -> None:
        super().__init__()
        for number, (name, shape) in enumerate(SHAPES.items()):
            self.register_parameter(name, nn.Parameter(noise(number, shape=shape)))

    def backward(self, step: int, scale: float = 1.0) -> None:
        """Gradients that hardly change, so that each step loses the same part of them."""
        loss = torch.zeros(())
        for number, parameter in enumerate(self.parameters()):
            steady = noise(1, hvd.rank(), number, shape=tuple(parameter.shape))
            gradient = steady + 0.1 * noise(2, hvd.rank(), number, step, shape=tuple(parameter.shape))
            loss = loss + (parameter * gradient).sum()
        (loss * scale).backward()

    def gradients(self, step: int) -> list[torch.Tensor]:
        other = copy.deepcopy(self)
        other.zero_grad()
        other.backward(step)
        return [parameter.grad for parameter in other.parameters() if parameter.grad is not None]


def wrapped(model: nn.Module, compression: Any, **options: Any) -> Any:
    """A group is one operation, so that nothing depends on fusion."""
    plain = torch.optim.SGD(model.parameters(), lr=options.pop("lr", 1.0))
    options = {"groups": 1, **options}
    return hvd.DistributedOptimizer(plain, model.named_parameters(), compression=compression, **options)


def run(model: Given, optimizer: Any, steps: range) -> None:
    for step in steps:
        optimizer.zero_grad()
        model.backward(step)
        optimizer.synchronize()
        with optimizer.skip_synchronize():
            optimizer.step()


def flat(model: nn.Module) -> torch.Tensor:
    return torch.cat([parameter.detach().reshape(-1) for parameter in model.parameters()])


def owed(optimizer: Any, name: str, size: int) -> torch.Tensor:
    """Return the sum that all ranks' residuals of a parameter still owe to the mean."""
    saved = optimizer.state_dict()["horovod"]
    own = saved["residuals"][saved["rank"]]["parameters"][name]
    total = torch.zeros(own["count"], dtype=torch.float64)
    for stage, share in (("sent", 1 / size), ("result", 1.0)):
        begin, values = own[stage]
        total[begin : begin + values.numel()] += values.double() * share
    return hvd.allreduce(total, op=hvd.Sum, name=f"owed.{name}")


@EVERY
def test_what_is_applied_is_what_was_given_but_for_what_is_owed(compression: Any, size: int) -> None:
    """Sum of the steps = sum of the true means - residuals, which exceed rounding."""
    model = Given()
    before = {name: p.detach().double() for name, p in model.named_parameters()}
    given = {name: torch.zeros(shape, dtype=torch.float64) for name, shape in SHAPES.items()}
    optimizer = wrapped(model, compression)
    for step in range(STEPS):
        for (name, total), gradient in zip(given.items(), model.gradients(step), strict=True):
            total += hvd.allreduce(gradient.double(), name=f"given.{name}")
        run(model, optimizer, range(step, step + 1))
    assert_same_bits_everywhere(flat(model))
    for name, parameter in model.named_parameters():
        applied = before[name] - parameter.detach().double()
        pending = owed(optimizer, name, size).reshape(parameter.shape)
        # float32 rounds values below 64 in each step, a few times on every rank.
        tolerance = STEPS * (size + 4) * 64 * 2**-24
        assert (applied + pending - given[name]).abs().max() < tolerance
        assert pending.abs().max() > 10 * tolerance


def test_it_is_off_where_it_is_not_asked_for() -> None:
    model = Given()
    optimizer = wrapped(model, hvd.Compression.bit8(min_elements=0))
    run(model, optimizer, range(2))
    assert "horovod" not in optimizer.state_dict()


def test_small_parameters_and_rules_have_none() -> None:
    model = Given()
    rules = {"tall": hvd.Compression.none, "*": hvd.Compression.bit8(error_feedback=True)}
    optimizer = wrapped(model, rules)
    run(model, optimizer, range(2))
    saved = optimizer.state_dict()["horovod"]
    assert list(saved["residuals"][saved["rank"]]["parameters"]) == ["wide"]


@EVERY
def test_accumulated_gradients_are_compressed_once(compression: Any) -> None:
    """Two backward passes and a step equal one backward pass of the sum and a step."""
    twice, once = Given(), Given()
    accumulating = wrapped(twice, compression, backward_passes_per_step=2)
    single = wrapped(once, compression)
    for step in range(3):
        accumulating.zero_grad()
        twice.backward(step)
        twice.backward(step)
        accumulating.step()
        single.zero_grad()
        once.backward(step, scale=2.0)
        single.step()
    assert torch.equal(flat(twice), flat(once))


# ---- loss scale ----


@pytest.mark.parametrize("kind", ["bit8", "topk"])
@pytest.mark.parametrize("is_told", [True, False])
def test_residuals_follow_the_loss_scale(kind: str, is_told: bool) -> None:
    """Powers of two change no bit of either codec, so a scaled and unscaled value equals an unscaled one."""
    scaled, plain = Given(), Given()
    scaling, plainly = wrapped(scaled, COMPRESSIONS[kind]), wrapped(plain, COMPRESSIONS[kind])
    for step in range(6):
        scale = 2.0 ** (3 * step % 7)
        if is_told:
            scaling.set_loss_scale(scale)
        scaling.zero_grad()
        scaled.backward(step, scale)
        scaling.synchronize()
        for parameter in scaled.parameters():
            assert parameter.grad is not None
            parameter.grad /= scale
        with scaling.skip_synchronize():
            scaling.step()
        run(plain, plainly, range(step, step + 1))
    assert torch.equal(flat(scaled), flat(plain)) is is_told


def test_a_grad_scaler_is_asked_for_its_scale(rank: int) -> None:
    """It doubles its scale after each good step, and halves it and skips the step if a rank overflows."""
    scaled, plain = Given(), Given()
    compression = COMPRESSIONS["bit8"]
    scaling, plainly = wrapped(scaled, compression), wrapped(plain, compression)
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0, growth_interval=1)
    scaling.set_loss_scale(scaler)
    for step in range(7):
        overflows = step == 4
        scaling.zero_grad()
        scaled.backward(step, scaler.get_scale())
        scaling.synchronize()  # a good step of both, except for the overflow
        if overflows:
            for parameter in scaled.parameters():
                assert parameter.grad is not None
                parameter.grad[0] = torch.inf
        scaler.scale(torch.ones(()))  # a script would scale the loss
        scaler.unscale_(scaling)
        with scaling.skip_synchronize():
            scaler.step(scaling)
        scaler.update()
        plainly.zero_grad()
        plain.backward(step)
        plainly.synchronize()
        if not overflows:
            with plainly.skip_synchronize():
                plainly.step()
    assert scaler.get_scale() == 256.0 * 2**4 / 2 * 2**2
    assert torch.equal(flat(scaled), flat(plain))


@EVERY
@pytest.mark.parametrize("bad", [torch.inf, torch.nan])
def test_an_overflow_of_one_rank_leaves_finite_residuals(compression: Any, bad: float, rank: int) -> None:
    model = Given()
    optimizer = wrapped(model, compression, lr=0.1)
    run(model, optimizer, range(2))
    before = flat(model)
    optimizer.zero_grad()
    (model.wide * torch.full_like(model.wide, bad if rank == 1 else 1.0)).sum().backward()
    optimizer.synchronize()
    assert not torch.isfinite(model.wide.grad).all()  # every rank sees it, and skips the step
    assert torch.equal(flat(model), before)
    saved = optimizer.state_dict()["horovod"]
    for own in saved["residuals"][saved["rank"]]["parameters"].values():
        assert all(torch.isfinite(own[stage][1]).all() for stage in ("sent", "result"))
    run(model, optimizer, range(3, 6))
    assert torch.isfinite(flat(model)).all()
    assert_same_bits_everywhere(flat(model))


@pytest.mark.parametrize("scale", [0.0, -1.0, float("inf"), float("nan")])
def test_an_impossible_loss_scale_is_refused(scale: float) -> None:
    with refused(errors.wrong_loss_scale, value=repr(scale)):
        wrapped(Given(), COMPRESSIONS["bit8"]).set_loss_scale(scale)


def test_feedback_that_is_on_by_default_is_off_in_a_single_operation() -> None:
    """Feedback is refused there: test_contract_errors.py."""
    x = noise(3)
    for _ in range(2):  # nothing is carried over
        first = hvd.allreduce(x, name="single", compression=hvd.Compression.topk)
        assert torch.equal(first, hvd.allreduce(x, name="single", compression=hvd.Compression.topk))
