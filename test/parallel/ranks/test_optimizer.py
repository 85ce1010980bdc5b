"""DistributedOptimizer makes the step of one process with all ranks' data, and ranks stay identical."""

import copy
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from compressors import WithContext
from contract import assert_same_bits_everywhere
from rank_fixtures import seeded
from refusals import refused
from torch import nn

import horovod.torch as hvd
from horovod.torch import errors

BATCH = 8


def make_model(seed: int = 0) -> nn.Sequential:
    with seeded(seed):
        return nn.Sequential(nn.Linear(10, 130), nn.Tanh(), nn.LayerNorm(130), nn.Linear(130, 3))


def data(rank: int, step: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(100 * step + rank)
    return torch.randn(BATCH, 10, generator=generator), torch.randn(BATCH, 3, generator=generator)


def loss_of(model: nn.Module, ranks: list[int], step: int = 0) -> torch.Tensor:
    x, y = (torch.cat(parts) for parts in zip(*(data(rank, step) for rank in ranks), strict=True))
    return nn.functional.mse_loss(model(x), y)


def serial_gradients(reduce: Callable[[list[torch.Tensor]], torch.Tensor]) -> list[torch.Tensor]:
    """Return the gradients of every rank, reduced in this process."""
    by_rank = []
    for rank in range(hvd.size()):
        model = make_model()
        loss_of(model, [rank]).backward()
        by_rank.append([parameter.grad for parameter in model.parameters()])
    return [reduce(list(gradients)) for gradients in zip(*by_rank, strict=True)]


def mean(gradients: list[torch.Tensor]) -> torch.Tensor:
    return sum(gradients) / len(gradients)


def wrapped(model: nn.Module, lr: float = 0.1, **options: Any) -> Any:
    sgd = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    return hvd.DistributedOptimizer(sgd, named_parameters=model.named_parameters(), **options)


def assert_close(actual: list[torch.Tensor], expected: list[torch.Tensor], tolerance: float = 1e-6) -> None:
    for a, e in zip(actual, expected, strict=True):
        torch.testing.assert_close(a, e, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("groups", [None, 1, 2, 100])
def test_training_equals_one_process_with_all_the_data(groups: int | None, rank: int, size: int) -> None:
    model, serial = make_model(), make_model()
    optimizer = wrapped(model, groups=groups)
    alone = torch.optim.SGD(serial.parameters(), lr=0.1, momentum=0.9)
    for step in range(4):
        optimizer.zero_grad()
        loss_of(model, [rank], step).backward()
        optimizer.step()
        alone.zero_grad()
        loss_of(serial, list(range(size)), step).backward()
        alone.step()
    assert_close(list(model.parameters()), list(serial.parameters()), 1e-5)
    assert_same_bits_everywhere(*model.parameters())


@pytest.mark.parametrize("groups", [None, 1])
def test_small_and_one_dimensional_parameters_travel_exact_under_a_codec(
    groups: int | None, rank: int
) -> None:
    model, exact = make_model(), serial_gradients(mean)
    optimizer = wrapped(model, compression=hvd.Compression.bit8, groups=groups)
    loss_of(model, [rank]).backward()
    optimizer.synchronize()
    for parameter, gradient in zip(model.parameters(), exact, strict=True):
        is_exact = torch.allclose(parameter.grad, gradient, rtol=1e-5, atol=1e-7)
        assert is_exact == (parameter.dim() < 2 or parameter.numel() < 1024), parameter.shape


@pytest.mark.parametrize("groups", [None, 2])
def test_a_users_gathered_compressor_trains(groups: int | None, rank: int) -> None:
    model = make_model()
    optimizer = wrapped(model, compression=WithContext, groups=groups)
    loss_of(model, [rank]).backward()
    optimizer.synchronize()
    assert_close([p.grad for p in model.parameters()], serial_gradients(mean))
    with optimizer.skip_synchronize():
        optimizer.step()
    assert_same_bits_everywhere(*model.parameters())


def test_gradients_of_several_backward_passes_are_summed(rank: int, size: int) -> None:
    model, serial = make_model(), make_model()
    optimizer = wrapped(model, backward_passes_per_step=3)
    for step in range(3):
        loss_of(model, [rank], step).backward()
        loss_of(serial, list(range(size)), step).backward()
    optimizer.synchronize()
    assert_close([p.grad for p in model.parameters()], [p.grad for p in serial.parameters()])


def test_one_backward_pass_too_many() -> None:
    model = make_model()
    optimizer = wrapped(model)
    loss_of(model, [0]).backward()
    with refused(errors.too_many_passes, passes=1):
        loss_of(model, [0]).backward()
    optimizer.synchronize()
    loss_of(model, [0]).backward()
    optimizer.set_backward_passes_per_step(2)
    optimizer.synchronize()
    loss_of(model, [0]).backward()
    loss_of(model, [0]).backward()
    optimizer.step()


def test_zero_grad_while_gradients_are_on_their_way() -> None:
    model = make_model()
    optimizer = wrapped(model, wait_in_backward=False)
    loss_of(model, [0]).backward()
    with refused(errors.zeroed_too_early):
        optimizer.zero_grad()
    optimizer.step()
    optimizer.zero_grad(set_to_none=False)
    assert all(torch.count_nonzero(parameter.grad) == 0 for parameter in model.parameters())
    optimizer.zero_grad(set_to_none=True)
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize("predivide", [0.25, 2.0, 3.0])
@pytest.mark.parametrize("groups", [None, 1])
def test_predivided_average_is_the_average(predivide: float, groups: int | None, rank: int) -> None:
    model = make_model()
    optimizer = wrapped(model, gradient_predivide_factor=predivide, groups=groups)
    loss_of(model, [rank]).backward()
    optimizer.synchronize()
    assert_close([p.grad for p in model.parameters()], serial_gradients(mean))


def test_clipping_pattern_and_its_warning(rank: int) -> None:
    model, reference = make_model(), serial_gradients(mean)
    optimizer = wrapped(model, lr=1.0)
    before = copy.deepcopy(list(model.parameters()))
    loss_of(model, [rank]).backward()
    optimizer.synchronize()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 0.01)
    with warnings.catch_warnings(record=True) as caught, optimizer.skip_synchronize():
        warnings.simplefilter("always")
        optimizer.step()
    assert not caught
    expected = [p - g * 0.01 / (norm + 1e-6) for p, g in zip(before, reference, strict=True)]
    assert_close(list(model.parameters()), expected)
    optimizer.synchronize()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        optimizer.step()
    assert len(caught) == 1
    assert "skip_synchronize()" in str(caught[0].message)


@pytest.mark.parametrize("groups", [None, 1, 2])
@pytest.mark.parametrize("predivide", [1.0, 2.0])
def test_ranks_with_different_control_flow(
    groups: int | None, predivide: float, rank: int, size: int
) -> None:
    models = [nn.Linear(40, 30), nn.Linear(40, 30), nn.Linear(40, 30)]
    for model in models:
        nn.init.ones_(model.weight)
    model = nn.ModuleList(models)
    optimizer = wrapped(model, groups=groups, gradient_predivide_factor=predivide)
    users = [(size + 1) // 2, size // 2, 0]
    for meets in (False, True):
        optimizer.zero_grad()
        models[rank % 2](torch.ones(1, 40)).sum().backward()  # no rank uses the third
        if meets:
            hvd.barrier()  # a cycle that ends outside of the optimizer
        optimizer.step()
        for layer, count in zip(models, users, strict=True):
            assert torch.equal(layer.weight.grad, torch.full((30, 40), count / size))
    assert_same_bits_everywhere(*(layer.weight for layer in models))


def test_groups_given_as_lists(rank: int) -> None:
    model = make_model()
    parameters = list(model.parameters())
    optimizer = wrapped(model, groups=[[parameters[0], parameters[3]], [parameters[5], parameters[4]]])
    loss_of(model, [rank]).backward()
    optimizer.synchronize()
    assert_close([p.grad for p in parameters], serial_gradients(mean))


@pytest.mark.parametrize("sparse_as_dense", [False, True])
@pytest.mark.parametrize("groups", [None, 1])
def test_sparse_gradients(sparse_as_dense: bool, groups: int | None, rank: int, size: int) -> None:
    embedding = nn.Embedding(size + 1, 3, sparse=True)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(embedding.parameters(), lr=1.0), embedding.named_parameters(),
        sparse_as_dense=sparse_as_dense, groups=groups, compression=hvd.Compression.bit8,
    )  # fmt: skip
    for _ in range(2):
        optimizer.zero_grad()
        embedding(torch.tensor([rank, size])).sum().backward()
        optimizer.synchronize()
        assert embedding.weight.grad.is_sparse
        want = torch.full((size + 1, 3), 1.0 / size)
        want[size] = 1.0
        assert torch.equal(embedding.weight.grad.to_dense(), want)
        with optimizer.skip_synchronize():
            optimizer.step()
    optimizer.zero_grad()
    if rank == 0:  # the others have no gradient this time, but know that it is sparse
        embedding(torch.tensor([0])).sum().backward()
    optimizer.step()
    assert embedding.weight.grad.to_dense()[0, 0] == 1.0 / size


def test_parameters_added_and_unfrozen_later_are_reduced_too(rank: int, size: int) -> None:
    first, frozen, added = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)
    frozen.requires_grad_(False)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([*first.parameters(), *frozen.parameters()], lr=0.1))
    optimizer.add_param_group({"params": list(added.parameters())})
    frozen.requires_grad_(True)
    for _ in range(2):
        optimizer.zero_grad()
        sum(layer(torch.full((1, 4), float(rank))).sum() for layer in (first, frozen, added)).backward()
        optimizer.synchronize()
        for layer in (first, frozen, added):
            assert torch.equal(layer.weight.grad, torch.full((4, 4), (size - 1) / 2))
        with optimizer.skip_synchronize():
            optimizer.step()


def test_an_optimizer_of_an_earlier_job_lets_go_of_its_parameters() -> None:
    """Scripts that call shutdown() and init() wrap a model again, and may still hold the old optimizer."""
    model = make_model()
    earlier = wrapped(model)
    hvd.shutdown()
    hvd.init()
    optimizer = wrapped(model)
    for step in range(2):
        optimizer.zero_grad()
        loss_of(model, [hvd.rank()], step).backward()
        optimizer.step()
    assert_same_bits_everywhere(*model.parameters())
    with refused(errors.taken_over) as caught:
        earlier.step()
    assert caught.value.facts["names"][0] == "0.weight"
