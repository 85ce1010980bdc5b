"""Reduced precision under native DDP: autocast, GradScaler, models in 16 bits."""

from typing import Any

import pytest
import torch
import torch.distributed as dist
from ddp_training import Training, all_equal, layers
from refusals import refused
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from horovod.torch import ddp
from horovod.torch.ddp import errors

BIT8 = "bit8:min_elements=0,error_feedback=1"
BOTH = pytest.mark.parametrize("compression", ["none", BIT8], ids=["none", "bit8"])


def check(compression: str, hooked: Training, plain: Training) -> None:
    assert all_equal(hooked.flat())
    if compression == "none":
        assert torch.equal(hooked.flat(), plain.flat())
    else:
        assert (hooked.flat() - plain.flat()).abs().max() < 0.1


@BOTH
def test_autocast(compression: str) -> None:
    """The forward pass computes in bfloat16; gradients are float32."""

    def trained(*compression: Any) -> Training:
        training = Training(*compression)
        for step in range(4):
            training.optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16):
                loss = training.loss(step)
            loss.backward()
            training.optimizer.step()
        assert {gradient.dtype for gradient in training.gradients().values()} == {torch.float32}
        return training

    check(compression, trained(compression), trained())


@BOTH
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_a_model_in_another_dtype(compression: str, dtype: torch.dtype) -> None:
    class Cast(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = layers().to(dtype)

        def forward(self, x: torch.Tensor) -> Any:
            return self.inner(x.to(dtype))

    hooked = Training(compression, make=Cast).run(range(4))
    assert {gradient.dtype for gradient in hooked.gradients().values()} == {dtype}
    check(compression, hooked, Training(make=Cast).run(range(4)))


@BOTH
def test_a_model_with_two_dtypes(compression: str) -> None:
    """DDP makes buckets of one dtype each."""

    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.wide, self.narrow = nn.Linear(30, 40), nn.Linear(40, 3).to(torch.bfloat16)

        def forward(self, x: torch.Tensor) -> Any:
            return self.narrow(torch.tanh(self.wide(x)).to(torch.bfloat16))

    hooked = Training(compression, make=Two).run(range(4))
    check(compression, hooked, Training(make=Two).run(range(4)))


@BOTH
def test_a_gradient_scaler_sees_one_ranks_overflow_everywhere(compression: str, rank: int, size: int) -> None:
    """All ranks leave the step out and halve the scale; residuals are in units of the loss' scale."""

    def trained(*compression: Any) -> tuple[Training, list[float]]:
        training = Training(*compression)
        scaler, scales = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=2), []
        if training.state is not None:
            training.state.set_loss_scale(scaler)
        for step in range(6):
            training.optimizer.zero_grad()
            loss = training.loss(step)
            overflow = step == 3 and rank == size - 1
            scaler.scale(loss * float("inf") if overflow else loss).backward()
            before = training.flat()
            scaler.step(training.optimizer)
            assert torch.equal(before, training.flat()) == (step == 3)
            scaler.update()
            scales.append(scaler.get_scale())
        return training, scales

    (hooked, scales), (plain, expected) = trained(compression), trained()
    assert scales == expected == [2.0**10, 2.0**11, 2.0**11, 2.0**10, 2.0**10, 2.0**11]
    check(compression, hooked, plain)


def test_ddps_own_mixed_precision_is_refused_with_what_to_do_instead() -> None:
    """It has a communication hook of its own, and torch allows one. Torch itself wraps on the CPU, and fails
    in the first step.
    """
    from torch.nn.parallel.distributed import _MixedPrecision

    try:
        model = DistributedDataParallel(
            layers(), mixed_precision=_MixedPrecision(torch.bfloat16, torch.float32)
        )
    except RuntimeError as error:  # no CPU build of torch serves it
        assert "support" in str(error)
        model = DistributedDataParallel(layers())
        model.mixed_precision = _MixedPrecision(torch.bfloat16, torch.float32)
    with refused(errors.mixed_precision):
        ddp.compress(model, "bit8")
    dist.barrier()
