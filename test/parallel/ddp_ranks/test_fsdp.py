"""FSDP2 with compressed gradients in every rank, compared with results computed from all whole gradients."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import pytest
import torch
from ddp_training import gathered
from refusals import refused
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from horovod.torch.compression import Compression
from horovod.torch.compression import errors as of_compressors
from horovod.torch.ddp import compress_fsdp, errors

MATRICES = ("0.weight", "2.weight")


def network(width: int = 50) -> torch.nn.Sequential:
    """A matrix whose rows only a world of one divides evenly, and vectors."""
    torch.manual_seed(3)
    return torch.nn.Sequential(
        torch.nn.Linear(40, width), torch.nn.LayerNorm(width), torch.nn.Linear(width, 31, bias=False)
    )


def loss_of(model: torch.nn.Module, rank: int, step: int = 0) -> torch.Tensor:
    torch.manual_seed(100 * step + rank)
    x = torch.randn(8, 40)
    return model(x).square().mean() * (rank + 1)


def whole_gradients(rank: int, size: int, step: int = 0) -> list[dict[str, torch.Tensor]]:
    model = network()
    loss_of(model, rank, step).backward()
    mine = {name: parameter.grad for name, parameter in model.named_parameters()}
    return gathered(mine)


def sharded(size: int, **options: Any) -> torch.nn.Sequential:
    model = network()
    mesh = init_device_mesh("cpu", (size,))
    fully_shard(model[0], mesh=mesh, **options)
    fully_shard(model, mesh=mesh, **options)
    return model


def shard_of(values: torch.Tensor, r: int, size: int) -> torch.Tensor:
    """Return a shard as FSDP pads it, with rows of zeros at the end."""
    rows = -(-values.shape[0] // size)
    padded = values.new_zeros(rows * size, *values.shape[1:])
    padded[: values.shape[0]] = values
    return padded[r * rows : (r + 1) * rows]


def expected(
    gradients: list[dict[str, torch.Tensor]], name: str, compressor: Any, rank: int, size: int
) -> torch.Tensor:
    """Return this rank's shard of the average, by the compressor's own methods."""
    total = None
    for each in gradients:
        shard = shard_of(each[name], rank, size)
        values = shard.clone()
        if name in MATRICES:
            values = compressor.decompress(*compressor.compress(shard.reshape(-1))).reshape(shard.shape)
        total = values if total is None else total + values
    assert total is not None
    return total * (1 / size)  # in float32, as the core does


def local_gradients(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    found = {}
    for name, parameter in model.named_parameters():
        assert isinstance(parameter.grad, DTensor)
        found[name] = parameter.grad.to_local()
    return found


@pytest.mark.parametrize(
    "compression", [Compression.none, Compression.bit16, Compression.bit8, Compression.int4]
)
def test_gradients_are_those_of_the_codec(compression: Any, rank: int, size: int) -> None:
    model = sharded(size)
    compress_fsdp(model, compression)
    for step in range(2):
        model.zero_grad()
        loss_of(model, rank, step).backward()
        gradients = whole_gradients(rank, size, step)
        for name, local in local_gradients(model).items():
            # A world of one sends nothing.
            compressor = compression if size > 1 else Compression.none
            wanted = expected(gradients, name, compressor, rank, size)[: len(local)]
            if compression is Compression.none:
                torch.testing.assert_close(local, wanted)
            else:
                assert torch.equal(local, wanted), name


def test_training_goes_on_as_without_compression(rank: int, size: int) -> None:
    losses = {}
    for name, compression in (("plain", None), ("bit8", Compression.bit8)):
        model = sharded(size)
        if compression:
            compress_fsdp(model, compression)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(20):
            optimizer.zero_grad()
            loss = loss_of(model, rank, step)
            loss.backward()
            optimizer.step()
        losses[name] = float(loss.detach())
    assert losses["bit8"] == pytest.approx(losses["plain"], rel=0.05)


def test_rules_by_name(rank: int, size: int) -> None:
    model = sharded(size)
    compress_fsdp(model, {"2.*": Compression.int8, "0.weight": "bit8"})
    loss_of(model, rank).backward()
    gradients = whole_gradients(rank, size)
    for name, local in local_gradients(model).items():
        compressor = Compression.bit8 if name.startswith("0") else Compression.int8
        if size == 1:
            compressor = Compression.none
        assert torch.equal(local, expected(gradients, name, compressor, rank, size)[: len(local)]), name


def test_reduction_in_bfloat16(rank: int, size: int) -> None:
    model = sharded(size, mp_policy=MixedPrecisionPolicy(reduce_dtype=torch.bfloat16))
    compress_fsdp(model, Compression.bit8)
    loss_of(model, rank).backward()
    gradients = whole_gradients(rank, size)
    for name, local in local_gradients(model).items():
        average = sum(shard_of(each[name], rank, size) for each in gradients) / size
        assert torch.linalg.norm(local - average[: len(local)]) <= 0.05 * torch.linalg.norm(average) + 1e-7


def test_modules_that_share_a_unit(rank: int, size: int) -> None:
    """One call of fully_shard() with several modules, as for the norm and the head of a language model."""
    model = network()
    mesh = init_device_mesh("cpu", (size,))
    fully_shard([model[1], model[2]], mesh=mesh)
    fully_shard(model, mesh=mesh)
    check_exact_vectors(model, rank, size)


def test_a_parameter_that_fsdp_leaves_alone(rank: int, size: int) -> None:
    model = network()
    fully_shard(model, mesh=init_device_mesh("cpu", (size,)), ignored_params={model[2].weight})
    check_exact_vectors(model, rank, size)


def test_a_frozen_parameter(rank: int, size: int) -> None:
    model = network()
    model[0].weight.requires_grad_(False)
    fully_shard(model, mesh=init_device_mesh("cpu", (size,)))
    check_exact_vectors(model, rank, size)


def test_beside_tensor_parallelism(size: int) -> None:
    """Parameters are sharded twice, and gradients are reduced among the ranks that share a part."""
    if size != 4:
        pytest.skip("two by two ranks")
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    gradients = {}
    for compression in ("none", "bit8"):
        torch.manual_seed(3)
        model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 64))
        parallelize_module(model, mesh["tp"], {"0": ColwiseParallel(), "1": RowwiseParallel()})
        fully_shard(model, mesh=mesh["dp"])
        compress_fsdp(model, compression)
        torch.manual_seed(mesh["dp"].get_local_rank())
        with warnings.catch_warnings():
            warnings.filterwarnings("error", message=".*compressed alike")
            model(torch.randn(8, 64)).square().mean().backward()
        gradients[compression] = local_gradients(model)
    for name, exact in gradients["none"].items():
        if name.endswith("bias"):
            assert torch.equal(gradients["bit8"][name], exact)
        else:
            assert not torch.equal(gradients["bit8"][name], exact)
            torch.testing.assert_close(gradients["bit8"][name], exact, rtol=0, atol=0.1 * exact.abs().max())


def check_exact_vectors(model: torch.nn.Module, rank: int, size: int) -> None:
    """Matrices are compressed, vectors are not, and there is no warning."""
    compress_fsdp(model, Compression.bit8)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loss_of(model, rank).backward()
    gradients = whole_gradients(rank, size)
    for name, parameter in model.named_parameters():
        if isinstance(parameter.grad, DTensor):
            local = parameter.grad.to_local()
            average = sum(shard_of(each[name], rank, size) for each in gradients) / size
            wanted = average[: len(local)]
            if name in MATRICES and size > 1:
                assert not torch.equal(local, wanted)
                assert torch.linalg.norm(local - wanted) <= 0.1 * torch.linalg.norm(average)
            else:
                torch.testing.assert_close(local, wanted)


def test_a_parameter_without_gradient(rank: int, size: int) -> None:
    """Its shard is missing without an error: the remaining gradient is reduced, with a warning."""
    model = network()
    model.unused = torch.nn.Parameter(torch.ones(60, 60))
    fully_shard(model, mesh=init_device_mesh("cpu", (size,)))
    compress_fsdp(model, Compression.bit8)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        loss_of(model, rank).backward()
    said = [str(each.message) for each in caught if "compressed alike" in str(each.message)]
    assert bool(said) == (size > 1)
    gradients = whole_gradients(rank, size)
    for name, parameter in model.named_parameters():
        if name == "unused":
            continue
        average = sum(shard_of(each[name], rank, size) for each in gradients) / size
        local = parameter.grad.to_local()
        assert torch.linalg.norm(local - average[: len(local)]) <= 0.1 * torch.linalg.norm(average) + 1e-7


def test_what_is_refused(rank: int, size: int) -> None:
    if size > 1:  # a single process gets the message that there is nothing to do
        with refused(errors.nothing_sharded):
            compress_fsdp(network(), Compression.bit8)
    model = sharded(size)
    with refused(errors.fsdp_compressor):
        compress_fsdp(model, Compression.topk)
    with refused(errors.fsdp_feedback):
        compress_fsdp(model, Compression.bit8(error_feedback=True))
    with refused(of_compressors.rule_matches_nothing, pattern="wieght"):
        compress_fsdp(model, {"wieght": Compression.bit8})


def test_ranks_that_disagree_hear_of_it(rank: int, size: int) -> None:
    model = sharded(size)
    if size == 1:
        return
    with refused(errors.ranks_disagree):
        compress_fsdp(model, Compression.bit8 if rank else Compression.int8)
    compress_fsdp(model, Compression.bit8)  # training can continue
    loss_of(model, rank).backward()


def test_an_old_torch_is_refused(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    model = sharded(size)
    monkeypatch.delattr(torch.distributed.fsdp.FSDPModule, "set_custom_reduce_scatter")
    with refused(errors.old_torch, version=str(torch.__version__)):
        compress_fsdp(copy.copy(model), Compression.bit8)
