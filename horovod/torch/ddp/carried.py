"""Tensors that travel together in one exchange, encoded and summed by the core."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import NamedTuple

import torch

from horovod import _native as native
from horovod.torch import devices
from horovod.torch.ddp.exchange import Exchange, Messages
from horovod.torch.ddp.python_compressors import ALIGNMENT, to_everybody
from horovod.torch.reduce_ops import OP_NAMES, Average, ReduceArguments
from horovod.torch.submission import reduction_of
from horovod.torch.tensors import described

__all__ = ["Addend", "CarriedTensors", "add_in_torch", "addresses", "is_summed_by_core"]

SUMMED_ON_GPUS = (torch.float32, torch.float16, torch.bfloat16)

# Of all tensors together, in a step. With fewer, what the wire and the CPU do overlaps better,
# and messages take less memory; but each step costs half a millisecond of the CPU, whatever is in it.
STEP_ELEMENTS = 1 << 22


class Addend(NamedTuple):
    """This rank's part in the sum (or average) of one tensor, contiguous; and where the result goes."""

    name: str
    source: torch.Tensor
    destination: torch.Tensor
    op: int
    codec: native.Codec | None = None
    feedback: native.Feedback | None = None


class CarriedTensors:
    """An exchange. Attributes: see Exchange.

    Tensors that are alike in codec, op and dtype make a part of the message. Stochastic codecs draw the
    random numbers of an hvd.allreduce of the same name. On a GPU all goes in one step.
    """

    def __init__(
        self,
        addends: Sequence[Addend],
        rank: int,
        size: int,
        is_scattered: bool,
        is_last: bool,
        keys: native.DrawKeys,
    ) -> None:
        self.is_last = is_last
        self.is_scattered = is_scattered
        alike: dict[tuple[str, int, torch.dtype], list[Addend]] = {}
        for each in addends:
            codec = "" if each.codec is None else each.codec.name
            alike.setdefault((codec, each.op, each.source.dtype), []).append(each)
        self._addends = addends  # they keep their memory
        device = devices.common_device([each.source for each in addends], _label(addends))
        self._carried = native.CarriedAllreduce(
            [_part(members) for members in alike.values()],
            rank,
            size,
            is_scattered,
            keys,
            device,
            devices.current_stream(device),
            step_elements=_elements_of_slice(size, is_scattered) if device == devices.CPU else 0,
        )
        self.steps = self._carried.steps
        self.message_bytes = self._carried.message_bytes
        self.result_bytes = self._carried.result_bytes

    def pack(self, messages: Messages, step: int) -> None:
        self._carried.pack(addresses(messages), step)

    def reduce(self, arrived: Messages, result: torch.Tensor, step: int) -> None:
        self._carried.reduce(addresses(arrived), result.data_ptr() if self.result_bytes else 0, step)

    def unpack(self, results: Messages, step: int) -> None:
        self._carried.unpack(addresses(results), step)


def addresses(messages: Messages) -> list[int]:
    """As the core wants them."""
    return [message.data_ptr() for message in messages]


def _elements_of_slice(size: int, is_scattered: bool) -> int:
    """Of each slice, in a step; gathered tensors are one. All ranks' are twice STEP_ELEMENTS at the most."""
    return max(STEP_ELEMENTS // (size if is_scattered else (size + 1) // 2), 1)


def is_summed_by_core(addend: Addend) -> bool:
    """GPUs' kernels sum three types, all others torch has to (add_in_torch)."""
    return devices.device_of(addend.source) == devices.CPU or addend.source.dtype in SUMMED_ON_GPUS


def add_in_torch(addends: Sequence[Addend], size: int) -> Generator[Exchange, None, None]:
    """Everybody's tensors go to everybody as they are, without a codec, and are added in rank order."""
    sources = [addend.source.reshape(-1).view(torch.uint8) for addend in addends]
    runs = [torch.nn.functional.pad(source, (0, -source.numel() % ALIGNMENT)) for source in sources]
    payload = torch.cat(runs)
    rows = yield from to_everybody(payload, payload.numel())
    begin = 0
    for addend, source, run in zip(addends, sources, runs, strict=True):
        total, *others = [row[begin : begin + source.numel()].view(addend.source.dtype) for row in rows]
        for other in others:
            total = total + other
        if addend.op == Average:
            is_float = total.is_floating_point()
            total = total * (1 / size) if is_float else total.div(size, rounding_mode="trunc")
        addend.destination.copy_(total.view_as(addend.destination))
        begin += run.numel()


def _label(addends: Sequence[Addend]) -> str:
    return f"{OP_NAMES[addends[0].op]} of {addends[0].name}"


def _part(members: Sequence[Addend]) -> tuple[native.Reduction, list[str], list[native.Tensor]]:
    reduction = reduction_of(ReduceArguments(members[0].op, 1.0, 1.0), members[0].codec)
    names = [f"allreduce.{each.name}" for each in members]
    tensors = [described(each.source, each.destination, each.feedback) for each in members]
    return reduction, names, tensors
