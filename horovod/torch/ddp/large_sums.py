"""The sums that the backend "horovod" compresses, and their compressor, from the environment."""

from __future__ import annotations

import os
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from horovod.common import software
from horovod.common.compressors import COMPRESSION
from horovod.common.options import BY_VARIABLE
from horovod.torch.compression import UNSET, Rules, compressor_name
from horovod.torch.compression.first_step import FirstStep, NoteSent, nobody_asks
from horovod.torch.ddp import errors
from horovod.torch.ddp.agreement import check_agreement, terms_as_bytes, terms_from_bytes

MIN_ELEMENTS = "HOROVOD_BACKEND_MIN_ELEMENTS"
ALGORITHM = "HOROVOD_ALLREDUCE_ALGORITHM"
DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def agree(store: Any, rank: int, size: int) -> None:
    """Compare the variables of all ranks of a group in the group's store. Collective.

    ValueError with each rank's values, on all of them, unless all are equal.
    """
    terms = {
        name: os.environ.get(name, "").strip() or BY_VARIABLE[name].default
        for name in (COMPRESSION, MIN_ELEMENTS, ALGORITHM)
    }
    terms["horovod"] = software.build_name()
    # a store may outlive groups, and be used again under the same name
    number = store.add(f"made_by/{rank}", 1)
    store.set(f"terms/{number}/{rank}", terms_as_bytes(terms).decode())
    check_agreement([terms_from_bytes(store.get(f"terms/{number}/{each}")) for each in range(size)])


class LargeSums:
    """The sums that travel compressed, from the environment.

    Attributes:
        compressor: the compressor of all of them.
        rules: the same as Rules.
        min_elements: smaller tensors travel uncompressed. HOROVOD_BACKEND_MIN_ELEMENTS, else 16384 or, if
            larger, the compressor's own min_elements.

    ValueError if a variable is invalid, or the compressor uses error feedback, which needs to know whose
    gradient a sum is.
    """

    def __init__(self) -> None:
        self.rules = Rules(UNSET)
        (self.compressor,) = self.rules.compressors
        if getattr(self.compressor, "error_feedback", False):
            said = os.environ[COMPRESSION].strip()
            raise errors.feedback_of_sums(
                setting=COMPRESSION, value=said, compressor=compressor_name(self.compressor)
            )
        self.min_elements: int = BY_VARIABLE[MIN_ELEMENTS].read(os.environ)
        if not os.environ.get(MIN_ELEMENTS, "").strip():
            least = getattr(self.compressor, "min_elements", None) or 0
            self.min_elements = max(self.min_elements, least)

    def include(self, tensor: torch.Tensor) -> bool:
        """Return whether it is compressed: dense, floating-point, contiguous and large enough."""
        return (
            self.rules.compresses
            and tensor.layout == torch.strided
            and tensor.dtype in DTYPES
            and tensor.numel() >= self.min_elements
            and tensor.is_contiguous()
        )


_MOST_SUMS = 10_000  # remembered if no torch optimizer ever makes a step


class FirstSums(FirstStep):
    """Makes rank 0 of a group report how sums have travelled until an optimizer's first step."""

    def __init__(self, sums: LargeSums, rank: int, ranks: int) -> None:
        least = f"sums of fewer than {sums.min_elements} elements ({MIN_ELEMENTS})"
        super().__init__(sums.rules, "sums", least)
        self._group = rank, ranks
        self._sums = 0
        self._hook: Any = None

    def note(self, name: str, tensor: torch.Tensor, compressor: Any) -> NoteSent:
        """Note a sum before it is computed. Only those of floating-point tensors count."""
        if self.is_over:
            self.close()
            return nobody_asks
        if not tensor.is_floating_point() or tensor.layout != torch.strided:
            return nobody_asks
        if self._hook is None:
            self._hook = register_optimizer_step_post_hook(lambda *_: self.end(*self._group))
        self._sums += 1
        if self._sums > _MOST_SUMS:
            self.end(*self._group)
            return nobody_asks
        return super().note(f"sum {self._sums}", tensor, compressor)

    def close(self) -> None:
        """Stop observing optimizers."""
        if self._hook is not None:
            self._hook.remove()
            self._hook = None
