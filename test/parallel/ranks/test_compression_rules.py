"""DistributedOptimizer with every way to compress gradients: replicas stay equal, and learn."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from contract import assert_same_bits_everywhere, assert_usable
from rank_fixtures import seeded
from refusals import refused
from torch import nn

import horovod.torch as hvd
from horovod.torch.compression import errors as of_compressors

EVERY = [
    "none", "fp16", "bf16", "bit16", "bit8", "bit8:block_size=32,min_elements=none", "topk:ratio=0.2",
    "topk:k=100,min_elements=0", "powersgd", "powersgd:rank=1,min_elements=none", "powersgd:warm_start=0",
    {"0.*": "powersgd:rank=2", "2.weight": "topk:ratio=0.5", "*.bias": "none", "*": "bit8"},
]  # fmt: skip


@pytest.fixture(autouse=True)
def said_nothing(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("HOROVOD_COMPRESSION", raising=False)
    yield


def same_model() -> nn.Sequential:
    with seeded(3):
        return nn.Sequential(nn.Linear(40, 50), nn.Tanh(), nn.Linear(50, 40))


def distributed(model: nn.Module, **options: Any) -> Any:
    plain = torch.optim.SGD(model.parameters(), lr=0.05)
    return hvd.DistributedOptimizer(plain, model.named_parameters(), **options)


def trained(rank: int, steps: int, **options: Any) -> tuple[nn.Sequential, float, float]:
    """Train a model to return its input; return its first and last loss on this rank's data."""
    model = same_model()
    optimizer = distributed(model, **options)
    x = torch.randn(64, 40, generator=torch.Generator().manual_seed(rank))
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = (model(x) - x).square().mean() * 40
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return model, losses[0], losses[-1]


def weights(model: nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()])


@pytest.mark.parametrize("compression", EVERY, ids=str)
def test_replicas_are_the_same_and_learn(compression: Any, rank: int) -> None:
    model, first, last = trained(rank, 30, compression=compression)
    assert_same_bits_everywhere(weights(model))
    assert last < 0.95 * first


def test_other_ways_to_reduce(rank: int, size: int) -> None:
    """Groups and predivision change only how gradients travel."""
    rules = {"*.weight": "powersgd:rank=1", "*": "none"}
    want, _, _ = trained(rank, 8, compression=rules)
    for options in ({"groups": 1}, {"groups": 3}, {"gradient_predivide_factor": 2.0}):
        got, _, _ = trained(rank, 8, compression=rules, **options)
        assert_same_bits_everywhere(weights(got))
        assert torch.allclose(weights(got), weights(want), atol=1e-5)


def test_scripts_that_say_nothing(rank: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def wire_bytes(steps: int = 1, **options: Any) -> int:
        before = hvd.metrics()["wire_bytes"]
        trained(rank, steps, **options)
        return hvd.metrics()["wire_bytes"] - before

    exact = wire_bytes()
    monkeypatch.setenv("HOROVOD_COMPRESSION", "bit8")
    assert wire_bytes() < 0.55 * exact
    assert wire_bytes(compression=hvd.Compression.fp16) > 0.45 * exact
    monkeypatch.setenv("HOROVOD_COMPRESSION", "bit9")
    with refused(of_compressors.wrong_text, said="HOROVOD_COMPRESSION=bit9", name="bit9"):
        trained(rank, 1)
    monkeypatch.setenv("HOROVOD_COMPRESSION", "bit8" if rank == 0 else "bit16")
    with pytest.raises(hvd.HorovodInternalError, match=r"[02]\.weight"):
        trained(rank, 1)
    assert_usable()


def test_sparse_gradients(rank: int, size: int) -> None:
    """They travel sparse, or as dense gradients, which are compressed."""
    for sparse_as_dense, compression in [(False, "topk:k=1"), (True, "topk:k=1"), (True, "powersgd:rank=1")]:
        with seeded(4):
            embedding = nn.Embedding(100, 20, sparse=True)
        plain = torch.optim.SGD(embedding.parameters(), lr=1.0)
        optimizer = hvd.DistributedOptimizer(
            plain, embedding.named_parameters(), compression=compression, sparse_as_dense=sparse_as_dense
        )
        rows = torch.tensor([rank, 50])
        embedding(rows).mul(torch.tensor([[1.0], [2.0]])).sum().backward()
        optimizer.synchronize()
        gradient = embedding.weight.grad
        assert gradient.is_sparse
        want = torch.zeros(100, 20)
        want[:size] = 1.0 / size
        want[50] = 2.0
        if compression == "topk:k=1" and sparse_as_dense:
            want.zero_()[50, 0] = 2.0  # the first of the largest, the same on all ranks
        assert torch.allclose(gradient.to_dense(), want, atol=1e-5)
        with optimizer.skip_synchronize():
            optimizer.step()


def test_process_sets(parity: list[Any], rank: int) -> None:
    own = parity[rank % 2]
    for compression in ("powersgd:rank=1", "topk:ratio=0.1", "bit8"):
        model, _, _ = trained(rank, 5, compression=compression, process_set=own)
        assert_same_bits_everywhere(weights(model), process_set=own)


def test_a_step_that_fails_leaves_the_optimizer_usable(rank: int) -> None:
    model = same_model()
    optimizer = distributed(model, compression="powersgd")
    x = torch.randn(8, 40)
    model(x).square().sum().backward()
    other = "bit8" if rank == 0 else "powersgd"
    optimizer.synchronize()
    failing = distributed(model, compression=other)
    with pytest.raises(hvd.HorovodInternalError, match=r"[02]\.weight"):
        model(x).square().sum().backward()
    failing.zero_grad()
    again = distributed(model, compression="powersgd")
    again.zero_grad()
    model(x).square().sum().backward()
    again.step()
    assert_usable()
