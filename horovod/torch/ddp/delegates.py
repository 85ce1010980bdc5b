"""gloo and NCCL inside the process group of the backend "horovod"."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

__all__ = ["register_gloo_and_nccl"]

c10d: Any = dist  # torch's stubs are incomplete


def register_gloo_and_nccl(groups: Sequence[dist.ProcessGroup], options: Any, nccl_options: Any) -> None:
    """Register in ``groups`` one gloo for CPU tensors, and one NCCL for CUDA tensors.

    Without NCCL or GPU, gloo serves CUDA tensors too. Collective for the group's ranks, which connect.
    ``options`` are torch's, of the group: store, ranks, timeout. ``nccl_options`` may be None.
    """
    types = c10d.ProcessGroup.BackendType
    cpu = cuda = (types.GLOO, _gloo(options))
    if c10d.is_nccl_available() and torch.cuda.is_available():
        cuda = (types.NCCL, _nccl(options, nccl_options))
    for group in groups:
        group._set_default_backend(cuda[0])  # as torch does with "cpu:gloo,cuda:nccl"
        group._register_backend(torch.device("cpu"), *cpu)
        group._register_backend(torch.device("cuda"), *cuda)


def _gloo(options: Any) -> Any:
    store = c10d.PrefixStore("gloo", options.store)
    gloo = c10d.ProcessGroupGloo(store, options.group_rank, options.group_size, timeout=options.timeout)
    gloo.options.global_ranks_in_group = options.global_ranks_in_group
    gloo.options.group_name = options.group_id
    gloo._set_sequence_number_for_group()
    return gloo


def _nccl(options: Any, nccl_options: Any) -> Any:
    settings = nccl_options or c10d.ProcessGroupNCCL.Options()
    settings._timeout = options.timeout
    settings.global_ranks_in_group = options.global_ranks_in_group
    settings.group_name = options.group_id
    store = c10d.PrefixStore("nccl", options.store)
    nccl = c10d.ProcessGroupNCCL(store, options.group_rank, options.group_size, settings)
    nccl._set_sequence_number_for_group()
    return nccl
