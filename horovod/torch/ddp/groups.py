"""Connections of a reducer's own between a process group's ranks: its collectives mix with nobody's."""

from __future__ import annotations

import datetime
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore

from horovod.torch.ddp.scheduling import behind_training
from horovod.torch_autoload import wait_for_gloo_in_destroy_process_group

__all__ = ["OwnGroups"]

DELEGATES = {"cpu": "gloo", "cuda": "nccl"}  # of the backend "horovod", by type of device


class OwnGroups:
    """Backends (gloo, nccl) as the process group's, between its ranks and with its timeout; made for bytes.

    All ranks of the process group make them together. There are two in host memory, one for contributions and
    one for results: within each, collectives must be started in one order on all ranks. They are torch's
    backends, but no groups of torch.distributed, whose new_group() wants all ranks of the job, or else gives
    two groups of the same ranks one place in the store.

    ValueError if the process group moves bytes by something else.

    Attributes:
        rank, size: of this process in the process group.
    """

    def __init__(self, process_group: dist.ProcessGroup) -> None:
        self.rank: int = process_group.rank()
        self.size: int = process_group.size()
        self._names = _backend_names(process_group)
        timeout = _timeout_of(process_group)
        store: Any = dist.distributed_c10d._get_process_group_store(process_group)
        number = store.add(f"horovod.ddp/made_by/{self.rank}", 1)  # the same on all ranks: how many so far

        def place(purpose: str) -> Any:
            return PrefixStore(f"horovod.ddp/{number}/{purpose}", store)

        self._by_device: dict[str, list[Any]] = {}  # contributions', results'
        if self._names.get("cpu") == "gloo":
            wait_for_gloo_in_destroy_process_group()
            with behind_training():
                self._by_device["cpu"] = [
                    dist.ProcessGroupGloo(place(purpose), self.rank, self.size, timeout)
                    for purpose in ("contributions", "results")
                ]
        if self._names.get("cuda") == "nccl":
            options = dist.ProcessGroupNCCL.Options()
            options._timeout = timeout
            both = dist.ProcessGroupNCCL(place("cuda"), self.rank, self.size, options)
            self._by_device["cuda"] = [both, both]  # all on one stream, so in one order
        self._served = frozenset(self._by_device)
        if not self._served:
            raise ValueError(f"the process group has {self._said()}: compressed are those of gloo and nccl.")

    def check_device(self, device: torch.device) -> None:
        """ValueError unless bytes can be moved between such devices."""
        if device.type not in self._served:
            raise ValueError(
                f"tensors on {device} cannot be reduced here: the process group has {self._said()}. Use "
                "init_process_group('cpu:gloo,cuda:nccl')."
            )

    @property
    def common_device(self) -> torch.device:
        """Where messages of any kind can be: host memory, if bytes can be moved between that."""
        return torch.device("cpu" if "cpu" in self._served else "cuda")

    def give_each(self, arriving: torch.Tensor, messages: torch.Tensor) -> Any:
        """Begin to give each rank its part of ``messages``; returns torch's Work."""
        equal: list[int] = []
        return self._of(messages)[0].alltoall_base(arriving, messages, equal, equal)

    def give_others(self, arriving: torch.Tensor, messages: torch.Tensor, are_results: bool) -> Any:
        """Begin to give each other rank its part of ``messages``, in rank order; returns torch's Work.

        There are others: a group of one has nobody to give to.
        """
        parts = [messages.numel() // (self.size - 1)] * self.size
        parts[self.rank] = 0
        return self._of(messages)[are_results].alltoall_base(arriving, messages, parts, parts)

    def give_all(self, arriving: torch.Tensor, message: torch.Tensor) -> Any:
        """Begin to give all ranks a message; returns torch's Work."""
        return self._of(message)[0]._allgather_base(arriving, message)

    def close(self) -> None:
        """Close connections: others that wait for this rank get torch's error at once."""
        self._by_device.clear()

    def _of(self, messages: torch.Tensor) -> list[Any]:
        if messages.device.type not in self._by_device:
            raise RuntimeError("the connections to other ranks are closed, after an earlier error.")
        return self._by_device[messages.device.type]

    def _said(self) -> str:
        return ", ".join(f"{name} for {device}" for device, name in self._names.items())


def _backend_names(process_group: dist.ProcessGroup) -> dict[str, str]:
    """Type of device -> backend that moves its bytes."""
    pairs = [pair.split(":") for pair in dist.get_backend_config(process_group).split(",")]
    names = {device: DELEGATES.get(device, name) if name == "horovod" else name for device, name in pairs}
    if not (dist.is_nccl_available() and torch.cuda.is_available()):
        names = {device: name for device, name in names.items() if name != "nccl"}
    return names


def _timeout_of(process_group: dist.ProcessGroup) -> datetime.timedelta:
    for device in process_group._device_types:
        options = getattr(process_group._get_backend(device), "options", None)
        timeout = getattr(options, "_timeout", None)
        if isinstance(timeout, datetime.timedelta):
            return timeout
    return dist.default_pg_timeout
