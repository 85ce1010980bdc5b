"""A GPU for benchmarks: open it, allocate memory, time work between events, and describe it."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np

from horovod import _native
from horovod.common.build_info import build_info
from horovod.topology import nvml

# Tests set it to another library, which emulates the GPU on the CPU.
LIBRARY_VARIABLE = "BENCHMARK_DEVICE_LIBRARY"
Bytes = np.ndarray[Any, np.dtype[np.uint8]]


class Gpu:
    """A GPU and one stream of it, on which everything runs."""

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

    def facts(self) -> dict[str, Any]:
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
