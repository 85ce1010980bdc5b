"""Training in every place: one model on all ranks, bit for bit, equal to the CPU's if arithmetic is equal."""

import copy
import math
import os
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
from contract import assert_same_bits_everywhere
from places import Place
from torch import nn

import horovod.torch as hvd

C = hvd.Compression
COMPRESSIONS: dict[str, Any] = {
    "none": C.none,
    "fp16": C.fp16,
    "bf16": C.bf16,
    "bit16": C.bit16,
    "bit8": C.bit8,
    "int4 with feedback": C.int4(error_feedback=True),
    "random int8 with feedback": C.int8(rounding="stochastic", error_feedback=True),
    "topk": C.topk(ratio=0.05),
    "powersgd": C.powersgd(rank=2),
}
EVERY = pytest.mark.parametrize("compression", COMPRESSIONS.values(), ids=list(COMPRESSIONS))
OPTIMIZERS: dict[str, Callable[[Iterable[torch.Tensor]], torch.optim.Optimizer]] = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.05, momentum=0.9),
    "adam": lambda parameters: torch.optim.Adam(parameters, lr=0.01),
}


class Net(nn.Module):
    """A net with equal gradients on CPU and GPU: each element is computed separately."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(5)
        self.wide = nn.Parameter(torch.randn(48, 64, generator=generator))
        self.tall = nn.Parameter(torch.randn(130, 20, generator=generator))
        self.bias = nn.Parameter(torch.randn(64, generator=generator))

    def backward(self, step: int, scale: float = 1.0) -> None:
        """Set gradients that depend on the rank, the step, and the parameters."""
        generator = torch.Generator().manual_seed(1000 * step + hvd.rank())
        loss = torch.zeros((), device=self.bias.device)
        for parameter in self.parameters():
            target = torch.randn(parameter.shape, generator=generator).to(parameter)
            loss = loss + ((parameter.detach() - target) * parameter).sum()
        (loss * scale).backward()


def wrapped(model: nn.Module, optimizer: str = "sgd", **options: Any) -> Any:
    plain = OPTIMIZERS[optimizer](model.parameters())
    return hvd.DistributedOptimizer(plain, model.named_parameters(), **options)


def train(model: Net, optimizer: Any, steps: Iterable[int]) -> None:
    for step in steps:
        optimizer.zero_grad()
        model.backward(step)
        optimizer.step()


def flat(model: nn.Module) -> torch.Tensor:
    return torch.cat([tensor.detach().cpu().double().reshape(-1) for tensor in model.state_dict().values()])


def quantises_results_on_gpus_only() -> bool:
    """Return whether only GPUs quantise results, by the host's route: two ranks on the CPU gather."""
    by_host = os.environ.get("HOROVOD_GPU_TRANSPORT") == "host" or "HOROVOD_TEST_SHARED_GPU" in os.environ
    return by_host and os.environ.get("HOROVOD_ALLREDUCE_ALGORITHM", "auto") in ("auto", "gather")


def coarser_than_on_the_cpu(compression: Any) -> bool:
    """Return whether the same steps on the CPU lose less: the difference is large after a few of them."""
    return getattr(compression, "codec", None) is not None and quantises_results_on_gpus_only()


@EVERY
@pytest.mark.parametrize("groups", [None, 2])
def test_every_compression(compression: Any, groups: int | None, place: Place) -> None:
    """powersgd's products, and NCCL's inexact sums, are the same on all GPUs, but not the CPU's."""
    model = Net().to(place.device)
    optimizer = wrapped(model, compression=compression, groups=groups)
    train(model, optimizer, range(4))
    assert not torch.equal(flat(model), flat(Net()))
    assert_same_bits_everywhere(*model.parameters())
    name = type(compression).__name__ if not isinstance(compression, type) else compression.__name__
    assert torch.isfinite(flat(model)).all()
    if name in ("NoneCompressor", "FP16Compressor", "BF16Compressor", "PowerSGDCompressor"):
        return
    coarser = coarser_than_on_the_cpu(compression)
    if not place.is_gpu or (coarser and name != "Bit16Compressor"):
        return
    with place.on_cpu():
        twin = Net()
        train(twin, wrapped(twin, compression=compression, groups=groups), range(4))
    if coarser:
        # A half below 8 is within 2^-9. The result adds one error, and each contribution one if parameters
        # differ by it. Gradients of 4 steps with momentum 0.9 count 0.05 * (3.439 + 2.71 + 1.9 + 1) < 0.46.
        assert torch.allclose(flat(model), flat(twin), rtol=0, atol=0.46 * 3 * 2.0**-9)
        return
    if place.device.type == "cpu":  # torch's steps are the CPU's too
        assert torch.equal(flat(model), flat(twin))
    assert torch.allclose(flat(model), flat(twin), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("groups", [None, 2])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_optimizers_with_state_of_rank_0(optimizer: str, groups: int | None, place: Place, rank: int) -> None:
    model = Net().to(place.device)
    with torch.no_grad():
        model.wide.add_(float(rank))
    plain = OPTIMIZERS[optimizer](model.parameters())
    if rank == 0:
        model.backward(99)
        plain.step()
        plain.zero_grad()
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(plain, root_rank=0)
    for state in plain.state.values():
        for key, value in state.items():
            if isinstance(value, torch.Tensor) and key != "step":
                assert value.device == place.device
    train(model, hvd.DistributedOptimizer(plain, model.named_parameters(), groups=groups), range(3))
    assert_same_bits_everywhere(*model.parameters())


def test_accumulation_and_missing_gradients(place: Place, rank: int) -> None:
    model = Net().to(place.device)
    optimizer = wrapped(model, backward_passes_per_step=2, compression=C.bit8)
    for step in range(3):
        optimizer.zero_grad()
        model.backward(2 * step)
        if rank == 0:
            model.backward(2 * step + 1)
        else:
            model.wide.sum().backward()
        optimizer.step()
    assert_same_bits_everywhere(*model.parameters())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_gradients_of_16_bits(dtype: torch.dtype, place: Place) -> None:
    model = Net().to(place.device, dtype)
    for compression in (C.none, C.bit8):
        train(model, wrapped(model, compression=compression), range(2))
    assert model.wide.grad is not None and model.wide.grad.dtype == dtype
    assert_same_bits_everywhere(*model.parameters())


@pytest.mark.parametrize("compression", [C.none, C.bit8(error_feedback=True)], ids=["none", "bit8"])
def test_an_overflow_on_one_rank_skips_the_step_on_all(
    compression: Any, place: Place, rank: int, size: int
) -> None:
    model = Net().to(place.device)
    optimizer = wrapped(model, compression=compression)
    scaler = torch.amp.GradScaler(place.device.type, init_scale=8.0, growth_interval=1000)
    optimizer.set_loss_scale(scaler)
    for overflows in [False, True, False]:
        before = flat(model)
        optimizer.zero_grad()
        scaler.scale(torch.ones((), device=place.device))  # a script would scale the loss
        scale = scaler.get_scale()
        model.backward(7, math.inf if overflows and rank == size - 1 else scale)
        optimizer.synchronize()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        with optimizer.skip_synchronize():
            scaler.step(optimizer)
        scaler.update()
        assert torch.equal(before, flat(model)) == overflows
    assert hvd.allgather_object(scaler.get_scale()) == [4.0] * size
    assert_same_bits_everywhere(*model.parameters())


def test_mixed_precision(place: Place) -> None:
    model = nn.Sequential(nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 8)).to(place.device)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    optimizer = wrapped(model, compression=C.bit8)
    for step in range(3):
        generator = torch.Generator().manual_seed(10 * step + hvd.rank())
        x = place.put(torch.randn(16, 64, generator=generator))
        with torch.autocast(place.device.type, dtype=torch.bfloat16):
            loss = model(x).float().square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert_same_bits_everywhere(*model.parameters())


def test_adasum(place: Place) -> None:
    model = Net().to(place.device)
    train(model, wrapped(model, op=hvd.Adasum), range(3))
    assert_same_bits_everywhere(*model.parameters())


def test_sparse_embedding(place: Place, rank: int, size: int) -> None:
    embedding = nn.Embedding(6, 4, sparse=True).to(place.device)
    hvd.broadcast_parameters(embedding.state_dict(), root_rank=0)
    optimizer = hvd.DistributedOptimizer(torch.optim.SparseAdam(embedding.parameters()))
    for step in range(2):
        optimizer.zero_grad()
        if rank == 0 or step:  # the others learn in the first step that gradients are sparse
            embedding(torch.tensor([1, 2], device=place.device)).sum().backward()
        optimizer.synchronize()
        assert embedding.weight.grad.is_sparse
        assert embedding.weight.grad.to_dense()[1, 0] == (1.0 if step else 1.0 / size)
        with optimizer.skip_synchronize():
            optimizer.step()
    assert_same_bits_everywhere(*embedding.parameters())


@pytest.mark.parametrize("name", ["int4 with feedback", "random int8 with feedback", "topk", "powersgd"])
def test_residuals_of_a_checkpoint_go_on(name: str, place: Place, tmp_path: Any) -> None:
    """Saved on the GPU and resumed on GPU or CPU: equal to an uninterrupted training."""
    if hvd.size() == 1:
        pytest.skip("alone nothing is lost")
    compression = COMPRESSIONS[name]
    model = Net().to(place.device)
    optimizer = wrapped(model, compression=compression)
    train(model, optimizer, range(3))
    saved = copy.deepcopy({"model": model.state_dict(), "optimizer": optimizer.state_dict()})
    own = saved["optimizer"]["horovod"]["residuals"]
    values = [stage for entry in own.values() for stage in entry["parameters"].values()]
    assert values and all(entry["sent"][1].device.type == "cpu" for entry in values)
    assert any(entry["sent"][1].count_nonzero() for entry in values)
    train(model, optimizer, range(3, 5))

    again = Net().to(place.device)
    other = wrapped(again, compression=compression)
    again.load_state_dict(saved["model"])
    other.load_state_dict(copy.deepcopy(saved["optimizer"]))
    train(again, other, range(3, 5))
    assert torch.equal(flat(again), flat(model))

    with place.on_cpu():  # the residuals move to the CPU
        home = Net()
        there = wrapped(home, compression=compression)
        home.load_state_dict(saved["model"])
        there.load_state_dict(saved["optimizer"])
        train(home, there, range(3, 5))
    assert_same_bits_everywhere(*home.parameters())
    if not coarser_than_on_the_cpu(compression):
        assert torch.allclose(flat(home), flat(model), rtol=1e-4, atol=1e-5)


def test_a_model_that_moves_between_steps(place: Place) -> None:
    model = Net()
    compression = C.int4(error_feedback=True)
    parameters = wrapped(model, compression=compression)
    with place.on_cpu():
        train(model, parameters, range(2))
    model.to(place.device)
    for state in parameters.state.values():
        state.update((k, v.to(place.device)) for k, v in state.items() if isinstance(v, torch.Tensor))
    train(model, parameters, range(2, 4))
    model.cpu()
    for state in parameters.state.values():
        state.update((k, v.cpu()) for k, v in state.items() if isinstance(v, torch.Tensor))
    with place.on_cpu():
        train(model, parameters, range(4, 6))
        assert_same_bits_everywhere(*model.parameters())
        if coarser_than_on_the_cpu(compression):
            return
        twin = Net()
        train(twin, wrapped(twin, compression=compression), range(6))
        assert torch.allclose(flat(model), flat(twin), rtol=1e-4, atol=1e-5)
