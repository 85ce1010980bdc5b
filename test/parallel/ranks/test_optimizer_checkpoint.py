"""Checkpoints with error feedback: training resumes bit for bit if all residuals were saved."""

# private: _reducer, _wait_in_backward: exact residuals; gradients that stay in flight

import copy
import io
import os
import warnings
from typing import Any

import pytest
import torch
from contract import assert_same_bits_everywhere
from rank_fixtures import seeded
from refusals import refused
from residuals_in import are_equal, residuals_in
from torch import nn

import horovod.torch as hvd
from horovod.torch import errors
from horovod.torch.residuals import Residuals

# After the import and before init(), which reads them.
os.environ["HOROVOD_DETERMINISTIC"] = "1"  # so that results do not depend on fusion

COMPRESSIONS = {
    "bit8": hvd.Compression.bit8(error_feedback=True, min_elements=0),
    "int4 stochastic": hvd.Compression.int4(rounding="stochastic", error_feedback=True, min_elements=0),
    "topk": hvd.Compression.topk(ratio=0.05, min_elements=0),
    "powersgd": hvd.Compression.powersgd(rank=2, min_elements=0),
}
EVERY = pytest.mark.parametrize("compression", COMPRESSIONS.values(), ids=COMPRESSIONS.keys())


class Training:
    """A small model with its optimizer; the data of a step differs by rank."""

    def __init__(self, compression: Any, seed: int = 0) -> None:
        with seeded(seed):
            self.model = nn.Sequential(
                nn.Linear(10, 40), nn.Tanh(), nn.Linear(40, 30), nn.Tanh(), nn.Linear(30, 3)
            )
        plain = torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)
        self.optimizer = hvd.DistributedOptimizer(
            plain, self.model.named_parameters(), compression=compression
        )

    def run(self, steps: range) -> None:
        for step in steps:
            generator = torch.Generator().manual_seed(100 * step + hvd.rank())
            x, y = torch.randn(8, 10, generator=generator), torch.randn(8, 3, generator=generator)
            self.optimizer.zero_grad()
            nn.functional.mse_loss(self.model(x), y).backward()
            self.optimizer.step()

    def saved(self) -> bytes:
        file = io.BytesIO()
        torch.save({"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}, file)
        return file.getvalue()

    def load(self, file: bytes) -> None:
        checkpoint = torch.load(io.BytesIO(file), weights_only=True)
        self.model.load_state_dict(checkpoint["model"])
        self.optimizer.load_state_dict(checkpoint["optimizer"])

    def flat(self) -> torch.Tensor:
        return torch.cat([parameter.detach().reshape(-1) for parameter in self.model.parameters()])

    def residuals(self) -> dict[str, Any]:
        return residuals_in(self.optimizer.state_dict().get("horovod", {}), hvd.rank())


def trained(compression: Any, steps: int) -> Training:
    training = Training(compression)
    training.run(range(steps))
    return training


def file_of(root: int, training: Training) -> bytes:
    """Return rank ``root``'s file, as every rank reads it."""
    return bytes(hvd.broadcast_object(training.saved() if hvd.rank() == root else None, root))


@EVERY
@pytest.mark.parametrize("root", [0, 1])
def test_all_ranks_load_what_one_has_saved_and_go_on_as_if_nothing_had_been(
    compression: Any, root: int
) -> None:
    whole, first = trained(compression, 6), trained(compression, 3)
    first.optimizer.consolidate_residuals(to=root)
    file = file_of(root, first)
    resumed = Training(compression, seed=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        resumed.load(file)
    assert are_equal(resumed.residuals(), first.residuals())
    resumed.run(range(3, 6))
    assert torch.equal(resumed.flat(), whole.flat())
    assert are_equal(resumed.residuals(), whole.residuals())


@EVERY
def test_one_rank_loads_and_broadcasts_to_the_others(compression: Any, rank: int) -> None:
    """Scripts for Horovod do it this way. Each rank gets its own residuals, not root's."""
    whole, first = trained(compression, 6), trained(compression, 3)
    first.optimizer.consolidate_residuals()
    file = file_of(0, first)
    resumed = trained(compression, 1)  # its own residuals, which are dropped
    if rank == 0:
        resumed.load(file)
    hvd.broadcast_parameters(resumed.model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(resumed.optimizer, root_rank=0)
    assert are_equal(resumed.residuals(), first.residuals())
    resumed.run(range(3, 6))
    assert torch.equal(resumed.flat(), whole.flat())


@EVERY
def test_without_consolidation_the_others_begin_anew_and_are_told(compression: Any, rank: int) -> None:
    first = trained(compression, 3)
    file = file_of(0, first)
    resumed = trained(compression, 1)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        resumed.load(file)
    assert [str(each.message)[:26] for each in told] == ["Error feedback begins anew"] * (rank != 0)
    assert are_equal(resumed.residuals(), first.residuals() if rank == 0 else {})
    resumed.run(range(3, 6))
    assert_same_bits_everywhere(resumed.flat())
    assert not torch.equal(resumed.flat(), trained(compression, 6).flat())


def test_a_checkpoint_of_another_number_of_ranks_is_not_taken_apart(size: int) -> None:
    first = trained(COMPRESSIONS["bit8"], 3)
    first.optimizer.consolidate_residuals()
    state = hvd.broadcast_object(first.optimizer.state_dict(), 0)
    state["horovod"]["size"] = size + 1
    with pytest.warns(UserWarning, match=f"of {size}: .* of {size + 1}"):
        first.optimizer.load_state_dict(state)
    assert first.residuals() == {}


def test_a_checkpoint_without_residuals_is_a_new_beginning() -> None:
    training = trained(COMPRESSIONS["bit8"], 3)
    assert training.residuals()
    state = training.optimizer.state_dict()
    del state["horovod"]
    training.optimizer.load_state_dict(state)
    assert training.residuals() == {}


def test_parameters_that_are_gone_or_of_another_size_are_told() -> None:
    training = trained(COMPRESSIONS["bit8"], 1)
    state = training.optimizer.state_dict()
    mine = state["horovod"]["residuals"][hvd.rank()]["parameters"]
    mine["gone"] = mine.pop("0.weight")
    mine["2.weight"]["count"] += 1
    with pytest.warns(UserWarning, match=" gone, "):
        training.optimizer.load_state_dict(state)
    with pytest.warns(UserWarning, match="'2.weight' .* 1201 .* 1200 "):
        training.run(range(1, 2))


def test_the_plain_optimizer_ignores_what_is_ours() -> None:
    training = trained(COMPRESSIONS["bit8"], 2)
    plain = torch.optim.SGD(training.model.parameters(), lr=1.0, momentum=0.5)
    state = training.optimizer.state_dict()
    assert state["horovod"]["size"] == hvd.size()
    plain.load_state_dict(state)
    assert "horovod" not in plain.state_dict()
    assert plain.param_groups[0]["lr"] == 0.1


def test_what_was_gathered_is_no_longer_true_after_a_step(size: int, rank: int) -> None:
    training = trained(COMPRESSIONS["bit8"], 2)
    training.optimizer.consolidate_residuals(to=1)
    assert len(training.optimizer.state_dict()["horovod"]["residuals"]) == (size if rank == 1 else 1)
    training.run(range(2, 3))
    assert list(training.optimizer.state_dict()["horovod"]["residuals"]) == [rank]
    with refused(errors.not_a_peer, to=size, owner="optimizer", members=list(range(size))):
        training.optimizer.consolidate_residuals(to=size)


def test_gradients_under_way_keep_residuals_to_themselves() -> None:
    training = trained(COMPRESSIONS["bit8"], 1)
    training.optimizer._wait_in_backward = False
    training.model(torch.ones(1, 10)).sum().backward()
    with refused(errors.feedback_in_use, called="state_dict"):
        training.optimizer.state_dict()
    with refused(errors.feedback_in_use, called="consolidate_residuals"):
        training.optimizer.consolidate_residuals()
    training.optimizer.step()
    assert training.optimizer.state_dict()["horovod"]


@EVERY
def test_a_copy_goes_on_by_itself(compression: Any) -> None:
    training = trained(compression, 3)
    model, optimizer = copy.deepcopy((training.model, training.optimizer))
    twin = copy.copy(training)
    twin.model, twin.optimizer = model, optimizer
    assert are_equal(twin.residuals(), training.residuals())
    training.run(range(3, 5))
    twin.run(range(3, 5))
    assert torch.equal(twin.flat(), training.flat())


def test_the_loss_scale_is_saved_with_the_residuals() -> None:
    training = trained(COMPRESSIONS["bit8"], 1)
    training.optimizer.set_loss_scale(8.0)
    training.run(range(1, 2))
    training.optimizer.consolidate_residuals()
    file = file_of(0, training)
    resumed = Training(COMPRESSIONS["bit8"])
    resumed.load(file)
    resumed.optimizer.set_loss_scale(2.0)
    kept: Residuals = resumed.optimizer._reducer.residuals
    before = resumed.residuals()["2.weight"][0]
    kept.rescale()
    assert torch.equal(resumed.residuals()["2.weight"][0], before / 4)


def test_parameters_that_are_added_have_residuals_too() -> None:
    training = trained(COMPRESSIONS["bit8"], 1)
    extra = nn.Parameter(torch.ones(20, 20))
    training.optimizer.add_param_group({"params": [extra], "lr": 0.1})
    (extra * torch.randn(20, 20)).sum().backward()
    training.optimizer.step()
    assert "allreduce.noname.1.0" in training.residuals()


def test_in_a_process_set_ranks_are_those_of_the_set(size: int, rank: int) -> None:
    """Residuals are stored by rank of the set, and only its members gather them."""
    if size < 4:
        return  # a set of both ranks is the global set
    pair = hvd.add_process_set([1, 3])
    with seeded(0):
        model = nn.Linear(40, 30)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1),
        model.named_parameters(),
        compression=COMPRESSIONS["bit8"],
        process_set=pair,
    )
    model(torch.full((1, 40), float(rank + 1))).square().sum().backward()
    optimizer.step()
    optimizer.consolidate_residuals(to=3)
    saved = optimizer.state_dict().get("horovod")
    if pair.included():
        assert saved is not None
        assert (saved["rank"], saved["size"]) == (rank // 2, 2)
        assert len(saved["residuals"]) == (2 if rank == 3 else 1)
    else:
        assert saved is None
    hvd.remove_process_set(pair)


def test_what_root_has_forgotten_the_others_forget_too() -> None:
    """Residuals and bases of other weights would enter the next gradients."""
    for compression in (COMPRESSIONS["bit8"], COMPRESSIONS["powersgd"]):
        training = Training(compression)
        fresh = training.saved()
        training.run(range(2))
        assert training.residuals()
        if hvd.rank() == 0:
            training.load(fresh)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            hvd.broadcast_optimizer_state(training.optimizer, 0)
        assert not training.residuals()
        assert not training.optimizer._reducer.memory.state_dict()
        said = [str(warning.message) for warning in caught]
        assert any("begins anew" in text for text in said) == (hvd.rank() != 0)


def test_an_interrupted_step_leaves_an_optimizer_that_can_be_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C, and then a checkpoint."""
    training = Training(COMPRESSIONS["bit8"])
    training.run(range(1))
    from horovod.torch import gradients

    real, calls = gradients.synchronize, []

    def interrupted(handle: int) -> Any:
        calls.append(handle)
        if len(calls) == 1:
            raise KeyboardInterrupt
        return real(handle)

    monkeypatch.setattr(gradients, "synchronize", interrupted)
    with pytest.raises(KeyboardInterrupt):
        training.run(range(1, 2))
    assert calls[0] == calls[1]  # the interrupted operation is waited for
    assert training.saved()
    training.run(range(2, 3))
    assert training.saved()
