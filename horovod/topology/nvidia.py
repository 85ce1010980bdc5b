"""GPUs and their connections, from NVML."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

from horovod.topology import processors
from horovod.topology.facts import Gpu, GpuLink, Socket
from horovod.topology.machine import Machine
from horovod.topology.nvml import Nvml, asked

_SWITCH = "switch"  # the other end of an NVLink, instead of a GPU's address


def gpus(
    machine: Machine, sockets: tuple[Socket, ...]
) -> tuple[tuple[Gpu, ...], tuple[GpuLink, ...], list[str]]:
    """(GPUs, links between them, notes of failures). Without a driver: no GPUs, and no note."""
    try:
        with machine.nvml() as nvml:
            if nvml is None:
                return (), (), []
            handles = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]
            found = [_gpu(nvml, handle, index) for index, handle in enumerate(handles)]
            placed = tuple(_with_socket(machine, gpu, sockets) for gpu in found)
            return placed, _links(nvml, handles, placed), []
    except RuntimeError as error:
        return (), (), [str(error)]


def _gpu(nvml: Nvml, handle: Any, index: int) -> Gpu:
    memory = asked(nvml, "nvmlDeviceGetMemoryInfo", handle)  # None: the GPU shares the processor's memory
    address = _address(nvml.nvmlDeviceGetPciInfo(handle))
    return Gpu(index, nvml.nvmlDeviceGetName(handle), None if memory is None else memory.total, address, None)


def _address(info: Any) -> str:
    """ "0000:07:00.0" of b"00000000:07:00.0"."""
    domain, rest = info.busId.decode().lower().split(":", 1)
    return f"{domain[-4:]}:{rest}"


def _links(nvml: Nvml, handles: list[Any], among: tuple[Gpu, ...]) -> tuple[GpuLink, ...]:
    """A link for each pair of GPUs whose connection NVML knows; in a virtual machine it may not."""
    ends = [_nvlink_ends(nvml, handle) for handle in handles]
    found = []
    for first in among:
        for second in among[first.index + 1 :]:
            pair = handles[first.index], handles[second.index]
            count = ends[first.index][second.pci_address]
            if not count and _reach_by_nvlink(nvml, *pair):
                count = min(ends[first.index][_SWITCH], ends[second.index][_SWITCH])
            if count:
                speed = _nvlink_speed(nvml, pair[0])
                found.append(GpuLink(first.index, second.index, "NVLink", count, speed))
            elif kind := _by_pcie(nvml, first, second, pair):
                found.append(GpuLink(first.index, second.index, kind))
    return tuple(found)


def _active_nvlinks(nvml: Nvml, handle: Any) -> list[int]:
    state = nvml.NVML_FEATURE_ENABLED
    numbers = range(nvml.NVML_NVLINK_MAX_LINKS)
    return [number for number in numbers if asked(nvml, "nvmlDeviceGetNvLinkState", handle, number) == state]


def _nvlink_ends(nvml: Nvml, handle: Any) -> Counter[str]:
    """Numbers of active NVLinks to each GPU, by PCI address, and to a switch."""
    ends: Counter[str] = Counter()
    for number in _active_nvlinks(nvml, handle):
        kind = asked(nvml, "nvmlDeviceGetNvLinkRemoteDeviceType", handle, number)
        if kind == nvml.NVML_NVLINK_DEVICE_TYPE_SWITCH:
            ends[_SWITCH] += 1
        elif (info := asked(nvml, "nvmlDeviceGetNvLinkRemotePciInfo", handle, number)) is not None:
            ends[_address(info)] += 1
    return ends


def _reach_by_nvlink(nvml: Nvml, first: Any, second: Any) -> bool:
    status = asked(nvml, "nvmlDeviceGetP2PStatus", first, second, nvml.NVML_P2P_CAPS_INDEX_NVLINK)
    return bool(status == nvml.NVML_P2P_STATUS_OK)


def _nvlink_speed(nvml: Nvml, handle: Any) -> int | None:
    """Bytes per second of one link in one direction, if all of this GPU's active links are alike."""
    speeds = set()
    for number in _active_nvlinks(nvml, handle):
        field = (nvml.NVML_FI_DEV_NVLINK_GET_SPEED, number)
        values = asked(nvml, "nvmlDeviceGetFieldValues", handle, [field])
        is_known = values is not None and values[0].nvmlReturn == nvml.NVML_SUCCESS
        speeds.add(values[0].value.uiVal * 10**6 if is_known else 0)  # in MB/s
    return (speeds.pop() or None) if len(speeds) == 1 else None


def _by_pcie(nvml: Nvml, first: Gpu, second: Gpu, pair: tuple[Any, Any]) -> str | None:
    level = asked(nvml, "nvmlDeviceGetTopologyCommonAncestor", *pair)
    if level is None:
        return None
    if level <= nvml.NVML_TOPOLOGY_MULTIPLE:  # across one bridge, or several
        return "switch"
    if level < nvml.NVML_TOPOLOGY_SYSTEM:  # across the host bridge, or between host bridges of a NUMA node
        return "root"
    # Between NUMA nodes is not always between sockets: some sockets have several nodes.
    return "root" if first.socket is not None and first.socket == second.socket else "sockets"


def _with_socket(machine: Machine, gpu: Gpu, sockets: tuple[Socket, ...]) -> Gpu:
    node = machine.numa_node(gpu.pci_address)
    return replace(gpu, socket=processors.socket_of_node(machine, node, sockets))
