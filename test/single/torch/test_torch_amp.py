"""Names in torch's GradScaler on which reductions depend, in the installed torch."""

# private: _before_unscaling: that it is called once, and when

from __future__ import annotations

import torch

from horovod.torch import optimizer_front


def test_the_scaler_has_the_names_that_are_needed() -> None:
    optimizer_front.settle_before_unscaling()
    optimizer_front.settle_before_unscaling()  # once is enough
    for name in optimizer_front.UNSCALING:
        method = getattr(torch.amp.GradScaler, name)
        original = method._horovod_original
        assert callable(original) and not hasattr(original, "_horovod_original")


def test_an_optimizer_is_asked_before_it_is_unscaled_and_others_are_left_alone() -> None:
    optimizer_front.settle_before_unscaling()
    parameter = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    scaler.scale(parameter.sum()).backward()
    asked: list[list[float]] = []
    optimizer._before_unscaling = lambda: asked.append(parameter.grad.tolist())  # type: ignore[attr-defined, union-attr]
    scaler.unscale_(optimizer)
    assert asked == [[4.0, 4.0]] and parameter.grad.tolist() == [1.0, 1.0]
    disabled = torch.amp.GradScaler("cpu", enabled=False)
    disabled.unscale_(optimizer)
    assert len(asked) == 1
