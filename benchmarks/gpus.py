"""A GPU of the benchmarks: the place of a rank's tensors, its facts, and work that is timed on it alone."""

from __future__ import annotations

import importlib
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from report import Record

from horovod import _native
from horovod.common.build_info import build_info
from horovod.topology import nvml

# Tests set it to a module whose open_place() treats host memory as a GPU's.
PLACE_VARIABLE = "BENCHMARK_PLACE"
# Tests set it to another library, which emulates the GPU on the CPU.
LIBRARY_VARIABLE = "BENCHMARK_DEVICE_LIBRARY"
SETTLE_SECONDS = 0.1  # time for the engine to look at the last events
# The stages of an allreduce through the host, which overlap, and their counters in hvd.metrics(): the GPU
# encodes, codes go to the host and are summed there, and results go back and are decoded.
STAGES = {
    "encode": "gpu_encode_microseconds",
    "copy to host": "gpu_copy_to_host_microseconds",
    "reduce": "gpu_reduce_microseconds",
    "copy back": "gpu_copy_back_microseconds",
    "decode": "gpu_decode_microseconds",
    "whole": "gpu_whole_microseconds",
}

Bytes = np.ndarray[Any, np.dtype[np.uint8]]


class NoGpu(Exception):
    """There is no GPU that both this build of the package and torch can use; the message has the reason."""


@dataclass(frozen=True)
class Place:
    """A device, and a function that waits for its work. Ranks may share a GPU."""

    device: torch.device
    synchronize: Callable[[], None]
    is_gpu: bool = False
    facts: Record = field(default_factory=dict)


CPU = Place(torch.device("cpu"), lambda: None)


def why_no_gpu() -> str:
    """Return "" if ranks started here will find a GPU, otherwise the reason."""
    if os.environ.get(PLACE_VARIABLE):
        return ""
    if not torch.cuda.is_available():
        return "torch finds no GPU here (torch.cuda.is_available() is false)"
    if not build_info().cuda:
        return "this package was built without CUDA; build it where nvcc is, with HOROVOD_WITH_CUDA=1"
    return ""


def require(program: str, purpose: str) -> None:
    """End the program with the reason, unless there is a GPU."""
    why = why_no_gpu()
    if why:
        raise SystemExit(f"{program}: --device cuda has no GPU to {purpose}: {why}")


def open_place(rank: int, local_rank: int) -> Place:
    """Return this rank's GPU: by its number on the host, and shared if ranks outnumber GPUs. Raises NoGpu."""
    stand_in = os.environ.get(PLACE_VARIABLE)
    if stand_in:
        made: Place = importlib.import_module(stand_in).open_place(rank, local_rank)
        return made
    why = why_no_gpu()
    if why:
        raise NoGpu(f"rank {rank}: {why}")
    device = torch.device("cuda", local_rank % torch.cuda.device_count())
    torch.cuda.set_device(device)
    properties = torch.cuda.get_device_properties(device)
    facts = {"GPU": properties.name, "GPUs": torch.cuda.device_count(), "CUDA": torch.version.cuda}
    identity = f"GPU-{getattr(properties, 'uuid', 'unknown')}"  # older releases of PyTorch have none
    return Place(device, lambda: torch.cuda.synchronize(device), True, facts | asked(identity))


def settled(place: Place) -> dict[str, int]:
    """Return the counters of hvd.metrics() when the engine has seen the end of all operations."""
    import horovod.torch as hvd

    place.synchronize()
    time.sleep(SETTLE_SECONDS)
    return hvd.metrics()


class Gpu:
    """A GPU without ranks, and one stream of it, on which everything runs."""

    def __init__(self, program: str, index: int) -> None:
        """Open the GPU. End the program with a message if there is no GPU, or if this build serves none."""
        library = os.environ.get(LIBRARY_VARIABLE)
        try:
            if library:
                _native.use_device_library(library)
            self.device = _native.Device(index)
        except (ValueError, RuntimeError) as problem:
            raise SystemExit(f"{program}: --device cuda has no GPU to measure: {problem}") from None
        self.stream = self.device.make_stream()

    def allocate(self, nbytes: int) -> _native.DeviceMemory:
        return self.device.allocate(max(nbytes, 1))

    def synchronize(self) -> None:
        self.device.synchronize(self.device.record(self.stream))

    def write(self, memory: _native.DeviceMemory, values: np.ndarray[Any, Any]) -> None:
        self.device.copy(self.stream, memory.address, values.ctypes.data, values.nbytes)
        self.synchronize()  # the copy must end before `values` is freed

    def read(self, memory: _native.DeviceMemory, nbytes: int) -> Bytes:
        values = np.zeros(nbytes, np.uint8)
        self.device.copy(self.stream, values.ctypes.data, memory.address, nbytes)
        self.synchronize()
        return values

    def seconds(self, run: Callable[[], object], calls: int) -> float:
        """Return the seconds, by the GPU's clock, of one of `calls` calls that give work to the stream."""
        begin = self.device.record(self.stream)
        for _ in range(calls):
            run()
        end = self.device.record(self.stream)
        self.device.synchronize(end)
        return self.device.milliseconds_between(begin, end) / 1000 / calls

    def facts(self) -> Record:
        """Return device, driver, CUDA and clocks at this moment."""
        return {"GPU": self.device.name, "CUDA": build_info().cuda or "none"} | asked(self.device.identity)


def asked(identity: str) -> dict[str, str]:
    """Return the settings that a figure depends on, from NVML; without NVML, why they are missing."""
    try:
        with nvml.opened() as library:
            if library is None:
                return {"driver": "unknown (no NVIDIA driver)"}
            return _facts(library, library.nvmlDeviceGetHandleByUUID(identity))
    except RuntimeError as error:
        return {"driver": f"unknown ({error})"}


def _facts(library: nvml.Nvml, gpu: Any) -> dict[str, str]:
    def of_gpu(function: str, *more: int) -> Any:
        return nvml.asked(library, f"nvmlDeviceGet{function}", gpu, *more)

    milliwatts = of_gpu("PowerManagementLimit")
    found = {
        "driver": nvml.asked(library, "nvmlSystemGetDriverVersion"),
        "SM clock, MHz": of_gpu("ClockInfo", library.NVML_CLOCK_SM),
        "most": of_gpu("MaxClockInfo", library.NVML_CLOCK_SM),
        "memory clock, MHz": of_gpu("ClockInfo", library.NVML_CLOCK_MEM),
        "power limit, W": None if milliwatts is None else f"{milliwatts / 1000:.2f}",
        "temperature, C": of_gpu("Temperature", library.NVML_TEMPERATURE_GPU),
        "PCIe generation": of_gpu("CurrPcieLinkGeneration"),
        "PCIe lanes": of_gpu("CurrPcieLinkWidth"),
    }
    return {name: "unknown" if value is None else str(value) for name, value in found.items()}
