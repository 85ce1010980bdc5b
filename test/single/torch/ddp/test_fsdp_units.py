"""How gradients of an FSDP unit are divided among compressors, reduced and reported, without FSDP itself.

Ranks are threads; test/parallel/ddp_ranks/test_fsdp.py has real units, with two ranks.
"""

# private: _FirstStep, _Shard, _Unit, _arguments: shards without a mesh of devices

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from refusals import refused
from thread_ranks import run_ranks

import horovod.torch as hvd
from horovod.common.numpy_codec import named_codec
from horovod.torch.compression import Rules
from horovod.torch.ddp import errors, fsdp
from horovod.torch.ddp.state import VARIABLES
from horovod.torch.reduction import Reduction

BIT8, NONE = hvd.Compression.from_text("bit8"), hvd.Compression.none
INT8 = hvd.Compression.from_text("int8")
SIZES = {"a.weight": 256, "a.bias": 3, "frozen": 50, "b.weight": 128, "c.weight": 256}  # of a rank's shards
HOW = {"a.weight": BIT8, "a.bias": NONE, "frozen": BIT8, "b.weight": BIT8, "c.weight": INT8}


def shards(how: dict[str, Any] = HOW, *without: str) -> list[Any]:
    found = []
    for name, size in SIZES.items():
        if name not in without:
            parameter = torch.nn.Parameter(torch.empty(2 * size), requires_grad=name != "frozen")
            found.append(fsdp._Shard(name, parameter, how[name], size))
    return found


def reduce_scatter(of: list[Any], note: Callable[..., None] = lambda *noted: None) -> Any:
    own: Any = SimpleNamespace(job=SimpleNamespace(entered=contextlib.nullcontext))
    first_step: Any = SimpleNamespace(note=note)
    return fsdp.CompressedReduceScatter(of, own, first_step)


@pytest.fixture(autouse=True)
def two_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fsdp.dist, "get_world_size", lambda group=None: 2)
    monkeypatch.setattr(fsdp.dist, "get_rank", lambda group=None: 0)


def chunks_of(rank: int, elements: int) -> torch.Tensor:
    """A rank's contributions to the chunks of all ranks."""
    return torch.from_numpy(np.random.default_rng(rank).standard_normal(2 * elements).astype(np.float32))


def test_each_compressor_has_its_stretches_in_the_order_of_the_chunk() -> None:
    """Chunks have no frozen parameters."""
    trained = sum(SIZES.values()) - SIZES["frozen"]
    groups = reduce_scatter(shards())._groups(trained)
    assert [(group.name, group.codec and group.codec.name) for group in groups] == [
        ("a.weight", "bit8/128"),
        ("a.bias", None),
        ("c.weight", "int8/128"),
    ]
    assert [group.stretches for group in groups] == [[(0, 256), (259, 387)], [(256, 259)], [(387, 643)]]
    assert [group.elements for group in groups] == [384, 3, 256]


def test_a_chunk_of_another_size_is_compressed_as_most_of_the_unit_is() -> None:
    """FSDP leaves out a parameter without a gradient, and does not report which."""
    unit = reduce_scatter(shards({**HOW, "a.weight": NONE}))
    with pytest.warns(UserWarning, match=r" 99 .*'a.weight'.* 643"):
        (whole,) = unit._groups(99)
    assert (whole.name, whole.codec, whole.stretches) == ("a.weight", None, [(0, 99)])
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # it is reported once
        (again,) = unit._groups(100)
    assert again.stretches == [(0, 100)]


@pytest.mark.parametrize(
    ("op", "factor"), [(dist.ReduceOp.SUM, 1.0), (dist.ReduceOp.AVG, 0.5)], ids=["sum", "average"]
)
def test_sums_are_those_of_each_codec(op: Any, factor: float) -> None:
    """Each rank decodes all ranks' codes of its own chunk; uncompressed parameters are exact."""
    noted: list[Any] = []
    elements = sum(SIZES.values()) - SIZES["frozen"]

    def reduced() -> np.ndarray[Any, Any]:
        mine = shards()
        unit = reduce_scatter(mine, lambda of, dtype: noted.append((of is mine, dtype)))
        output = unit.allocate((elements,), dtype=torch.float32, device=torch.device("cpu"))
        assert unit(output, chunks_of(hvd.rank(), elements), None, op) is None
        return output.numpy()

    for rank, output in enumerate(run_ranks(2, reduced)):
        parts = [chunks_of(each, elements).view(2, -1)[rank].numpy() for each in range(2)]
        for codec, stretches in (("bit8/128", [(0, 256), (259, 387)]), ("int8/128", [(387, 643)])):
            where = np.concatenate([np.arange(*stretch) for stretch in stretches])
            twin = named_codec(codec)
            decoded = [twin.decode(twin.encode(part[where]), where.size) for part in parts]
            assert np.array_equal(output[where], (decoded[0] + decoded[1]) * np.float32(factor))
        assert np.array_equal(output[256:259], (parts[0] + parts[1])[256:259] * np.float32(factor))
    assert noted == [(True, torch.float32)] * 2


def test_one_compressor_and_two() -> None:
    """A unit with one compressor is reduced as a whole, with blocks that cross its parameters."""

    def reduced() -> list[torch.Tensor]:
        outputs = []
        for how in (dict.fromkeys(HOW, BIT8), {**dict.fromkeys(HOW, BIT8), "a.bias": NONE}):
            outputs.append(torch.empty(643))
            reduce_scatter(shards(how))(outputs[-1], chunks_of(hvd.rank(), 643), None, dist.ReduceOp.SUM)
        return outputs

    twin = named_codec("bit8/128")
    for rank, (one, two) in enumerate(run_ranks(2, reduced)):
        parts = [chunks_of(each, 643).view(2, -1)[rank].numpy() for each in range(2)]
        assert np.array_equal(one.numpy(), sum(twin.decode(twin.encode(part), 643) for part in parts))
        where = np.r_[0:256, 259:643]
        decoded = sum(twin.decode(twin.encode(part[where]), where.size) for part in parts)
        assert np.array_equal(two.numpy()[where], decoded)
        assert np.array_equal(two.numpy()[256:259], sum(parts)[256:259])


def test_what_fsdp_may_ask_of_a_sum() -> None:
    class Scaled:
        """A substitute for torch's own, which needs NCCL."""

        def __eq__(self, other: object) -> bool:
            return bool(other == dist.ReduceOp.PREMUL_SUM)

        def __getstate__(self) -> tuple[str, float]:
            return "PREMUL_SUM", 0.25

    assert fsdp._arguments(Scaled()) == (hvd.Sum, 0.25, 1.0)
    with refused(errors.fsdp_op, value=str(dist.ReduceOp.MAX)):
        fsdp._arguments(dist.ReduceOp.MAX)
    with refused(errors.fsdp_async):
        reduce_scatter(shards())(torch.empty(1), torch.empty(2), None, dist.ReduceOp.SUM, async_op=True)


# ---- the report after the first step ----


def test_the_first_step_is_over_when_every_unit_that_is_trained_was_reduced(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A unit that FSDP reduces twice counts once, with the dtype of its messages."""
    first, second = shards(), shards()
    exact = [shards(dict.fromkeys(HOW, NONE))[0]._replace(name="norm")]
    units = [fsdp._Unit(None, of, Any) for of in (first, second, exact)]
    frozen = [shard for shard in shards() if shard.name == "frozen"]
    units.append(fsdp._Unit(None, frozen, Any))

    def told() -> str:
        return capsys.readouterr().err

    def steps() -> None:
        step = fsdp._FirstStep(Reduction(Rules("bit8", VARIABLES)), units, [units[0], units[1], units[3]])
        step.note(first, torch.bfloat16)
        step.note(first, torch.bfloat16)
        assert told() == ""
        step.note(second, torch.bfloat16)
        # Of 2560 bytes of bfloat16, 12 of a vector and 2048 of float32 that is compressed in no unit.
        line = "horovod: bit8, int8: 3 of 5 tensors, 55.4 % of bytes, 1.4x fewer\n"
        assert told() == line
        step.note(second, torch.bfloat16)
        assert told() == ""

    run_ranks(1, steps)
