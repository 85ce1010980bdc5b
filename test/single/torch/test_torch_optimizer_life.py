"""DistributedOptimizer alone, from wrapping to deletion: scripts inspect, change and copy it in between."""

import copy
import gc
import io
import itertools
import pickle
import warnings
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from mirrored_job import MirroredEngine, mirrored_job
from refusals import refused
from torch import nn

import horovod.torch as hvd
from horovod.torch import errors, functions, gradients, parameters, reduction


def make_model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))


def backward(model: nn.Module) -> torch.Tensor:
    loss = model(torch.ones(2, 4)).pow(2).sum()
    loss.backward()
    return loss


def wrapped(model: nn.Module, **options: Any) -> Any:
    sgd = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.5)
    return hvd.DistributedOptimizer(sgd, model.named_parameters(), **options)


def set_of(process_set_id: int, ranks: list[int], included: bool) -> Any:
    return SimpleNamespace(
        process_set_id=process_set_id, ranks=ranks, included=lambda: included, size=lambda: len(ranks),
        rank=lambda: 0 if included else None,
    )  # fmt: skip


def test_what_scripts_look_at(engine: MirroredEngine) -> None:
    model = make_model()
    model[0].bias.requires_grad_(False)
    groups = [[model[0].weight, model[1].weight]]
    optimizer = wrapped(model, backward_passes_per_step=2, groups=groups, op=hvd.Sum, sparse_as_dense=True)
    parameters = dict(model.named_parameters())
    trainable = {p for p in parameters.values() if p.requires_grad}
    assert optimizer._parameter_names == {p: name for name, p in parameters.items()}
    assert optimizer._requires_update == trainable
    assert optimizer._allreduce_delay == dict.fromkeys(parameters.values(), 2)
    assert optimizer._handles == {} and optimizer._groups == groups
    assert (optimizer.backward_passes_per_step, optimizer.op) == (2, hvd.Sum)
    assert optimizer.gradient_predivide_factor == 1.0 and optimizer.sparse_as_dense
    assert optimizer.process_set is hvd.global_process_set
    backward(model)
    assert optimizer._allreduce_delay[model[0].weight] == 1 and not engine.requests
    assert optimizer._handles == dict.fromkeys(trainable, (None, None))
    with refused(errors.zeroed_too_early):
        optimizer.zero_grad()
    backward(model)
    assert set(optimizer._handles) == trainable and len(engine.requests) == 2
    optimizer.step()
    assert optimizer._handles == {} and set(optimizer._allreduce_delay.values()) == {2}


def test_a_gradient_that_a_hook_has_taken_away_is_named(engine: MirroredEngine) -> None:
    model = make_model()
    model[0].weight.register_post_accumulate_grad_hook(lambda parameter: setattr(parameter, "grad", None))
    optimizer = wrapped(model)
    with refused(errors.no_gradient, tensor="0.weight", ranks=(0,)):
        backward(model)
    del optimizer  # its hooks end with it


def test_a_parameter_taken_out_of_requires_update_is_not_waited_for(engine: MirroredEngine) -> None:
    model = make_model()
    optimizer = wrapped(model)
    optimizer._requires_update -= set(model[0].parameters())
    model[1](torch.ones(1, 3)).sum().backward()
    optimizer.step()
    assert sorted(engine.names()) == ["allreduce.1.bias", "allreduce.1.weight"]


def test_ranks_that_freeze_differently_cannot_number_groups(
    engine: MirroredEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parameters, "broadcast_object", lambda names, *_: [*names[1:], "other"])
    with refused(errors.groups_differ, value=2, ranks=(0,), names=["0.weight", "other"]):
        wrapped(make_model(), groups=2)


@pytest.mark.parametrize("passes", [1, 2])
def test_gradients_of_a_closure(passes: int, engine: MirroredEngine) -> None:
    """Also after fewer passes than configured: the step uses their gradients."""
    model = make_model()
    optimizer = wrapped(model, backward_passes_per_step=passes)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        return backward(model)

    assert torch.is_tensor(optimizer.step(closure))
    assert len(engine.requests) == 8 and all(request.waited for request in engine.requests)
    assert optimizer.step(lambda: 4.5) == 4.5
    assert len(engine.requests) == 12, "that closure computed no gradients"


def test_a_closure_that_synchronizes_by_itself(engine: MirroredEngine) -> None:
    model = make_model()
    optimizer = wrapped(model)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = backward(model)
        optimizer.synchronize()
        return loss

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            optimizer.step(closure)


def test_the_loss_by_which_lbfgs_decides_is_reduced(engine: MirroredEngine) -> None:
    model = make_model()
    lbfgs = torch.optim.LBFGS(model.parameters(), max_iter=1)
    optimizer = hvd.DistributedOptimizer(lbfgs, model.named_parameters(), op=hvd.Sum)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        return backward(model)

    own = closure()
    optimizer.synchronize()
    with optimizer.skip_synchronize():
        assert torch.equal(optimizer.step(closure), 2 * own)
    assert "allreduce.DistributedOptimizer.loss" in engine.names()


@pytest.mark.parametrize("made_first", [True, False])
def test_schedulers_do_not_warn(made_first: bool, engine: MirroredEngine) -> None:
    model = make_model()
    plain = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(plain, 1, 0.1) if made_first else None
    optimizer = hvd.DistributedOptimizer(plain)
    scheduler = scheduler or torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        backward(model)
        optimizer.step()
        scheduler.step()
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.01)
    assert len(engine.requests) == 4 and all(request.waited for request in engine.requests)


def test_state_goes_to_and_from_a_plain_optimizer(engine: MirroredEngine) -> None:
    model = make_model()
    optimizer = wrapped(model)
    backward(model)
    optimizer.step()
    saved = io.BytesIO()
    torch.save(optimizer.state_dict(), saved)
    saved.seek(0)
    plain = torch.optim.SGD(model.parameters(), lr=0.7)
    plain.load_state_dict(torch.load(saved))
    assert str(plain.state_dict()) == str(optimizer.state_dict())
    again = hvd.DistributedOptimizer(plain, model.named_parameters())
    assert str(again.state_dict()) == str(optimizer.state_dict())
    other = wrapped(make_model())
    other.load_state_dict(optimizer.state_dict())
    assert str(other.state_dict()) == str(optimizer.state_dict())


@pytest.mark.parametrize("groups", [None, 2])
def test_a_copy_is_an_optimizer_of_the_copied_model(groups: int | None, engine: MirroredEngine) -> None:
    model = make_model()
    optimizer = wrapped(model, groups=groups, op=hvd.Sum, backward_passes_per_step=2)
    optimizer.set_backward_passes_per_step(1)
    torch.optim.lr_scheduler.StepLR(optimizer, 1)
    backward(model)
    optimizer.step()
    twin, copied = copy.deepcopy((model, optimizer))
    assert type(copied) is type(optimizer) and copied.param_groups[0]["params"] == list(twin.parameters())
    assert str(copied.state_dict()) == str(optimizer.state_dict())
    before = model[0].weight.detach().clone()
    del engine.requests[:]
    optimizer.zero_grad()
    copied.zero_grad()
    backward(twin)
    copied.step()
    assert len(engine.of_gradients()) == (2 if groups else 4)
    assert {request.reduction.op for request in engine.of_gradients()} == {hvd.Sum}
    assert torch.equal(model[0].weight, before) and not torch.equal(twin[0].weight, before)


def test_models_of_an_optimizer_are_copied_and_saved(engine: MirroredEngine) -> None:
    model = make_model()
    optimizer = wrapped(model)
    twin = copy.deepcopy(model)
    restored = pickle.loads(pickle.dumps(model))
    for other in (twin, restored):
        backward(other)
    assert not engine.requests and not optimizer._handles


def test_a_rank_outside_of_the_process_set_steps_alone() -> None:
    with mirrored_job(4) as engine:
        model, reference = make_model(), make_model()
        optimizer = wrapped(model, process_set=set_of(1, [2, 3], included=False), groups=2)
        alone = torch.optim.SGD(reference.parameters(), lr=0.1, momentum=0.9, weight_decay=0.5)
        for _ in range(2):
            optimizer.zero_grad()
            backward(model)
            backward(model)  # no operation is in flight
            optimizer.step()
            alone.zero_grad()
            backward(reference)
            backward(reference)
            alone.step()
        assert torch.equal(model[0].weight, reference[0].weight)
        assert not engine.requests and not optimizer._requires_update
        with pytest.warns(UserWarning, match="skip_synchronize"):
            optimizer.synchronize()
            optimizer.step()


def test_the_process_set_is_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Any, ...]] = []
    numbers = itertools.count()

    def start_allreduce(_tensors: Any, name: str, *rest: Any, **_how: Any) -> int:
        asked.append((name, rest[2]))
        return 1_000_000 + next(numbers)

    def start_sparse_allreduce(tensor: Any, name: str, op: int, process_set: Any) -> Any:
        asked.append((name, process_set))
        return [], lambda: tensor

    def broadcast_object(obj: Any, root: int, name: str, process_set: Any) -> Any:
        asked.append((root, process_set))
        return obj

    monkeypatch.setattr(reduction, "start_allreduce", start_allreduce)
    monkeypatch.setattr(gradients, "start_sparse_allreduce", start_sparse_allreduce)
    monkeypatch.setattr(parameters, "broadcast_object", broadcast_object)
    with mirrored_job(4, rank=3):
        some = set_of(1, [2, 3], included=True)
        model = nn.Sequential(nn.Embedding(3, 4, sparse=True), nn.Linear(4, 1))
        optimizer = wrapped(model, process_set=some, groups=1)
        model(torch.tensor([1])).sum().backward()
        optimizer.synchronize()
    assert asked == [(2, some), ("0.weight", some), ("group.1.weight", some)]


def test_objects_travel_within_their_process_set(
    monkeypatch: pytest.MonkeyPatch, engine: MirroredEngine
) -> None:
    """Names are numbered per set, as ranks outside of it do not count."""
    asked: list[Any] = []
    monkeypatch.setattr(functions, "broadcast_", lambda tensor, *rest: asked.append(rest) or tensor)
    some = set_of(1, [0, 1], included=True)
    for _ in range(2):
        assert hvd.broadcast_object({"a": 1}, 0, process_set=some) == {"a": 1}
    assert asked == [(0, f"object.{i}.{part}", some) for i in range(2) for part in ("sz", "t")]
    assert hvd.broadcast_object(1) == 1 and asked[4][1] == "object.0.sz"


def test_nothing_grows_with_the_number_of_steps(engine: MirroredEngine) -> None:
    model = make_model()
    optimizer = wrapped(model, groups=[list(model[0].parameters())], compression=hvd.Compression.fp16)

    def train(steps: int) -> int:
        for _ in range(steps):
            optimizer.zero_grad()
            backward(model)
            optimizer.step()
            del engine.requests[:]
        gc.collect()
        return len(gc.get_objects())

    before = train(3)
    assert train(50) <= before + 5  # work of pytest and the interpreter


def test_an_optimizer_is_freed_without_the_garbage_collector(engine: MirroredEngine) -> None:
    model = make_model()
    gc.disable()
    try:
        optimizer = wrapped(model)
        torch.optim.lr_scheduler.StepLR(optimizer, 1)
        del optimizer
        backward(model)
    finally:
        gc.enable()
    assert not engine.requests


def test_a_newer_optimizer_takes_over(engine: MirroredEngine) -> None:
    """The scheduler keeps the older optimizer alive."""
    model = make_model()
    older = wrapped(model)
    scheduler = torch.optim.lr_scheduler.StepLR(older, 1)
    newer = wrapped(model)
    backward(model)
    newer.step()
    assert len(engine.requests) == 4 and scheduler.optimizer is older
    with refused(errors.taken_over) as caught:
        older.step()
    assert caught.value.facts["names"][:2] == ["0.weight", "0.bias"]
