"""Detects a single process: a script for several ranks must also work as ``python train.py``.

In a single process, libraries that use DistributedDataParallel do not wrap models.
"""

from __future__ import annotations

import logging
import multiprocessing
import os

import torch.distributed as dist

from horovod.common import launched

_log = logging.getLogger("horovod.torch.ddp")


def is_alone() -> bool:
    """Return whether there is one process, from torch.distributed or, before it starts, the launcher."""
    if dist.is_initialized():
        return dist.get_world_size() == 1
    return not _evidence()


def tell_alone(call: str) -> None:
    """Warn that ``call`` has done nothing, visibly even if logging is not configured."""
    _log.warning(
        "%s: there is one process, so nothing is sent and nothing compressed; with several: "
        "`horovodrun -np N --ddp python train.py`, or torchrun",
        call,
    )


def who_else() -> dict[str, str]:
    """Return, as facts of an error, the evidence of other processes, and what to do first."""
    if dist.is_initialized():
        return {
            "evidence": f"The process group has {dist.get_world_size()} ranks",
            "first": "wrap the model first; Accelerate and Trainer do so on CPUs if told: "
            "Accelerator(cpu=True), TrainingArguments(use_cpu=True)",
        }
    return {
        "evidence": f"{_evidence()} says that this process is one of several",
        "first": "call torch.distributed.init_process_group() and wrap the model first",
    }


def _evidence() -> str:
    """Return the evidence of other processes: a launcher's variable, or multiprocessing; else ""."""
    spawned = "multiprocessing.parent_process()" if multiprocessing.parent_process() else ""
    return launched.of_several(os.environ) or spawned
