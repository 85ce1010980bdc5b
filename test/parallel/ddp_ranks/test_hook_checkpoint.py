"""Error feedback of native DDP: per parameter, through bucket rebuilds and checkpoints, in loss units."""

import copy
import pickle
import warnings
from typing import Any

import pytest
import torch
import torch.distributed as dist
from ddp_training import Training, all_equal, flat, gathered
from refusals import refused
from residuals_in import are_equal, residuals_in

from horovod.torch import Compression, ddp, errors

COMPRESSIONS = {
    "bit8": "bit8:error_feedback=1,min_elements=0",
    "int4 stochastic": "int4:rounding=stochastic,error_feedback=1,min_elements=0",
    "topk": "topk:ratio=0.05,min_elements=0",
    "powersgd": "powersgd:rank=2,min_elements=0",
}
EVERY = pytest.mark.parametrize("compression", COMPRESSIONS.values(), ids=COMPRESSIONS.keys())


def residuals(training: Training) -> dict[str, Any]:
    assert training.state is not None
    return residuals_in(training.state.state_dict(), dist.get_rank())


@EVERY
def test_resumed_training_goes_on_as_if_nothing_had_been(compression: str, size: int) -> None:
    """All ranks load the file of one; DDP rebuilds its first buckets, and sorts parameters differently."""
    root = size - 1
    whole, first = Training(compression).run(range(6)), Training(compression).run(range(3))
    assert first.state is not None
    first.state.consolidate_residuals(to=root)
    file = gathered(first.saved() if dist.get_rank() == root else None)[root]
    resumed = Training(compression, seed=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        resumed.load(file)
    assert are_equal(residuals(resumed), residuals(first))
    assert size == 1 or set(residuals(first)) == {"0.weight", "2.weight", "4.weight"}
    resumed.run(range(3, 6))
    assert torch.equal(resumed.flat(), whole.flat())
    assert are_equal(residuals(resumed), residuals(whole))
    assert all_equal(resumed.flat())


def test_feedback_is_of_parameters_and_not_of_buckets(size: int) -> None:
    """The codes' errors stay with their parameters, in one bucket or several, rebuilt or not."""
    compression = COMPRESSIONS["int4 stochastic"]
    several = Training(compression).run(range(5))
    single = Training(compression, find_unused_parameters=True).run(range(5))  # never rebuilds its buckets
    assert several.model._has_rebuilt_buckets and not single.model._has_rebuilt_buckets
    assert torch.equal(several.flat(), single.flat())
    assert are_equal(residuals(several), residuals(single))


def test_without_consolidation_the_others_begin_anew_and_are_told(rank: int, size: int) -> None:
    compression = COMPRESSIONS["bit8"]
    file = gathered(Training(compression).run(range(2)).saved())[0]
    resumed = Training(compression)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        resumed.load(file)
    wanted = [f"Error feedback begins anew on rank {rank} of {size}"] if rank else []
    assert [str(each.message)[: len(wanted[0])] for each in told] == wanted
    assert all("state.consolidate_residuals() on all ranks" in str(each.message) for each in told)


def test_a_checkpoint_may_be_loaded_before_there_are_ranks(size: int) -> None:
    """Also with the plain form, whose state is made before the process group."""
    compression = COMPRESSIONS["bit8"]

    def numbered(saved: Any = None) -> Training:
        training = Training()
        training.state = ddp.CompressionState(compression)
        training.state.load_state_dict(saved)
        training.model.register_comm_hook(training.state, ddp.compression_hook)
        return training

    whole, first = numbered().run(range(6)), numbered().run(range(3))
    assert first.state is not None
    first.state.consolidate_residuals()
    saved = gathered(first.state.state_dict())[0]
    resumed = numbered(copy.deepcopy(saved))
    assert resumed.state is not None and are_equal(residuals(resumed), residuals(first))
    resumed.model.load_state_dict(first.model.state_dict())
    resumed.optimizer.load_state_dict(first.optimizer.state_dict())
    resumed.run(range(3, 6))
    assert torch.equal(resumed.flat(), whole.flat())


def test_a_state_can_be_copied_and_pickled_with_its_model() -> None:
    """torch.save(model), AveragedModel(model) and spawn copy the model; a copy does not reduce."""
    compression = COMPRESSIONS["bit8"]
    unused = pickle.loads(pickle.dumps(ddp.CompressionState(compression)))
    training, other = Training(compression).run(range(3)), Training()
    other.model.register_comm_hook(unused, ddp.compression_hook)
    other.run(range(3))
    assert torch.equal(other.flat(), training.flat())
    copied = copy.deepcopy(training.model)
    (_, state), *_ = copied._comm_hooks
    assert training.state is not None and state is not training.state
    kept = training.state.state_dict().get("residuals", {})
    assert state.state_dict().get("residuals", {}).keys() == kept.keys()
    assert torch.equal(flat(copied), training.flat())
    training.run(range(3, 5))
    assert all_equal(training.flat())


def test_a_rank_that_is_none_of_the_models_cannot_be_given_everything(size: int) -> None:
    training = Training(COMPRESSIONS["bit8"]).run(range(1))
    assert training.state is not None
    with refused(errors.not_a_peer, to=size, owner="state", members=list(range(size))):
        training.state.consolidate_residuals(to=size)


class Doubling:
    """A loss scale that another step doubles, like a GradScaler with get_scale()."""

    def __init__(self) -> None:
        self.scale = 2.0**-3

    def get_scale(self) -> float:
        return self.scale


@pytest.mark.parametrize("compression", ["bit8", "topk"])
def test_residuals_follow_the_scale_of_the_loss(compression: str) -> None:
    """Scales are powers of two, so that only the units of the residuals could make a difference."""
    text = COMPRESSIONS[compression]
    plain, scaled, scaler = Training(text).run(range(6)), Training(text), Doubling()
    assert scaled.state is not None
    scaled.state.set_loss_scale(scaler)
    for step in range(6):
        scaler.scale *= 2
        scaled.optimizer.zero_grad()
        (scaled.loss(step) * scaler.scale).backward()
        for parameter in scaled.model.parameters():
            assert parameter.grad is not None
            parameter.grad /= scaler.scale
        scaled.optimizer.step()
    assert torch.equal(scaled.flat(), plain.flat())
    with refused(errors.wrong_loss_scale, value="0"):
        scaled.state.set_loss_scale(0)


def test_a_state_without_feedback_saves_nothing() -> None:
    training = Training(Compression.bit8).run(range(1))
    assert training.state is not None and training.state.state_dict() == {}
