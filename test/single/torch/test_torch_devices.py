"""The Python interface for GPU tensors, tested without a GPU: refused input, and twins that agree."""

# private: _largest: compares the choice on a GPU with the choice on the CPU

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from refusals import refused

import horovod.torch as hvd
from horovod import _native as native
from horovod.torch import devices, errors, gathered
from horovod.torch.compression import TopKCompressor, topk
from horovod.torch.compression.powersgd import product
from horovod.torch.reduce_ops import reduce_arguments
from horovod.torch.tensors import check_served


@pytest.fixture
def counted_as_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "device_of", lambda tensor: 0)


def test_host_memory_has_no_device() -> None:
    x = torch.ones(3)
    assert devices.device_of(x) == devices.CPU == -1
    assert devices.current_stream(devices.CPU) == 0
    assert devices.Origin.here(devices.CPU) == devices.Origin()
    check_served(x, "allreduce.x")


def test_without_cuda_a_gpus_tensors_are_refused_with_what_to_do(
    counted_as_gpu: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native, "device_library_is_installed", lambda: False)
    with refused(errors.built_without_cuda, tensor="allreduce.x"):
        check_served(torch.ones(3), "allreduce.x")
    monkeypatch.setattr(native, "device_library_is_installed", lambda: True)
    check_served(torch.ones(3), "allreduce.x")


def test_a_group_is_on_one_device(monkeypatch: pytest.MonkeyPatch) -> None:
    here, there = torch.ones(3), torch.ones(3)
    monkeypatch.setattr(devices, "device_of", lambda tensor: 1 if tensor is there else devices.CPU)
    assert devices.common_device([there, there], "allreduce.x") == 1
    assert devices.common_device([], "allreduce.x") == devices.CPU
    with refused(errors.several_devices, tensor="allreduce.x", devices=["cpu"]):
        devices.common_device([here, there], "allreduce.x")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_topk_takes_the_same_elements_without_being_told_how_many(
    dtype: torch.dtype, counted_as_gpu: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = torch.Generator().manual_seed(1)
    for count in (1, 2, 17, 1000):
        coarse = torch.randint(-5, 6, (count,), generator=generator).to(dtype)  # many equal magnitudes
        fine = torch.randn(count, generator=generator, dtype=dtype)
        fine[count // 2] = math.nan
        for flat in (coarse, fine, torch.zeros(count, dtype=dtype)):
            for k in {0, 1, count // 3, count - 1, count}:
                on_gpu = topk._largest(flat, k)
                with monkeypatch.context() as patch:
                    patch.setattr(devices, "device_of", lambda tensor: devices.CPU)
                    assert torch.equal(on_gpu, topk._largest(flat, k)), f"{k} of {flat}"


def test_a_place_outside_is_seen_on_a_gpu_too(counted_as_gpu: None) -> None:
    values = torch.tensor([1.0, 2.0]).view(torch.uint8)
    codes = torch.cat([values, torch.tensor([3, 99], dtype=torch.int32).view(torch.uint8)])
    total = TopKCompressor.decompress(codes, (torch.float32, torch.Size([8])))
    assert total[3] == 1.0 and torch.isnan(total).sum() == 1


def test_powersgds_product_does_not_depend_on_its_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    p, q = torch.randn(50, 4), torch.randn(30, 4)
    whole = product(p, q)
    monkeypatch.setattr("horovod.torch.compression.powersgd.CHUNK", 70)
    assert torch.equal(whole, product(p, q))


@pytest.mark.parametrize("length", [1, 2000])
def test_headers_of_gathered_codes_of_any_length(length: int) -> None:
    class Plain:
        combine = "gather"

        def compress(self, tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
            return tensor, None

        def decompress(self, tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
            return tensor

    Plain.__qualname__ = "P" * length
    arguments = reduce_arguments(hvd.Sum, 1.0, 1.0)
    x = torch.arange(5.0)
    own = gathered.contribution("allreduce.x", x, arguments, Plain())
    sizes = [own.payload.numel()] * 3
    total = gathered.reduced(own, torch.cat([own.payload] * 3), sizes)
    assert torch.equal(total, 3 * x)


def test_residuals_follow_the_gradients_and_are_saved_in_host_memory() -> None:
    from horovod.torch.residuals import TensorFeedback

    feedback = TensorFeedback(3)
    wanted = feedback.added_to(torch.tensor([1.0, 2.0, 3.0]))
    feedback.keep(wanted, torch.tensor([1.0, 1.0, math.inf]))
    begin, saved = feedback.read("sent")
    assert begin == 0 and saved.tolist() == [0.0, 1.0, 0.0]
    saved[0] = 7.0
    assert feedback.added_to(torch.zeros(3)).tolist() == [0.0, 1.0, 0.0], "what is saved is a copy"
