"""Error feedback after an outlier: a gradient 10^10 times the usual, whose step a training loop skips."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from feedback_twin import BLOCK, ErrorFeedback, each, residual, step
from numpy.typing import NDArray
from ranks import AVERAGE, numbers, on_ranks
from refusals import refused

from horovod import _native
from horovod.common.exceptions import WrongArgument
from horovod.torch import devices
from horovod.torch.compression import Compression
from horovod.torch.residuals import Residuals, TensorFeedback, compressed_with

Array = NDArray[Any]
COUNT = 40 * BLOCK + 7
OUTLIER = 4  # the step
CODECS = ["bit16", f"bit8/{BLOCK}", f"int8/{BLOCK}", f"int4/{BLOCK}", f"int4/{BLOCK}/hadamard/lloyd"]


def gradients(rank: int, factor: float, steps: int = 12) -> list[Array]:
    """The gradient of each step; in the outlier's step rank 1's is ``factor`` times as large."""
    xs = [numbers(rank, COUNT, np.float32, k) for k in range(steps)]
    xs[OUTLIER] *= np.float32(factor if rank == 1 else 1)
    return xs


# ---- in the core ----


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("codec", CODECS)
def test_an_outlier_is_over_with_its_step(codec: str, size: int) -> None:
    """Results have the twin's bits; results of the next steps are as large as their gradients."""
    xs = [gradients(rank, 1e10) for rank in range(size)]
    twin = ErrorFeedback(each(size), COUNT, codec)
    want = [twin.allreduce(list(of_step), AVERAGE) for of_step in zip(*xs, strict=True)]

    def program(rank: int, engine: _native.Engine) -> tuple[list[Array], _native.Feedback]:
        feedback, named = _native.Feedback(COUNT), _native.codec_named(codec)
        return [step(engine, x, feedback, codec=named, op=AVERAGE) for x in xs[rank]], feedback

    for rank, (got, feedback) in enumerate(on_ranks(size, program)):
        np.testing.assert_array_equal(got, want)
        np.testing.assert_array_equal(residual(feedback, "sent")[1], twin.sent[rank])
        assert feedback.usual[0] == twin.bounds[rank][0].usual
        for k, result in enumerate(got):
            exact = np.mean([of_rank[k] for of_rank in xs], axis=0)
            assert k == OUTLIER or np.linalg.norm(result) < 2 * np.linalg.norm(exact)


def test_gradients_that_stay_larger_become_usual() -> None:
    """Error feedback works again: the results equal the inputs, except for the residuals."""
    small = [gradients(rank, 1.0, 30) for rank in range(2)]
    xs = [[x * np.float32(1 if k < 5 else 1e5) for k, x in enumerate(of_rank)] for of_rank in small]

    def program(rank: int, engine: _native.Engine) -> tuple[list[Array], list[Array]]:
        feedback, codec = _native.Feedback(COUNT), _native.codec_named(f"int4/{BLOCK}")
        kept, got = [], []
        for x in xs[rank]:
            got.append(step(engine, x, feedback, codec=codec, op=AVERAGE))
            kept.append(residual(feedback, "sent")[1].copy())
        return got, kept

    (got, kept), (_, others) = on_ranks(2, program)
    since = 15
    applied = np.sum(got[since:], axis=0, dtype=np.float64)
    given = np.mean([np.sum(of_rank[since:], axis=0, dtype=np.float64) for of_rank in xs], axis=0)
    owed = [(of_rank[-1].astype(np.float64) - of_rank[since - 1]) / 2 for of_rank in (kept, others)]
    assert np.abs(applied + sum(owed) - given).max() < 1e-5 * np.abs(given).max()
    assert np.abs(kept[-1]).max() > 1e3


def test_the_usual_is_scaled_restored_and_cleared() -> None:
    feedback = _native.Feedback(4)
    assert list(feedback.usual) == [0, 0, 0]
    feedback.usual = [1, 2, 3]
    feedback.scale(-0.5)
    assert list(feedback.usual) == [0.5, 1, 1.5]
    feedback.clear()
    assert list(feedback.usual) == [0, 0, 0]
    for wrong in (-1.0, float("nan")):
        with refused(WrongArgument, "usual_size_negative"):
            feedback.usual = [wrong, 0, 0]


# ---- in Python ----


def sent_by_topk(values: torch.Tensor, feedback: TensorFeedback, _state: dict[str, Any]) -> torch.Tensor:
    codes, ctx = compressed_with(Compression.topk, values, feedback)
    return Compression.topk.decompress(codes, ctx)


def sent_by_powersgd(values: torch.Tensor, feedback: TensorFeedback, state: dict[str, Any]) -> torch.Tensor:
    """The result in a world of one, in which sums equal the yielded tensors."""
    wanted = feedback.added_to(values)
    rounds = Compression.powersgd.rounds(wanted, state)
    yielded = next(rounds)
    try:
        while True:
            yielded = rounds.send(yielded)
    except StopIteration as stop:
        feedback.keep(wanted, stop.value)
        result: torch.Tensor = stop.value
        return result


WAYS = [sent_by_topk, sent_by_powersgd]
Way = Callable[[torch.Tensor, TensorFeedback, dict[str, Any]], torch.Tensor]


def matrices(factor: float, steps: int = 30) -> list[torch.Tensor]:
    made = [torch.randn(40, 30, generator=torch.Generator().manual_seed(k)) for k in range(steps)]
    made[OUTLIER] *= factor
    return made


@pytest.mark.parametrize("is_on_gpu", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_an_outlier_is_over_with_its_step_in_python_too(
    way: Way, is_on_gpu: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if is_on_gpu:  # takes the branch without host access, which also works here
        monkeypatch.setattr(devices, "device_of", lambda tensor: 0)
    feedback, state = TensorFeedback(1200), {}
    sent = [way(x, feedback, state) for x in matrices(1e10)]
    assert max(x.norm() for x in sent[OUTLIER + 1 :]) < 10 * matrices(1.0)[0].norm()
    assert len(sent) > OUTLIER and feedback.read("sent")[1].norm() > 10


@pytest.mark.parametrize("way", WAYS)
def test_a_gpu_decides_as_the_host_does(way: Way, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also after steps without a gradient, after an overflow, and as gradients grow and shrink."""
    factors = [0, 1, 1, 50, 1e10, float("inf"), 1, 0, 1e-3, 1e4, 1e4, 1e4, 1]

    def run() -> tuple[list[torch.Tensor], float]:
        feedback, state = TensorFeedback(1200), {}
        everything = []
        for x, factor in zip(matrices(1.0), factors, strict=False):
            way(x * factor, feedback, state)
            state.clear()
            everything.append(feedback.read("sent")[1])
        return everything, feedback.usual[0]

    on_host, usual = run()
    monkeypatch.setattr(devices, "device_of", lambda tensor: 0)
    on_gpu, usual_there = run()
    assert all(map(torch.equal, on_host, on_gpu))
    assert usual_there == pytest.approx(usual, rel=1e-5)


def test_a_checkpoint_knows_what_is_usual() -> None:
    """Resumed before the outlier, training continues as if uninterrupted; older checkpoints load too."""
    xs = matrices(1e10)

    def go_on(residuals: Residuals, steps: list[torch.Tensor]) -> list[torch.Tensor]:
        feedback = residuals.of("w", xs[0], Compression.topk)
        assert isinstance(feedback, TensorFeedback)
        return [sent_by_topk(x, feedback, {}) for x in steps]

    first = Residuals(is_kept=True)
    go_on(first, xs[:OUTLIER])
    saved = first.state_dict()
    resumed, old = Residuals(is_kept=True), Residuals(is_kept=True)
    resumed.load_state_dict(saved)
    assert all(map(torch.equal, go_on(resumed, xs[OUTLIER:]), go_on(first, xs[OUTLIER:])))
    del saved["parameters"]["w"]["usual"]
    old.load_state_dict(saved)
    assert go_on(old, xs[:1])[0].norm() > 0


def test_the_usual_follows_the_loss_scale() -> None:
    """Both before and after the first use of the parameter."""
    residuals = Residuals(is_kept=True)
    residuals.follow(2.0)
    residuals.rescale()
    feedback = residuals.of("w", torch.zeros(3), Compression.topk)
    assert isinstance(feedback, TensorFeedback)
    feedback.usual = [4.0]
    residuals.follow(4.0)
    residuals.rescale()
    assert residuals.state_dict()["parameters"]["w"]["usual"] == [8.0]
    loaded = Residuals(is_kept=True)
    loaded.load_state_dict(residuals.state_dict())
    loaded.follow(1.0)
    loaded.rescale()
    again = loaded.of("w", torch.zeros(3), Compression.topk)
    assert again is not None and list(again.usual) == [2.0]
