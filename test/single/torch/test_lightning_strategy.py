"""HorovodStrategy and CompressGradients, with ranks as threads and stand-ins for Lightning's base classes."""

# private: _made: the optimizers before they were wrapped

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from lightning_stand_in import TrainerFn, horovod_lightning, trainer
from refusals import refused
from thread_ranks import run_ranks

import horovod.torch as hvd
from horovod.common import jobs
from horovod.torch import errors


@pytest.fixture(scope="module")
def lightning() -> Iterator[Any]:
    with horovod_lightning() as module:
        yield module


class Model(torch.nn.Module):
    """One weight; each rank's gradient is its rank + 1."""

    automatic_optimization = True

    def __init__(self, *optimizers: Callable[[Any], torch.optim.Optimizer]) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.full((2,), 10.0 * hvd.rank()))
        self.trainer = trainer()
        self._optimizers = optimizers or (lambda weights: torch.optim.SGD(weights, lr=1.0),)

    def configure_optimizers(self) -> list[torch.optim.Optimizer]:
        return [each([self.weight]) for each in self._optimizers]

    def loss(self) -> torch.Tensor:
        loss = (hvd.rank() + 1.0) * self.weight.sum()
        loss.backward()
        return loss


def set_up(lightning: Any, model: Any, accumulate: int = 1, **options: Any) -> Any:
    strategy = lightning.HorovodStrategy("none", **options)
    strategy.parallel_devices = [torch.device("cpu")]
    strategy.model = model
    model.trainer = trainer(accumulate)
    strategy.setup(model.trainer)
    return strategy


# ---- ranks and devices ----


def test_ranks_are_where_horovod_says(lightning: Any) -> None:
    def places() -> tuple[int, ...]:
        strategy = lightning.HorovodStrategy()
        where = strategy.cluster_environment
        where.set_world_size(99)
        where.set_global_rank(99)  # the launcher has set both
        assert lightning.rank_zero_only.rank == hvd.rank(), "or every rank's loggers write"
        assert strategy.distributed_sampler_kwargs == {"num_replicas": 3, "rank": hvd.rank()}
        assert strategy.is_distributed
        return where.world_size(), where.global_rank(), where.local_rank(), where.node_rank()

    assert run_ranks(3, places, hosts=[0, 0, 1]) == [(3, 0, 0, 0), (3, 1, 1, 0), (3, 2, 0, 1)]


def test_it_starts_no_processes_and_has_no_address(lightning: Any) -> None:
    where = lightning.HorovodEnvironment()
    assert where.creates_processes_externally and not where.detect()
    for asked in ("address", "port"):
        with refused(errors.no_meeting, what=asked):
            getattr(where, f"main_{asked}")


def test_who_has_not_called_init_need_not(lightning: Any) -> None:
    with jobs.Job(None).entered():
        strategy = lightning.HorovodStrategy()
        assert hvd.is_initialized() and not strategy.is_distributed
        lightning.HorovodStrategy()  # a second call is allowed
        hvd.shutdown()


def test_options_that_are_set_here(lightning: Any) -> None:
    with refused(errors.named_by_strategy):
        lightning.HorovodStrategy(named_parameters=[])
    with refused(errors.adasum_strategy):
        lightning.HorovodStrategy(op=hvd.Adasum)


def test_each_rank_of_a_host_has_a_device(lightning: Any) -> None:
    def devices() -> list[Any]:
        strategy = lightning.HorovodStrategy()
        found = []
        for count in (1, 2):
            strategy.parallel_devices = [torch.device("meta", number) for number in range(count)]
            found.append(strategy.root_device.index)
        return found

    assert run_ranks(3, devices, hosts=[0, 0, 1]) == [[0, 0], [0, 1], [0, 0]]


def test_ranks_share_processors_and_no_gpus(lightning: Any) -> None:
    def check() -> None:
        strategy = lightning.HorovodStrategy()
        for devices in (None, [], [torch.device("cpu")], [torch.device("cuda", n) for n in range(2)]):
            strategy.parallel_devices, strategy.has_environment = devices, False
            strategy.setup_environment()
            assert strategy.has_environment
        strategy.parallel_devices = [torch.device("cuda", 0)]
        with refused(errors.shared_devices, local=2, devices=1):
            strategy.setup_environment()

    run_ranks(2, check)


# ---- training ----


def test_all_begin_with_the_model_of_rank_0(lightning: Any) -> None:
    class WithMore(Model):
        def get_extra_state(self) -> str:
            return "no tensor"

        def set_extra_state(self, state: Any) -> None:
            pass

    def weights() -> list[float]:
        return list(set_up(lightning, WithMore()).model.weight.detach())

    assert run_ranks(2, weights) == [[0.0, 0.0]] * 2


@pytest.mark.parametrize("fn", TrainerFn)
@pytest.mark.parametrize("is_asked", [True, False])
def test_batch_norm_is_synchronised_where_asked_and_in_training(
    lightning: Any, fn: TrainerFn, is_asked: bool
) -> None:
    with jobs.Job(None).entered():
        strategy = lightning.HorovodStrategy()
        strategy.parallel_devices = [torch.device("cpu")]
        strategy._layer_sync = object() if is_asked else None
        strategy.model = torch.nn.Sequential(torch.nn.BatchNorm1d(3))
        strategy.model.configure_optimizers = lambda: []
        strategy.setup_optimizers = lambda trainer: None
        strategy.setup(trainer(fn=fn))
        is_converted = isinstance(strategy.model[0], hvd.SyncBatchNorm)
        assert is_converted == (is_asked and fn == TrainerFn.FITTING)
        hvd.shutdown()


@pytest.mark.parametrize("accumulated", [1, 2])
def test_steps_are_those_of_the_mean_gradient_which_is_clipped_later(
    lightning: Any, accumulated: int
) -> None:
    """Lightning's code between the backward pass and the step sees reduced gradients, even if an epoch ends
    before the configured number of batches is accumulated.
    """

    def trained() -> tuple[float, float, float]:
        strategy = set_up(lightning, Model(), accumulated)
        model, (optimizer,) = strategy.model, strategy.optimizers
        strategy.on_train_start()
        seen = []

        def clip() -> None:
            seen.append(model.weight.grad[0].item())
            model.weight.grad.fill_(0.5)

        strategy.after_closure = clip
        loss = strategy.optimizer_step(optimizer, model.loss, model)
        return seen[0], model.weight[0].item(), loss.item()

    assert run_ranks(2, trained) == [(1.5, -0.5, 0.0)] * 2


def test_an_optimizer_that_decides_by_the_loss_has_everybodys(lightning: Any) -> None:
    def trained() -> float:
        quasi_newton = lambda weights: torch.optim.LBFGS(weights, lr=1.0, max_iter=1)  # noqa: E731
        strategy = set_up(lightning, Model(quasi_newton))
        model, (optimizer,) = strategy.model, strategy.optimizers
        strategy.on_train_start()  # does not change its state

        def closure() -> torch.Tensor:
            optimizer.zero_grad()
            return model.loss()

        strategy.optimizer_step(optimizer, closure)
        return model.weight[0].item()

    first, second = run_ranks(2, trained)
    assert first == second < 0


def test_optimizers_of_what_is_not_in_the_model_stay_as_they_are(lightning: Any) -> None:
    elsewhere = lambda _: torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=1.0)  # noqa: E731

    def check() -> None:
        strategy = set_up(lightning, Model(elsewhere))
        (optimizer,) = strategy.optimizers
        assert type(optimizer) is torch.optim.SGD
        (parameter,) = optimizer.param_groups[0]["params"]

        def closure() -> str:
            parameter.grad = torch.ones(1)
            return "loss"

        strategy.on_train_start()
        strategy.on_train_batch_start(None, 0)
        assert strategy.optimizer_step(optimizer, closure) == "loss"
        assert parameter.item() == 0.0

    run_ranks(1, check)


def test_as_many_passes_as_the_trainer_says_also_when_it_changes_its_mind(lightning: Any) -> None:
    def check() -> None:
        strategy = set_up(lightning, Model(), accumulate=3)
        (optimizer,) = strategy.optimizers
        assert optimizer.backward_passes_per_step == 3
        strategy.on_train_start()
        strategy.on_train_batch_start(None, 0)
        assert optimizer.backward_passes_per_step == 3
        strategy.model.trainer.accumulate_grad_batches = 2
        strategy.on_train_batch_start(None, 1)
        assert optimizer.backward_passes_per_step == 2
        strategy.model.trainer.accumulate_grad_batches = 4
        strategy.on_train_batch_start(None, 2)
        assert optimizer.backward_passes_per_step == 4

    run_ranks(1, check)


def test_who_steps_by_hand_says_how_many_passes(lightning: Any) -> None:
    def check() -> None:
        with refused(errors.automatic_passes):
            set_up(lightning, Model(), backward_passes_per_step=2)
        model = Model()
        model.automatic_optimization = False
        strategy = set_up(lightning, model, accumulate=5, backward_passes_per_step=2)
        (optimizer,) = strategy.optimizers
        strategy.on_train_batch_start(None, 0)
        assert optimizer.backward_passes_per_step == 2

    run_ranks(1, check)


def test_a_checkpoint_of_rank_0_is_everybodys_and_schedulers_reach_the_optimizer(lightning: Any) -> None:
    def check() -> tuple[float, float]:
        strategy = set_up(lightning, Model(lambda weights: torch.optim.SGD(weights, lr=1.0, momentum=0.5)))
        (optimizer,), (made,) = strategy.optimizers, strategy._made
        if hvd.rank() == 0:
            buffers = {0: {"momentum_buffer": torch.full((2,), 4.0)}}
            groups = [{**optimizer.state_dict()["param_groups"][0], "lr": 0.25}]
            optimizer.load_state_dict({"state": buffers, "param_groups": groups})
        strategy.model.weight.grad = torch.ones(2)
        strategy.on_train_start()
        assert optimizer.param_groups[0]["lr"] == 0.25
        assert strategy.model.weight.grad is None, "what was left of before is in no step"
        torch.optim.lr_scheduler.StepLR(made, 1, 0.5)
        made.param_groups[0]["lr"] = 0.125
        (state,) = optimizer.state.values()
        return optimizer.param_groups[0]["lr"], state["momentum_buffer"][0].item()

    assert run_ranks(2, check) == [(0.125, 4.0)] * 2


def test_error_feedback_of_all_ranks_is_in_the_checkpoint_that_rank_0_writes(lightning: Any) -> None:
    plain = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.5)

    def check() -> int:
        strategy = set_up(lightning, Model())
        (optimizer,) = strategy.optimizers
        asked: list[int] = []
        optimizer.consolidate_residuals = lambda to: asked.append(to)
        for one in (optimizer, SimpleNamespace(optimizer=optimizer)):  # as Lightning hands them to scripts
            assert strategy.optimizer_state(one)["param_groups"][0]["lr"] == 1.0
        assert strategy.optimizer_state(plain)["param_groups"][0]["lr"] == 0.5
        assert asked == [0, 0]
        return len(asked)

    run_ranks(1, check)


# ---- collectives ----


def test_what_is_reduced(lightning: Any) -> None:
    def reduced() -> list[Any]:
        strategy = lightning.HorovodStrategy()
        mine = torch.tensor([1 + 2 * hvd.rank()])
        found = [
            strategy.reduce(mine, reduce_op=op).item()
            for op in ("mean", "avg", None, "sum", torch.distributed.ReduceOp.MAX, "ReduceOp.Min", "product")
        ]
        assert strategy.reduce(mine.double()).dtype == torch.float64, "which needs no other"
        assert strategy.reduce("no tensor") == "no tensor"
        assert strategy.reduce(mine, group=torch.distributed.group.WORLD).item() == 2.0
        return found

    assert run_ranks(2, reduced) == [[2.0, 2.0, 2.0, 4, 3, 1, 3]] * 2


def test_what_is_gathered_and_broadcast(lightning: Any) -> None:
    def gathered() -> tuple[Any, ...]:
        strategy = lightning.HorovodStrategy()
        strategy.barrier()
        mine = torch.tensor([1.0 + hvd.rank()], requires_grad=True)
        assert strategy.all_gather(torch.ones(4, 3)).shape == (2, 4, 3)
        together = strategy.all_gather(mine, sync_grads=True)
        assert together.shape == (2, 1)
        (together * torch.tensor([[1.0], [3.0]])).sum().backward()
        assert mine.grad is not None
        with torch.no_grad():
            assert not strategy.all_gather(mine, sync_grads=True).requires_grad
        assert not strategy.all_gather(mine).requires_grad
        said = [strategy.broadcast({"rank": hvd.rank()}, *source)["rank"] for source in ((), (1,))]
        return together.flatten().tolist(), mine.grad.item(), said

    both = [1.0, 2.0]
    assert run_ranks(2, gathered) == [(both, 2.0, [0, 1]), (both, 6.0, [0, 1])]


def test_what_is_no_reduction_and_no_group_of_all(lightning: Any) -> None:
    def check() -> None:
        strategy = lightning.HorovodStrategy()
        with refused(errors.no_strategy_reduction, value="median"):
            strategy.reduce(torch.ones(1), reduce_op="median")
        for call in (strategy.reduce, strategy.all_gather):
            with refused(errors.other_group, value="'half'"):
                call(torch.ones(1), group="half")

    run_ranks(1, check)


# ---- for Lightning's own DDP ----


class State:
    def __init__(self, model: Any, options: Any) -> None:
        self.made_of = (model, options)
        self.said: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        def call(*values: Any, **named: Any) -> dict[str, int]:
            self.said.append((name, *values, *named.items()))
            return {"residual": 7}

        return call


@pytest.fixture
def compressed(lightning: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    def compress(model: Any, compression: Any, **options: Any) -> State:
        return State(model, {"compression": compression, **options})

    monkeypatch.setattr(lightning.ddp, "compress", compress)
    return lightning.CompressGradients("bit8", compression_force=True)


def test_the_model_that_is_fitted_is_compressed_and_let_go_of_with_the_next(compressed: Any) -> None:
    assert compressed.state is None
    compressed.on_fit_start(SimpleNamespace(model="first"), None)
    first = compressed.state
    assert first.made_of == ("first", {"compression": "bit8", "compression_force": True})
    assert first.said == [], "neither closed nor given a state"
    compressed.on_fit_start(SimpleNamespace(model="second"), None)
    assert compressed.state.made_of[0] == "second" and first.said == [("close",)]


def test_what_it_keeps_is_in_checkpoints_of_what_is_fitted(compressed: Any) -> None:
    checkpoint: dict[str, Any] = {}
    compressed.on_save_checkpoint(None, None, checkpoint)
    assert checkpoint == {}, "nothing has been fitted"
    compressed.on_fit_start(SimpleNamespace(model="first"), None)
    compressed.on_save_checkpoint(None, None, checkpoint)
    assert checkpoint == {"horovod": {"residual": 7}}
    assert compressed.state.said == [("consolidate_residuals", ("to", 0)), ("state_dict",)]


def test_a_checkpoint_counts_for_the_fit_that_loads_it(compressed: Any) -> None:
    compressed.on_load_checkpoint(None, None, {})
    compressed.on_fit_start(SimpleNamespace(model="of another's checkpoint"), None)
    assert compressed.state.said == []
    compressed.on_load_checkpoint(None, None, {"horovod": {"residual": 5}})
    compressed.on_fit_start(SimpleNamespace(model="first"), None)
    assert compressed.state.said == [("load_state_dict", {"residual": 5})]
    compressed.on_fit_start(SimpleNamespace(model="second"), None)
    assert compressed.state.said == []
