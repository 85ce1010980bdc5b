"""Compresses each DistributedDataParallel as HOROVOD_DDP_COMPRESSION names, in unchanged scripts.

horovod/torch_autoload.py calls this for every wrapped model. torch allows a model one communication hook. So
the hook registered here calls another through a slot: the package's, until the script registers its own. A
hook of torch without compression, such as allreduce_hook, leaves the package's in the slot.
"""

# No `from __future__ import annotations`: DDP checks the hook's annotations, and rejects strings.
import os
import warnings
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import (
    allreduce_hook,
    bf16_compress_hook,
    fp16_compress_hook,
)
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import batched_powerSGD_hook, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

from horovod.common import notes
from horovod.common.compressors import COMPRESSION_FORCE as FORCE
from horovod.common.compressors import DDP_COMPRESSION
from horovod.common.options import BY_VARIABLE
from horovod.torch.compression.first_step import tell_once
from horovod.torch.ddp.hook import compress, compression_hook
from horovod.torch.ddp.state import CompressionState

# torch's hooks that only compress
COMPRESSING = (fp16_compress_hook, bf16_compress_hook, powerSGD_hook, batched_powerSGD_hook)

Hook = Callable[[Any, Any], torch.futures.Future[torch.Tensor]]

_wrapper: Any = DistributedDataParallel
_register = _wrapper.register_comm_hook
_register_builtin = _wrapper._register_builtin_comm_hook


@dataclass
class HookSlot:
    """A model's current hook, and its state: first none, then the package's, then perhaps the script's."""

    state: Any = None
    hook: Hook | None = None


_slots: weakref.WeakKeyDictionary[DistributedDataParallel, HookSlot] = weakref.WeakKeyDictionary()


def compress_wrapped(model: DistributedDataParallel) -> None:
    """Compress a model that was just wrapped, as HOROVOD_DDP_COMPRESSION names. Collective.

    ValueError if the variable is invalid, or differs between ranks.
    """
    compression = os.environ.get(DDP_COMPRESSION, "").strip()
    if compression in ("", "none"):
        return
    notes.tell_from_below("uses ddp")
    if model._comm_hooks:
        _warn("wrapping gave it a communication hook (mixed_precision=, or an optimizer in backward)")
        return
    _wrapper.register_comm_hook = _register_in_place
    _wrapper._register_builtin_comm_hook = _register_builtin_in_place
    _slots[model] = HookSlot()
    compress(model)


def hook_in_place(
    state: HookSlot,
    bucket: dist.GradBucket,  # type: ignore[name-defined]  # torch's own stubs leave it out
) -> torch.futures.Future[torch.Tensor]:
    """The communication hook that torch knows. It calls the hook in the slot."""
    assert state.hook is not None
    return state.hook(state.state, bucket)


def _register_in_place(self: Any, state: object, hook: Hook) -> None:
    """Replace DistributedDataParallel.register_comm_hook."""
    slot = _slots.get(self)
    if slot is None:
        _register(self, state, hook)
    elif slot.hook is None:
        slot.state, slot.hook = state, hook
        _register(self, slot, hook_in_place)
        self._comm_hooks.clear()  # for the script, which can then save the model as without this package
    else:
        self._check_comm_hook(hook)
        self._comm_hooks.append((hook, state))
        _weigh(self, state, hook)


def _register_builtin_in_place(self: Any, comm_hook_type: Any) -> None:
    """Replace DistributedDataParallel._register_builtin_comm_hook."""
    if self not in _slots:
        _register_builtin(self, comm_hook_type)
        return
    hooks = {"ALLREDUCE": allreduce_hook, "FP16_COMPRESS": fp16_compress_hook}
    _weigh(self, self.process_group, hooks[comm_hook_type.name])


def _weigh(model: DistributedDataParallel, state: object, hook: Hook) -> None:
    """Choose between the package's and the script's hook. A further hook goes to torch, which refuses it.

    The script's own hook may do more than compress, so it always counts.
    """
    slot = _slots.pop(model)
    if hook is allreduce_hook or (hook in COMPRESSING and BY_VARIABLE[FORCE].read(os.environ)):
        forced = "" if hook is allreduce_hook else f", as {FORCE} is on"
        if dist.get_rank() == 0:
            tell_once(f"{_said()} counts, and not the script's hook {hook.__qualname__}{forced}.")
        return
    if hook is not compression_hook:  # compression_hook has weighed its compression= itself
        how = f"; --compression-force, or {FORCE}=1, would have it count" if hook in COMPRESSING else ""
        _warn(f"the script has registered a communication hook of its own, {hook.__qualname__}{how}")
    if isinstance(slot.state, CompressionState):
        slot.state.close()
    slot.state, slot.hook = state, hook


def _said() -> str:
    return f"{DDP_COMPRESSION}={os.environ.get(DDP_COMPRESSION, '').strip()}"


def _warn(why: str) -> None:
    if dist.get_rank() == 0:
        warnings.warn(f"{_said()} does not count for a model: {why}.", stacklevel=3)
