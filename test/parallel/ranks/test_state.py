"""Broadcast of parameters, optimizer state and objects: every rank gets root's, and root keeps its own."""

from typing import Any

import numpy as np
import pytest
import torch
from contract import assert_same_bits_everywhere
from rank_fixtures import seeded
from refusals import refused
from torch import nn

import horovod.torch as hvd
from horovod.torch import errors

OPTIONS: dict[str, dict[str, Any]] = {
    "Adam": {"amsgrad": True},
    "AdamW": {"weight_decay": 0.3},
    "SGD": {"momentum": 0.9, "nesterov": True},
}


def every_optimizer() -> list[str]:
    base = torch.optim.Optimizer
    members = vars(torch.optim).items()
    names = {name for name, m in members if isinstance(m, type) and issubclass(m, base) and m is not base}
    return sorted(names - {"LBFGS"})  # refused, see below


def make(name: str, rank: int, steps: int, wrap: bool) -> tuple[nn.Module, Any]:
    with seeded(rank):
        model: nn.Module = (
            nn.Embedding(6, 4, sparse=True) if name == "SparseAdam" else nn.Linear(5, 4, bias=False)
        )
    options = {"lr": 0.01 * (rank + 1), **OPTIONS.get(name, {})}
    optimizer = getattr(torch.optim, name)(model.parameters(), **options)
    for _ in range(steps):
        step(name, model, optimizer)
    return model, hvd.DistributedOptimizer(optimizer, model.named_parameters()) if wrap else optimizer


def step(name: str, model: nn.Module, optimizer: Any) -> None:
    optimizer.zero_grad()
    x = torch.tensor([0, 3]) if name == "SparseAdam" else torch.ones(2, 5)
    (model(x) ** 2).sum().backward()
    optimizer.step()


def flat(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [item for key in sorted(value, key=str) for item in [key, *flat(value[key])]]
    if isinstance(value, list | tuple):
        return [item for entry in value for item in flat(entry)]
    return [
        (value.dtype, value.shape, value.tolist())
        if isinstance(value, torch.Tensor)
        else (type(value), value)
    ]


@pytest.mark.parametrize("name", every_optimizer())
@pytest.mark.parametrize("steps_by_rank", [[2, 0], [0, 2], [2, 3], [0, 0]], ids=str)
@pytest.mark.parametrize("wrap", [False, True])
def test_optimizer_state(name: str, steps_by_rank: list[int], wrap: bool, rank: int) -> None:
    model, optimizer = make(name, rank, steps_by_rank[min(rank, 1)], wrap)
    before = [parameter.detach().clone() for parameter in model.parameters()]
    state_before = flat(optimizer.state_dict())
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    state = flat(optimizer.state_dict())
    assert all(map(torch.equal, before, model.parameters())), "parameters are not touched"
    assert rank != 0 or state == state_before, "nor is root"
    assert all(other == state for other in hvd.allgather_object(state))
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    step(name, model, optimizer)
    assert_same_bits_everywhere(*model.parameters())


@pytest.mark.parametrize("wrap", [False, True])
def test_an_optimizer_whose_state_is_not_by_parameter(wrap: bool) -> None:
    layer = nn.Linear(3, 3)
    optimizer: Any = torch.optim.LBFGS(layer.parameters())
    with refused(errors.lbfgs_state):
        hvd.broadcast_optimizer_state(hvd.DistributedOptimizer(optimizer) if wrap else optimizer, 0)


def test_gradients_of_an_optimizer_without_state_are_zeros_everywhere(size: int) -> None:
    frozen, layer = nn.Linear(3, 3).requires_grad_(False), nn.Linear(3, 3)
    sgd = torch.optim.SGD([*frozen.parameters(), *layer.parameters()], lr=0.1, momentum=0.9, weight_decay=0.1)
    hvd.broadcast_optimizer_state(hvd.DistributedOptimizer(sgd), root_rank=0)
    assert torch.equal(hvd.broadcast(layer.weight.grad, root_rank=0), torch.zeros(3, 3))
    assert frozen.weight.grad is None


def test_hyper_parameters_keep_their_types(rank: int) -> None:
    layer = nn.Linear(3, 3)
    options = {"lr": torch.tensor(0.1 * (rank + 1)), "betas": (0.1 * (rank + 1), 0.5), "foreach": False}
    optimizer = torch.optim.Adam(
        [
            {"params": [layer.weight], "weight_decay": 0.5 * rank},
            {"params": [layer.bias], "amsgrad": rank == 0},
        ],
        **options,
    )
    hvd.broadcast_optimizer_state(optimizer, root_rank=1)
    first, second = optimizer.param_groups
    assert torch.equal(first["lr"], torch.tensor(0.2)) and first["betas"] == (0.2, 0.5)
    assert first["weight_decay"] == 0.5 and second["amsgrad"] is False and first["params"] == [layer.weight]


def test_a_bfloat16_models_float32_state_stays_float32(rank: int) -> None:
    layer = nn.Linear(3, 3, bias=False).to(torch.bfloat16)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    if rank == 0:
        optimizer.state[layer.weight]["master"] = torch.full((3, 3), 1 / 3)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    assert torch.equal(optimizer.state[layer.weight]["master"], torch.full((3, 3), 1 / 3))


def test_state_that_belongs_to_no_parameter(rank: int) -> None:
    layer = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    optimizer.state["shared"] = {"calls": rank, "mean": torch.full((2,), float(rank))}
    hvd.broadcast_optimizer_state(optimizer, root_rank=1)
    shared = optimizer.state["shared"]
    assert shared["calls"] == 1 and torch.equal(shared["mean"], torch.ones(2))


def test_options_of_every_type(rank: int) -> None:
    odd = [7, 0.5, True, None, "text", (1, 2.5), [3, None], {"a": torch.tensor(3)}, np.float64(0.1), 1j, b"b"]
    options = {f"option{i}": value if rank == 0 else "other" for i, value in enumerate(odd)}
    optimizer = torch.optim.SGD([{"params": [nn.Parameter(torch.ones(1))], **options}], lr=0.1)
    wrapped = hvd.DistributedOptimizer(optimizer)
    hvd.broadcast_optimizer_state(wrapped, root_rank=0)
    for i, value in enumerate(odd):
        assert type(wrapped.param_groups[0][f"option{i}"]) is type(value)
        assert wrapped.param_groups[0][f"option{i}"] == value


def test_other_parameter_groups_than_roots(rank: int) -> None:
    layer = nn.Linear(3, 3)
    parameters = list(layer.parameters())
    optimizer = torch.optim.SGD(parameters if rank == 0 else parameters[:1], lr=0.1)
    if rank == 0:
        hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    else:
        with refused(errors.other_parameter_groups, ranks=(rank,), sizes=[1], roots=[2]):
            hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    hvd.barrier()


class Everything(nn.Module):
    def __init__(self, rank: int) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3).to(torch.bfloat16)
        self.norm = nn.BatchNorm1d(3)
        for name, dtype in {"flag": torch.bool, "byte": torch.uint8, "short_float": torch.float16}.items():
            self.register_buffer(name, torch.full((3,), rank % 2).to(dtype))
        nn.init.constant_(self.layer.weight, rank)
        self.norm.num_batches_tracked += rank
        self.transposed = nn.Parameter(torch.full((2, 5), float(rank)).t())
        self.empty = nn.Parameter(torch.empty(0, 3))


@pytest.mark.parametrize("form", ["state_dict", "named_parameters", "list of pairs", "list of tensors"])
def test_parameters(form: str, rank: int) -> None:
    model = Everything(rank)
    state = model.state_dict()
    given = {
        "state_dict": state,
        "named_parameters": iter(model.named_parameters()),
        "list of pairs": list(state.items()),
        "list of tensors": list(state.values()),
    }[form]
    hvd.broadcast_parameters(given, root_rank=1)
    assert torch.equal(model.layer.weight, torch.ones(3, 4, dtype=torch.bfloat16))
    assert torch.equal(model.transposed, torch.ones(5, 2))
    if form != "named_parameters":
        assert (
            model.norm.num_batches_tracked == 1
            and model.flag.all()
            and model.short_float.dtype == torch.float16
        )
    assert model.layer.weight.requires_grad


@pytest.mark.parametrize("root", [0, 1])
def test_objects(root: int, rank: int, size: int) -> None:
    obj = {"rank": rank, "f": lambda: rank * 10, "big": bytes(100_000 + rank)} if rank == root else None
    result = hvd.broadcast_object(obj, root_rank=root)
    assert result["rank"] == root and result["f"]() == root * 10 and len(result["big"]) == 100_000 + root
    assert rank != root or result is obj
    assert hvd.broadcast_object(rank, root, name="named") == root
    assert hvd.allgather_object([rank] * rank, name="listed") == [[r] * r for r in range(size)]


def test_two_objects_of_one_type_in_different_threads_of_control(rank: int) -> None:
    first = hvd.broadcast_object(["a"] if rank == 0 else 1.5)
    second = hvd.broadcast_object(["b"] if rank == 0 else None)
    assert (first, second) == (["a"], ["b"])


LAYOUTS = {
    "channels_last": lambda x: x.contiguous(memory_format=torch.channels_last),
    "transposed": lambda x: x.transpose(0, 1).contiguous().transpose(0, 1),
    "with gaps": lambda x: torch.cat([x, x], 3)[..., : x.shape[3]],
    "plain": torch.clone,
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", ["SGD", "AdamW"])
def test_optimizer_state_has_the_strides_of_root(layout: str, name: str, rank: int) -> None:
    parameter = nn.Parameter(torch.zeros(3, 4, 2, 2, dtype=torch.bfloat16))
    optimizer = getattr(torch.optim, name)([parameter], lr=0.1, **OPTIONS[name])
    key = "momentum_buffer" if name == "SGD" else "exp_avg"
    values = torch.arange(48.0).to(torch.bfloat16).reshape(3, 4, 2, 2)
    laid_out = LAYOUTS[layout](values)
    optimizer.state[parameter][key] = laid_out if rank == 1 else torch.zeros(3, 4, 2, 2, dtype=torch.bfloat16)
    hvd.broadcast_optimizer_state(optimizer, root_rank=1)
    got = optimizer.state[parameter][key]
    assert torch.equal(got, values) and got.stride() == laid_out.stride()


def test_expanded_optimizer_state_becomes_an_ordinary_tensor_on_others(rank: int) -> None:
    parameter = nn.Parameter(torch.zeros(3, 4))
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    optimizer.state[parameter]["momentum_buffer"] = torch.full((1, 4), float(rank)).expand(3, 4)
    hvd.broadcast_optimizer_state(optimizer, root_rank=1)
    got = optimizer.state[parameter]["momentum_buffer"]
    assert torch.equal(got, torch.ones(3, 4)) and (rank == 1 or got.is_contiguous())


def test_parameters_keep_their_own_strides(rank: int) -> None:
    own = torch.full((3, 4, 2, 2), float(rank))
    own = own.contiguous(memory_format=torch.channels_last) if rank == 0 else own
    strides = own.stride()
    hvd.broadcast_parameters([("w", own)], root_rank=1)
    assert torch.equal(own, torch.ones(3, 4, 2, 2)) and own.stride() == strides


def test_ranks_that_resume_go_on_alike_in_bfloat16_and_channels_last(rank: int) -> None:
    """Elementwise kernels of bfloat16 round differently if strides of state and parameter differ."""
    with seeded(0):
        layers = nn.Conv2d(3, 16, 3), nn.Tanh(), nn.Conv2d(16, 8, 3)
        model = nn.Sequential(*layers).to(torch.bfloat16).to(memory_format=torch.channels_last)
    sgd = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True)
    optimizer = hvd.DistributedOptimizer(sgd, model.named_parameters())

    def step(number: int) -> None:
        optimizer.zero_grad()
        generator = torch.Generator().manual_seed(10 * number + rank)
        x = torch.randn(4, 3, 10, 10, generator=generator).to(torch.bfloat16)
        model(x.contiguous(memory_format=torch.channels_last)).float().square().mean().backward()
        optimizer.step()

    for number in range(2):
        step(number)
    if rank:
        optimizer.state.clear()
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    for number in range(2, 22):
        step(number)
    assert_same_bits_everywhere(*model.parameters())
