"""DistributedOptimizer alone: refused input, inherited attributes, and its requests to the engine."""

import copy
import warnings
from typing import Any

import pytest
import torch
from mirrored_job import MirroredEngine, mirrored_job
from torch import nn

import horovod.torch as hvd


def make_model() -> nn.Sequential:
    return nn.Sequential(nn.Linear(40, 30), nn.LayerNorm(30), nn.Linear(30, 5))


def backward(model: nn.Module) -> None:
    model(torch.ones(2, 40)).pow(2).sum().backward()


def sgd(model: nn.Module, **options: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1, **options)


def test_num_groups_is_deprecated(engine: MirroredEngine) -> None:
    with pytest.warns(DeprecationWarning, match="groups"):
        hvd.DistributedOptimizer(sgd(make_model()), num_groups=2)


def test_class_state_and_hyper_parameters_are_taken_over(engine: MirroredEngine) -> None:
    class Mine(torch.optim.AdamW):
        def __init__(self, params: Any, needed: int) -> None:
            super().__init__(params, lr=0.25)
            self.needed = needed

    model = make_model()
    mine = Mine(model.parameters(), 7)
    backward(model)
    mine.step()
    state = copy.deepcopy(mine.state_dict())
    optimizer = hvd.DistributedOptimizer(mine)
    assert isinstance(optimizer, Mine) and type(optimizer).__name__ == "Mine" and optimizer.needed == 7
    assert type(optimizer).__module__ == "horovod.torch.optimizer"
    assert str(optimizer.state_dict()) == str(state)
    mine.param_groups[0]["lr"] = 0.5
    assert optimizer.param_groups[0]["lr"] == 0.5


def test_a_subclass_of_the_returned_class_works(engine: MirroredEngine) -> None:
    model = make_model()
    optimizer = hvd.DistributedOptimizer(sgd(model))

    class Derived(type(optimizer)):  # type: ignore[misc]
        def step(self, closure: Any = None) -> Any:
            return super().step(closure)

    optimizer.__class__ = Derived
    backward(model)
    optimizer.step()
    assert len(engine.requests) == 6


def test_step_hooks_run_once_and_the_steps_result_is_returned(engine: MirroredEngine) -> None:
    model = make_model()
    optimizer = hvd.DistributedOptimizer(sgd(model))
    calls: list[str] = []
    optimizer.register_step_pre_hook(lambda *_: calls.append("before"))
    optimizer.register_step_post_hook(lambda *_: calls.append("after"))
    optimizer.zero_grad()
    backward(model)
    assert optimizer.step() is None and calls == ["before", "after"]
    assert optimizer.step(lambda: 4.5) == 4.5


def test_gradients_are_asked_for_by_name_during_the_backward_pass(engine: MirroredEngine) -> None:
    model = make_model()
    optimizer = hvd.DistributedOptimizer(sgd(model), model.named_parameters(), gradient_predivide_factor=4.0)
    backward(model)
    assert sorted(engine.names()) == sorted(f"allreduce.{name}" for name, _ in model.named_parameters())
    assert engine.names().index("allreduce.2.weight") < engine.names().index("allreduce.0.weight")
    assert all(request.waited for request in engine.requests), "at the end of the backward pass"
    for request in engine.requests:
        assert (request.reduction.op, request.reduction.prescale, request.reduction.postscale) == (
            hvd.Average,
            0.25,
            4.0,
        )
        assert request.tensors[0].source == request.tensors[0].destination
    optimizer.step()
    assert len(engine.requests) == 6


def test_default_names(engine: MirroredEngine) -> None:
    model = make_model()
    groups = [{"params": [model[0].weight]}, {"params": [model[0].bias, model[2].bias], "lr": 0.2}]
    hvd.DistributedOptimizer(torch.optim.SGD(groups, lr=0.1)).synchronize()
    assert engine.names() == [f"allreduce.allreduce.noname.{place}" for place in ("0.0", "1.0", "1.1")]


def test_vectors_and_small_parameters_are_asked_for_without_codec(engine: MirroredEngine) -> None:
    model = make_model()
    hvd.DistributedOptimizer(
        sgd(model), model.named_parameters(), compression=hvd.Compression.bit8
    ).synchronize()
    codecs = {request.name: request.codec for request in engine.requests}
    assert codecs.pop("allreduce.0.weight") == "bit8/128"  # 1200 elements
    assert set(codecs.values()) == {None}
    smaller = hvd.Compression.bit8(block_size=32, min_elements=100)
    hvd.DistributedOptimizer(sgd(model), model.named_parameters(), compression=smaller).synchronize()
    codecs = {request.name: request.codec for request in engine.requests[6:]}
    assert codecs.pop("allreduce.0.weight") == codecs.pop("allreduce.2.weight") == "bit8/32"
    assert set(codecs.values()) == {None}


def test_a_number_of_groups_splits_parameters_evenly(engine: MirroredEngine) -> None:
    model = make_model()
    optimizer = hvd.DistributedOptimizer(sgd(model), model.named_parameters(), groups=4)
    del engine.requests[:]  # the order of rank 0
    backward(model)
    assert sorted(len(request.tensors) for request in engine.requests) == [1, 1, 2, 2]
    optimizer.step()


def test_backward_passes_per_step_delays_the_request(engine: MirroredEngine) -> None:
    model = make_model()
    optimizer = hvd.DistributedOptimizer(sgd(model), backward_passes_per_step=2)
    backward(model)
    assert not engine.requests
    backward(model)
    assert len(engine.requests) == 6
    optimizer.step()
    backward(model)
    optimizer.load_state_dict(optimizer.state_dict())
    backward(model)
    assert len(engine.requests) == 6, "loading a state starts the count anew"


def test_a_failed_reduction_leaves_the_optimizer_usable(engine: MirroredEngine) -> None:
    model = make_model()
    optimizer = hvd.DistributedOptimizer(sgd(model), model.named_parameters())
    engine.failures["allreduce.0.bias"] = hvd.HorovodInternalError("rank 1 passed another shape")
    with pytest.raises(hvd.HorovodInternalError, match="another shape"):
        backward(model)
    assert all(request.waited for request in engine.requests), "nothing writes to a gradient any more"
    engine.failures.clear()
    optimizer.zero_grad()
    backward(model)
    optimizer.step()


def test_one_warning_after_an_explicit_synchronize(engine: MirroredEngine) -> None:
    optimizer = hvd.DistributedOptimizer(sgd(make_model()))
    optimizer.synchronize()
    with pytest.warns(UserWarning, match=r"skip_synchronize\(\)") as caught:
        optimizer.step()
    assert len(caught) == 1
    optimizer.synchronize()
    with warnings.catch_warnings(), optimizer.skip_synchronize():
        warnings.simplefilter("error")
        optimizer.step()


def test_one_rank_needs_no_reduction(monkeypatch: pytest.MonkeyPatch) -> None:
    for elastic, requests in [("0", 0), ("1", 6)]:
        monkeypatch.setenv("HOROVOD_ELASTIC", elastic)
        with mirrored_job(1) as engine:
            model = make_model()
            optimizer = hvd.DistributedOptimizer(sgd(model))
            backward(model)
            optimizer.step()
            optimizer.zero_grad()
            assert len(engine.requests) == requests
