"""torch.compile of models and steps that use this package. They share a file because the imports are slow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from mirrored_job import mirrored_job
from torch import nn

import horovod.torch as hvd

TWICE: dict[str, Any] = {"op": hvd.Sum, "prescale_factor": 2.0}


def test_a_compiled_program(alone: None) -> None:
    """Operations end a graph and run as usual, with gradients; functions that they call are not traced."""

    def step(x: torch.Tensor) -> torch.Tensor:
        y = hvd.allreduce(x * 3, name="y", **TWICE) + 1
        hvd.broadcast_(y.detach(), 0)
        handle = hvd.allreduce_async_(y.detach().clone(), **TWICE)
        return y * hvd.synchronize(handle) + hvd.broadcast(x, 0)

    graphs = []

    def backend(graph: torch.fx.GraphModule, inputs: Any) -> Callable[..., Any]:
        graphs.append(graph)
        return graph.forward

    x, z = torch.ones(4, requires_grad=True), torch.ones(4, requires_grad=True)
    compiled = torch.compile(step, backend=backend)
    assert torch.equal(compiled(x), step(z)) and compiled(x).tolist() == [99.0] * 4
    compiled(x).sum().backward()
    step(z).sum().backward()
    assert torch.equal(x.grad, z.grad) and 2 <= len(graphs) <= 6
    assert not any("horovod" in str(node.target) for graph in graphs for node in graph.graph.nodes)
    with pytest.raises(Exception, match=r"fullgraph|disable"):
        torch.compile(step, backend="eager", fullgraph=True)(x)


def test_a_compiled_model_trains_as_the_plain_one() -> None:
    """torch.compile of the model, and of all of a training step: the same weights, bit for bit."""

    def trained(how: str) -> list[torch.Tensor]:
        with mirrored_job(2) as engine:
            torch.manual_seed(0)
            model = nn.Sequential(nn.Linear(30, 50), nn.Tanh(), nn.Linear(50, 40))
            forward = torch.compile(model, backend="aot_eager") if how == "model" else model
            plain = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
            optimizer = hvd.DistributedOptimizer(plain, forward.named_parameters(), compression="bit8")

            def step(x: torch.Tensor) -> None:
                optimizer.zero_grad()
                forward(x).square().mean().backward()
                optimizer.step()

            run = torch.compile(step, backend="aot_eager") if how == "step" else step
            for _ in range(3):
                run(torch.randn(8, 30))
            codecs = [request.codec for request in engine.requests]
            assert codecs.count("bit8/128") == 6 and codecs.count(None) == 6, "three steps of two layers"
            return [parameter.detach().clone() for parameter in model.parameters()]

    plain = trained("plain")
    for how in ("model", "step"):
        assert all(map(torch.equal, trained(how), plain)), how
