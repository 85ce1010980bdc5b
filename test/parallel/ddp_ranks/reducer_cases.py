"""Gradients of all ranks, and the expected results: computed by engines, or in Python step by step.

Every rank can compute every rank's gradients, and so the expected result.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from ddp_training import all_equal

from horovod import _native as native
from horovod.torch.compression import Compression, Compressor, Rules, resolved
from horovod.torch.ddp.reducer import GroupReducer
from horovod.torch.reduce_ops import Average
from horovod.torch.reduction import Gradient, Reduction
from horovod.torch.tensors import NATIVE_DTYPES

sys.path.append(str(Path(__file__).resolve().parents[2] / "single" / "support"))

from ranks import on_ranks, predictable

FLOATS = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
SHAPES = ((40, 50), (7,), (1025,), (3, 5, 7, 2), (0, 4), (), (130, 33))

ON_GPU = "HOROVOD_TEST_EMULATED_GPU" in os.environ
BY_NCCL = ON_GPU and os.environ.get("HOROVOD_GPU_TRANSPORT") == "nccl"
BY_HOST = ON_GPU and os.environ.get("HOROVOD_GPU_TRANSPORT") == "host"

Shapes = Sequence[tuple[int, ...]]
Buckets = list[list[torch.Tensor]]  # of one step: by rank, then by gradient


def gradient(rank: int, place: int, step: int, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Return numbers of many magnitudes, so that codecs lose precision and sums depend on their order."""
    generator = torch.Generator().manual_seed(10_000 * rank + 100 * place + step)
    values = torch.randn(shape, generator=generator, dtype=torch.float64)
    return (values * torch.rand(shape, generator=generator, dtype=torch.float64) ** 4).to(dtype)


def buckets(size: int, shapes: Shapes = SHAPES, dtype: torch.dtype = torch.float32, step: int = 0) -> Buckets:
    return [[gradient(r, i, step, shape, dtype) for i, shape in enumerate(shapes)] for r in range(size)]


def new_reducer(group: dist.ProcessGroup | None = None, algorithm: str | None = None) -> GroupReducer:
    """Return a reducer; each gradient specifies its own compression."""
    return GroupReducer(Reduction(Rules("none")), group, algorithm=algorithm)


def reduced(
    reducer: GroupReducer,
    tensors: Sequence[torch.Tensor],
    compressors: Any,
    op: int = Average,
    tag: str = "g",
) -> list[torch.Tensor]:
    """Reduce copies of the tensors as one bucket, with one compressor, or one for each."""
    each = compressors if isinstance(compressors, list) else [compressors] * len(tensors)
    copies = [tensor.clone() for tensor in tensors]
    names = [f"{tag}{i}" for i in range(len(copies))]
    reducer.start(list(map(Gradient, names, copies, map(resolved, each))), op).wait()
    return copies


def taken(algorithm: str, dtype: torch.dtype) -> str:
    """Return the algorithm for a GPU's gradients: the host adds slices, also for dtypes without a kernel."""
    return "scatter" if BY_HOST or (ON_GPU and dtype == torch.float64) else algorithm


def engines_make(
    steps: Sequence[Buckets], compressor: Any, op: int, algorithm: str, has_feedback: bool = False
) -> list[list[torch.Tensor]]:
    """Return the results of engines that exchange messages, by step."""
    size = len(steps[0])
    codec = getattr(resolved(compressor), "codec", None)

    def program(rank: int, engine: native.Engine) -> list[list[torch.Tensor]]:
        feedback = [native.Feedback(x.numel()) if has_feedback else None for x in steps[0][rank]]
        results = []
        for ranks in steps:
            copies = [x.clone() for x in ranks[rank]]
            for i, x in enumerate(copies):
                at, dtype = x.data_ptr(), NATIVE_DTYPES[x.dtype]
                tensor = native.Tensor(at, at, list(x.shape), dtype, feedback[i] if codec else None)
                engine.wait(
                    engine.allreduce(f"allreduce.g{i}", [tensor], native.Reduction(op, 1.0, 1.0, codec))
                )
            results.append(copies)
        return results

    made = on_ranks(
        size, program, shares_memory=False, settings=predictable(taken(algorithm, steps[0][0][0].dtype))
    )
    results: list[list[torch.Tensor]] = made[0]
    return results


def added(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return the sum in rank order, in float32 or float64."""
    total = tensors[0].to(torch.promote_types(tensors[0].dtype, torch.float32), copy=True)
    for tensor in tensors[1:]:
        total += tensor
    return total


def rounds_make(compressor: Any, tensors: Sequence[torch.Tensor], states: Sequence[Any]) -> torch.Tensor:
    """Return a compressor's sum of all ranks' tensors, if it works in rounds; ``states``: by rank."""
    ranks = [compressor.rounds(x, state) for x, state in zip(tensors, states, strict=True)]
    yielded = [next(each) for each in ranks]
    while True:
        sum_ = added(yielded).to(yielded[0].dtype)
        yielded, results = [], []
        for each in ranks:
            try:
                yielded.append(each.send(sum_.clone()))
            except StopIteration as stop:
                results.append(stop.value)
        if results:
            assert len(results) == len(ranks)
            return results[0]


def assert_same_bits(got: Sequence[torch.Tensor], wanted: Sequence[torch.Tensor], what: str = "") -> None:
    assert len(got) == len(wanted)
    for i, (a, b) in enumerate(zip(got, wanted, strict=True)):
        assert a.shape == b.shape and a.dtype == b.dtype, (what, i, a.shape, a.dtype, b.dtype)
        assert torch.equal(bits(a), bits(b)), (
            f"{what}: tensor {i} of {list(a.shape)}: {a[a != b][:9]} instead of {b[a != b][:9]}, and so on: "
            f"{int((a != b).sum())} elements"
        )


def assert_same_on_all_ranks(tensors: Sequence[torch.Tensor]) -> None:
    assert all_equal(torch.cat([bits(tensor) for tensor in tensors]))


def bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().reshape(-1).view(torch.uint8)


class Doubles(Compressor):
    """A compressor that is summed: it sends twice the values, in float64."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        return tensor.double() * 2, tensor.dtype

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        return (tensor / 2).to(ctx)


class Positives(Compressor):
    """A compressor that is gathered: the positive values and their places, whose number differs by rank."""

    combine = "gather"

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        places = torch.nonzero(tensor.reshape(-1) > 0).reshape(-1)
        values = tensor.reshape(-1)[places].to(torch.float64)
        return torch.stack([places.double(), values]), (tensor.dtype, tensor.shape)

    @staticmethod
    def decompress(codes: torch.Tensor, ctx: Any) -> torch.Tensor:
        dtype, shape = ctx
        flat = torch.zeros(shape.numel(), dtype=dtype)
        flat[codes[0].long()] = codes[1].to(dtype)
        return flat.reshape(shape)


class Halves(Compressor):
    """A compressor with rounds: it sums exactly, one half after the other, and counts the steps."""

    combine = "rounds"

    @staticmethod
    def rounds(tensor: torch.Tensor, state: Any) -> Any:
        state["steps"] = state.get("steps", 0) + 1
        flat = tensor.reshape(-1)
        left = yield flat[: flat.numel() // 2]
        right = yield flat[flat.numel() // 2 :]
        steps = yield torch.tensor([float(state["steps"])])
        assert steps == state["steps"] * dist.get_world_size()
        return torch.cat([left, right]).reshape(tensor.shape)


def gathered_make(compressor: Any, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return the float32 or float64 sum of all ranks' tensors after a compressor that gathers."""
    wide = torch.promote_types(tensors[0].dtype, torch.float32)
    return added([compressor.decompress(*compressor.compress(x)).to(wide) for x in tensors])


CODECS = (
    "none", "bit16", "bit8", "bit8:format=e5m2,block_size=32", "bit8:rounding=stochastic", "int8",
    "int8:block_size=64,rounding=stochastic", "int4", "int4:rotation=hadamard,levels=lloyd",
    "int4:rounding=stochastic,block_size=32",
)  # fmt: skip


def named(text: str) -> Any:
    return Compression.from_text(text)
