"""DistributedOptimizer with op=Adasum alone: its requests to the engine, and the parameters afterwards.

In the mirrored job every rank has the same data, and the Adasum of equal tensors is the tensor: a step equals
the step of the wrapped optimizer alone.
"""

import copy
from typing import Any

import pytest
import torch
from mirrored_job import DTYPES, MirroredEngine, mirrored_job
from refusals import refused
from torch import nn

import horovod.torch as hvd
from horovod.torch import errors

OPTIMIZERS = {
    "SGD": {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.1},
    "Adam": {"lr": 0.1},
    "AdamW": {"lr": 0.1, "weight_decay": 0.5},
    "Rprop": {"lr": 0.1},
    "Adafactor": {"lr": 0.1},
}


def make_model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(40, 30), nn.Tanh(), nn.Linear(30, 5))


def backward(model: nn.Module, times: float = 1.0) -> torch.Tensor:
    loss = model(torch.ones(2, 40)).pow(2).sum() * times
    loss.backward()
    return loss


def make(model: nn.Module, name: str = "SGD") -> torch.optim.Optimizer:
    groups = [{"params": list(model[0].parameters())}, {"params": list(model[2].parameters()), "lr": 0.2}]
    return getattr(torch.optim, name)(groups, **OPTIMIZERS[name])


def wrapped(model: nn.Module, name: str = "SGD", **options: Any) -> Any:
    return hvd.DistributedOptimizer(make(model, name), model.named_parameters(), op=hvd.Adasum, **options)


def assert_same(model: nn.Module, other: nn.Module) -> None:
    for (name, ours), theirs in zip(model.named_parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, msg=name)


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("groups", [None, 2])
def test_steps_are_those_of_the_wrapped_optimizer(
    name: str, groups: int | None, engine: MirroredEngine
) -> None:
    model, reference = make_model(), make_model()
    optimizer, alone = wrapped(model, name, groups=groups), make(reference, name)
    assert type(optimizer).__name__ == name and isinstance(optimizer, getattr(torch.optim, name))
    for _ in range(3):
        optimizer.zero_grad()
        backward(model)
        optimizer.step()
        alone.zero_grad()
        backward(reference)
        alone.step()
    assert_same(model, reference)
    ours, theirs = optimizer.state_dict(), alone.state_dict()
    assert ours["param_groups"] == theirs["param_groups"] and ours["state"].keys() == theirs["state"].keys()
    for number, state in ours["state"].items():
        torch.testing.assert_close(state, theirs["state"][number])


def test_deltas_travel_during_the_backward_pass_and_are_added_in_step(engine: MirroredEngine) -> None:
    model = make_model()
    optimizer = wrapped(model)
    before = copy.deepcopy(model)
    backward(model)
    assert sorted(engine.names()) == sorted(f"allreduce.{name}" for name, _ in model.named_parameters())
    assert {request.reduction.op for request in engine.requests} == {hvd.Adasum}
    assert not any(request.waited for request in engine.requests)
    assert_same(model, before)
    optimizer.step()
    assert all(request.waited for request in engine.requests) and not optimizer._handles
    assert not torch.equal(model[0].weight, before[0].weight)


def test_synchronize_does_nothing_and_cannot_be_skipped(engine: MirroredEngine) -> None:
    model = make_model()
    optimizer = wrapped(model)
    backward(model)
    optimizer.synchronize()
    assert not any(request.waited for request in engine.requests)
    with refused(errors.adasum_synchronizes), optimizer.skip_synchronize():
        pass
    with refused(errors.zeroed_too_early):
        optimizer.zero_grad()
    optimizer.step()
    optimizer.zero_grad()


def test_backward_passes_per_step(engine: MirroredEngine) -> None:
    model, reference = make_model(), make_model()
    optimizer, alone = wrapped(model, backward_passes_per_step=2), make(reference)
    backward(model)
    assert not engine.requests
    backward(model)
    assert len(engine.requests) == 4
    optimizer.step()
    backward(reference, times=2.0)
    alone.step()
    assert_same(model, reference)


def test_what_comes_after_the_local_steps_is_an_error(engine: MirroredEngine) -> None:
    model = make_model()
    optimizer = wrapped(model)
    backward(model)
    with refused(errors.too_many_passes, tensor="2.bias", passes=1):
        backward(model)
    with refused(errors.adasum_gradient_changed, ranks=(0,)) as caught:
        optimizer.step()
    assert "2.bias" in caught.value.facts["names"]
    optimizer.zero_grad()
    backward(model)
    nn.utils.clip_grad_norm_(model.parameters(), 1e-3)
    with refused(errors.adasum_gradient_changed):
        optimizer.step()


def test_deltas_are_compressed(engine: MirroredEngine) -> None:
    model, reference = make_model(), make_model()
    optimizer = wrapped(model, compression=hvd.Compression.fp16)
    backward(model)
    optimizer.step()
    sizes = {DTYPES[request.tensors[0].dtype].itemsize for request in engine.requests}
    assert sizes == {2}
    alone = make(reference)
    backward(reference)
    start = make_model()
    alone.step()
    three = zip(model.parameters(), reference.parameters(), start.parameters(), strict=True)
    for ours, theirs, begin in three:
        torch.testing.assert_close(ours, begin + (theirs - begin).half().float())


def test_missing_gradients_and_frozen_parameters_take_part_and_stay(engine: MirroredEngine) -> None:
    model = make_model()
    optimizer = wrapped(model)
    before = copy.deepcopy(model)
    model[0].requires_grad_(False)
    model[2](torch.ones(1, 30)).sum().backward()
    optimizer.step()
    assert len(engine.requests) == 4
    assert torch.equal(model[0].weight, before[0].weight) and model[0].weight.grad is None
    assert not torch.equal(model[2].weight, before[2].weight)
    model[0].requires_grad_(True)
    optimizer.zero_grad()
    backward(model)
    optimizer.step()
    assert not torch.equal(model[0].weight, before[0].weight)


def test_a_closure_runs_first_and_its_value_is_returned(engine: MirroredEngine) -> None:
    model, reference = make_model(), make_model()
    optimizer, alone = wrapped(model), make(reference)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        return backward(model)

    assert torch.equal(optimizer.step(closure), alone.step(lambda: backward(reference)))
    assert_same(model, reference)
    assert len(engine.requests) == 4


def test_step_hooks_run_once_for_all_parameters(engine: MirroredEngine) -> None:
    model = make_model()
    optimizer = wrapped(model)
    sizes: list[int] = []
    optimizer.register_step_pre_hook(lambda opt, *_: sizes.append(len(opt.param_groups)))
    optimizer.register_step_post_hook(lambda opt, *_: sizes.append(len(opt.param_groups)))
    optimizer.load_state_dict(optimizer.state_dict())
    backward(model)
    optimizer.step()
    assert sizes == [2, 2]


def test_schedulers_reach_the_local_steps(engine: MirroredEngine) -> None:
    model = make_model()
    optimizer = wrapped(model)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 1.0 if epoch == 0 else 0.0)
    backward(model)
    optimizer.step()
    scheduler.step()
    before = copy.deepcopy(model)
    optimizer.zero_grad()
    backward(model)
    optimizer.step()
    assert_same(model, before)


def test_a_group_added_later(engine: MirroredEngine) -> None:
    model, reference, added = make_model(), make_model(), nn.Linear(3, 3)
    added_reference = copy.deepcopy(added)
    optimizer = wrapped(model)
    optimizer.add_param_group({"params": list(added.parameters())})
    alone = make(reference)
    alone.add_param_group({"params": list(added_reference.parameters())})
    for _ in range(2):
        del engine.requests[:]
        optimizer.zero_grad()
        alone.zero_grad()
        for net, extra in ((model, added), (reference, added_reference)):
            backward(net)
            extra(torch.ones(1, 3)).sum().backward()
        optimizer.step()
        alone.step()
        assert len(engine.requests) == 6
    assert_same(model, reference)
    assert_same(added, added_reference)


def test_sparse_gradients_make_dense_deltas(engine: MirroredEngine) -> None:
    embedding = nn.Embedding(4, 3, sparse=True)
    before = embedding.weight.detach().clone()
    sgd = torch.optim.SGD(embedding.parameters(), lr=0.5)
    optimizer = hvd.DistributedOptimizer(sgd, op=hvd.Adasum)
    embedding(torch.tensor([1])).sum().backward()
    optimizer.step()
    torch.testing.assert_close((before - embedding.weight)[1], torch.full((3,), 0.5))
    assert engine.requests[0].tensors[0].shape == [4, 3]
    adam = torch.optim.Adam(embedding.parameters())  # does not support sparse gradients
    optimizer = hvd.DistributedOptimizer(adam, op=hvd.Adasum, sparse_as_dense=True)
    embedding(torch.tensor([1])).sum().backward()
    optimizer.step()
    assert not embedding.weight.grad.is_sparse


def test_a_failure_leaves_parameters_as_they_were(engine: MirroredEngine) -> None:
    model = make_model()
    optimizer, before = wrapped(model), copy.deepcopy(model)
    engine.failures["allreduce.0.bias"] = hvd.HorovodInternalError("rank 1 is gone")
    backward(model)
    with pytest.raises(hvd.HorovodInternalError, match="gone"):
        optimizer.step()
    assert_same(model, before)
    assert not optimizer._handles


def test_where_it_is_not_served() -> None:
    with mirrored_job(3), refused(errors.adasum_size, size=3):
        wrapped(make_model())
    with mirrored_job(2), refused(errors.adasum_lbfgs):
        hvd.DistributedOptimizer(torch.optim.LBFGS(make_model().parameters()), op=hvd.Adasum)


def test_one_rank_has_the_ordinary_optimizer() -> None:
    with mirrored_job(1) as engine:
        model = make_model()
        optimizer = wrapped(model)
        backward(model)
        optimizer.synchronize()
        with optimizer.skip_synchronize():
            optimizer.step()
        assert not engine.requests and optimizer.op == hvd.Adasum


def test_a_copy_is_an_optimizer_of_the_copied_model(engine: MirroredEngine) -> None:
    model = make_model()
    twin, optimizer = copy.deepcopy((model, wrapped(model, backward_passes_per_step=2)))
    backward(twin)
    backward(twin)
    optimizer.step()
    assert len(engine.of_gradients()) == 4 and not torch.equal(twin[0].weight, model[0].weight)
