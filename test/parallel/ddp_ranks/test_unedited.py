"""HOROVOD_DDP_COMPRESSION: every DistributedDataParallel has our hook until the script registers another."""

import contextlib
import io
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from ddp_training import all_equal, every_ddp_is_compressed
from refusals import refused
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook, fp16_compress_hook
from torch.nn.parallel import DistributedDataParallel

from horovod.common.compressors import COMPRESSION_FORCE, DDP_COMPRESSION
from horovod.torch import ddp
from horovod.torch.compression import errors as of_compressors
from horovod.torch.compression import first_step
from horovod.torch.ddp import errors


@pytest.fixture(scope="module", autouse=True)
def unedited() -> Iterator[None]:
    """Compress every DDP for this file; the files that share its process have torch's own class."""
    with every_ddp_is_compressed():
        yield


@pytest.fixture(autouse=True)
def bit8(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv(DDP_COMPRESSION, "bit8")
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        yield


def wrapped(**options: Any) -> DistributedDataParallel:
    torch.manual_seed(0)
    return DistributedDataParallel(torch.nn.Linear(100, 50), **options)


def gradient(model: torch.nn.Module, rank: int) -> torch.Tensor:
    model.zero_grad()
    generator = torch.Generator().manual_seed(rank)
    model(torch.rand(8, 100, generator=generator)).square().sum().backward()
    return model.get_parameter("module.weight").grad.clone()


@pytest.fixture
def exact(rank: int, monkeypatch: pytest.MonkeyPatch) -> torch.Tensor:
    with monkeypatch.context() as environment:
        environment.delenv(DDP_COMPRESSION)
        return gradient(wrapped(), rank)


def test_gradients_are_compressed_and_alike_on_all_ranks(exact: torch.Tensor, rank: int, size: int) -> None:
    summed = gradient(wrapped(), rank)
    assert torch.equal(summed, exact) == (size == 1)
    assert torch.allclose(summed, exact, rtol=0.2, atol=0.1 * exact.abs().max().item())
    assert all_equal(summed)


def test_none_leaves_it_alone(exact: torch.Tensor, rank: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(DDP_COMPRESSION, "none")
    assert torch.equal(gradient(wrapped(), rank), exact)


def own_hook(state, bucket):  # without annotations, of which torch allows its own only
    return allreduce_hook(None, bucket)


def registering(hook: Any) -> Callable[[DistributedDataParallel], None]:
    return lambda model: model.register_comm_hook(None, hook)


def building_in(name: str) -> Callable[[DistributedDataParallel], None]:
    return lambda model: model._register_builtin_comm_hook(getattr(dist.BuiltinCommHookType, name))


@pytest.mark.parametrize("force", ["", "1"])
@pytest.mark.parametrize(
    ("register", "wins", "name"),
    [
        (registering(own_hook), {"", "1"}, "own_hook"),
        (registering(fp16_compress_hook), {""}, "fp16_compress_hook"),
        (building_in("FP16_COMPRESS"), {""}, "fp16_compress_hook"),
        (registering(allreduce_hook), set(), "allreduce_hook"),
        (building_in("ALLREDUCE"), set(), "allreduce_hook"),
    ],
)
def test_a_hook_of_the_script(
    register: Callable[[DistributedDataParallel], None],
    wins: set[str],
    name: str,
    force: str,
    exact: torch.Tensor,
    rank: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It counts, with a warning, unless it compresses nothing; by force, unless its effect is unknown."""
    monkeypatch.setenv(COMPRESSION_FORCE, force)
    monkeypatch.setattr(first_step, "_Told", type("Told", (set,), {}))
    model, printed = wrapped(), io.StringIO()
    with warnings.catch_warnings(record=True) as told, contextlib.redirect_stderr(printed):
        warnings.simplefilter("always")
        register(model)
    said = [str(each.message) for each in told] + printed.getvalue().splitlines()
    said = [each for each in said if DDP_COMPRESSION in each]
    assert len(said) == (rank == 0) and all(name in each for each in said)
    does_count = force not in wins
    assert all(("does not count" not in each) == does_count for each in said)
    got = gradient(model, rank)
    if does_count:
        assert torch.equal(got, gradient(wrapped(), rank))
    else:
        atol = 1e-5 if name == "own_hook" else 1e-2  # it divides in another order
        assert torch.allclose(got, exact, rtol=1e-2, atol=atol * exact.abs().max().item())
    assert dist.get_world_size() == 1 or torch.equal(got, gradient(wrapped(), rank)) == does_count
    with pytest.raises(RuntimeError, match=r"can only be called once|already"):
        registering(allreduce_hook)(model)


def test_compress_in_the_script_replaces_ours(rank: int) -> None:
    """test_which_compression_counts.py tests which compressor then counts."""
    model, same = wrapped(), wrapped()
    state = ddp.compress(model, "int8")
    assert repr(state) == "<CompressionState of int8>"
    assert not torch.equal(gradient(model, rank), gradient(same, rank)) or dist.get_world_size() == 1


def test_several_models_and_a_saved_one(rank: int, size: int) -> None:
    first, second = wrapped(), wrapped()
    assert torch.equal(gradient(first, rank), gradient(second, rank))
    file = io.BytesIO()
    torch.save(first, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=False)
    assert torch.equal(loaded.module.weight, first.module.weight)


def test_a_wrong_text_is_told_on_all_ranks(rank: int, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(DDP_COMPRESSION, "bit9")
    with refused(of_compressors.wrong_text, said="HOROVOD_DDP_COMPRESSION=bit9", name="bit9"):
        wrapped()
    if size > 1:
        monkeypatch.setenv(DDP_COMPRESSION, "bit8" if rank == 0 else "bit16")
        with refused(errors.ranks_disagree):
            wrapped()
