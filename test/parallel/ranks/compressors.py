"""Compressors as scripts define them: one for each way to combine the ranks' data."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Generator
from typing import Any, ClassVar

import torch

import horovod.torch as hvd
from horovod.torch.compression import Bit8Compressor, Compressor

C = hvd.Compression


class Halving:
    """Has only the two methods: the outputs of such a compressor are summed, as in Horovod."""

    def compress(self, tensor: torch.Tensor) -> tuple[torch.Tensor, torch.dtype]:
        return (tensor * 0.5).half(), tensor.dtype

    def decompress(self, tensor: torch.Tensor, ctx: torch.dtype) -> torch.Tensor:
        return tensor.to(ctx) * 2


class Rounding:
    """A compressor whose codes are gathered."""

    combine = "gather"

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, torch.Size]:
        return tensor.round().to(torch.int8), tensor.shape

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: torch.Size) -> torch.Tensor:
        return tensor.float().reshape(ctx)


class TopHalf(Compressor):
    """Gathers values and places of the larger elements of each rank, whose number differs by rank."""

    combine = "gather"

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, tuple[torch.Size, torch.dtype]]:
        flat = tensor.reshape(-1).double()
        places = torch.topk(flat.abs(), min(flat.numel(), flat.numel() // 2 + hvd.rank())).indices
        return torch.stack([places.double(), flat[places]]), (tensor.shape, tensor.dtype)

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: tuple[torch.Size, torch.dtype]) -> torch.Tensor:
        shape, dtype = ctx
        whole = torch.zeros(shape.numel(), dtype=torch.float64, device=tensor.device)
        return whole.scatter(0, tensor[0].long(), tensor[1]).to(dtype).reshape(shape)


class WithContext(Compressor):
    """Codes whose number differs by rank, and a context on the tensor's device; the code ignores devices."""

    combine = "gather"

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, tuple[torch.Tensor, torch.dtype]]:
        flat = tensor.reshape(-1).double()
        extra = flat.new_zeros(hvd.rank())
        return torch.cat([flat, extra]), (torch.ones_like(flat).reshape(tensor.shape), tensor.dtype)

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: tuple[torch.Tensor, torch.dtype]) -> torch.Tensor:
        ones, dtype = ctx
        return (tensor[: ones.numel()].reshape(ones.shape) * ones).to(dtype)


class Overridden(Bit8Compressor):
    """Overrides a method, so that Horovod must call it instead of the core's codec."""

    calls: ClassVar[Counter[int]] = Counter()  # by thread, which may be a rank

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        Overridden.calls[threading.get_ident()] += 1
        codes, ctx = Bit8Compressor.compress(tensor)
        assert codes.device == tensor.device
        return codes, ctx


class Halves(Compressor):
    """Sums exactly in three rounds: a half, a half and a single number."""

    combine = "rounds"

    @staticmethod
    def rounds(tensor: torch.Tensor, state: Any) -> Generator[torch.Tensor, torch.Tensor, torch.Tensor]:
        state["steps"] = state.get("steps", 0) + 1
        flat = tensor.reshape(-1)
        left = yield flat[: flat.numel() // 2]
        right = yield flat[flat.numel() // 2 :]
        ranks = yield torch.ones(1, device=tensor.device)
        assert ranks == int(ranks) and ranks >= 1
        return torch.cat([left, right]).reshape(tensor.shape)


CODECS = {
    "bit16": C.bit16,
    "bit8": C.bit8,
    "bit8 of 32": C.bit8(block_size=32),
    "e5m2": C.bit8(format="e5m2"),
    "e5m2 of 32": C.bit8(format="e5m2", block_size=32),
    "e3m4": C.bit8(format="e3m4"),
    "int8": C.int8,
    "int8 of 32": C.int8(block_size=32),
    "int4": C.int4,
    "int4 of 32": C.int4(block_size=32),
    "random bit8": C.bit8(rounding="stochastic", seed=3),
    "random int8 of 1024": C.int8(block_size=1024, rounding="stochastic"),
    "random int4": C.int4(rounding="stochastic"),
}
ROTATED = {
    "hadamard": C.int4(rotation="hadamard", seed=3),
    "lloyd": C.int4(rotation="hadamard", levels="lloyd", seed=11),
    "random hadamard": C.int4(rotation="hadamard", rounding="stochastic"),
}
OF_PYTHON = {
    "Halving": Halving(),
    "TopHalf": TopHalf,
    "WithContext": WithContext,
    "Overridden": Overridden,
    "Halves": Halves,
    "topk": C.topk(ratio=1),
}
CASTS = {"fp16": C.fp16, "bf16": C.bf16}
# Compressors that keep powers of two of one sign, and their sums over two or four ranks. TopHalf drops half
# of them. A power of two over the step of int4 or int8 is a whole number except for its last bit, which
# random rounding seldom rounds down.
EXACT_OF_POWERS = {**CASTS, **CODECS, **OF_PYTHON}
for inexact in ("TopHalf", "random int4", "random int8 of 1024"):
    del EXACT_OF_POWERS[inexact]
EVERY = {"none": C.none, **CASTS, **CODECS, **ROTATED, **OF_PYTHON, "powersgd": C.powersgd(rank=2)}
NAMES = {id(compression): name for name, compression in EVERY.items()}


def name_of(compression: object) -> str:
    return NAMES.get(id(compression), str(compression))
