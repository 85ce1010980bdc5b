"""SyncBatchNorm in a world of one: conversion of models, errors, and its kernels.

test/parallel/ranks/test_sync_batch_norm.py tests its results with several ranks.
"""

import copy
import pickle
from unittest import mock

import pytest
import torch
from page_blocks import blocks_of, script
from refusals import refused

import horovod.torch as hvd
from horovod.torch import batch_norm_kernels as kernels
from horovod.torch import errors
from horovod.torch.sync_batch_norm import SyncBatchNorm

# One rank, eval mode, and errors


@pytest.mark.parametrize("momentum", [0.1, None])
def test_alone_it_is_torchs_own(alone: None, momentum: float | None) -> None:
    ours, theirs = hvd.SyncBatchNorm(3, momentum=momentum), torch.nn.BatchNorm2d(3, momentum=momentum)
    for seed in range(3):
        x = torch.randn(4, 3, 5, 5, generator=torch.Generator().manual_seed(seed))
        assert torch.equal(ours(x), theirs(x))
    for name, buffer in ours.state_dict().items():
        assert torch.equal(buffer, theirs.state_dict()[name])


def test_inference_needs_no_job() -> None:
    assert not hvd.is_initialized()
    x = torch.randn(2, 3, 4)
    assert torch.equal(hvd.SyncBatchNorm(3).eval()(x), torch.nn.BatchNorm1d(3).eval()(x))


def test_state_dicts_are_torchs() -> None:
    ours, theirs = hvd.SyncBatchNorm(3), torch.nn.BatchNorm2d(3)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    theirs(torch.randn(2, 3, 4, 4))
    ours.load_state_dict(theirs.state_dict())
    assert torch.equal(ours.running_var, theirs.running_var) and int(ours.num_batches_tracked) == 1
    theirs.load_state_dict(ours.state_dict())
    assert isinstance(ours, torch.nn.modules.batchnorm._BatchNorm)


def test_the_pages_python_runs(alone: None) -> None:
    page = "docs/sync_batch_norm.md"
    exec(compile(script(blocks_of(page)), page, "exec"), {})


# Conversion


class Shared(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        norm = torch.nn.BatchNorm3d(2)
        self.first = norm
        self.second = torch.nn.ModuleList([norm, torch.nn.InstanceNorm1d(4), torch.nn.BatchNorm1d(5)])
        self.nothing = None


def test_conversion_keeps_everything() -> None:
    model = torch.nn.Sequential(
        torch.nn.Linear(4, 4),
        torch.nn.BatchNorm1d(4, eps=1e-3, momentum=None, dtype=torch.float64),
        torch.nn.Sequential(torch.nn.BatchNorm2d(5, affine=False).eval(), torch.nn.ReLU()),
        torch.nn.BatchNorm3d(6, track_running_stats=False),
        torch.nn.BatchNorm2d(7, momentum=0.3, bias=False, device="meta"),
    )
    model[1].weight.requires_grad_(False)
    before = [
        module for module in model.modules() if isinstance(module, torch.nn.modules.batchnorm._BatchNorm)
    ]
    names = list(model.state_dict())
    assert hvd.SyncBatchNorm.convert_sync_batchnorm(model) is model
    assert list(model.state_dict()) == names
    after = [module for module in model.modules() if isinstance(module, hvd.SyncBatchNorm)]
    for old, new in zip(before, after, strict=True):
        for name in ("num_features", "eps", "momentum", "affine", "track_running_stats", "training"):
            assert getattr(old, name) == getattr(new, name)
        for name in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked"):
            assert getattr(old, name) is getattr(new, name), (
                "the tensors are the same, so optimizers are right"
            )
        assert new.process_set is hvd.global_process_set
    assert not model[1].weight.requires_grad


def test_a_shared_module_stays_shared() -> None:
    model = SyncBatchNorm.convert_sync_batchnorm(Shared())
    assert isinstance(model.first, hvd.SyncBatchNorm) and model.second[0] is model.first
    assert type(model.second[1]) is torch.nn.InstanceNorm1d and model.nothing is None
    assert type(model.second[2]) is hvd.SyncBatchNorm


def test_a_batch_norm_itself_and_a_second_conversion() -> None:
    few = hvd.ProcessSet([0])
    once = SyncBatchNorm.convert_sync_batchnorm(torch.nn.BatchNorm2d(3))
    again = SyncBatchNorm.convert_sync_batchnorm(once, process_set=few)
    assert isinstance(again, hvd.SyncBatchNorm)
    assert again.weight is once.weight and again.process_set is few
    assert copy.deepcopy(again).process_set is few


def test_conversion_makes_the_class_it_is_called_on() -> None:
    class Named(hvd.SyncBatchNorm):
        """A subclass of a user."""

    assert type(Named.convert_sync_batchnorm(torch.nn.BatchNorm2d(3))) is Named


def test_a_lazy_batch_norm_is_converted_once_it_knows_its_size() -> None:
    model = torch.nn.Sequential(torch.nn.LazyBatchNorm1d())
    with refused(errors.lazy_batch_norm):
        SyncBatchNorm.convert_sync_batchnorm(model)
    model(torch.randn(4, 3))
    assert SyncBatchNorm.convert_sync_batchnorm(model)[0].num_features == 3


def test_pickled_process_sets() -> None:
    assert pickle.loads(pickle.dumps(hvd.global_process_set)) is hvd.global_process_set
    loaded = pickle.loads(pickle.dumps(hvd.ProcessSet([2, 1])))
    assert loaded.ranks == [1, 2] and loaded.process_set_id is None


# The kernels, against the formula in float64, on both routes: substitutes compute what torch's CUDA kernels
# are documented to compute, with the layout and dtypes that torch.nn.SyncBatchNorm gives them.


def over(vector: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return vector.reshape(-1, *(1 for _ in x.shape[2:]))


def channel_sum(x: torch.Tensor) -> torch.Tensor:
    return x.sum([d for d in range(x.dim()) if d != 1])


class CudaKernels:
    """Substitutes for torch.batch_norm_*, which exist on CUDA only."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.calls: list[str] = []

    def _check(self, name: str, inputs: list[torch.Tensor], vectors: list[torch.Tensor | None]) -> None:
        self.calls.append(name)
        for x in inputs:
            assert x.is_contiguous() or x.is_contiguous(memory_format=torch.channels_last)
        for vector in vectors:
            expected = torch.float64 if inputs[0].dtype == torch.float64 else torch.float32
            assert vector is None or (vector.dtype == expected and vector.shape == (inputs[0].shape[1],))

    def batch_norm_elemt(self, input, weight, bias, mean, invstd, eps):  # type: ignore[no-untyped-def]
        self._check("elemt", [input], [weight, bias, mean, invstd])
        xhat = (input - over(mean, input)) * over(invstd, input)
        return (xhat * over(weight, input) + over(bias, input)).to(input.dtype)

    def batch_norm_backward_reduce(  # type: ignore[no-untyped-def]
        self, grad_out, input, mean, invstd, weight, input_g, weight_g, bias_g
    ):
        self._check("reduce", [grad_out, input], [mean, invstd, weight])
        assert input_g and not weight_g and not bias_g
        dy = grad_out.to(mean.dtype)
        return channel_sum(dy), channel_sum(dy * (input - over(mean, input))), None, None

    def batch_norm_backward_elemt(  # type: ignore[no-untyped-def]
        self, grad_out, input, mean, invstd, weight, sum_dy, sum_dy_xmu, count
    ):
        self._check("backward_elemt", [grad_out, input], [mean, invstd, weight, sum_dy, sum_dy_xmu])
        assert count.dtype == torch.int32 and count.dim() == 1
        n = count.sum()
        projected = (input - over(mean, input)) * over(invstd**2 * sum_dy_xmu / n, input)
        return ((grad_out - over(sum_dy / n, input) - projected) * over(invstd * weight, input)).to(
            input.dtype
        )


def check_route(x: torch.Tensor, dy: torch.Tensor, tolerance: float) -> None:
    eps, dtype = 1e-3, kernels.statistics_dtype(x.dtype)
    weight = torch.linspace(-1, 2, x.shape[1]).to(x.dtype)
    bias = torch.linspace(3, 1, x.shape[1]).to(x.dtype)
    exact = [tensor.double().clone().requires_grad_() for tensor in (x, weight, bias)]
    wanted = torch.nn.functional.batch_norm(exact[0], None, None, exact[1], exact[2], True, 0.0, eps)
    wanted.backward(dy.double())

    mean, var = kernels.moments(x)
    statistics = kernels.Statistics(mean.to(dtype), var.to(dtype), kernels.count_of(x))
    found = kernels.normalized(x, weight, bias, statistics, eps)
    sums = kernels.gradient_sums(dy, x, statistics, eps)
    dx = kernels.input_gradient(dy, x, weight, statistics, sums, eps)
    assert found.dtype == dx.dtype == x.dtype and sums[0].dtype == sums[1].dtype == dtype
    for ours, theirs in (
        (found, wanted.detach()),
        (dx, exact[0].grad),
        (sums[1], exact[1].grad),
        (sums[0], exact[2].grad),
    ):
        assert theirs is not None
        scale = max(1.0, float(theirs.abs().max()))
        torch.testing.assert_close(ours.double() / scale, theirs / scale, rtol=tolerance, atol=tolerance)


TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}


def batch(dtype: torch.dtype, form: str) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(5)
    x, dy = torch.randn(6, 4, 5, 3).to(dtype) * 2 + 1, torch.randn(6, 4, 5, 3).to(dtype)
    if form == "channels_last":
        x = x.contiguous(memory_format=torch.channels_last)
    return (x, dy) if form != "transposed" else (x.transpose(2, 3), dy.transpose(0, 2).reshape(6, 4, 3, 5))


@pytest.mark.parametrize("form", ["contiguous", "channels_last", "transposed"])
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_kernels_of_the_cpu(dtype: torch.dtype, form: str) -> None:
    check_route(*batch(dtype, form), TOLERANCE[dtype])


@pytest.mark.parametrize("form", ["contiguous", "channels_last", "transposed"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16], ids=str)
def test_kernels_of_cuda_as_they_are_called(dtype: torch.dtype, form: str) -> None:
    x, dy = batch(dtype, form)
    played = CudaKernels(kernels.count_of(x))
    update_stats = torch.batch_norm_update_stats

    def statistics_of_half_are_float(x, *options):  # type: ignore[no-untyped-def]
        return update_stats(x.to(kernels.statistics_dtype(x.dtype)), *options)

    with (
        mock.patch.multiple(
            torch,
            batch_norm_elemt=played.batch_norm_elemt,
            batch_norm_backward_reduce=played.batch_norm_backward_reduce,
            batch_norm_backward_elemt=played.batch_norm_backward_elemt,
            batch_norm_update_stats=statistics_of_half_are_float,
        ),
        mock.patch.object(kernels, "_on_cuda", lambda x: True),
    ):
        check_route(x, dy, 2 * TOLERANCE[dtype])
    assert played.calls == ["elemt", "reduce", "backward_elemt"]


def test_kernels_on_a_batch_of_nothing() -> None:
    x = torch.empty(0, 4, 5)
    mean, var = kernels.moments(x)
    statistics = kernels.Statistics(mean, var, 0)
    assert mean.tolist() == var.tolist() == [0.0] * 4
    assert kernels.normalized(x, None, None, statistics, 1e-5).shape == x.shape
    sums = kernels.gradient_sums(x, x, statistics, 1e-5)
    assert sums[0].tolist() == sums[1].tolist() == [0.0] * 4
    assert kernels.input_gradient(x, x, None, statistics, sums, 1e-5).shape == x.shape
