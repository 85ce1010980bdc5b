"""Compressed gradients: the same bits on every rank and as the engine's, and exact if they should be."""

import re
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from ddp_training import Training, all_equal, gathered, layers
from refusals import refused
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from horovod.torch import Compression, ddp
from horovod.torch.compression import UNSET, Rules
from horovod.torch.compression import errors as of_compressors
from horovod.torch.ddp import errors

sys.path.append(str(Path(__file__).resolve().parents[2] / "single" / "support"))

import ranks as local_ranks

EVERY = {
    "bit8": "bit8",
    "int8": "int8",
    "bit16": "bit16",
    "int4 stochastic": "int4:rounding=stochastic,rotation=hadamard,error_feedback=1",
    "fp16": "fp16",
    "topk": "topk:ratio=0.05",
    "powersgd": "powersgd:rank=2",
    "rules": {"0.weight": "bit8", "2.weight": Compression.none, "*": "int8:error_feedback=1"},
}


@pytest.mark.parametrize("compression", EVERY.values(), ids=EVERY.keys())
def test_all_ranks_get_the_same_bits(compression: Any) -> None:
    training = Training(compression).run(range(5))
    for name, gradient in training.gradients().items():
        assert all_equal(gradient), name
    assert all_equal(training.flat())
    plain = Training().run(range(5))
    assert (training.flat() - plain.flat()).abs().max() < 0.2


def by_engine(name: str, tensors: list[torch.Tensor], codec: Any, algorithm: str) -> torch.Tensor:
    """Return the engine's results of the ranks' gradients: its ranks are threads that exchange messages."""
    settings = local_ranks.predictable(algorithm)
    arrays = [tensor.numpy().copy() for tensor in tensors]

    def reduced(rank: int, engine: Any) -> Any:
        return local_ranks.allreduce(
            engine, f"allreduce.{name}", arrays[rank], op=local_ranks.AVERAGE, codec=codec
        )

    return torch.from_numpy(local_ranks.on_ranks(len(tensors), reduced, False, settings)[0])


@pytest.mark.parametrize("algorithm", ["gather", "scatter"])
@pytest.mark.parametrize("text", ["bit8", "int8", "int4:rounding=stochastic,rotation=hadamard,seed=3"])
def test_gradients_are_the_engines(text: str, algorithm: str, size: int) -> None:
    """On the same route the average has the same bits, by the hook or by the engine."""
    if size == 1:
        pytest.skip("a world of one compresses nothing")
    alone, training = Training(), Training(text, how={"algorithm": algorithm})
    with alone.model.no_sync():
        alone.loss(0).backward()
    training.loss(0).backward()
    rules = Rules(text)
    for name, parameter in training.model.module.named_parameters():
        codec = rules.gradient_compressor(name, parameter).codec
        assert (codec is None) == (name not in ("0.weight", "2.weight")), name
        expected = by_engine(name, gathered(alone.gradients()[name]), codec, algorithm)
        assert torch.equal(training.gradients()[name], expected), name


def test_vectors_and_small_matrices_are_exact(rank: int, size: int) -> None:
    """Sums of integers are exact in any order: they are compared to the bit, and codes are not."""
    training = Training(
        "int4:min_elements=1000", make=lambda: nn.Sequential(nn.Linear(30, 40), nn.Linear(40, 3))
    )
    x = (torch.arange(240).reshape(8, 30) % 7 + rank).float()
    with torch.no_grad():
        for parameter in training.model.parameters():
            parameter.fill_(1.0)
    training.model(x).sum().backward()
    found = training.gradients()
    means = torch.stack([(torch.arange(240).reshape(8, 30) % 7 + r).float() for r in range(size)]).mean(0)
    assert torch.equal(found["0.bias"], torch.full((40,), 24.0)) and torch.equal(
        found["1.bias"], torch.full((3,), 8.0)
    )
    hidden = (means.double().sum(1) + 1).sum().float()
    assert torch.allclose(found["1.weight"], hidden.expand(3, 40), rtol=1e-6)
    exact = means.sum(0).mul(3).expand(40, 30)
    assert torch.allclose(found["0.weight"], exact, rtol=0.2)
    assert size == 1 or not torch.allclose(found["0.weight"], exact, rtol=1e-4)


def test_rules_go_by_the_names_of_the_model_that_was_wrapped() -> None:
    """Exact gradients beside codes are summed in another order than DDP's; codes are less accurate."""
    rules = {"0.*": "int4:min_elements=0", "*": Compression.none}
    training, plain = Training(rules).run(range(1)), Training().run(range(1))
    expected = plain.gradients()
    exact = {
        name for name, g in training.gradients().items() if torch.allclose(g, expected[name], 1e-4, 1e-7)
    }
    assert set(expected) - exact == ({"0.weight"} if dist.get_world_size() > 1 else set())


def test_the_plain_form_numbers_parameters_or_takes_a_model(size: int) -> None:
    """register_comm_hook without compress(): the same bits, for any names of parameters."""
    text = "bit8:error_feedback=1"
    expected = Training(text).run(range(4)).flat()
    for model in (None, "inner", "wrapped"):
        training = Training()
        named = {None: None, "inner": training.model.module, "wrapped": training.model}[model]
        state = ddp.CompressionState(text, named)
        training.model.register_comm_hook(state, ddp.compression_hook)
        training.run(range(4))
        assert torch.equal(training.flat(), expected), model
        if size > 1:
            kept = state.state_dict()["residuals"][dist.get_rank()]["parameters"]
            assert sorted(kept) == (["0.weight", "2.weight"] if model else ["parameter.0", "parameter.2"])


def test_the_environment_decides_where_the_script_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOROVOD_COMPRESSION", "bit8")
    training = Training(UNSET)
    assert torch.equal(training.run(range(2)).flat(), Training("bit8").run(range(2)).flat())


def test_the_algorithm_of_the_environment_is_agreed_on_too(
    monkeypatch: pytest.MonkeyPatch, rank: int, size: int
) -> None:
    if size == 1:
        pytest.skip("one rank agrees with itself")
    monkeypatch.setenv("HOROVOD_ALLREDUCE_ALGORITHM", "scatter" if rank else "gather")
    with pytest.raises(ValueError, match=r"_ALLREDUCE_ALGORITHM \(rank 0: gather; rank.* 1.*: scatter"):
        Training("bit8")


@pytest.mark.parametrize("form", ["compress", "register_comm_hook"])
def test_ranks_that_were_told_differently_all_hear_of_it(form: str, rank: int, size: int) -> None:
    if size == 1:
        pytest.skip("one rank agrees with itself")
    told = "bit8:block_size=64" if rank == size - 1 else "bit8"
    if form == "compress":
        with refused(errors.ranks_disagree) as caught:
            Training(told)
        terms = list(caught.value.facts["terms"].values())
        assert terms and all("block_size=64" in of_ranks[-1] for of_ranks in terms)
        assert not any("block_size" in each for of_ranks in terms for each in of_ranks[:-1])
        return
    training = Training()
    training.model.register_comm_hook(ddp.CompressionState(told), ddp.compression_hook)
    with pytest.raises((ValueError, RuntimeError), match=r"Compression\.bit8\(\).*block_size=64"):
        training.loss(0).backward()


def test_what_cannot_be_compressed_is_refused_with_a_reason(size: int) -> None:
    wrapped = Training("none").model
    if size > 1:  # a library may leave one process unwrapped: test/single/torch/ddp/test_ddp_alone.py
        with refused(errors.not_wrapped, got="torch.nn.modules.container.Sequential") as caught:
            ddp.compress(layers(), "bit8")
        assert f" {size} ranks" in caught.value.facts["evidence"]
    with refused(errors.hooked_already):
        ddp.compress(wrapped, "bit8")
    fresh = DistributedDataParallel(layers())
    fresh._use_python_reducer = True
    with refused(errors.python_reducer):
        ddp.compress(fresh, "bit8")
    fresh._use_python_reducer = False
    with refused(of_compressors.rule_matches_nothing, pattern="head.*") as caught:
        ddp.compress(fresh, {"head.*": "bit8"})
    assert caught.value.facts["names"][0] == "0.weight"
    with refused(errors.unknown_names):
        ddp.CompressionState({"0.weight": "bit8"})
    with refused(of_compressors.wrong_text, name="bit9"):
        ddp.compress(fresh, "bit9")
    with pytest.raises(ValueError, match="nowhere"):
        ddp.compress(fresh, "bit8", algorithm="nowhere")
    fresh.register_comm_hook(ddp.CompressionState("bit8", layers()), ddp.compression_hook)
    told = re.escape(errors.unknown_parameter.remedy)
    with pytest.raises((ValueError, RuntimeError), match=told):  # torch's C++ passes on only the text
        fresh(torch.zeros(2, 30)).sum().backward()
