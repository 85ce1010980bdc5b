"""What DDP promises holds with the hook: with none to the bit of plain DDP; with bit8 ranks
end with the same bits, and gradients are those of plain DDP but for the codes' error.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from ddp_training import Training, all_equal
from torch import nn
from torch.utils.checkpoint import checkpoint

from horovod.torch import Compression

BIT8 = Compression.bit8(min_elements=0)
ERROR = 2.0**-4  # of e4m3, nearest: half a unit of 3 bits of mantissa, and as much for the scale's block
BOTH = pytest.mark.parametrize("compression", ["none", BIT8], ids=["none", "bit8"])


def check_against_plain(compression: Any, trained: Callable[..., Training]) -> Training:
    """``trained(*compression)`` makes a few steps, the last of them without zeroing gradients afterwards."""
    plain, hooked = trained(), trained(compression)
    assert all_equal(hooked.flat())
    ours, theirs = hooked.gradients(), plain.gradients()
    assert ours.keys() == theirs.keys()
    for name in ours:
        if compression == "none":
            assert torch.equal(ours[name], theirs[name]), name
        else:
            # Parameters differ too by now: an order of magnitude is left for what that does.
            assert (ours[name] - theirs[name]).abs().max() <= 10 * ERROR * theirs[name].abs().max(), name
    if compression == "none":
        assert torch.equal(hooked.flat(), plain.flat())
    return hooked


class Branches(nn.Module):
    """Which of its layers take part is the caller's choice, by rank and step."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(30, 40)
        self.ways = nn.ModuleList(nn.Linear(40, 3) for _ in range(3))
        self.way = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.ways[self.way](torch.tanh(self.first(x)))
        return out


@BOTH
@pytest.mark.parametrize("is_view", [False, True], ids=["own gradients", "views of buckets"])
def test_unused_parameters_are_found(compression: Any, is_view: bool, rank: int) -> None:
    """One way is taken by some ranks only, and the last by none: it keeps having no gradient."""

    def trained(*compression: Any) -> Training:
        training = Training(
            *compression, make=Branches, find_unused_parameters=True, gradient_as_bucket_view=is_view
        )
        for step in range(4):
            training.model.module.way = (rank + step) % 2
            training.run(range(step, step + 1))
        return training

    hooked = check_against_plain(compression, trained)
    assert hooked.model.module.ways[2].weight.grad is None


@BOTH
def test_a_static_graph_with_activation_checkpoints(compression: Any) -> None:
    """DDP learns the order in the first step, whose buckets it reduces at its end, and delays none later."""

    class Checkpointed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.shared, self.out = nn.Linear(30, 30), nn.Linear(30, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for _ in range(2):  # the same layer twice: DDP allows that in a static graph only
                x = checkpoint(self.shared, x, use_reentrant=False)
            out: torch.Tensor = self.out(torch.tanh(x))
            return out

    check_against_plain(
        compression, lambda *c: Training(*c, make=Checkpointed, static_graph=True).run(range(4))
    )


@BOTH
def test_buckets_are_rebuilt_after_the_first_step(compression: Any) -> None:
    hooked = check_against_plain(compression, lambda *c: Training(*c).run(range(4)))
    assert hooked.model._has_rebuilt_buckets
    ints = hooked.model.logger._get_ddp_logging_data().strs_map
    assert "," in ints["rebuilt_bucket_sizes"] and "," not in ints["bucket_sizes"]


@BOTH
def test_accumulation_without_synchronisation(compression: Any) -> None:
    def trained(*compression: Any) -> Training:
        training = Training(*compression)
        for step in range(3):
            training.optimizer.zero_grad()
            with training.model.no_sync():
                training.loss(step).backward()
                training.loss(10 + step).backward()
            training.loss(20 + step).backward()
            training.optimizer.step()
        return training

    check_against_plain(compression, trained)


@BOTH
def test_frozen_parameters_and_tied_weights(compression: Any) -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.frozen = nn.Linear(30, 30).requires_grad_(False)
            self.there, self.back, self.out = nn.Linear(30, 40), nn.Linear(40, 30), nn.Linear(30, 3)
            self.again = nn.Linear(30, 40)
            self.again.weight = self.there.weight

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.back(torch.tanh(self.there(self.frozen(x))))
            out: torch.Tensor = self.out(self.back(self.again(x)))
            return out

    hooked = check_against_plain(compression, lambda *c: Training(*c, make=Tied).run(range(4)))
    assert "again.weight" not in hooked.gradients() and "frozen.weight" not in hooked.gradients()


def test_where_gradients_lie_does_not_matter() -> None:
    views = Training(BIT8, gradient_as_bucket_view=True, keeps_gradients=True).run(range(5))
    assert torch.equal(views.flat(), Training(BIT8).run(range(5)).flat())


@BOTH
def test_several_models_in_one_process(compression: Any) -> None:
    """Trained in turns, and by one backward pass through both."""

    def trained(*compression: Any) -> Training:
        one, other = Training(*compression), Training(*compression, seed=1)
        for step in range(3):
            one.run(range(step, step + 1))
            other.run(range(10 + step, 11 + step))
        for training in (one, other):
            training.optimizer.zero_grad()
        (one.loss(20) + other.loss(21)).backward()
        for training in (one, other):
            training.optimizer.step()
        assert not compression or all_equal(other.flat())
        return one

    check_against_plain(compression, trained)


def test_a_model_over_some_of_the_ranks(rank: int, size: int) -> None:
    """Its gradients go over its own process group; the other ranks know nothing of it."""
    members = list(range(0, size, 2))
    group = dist.new_group(members)
    if rank in members:
        training = Training(BIT8, process_group=group).run(range(3))
        plain = Training(process_group=group).run(range(3))
        everybodys: list[Any] = [None] * len(members)
        dist.all_gather_object(everybodys, training.flat(), group)
        assert all(torch.equal(training.flat(), other) for other in everybodys)
        assert torch.allclose(training.flat(), plain.flat(), atol=0.05)


@BOTH
@pytest.mark.parametrize("initially", [True, False], ids=["of all ranks", "of those with inputs"])
def test_uneven_inputs(compression: Any, initially: bool, rank: int) -> None:
    """Rank r has r steps more than rank 0: the others go on without it, and end with one model."""

    def trained(*compression: Any) -> Training:
        training = Training(*compression)
        with training.model.join(divide_by_initial_world_size=initially):
            training.run(range(3 + rank))
        dist.barrier()
        return training

    plain, hooked = trained(), trained(compression)
    assert all_equal(hooked.flat())
    if compression == "none":
        assert torch.equal(hooked.flat(), plain.flat())
    else:
        assert torch.allclose(hooked.flat(), plain.flat(), atol=0.05)
