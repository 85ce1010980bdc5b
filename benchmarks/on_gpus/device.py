"""A GPU for benchmarks: opening it, memory, time between events, and what it is."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from typing import Any

import numpy as np

from horovod import _native
from horovod.common.build_info import build_info

# Tests name another library in it, one that plays the GPU on the CPU.
LIBRARY_VARIABLE = "BENCHMARK_DEVICE_LIBRARY"
ASKED = {  # of nvidia-smi: what a figure depends on
    "driver": "driver_version",
    "SM clock, MHz": "clocks.sm",
    "most": "clocks.max.sm",
    "memory clock, MHz": "clocks.mem",
    "power limit, W": "power.limit",
    "temperature, C": "temperature.gpu",
    "PCIe generation": "pcie.link.gen.current",
    "PCIe lanes": "pcie.link.width.current",
}
SMI_LIMIT = 20.0  # seconds

Bytes = np.ndarray[Any, np.dtype[np.uint8]]


class Gpu:
    """A GPU and one stream of it, on which everything is done."""

    def __init__(self, program: str, index: int) -> None:
        """Ends the program with a sentence where there is no GPU, or where this build serves none."""
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
        self.synchronize()  # before `values` may go

    def read(self, memory: _native.DeviceMemory, nbytes: int) -> Bytes:
        values = np.zeros(nbytes, np.uint8)
        self.device.copy(self.stream, values.ctypes.data, memory.address, nbytes)
        self.synchronize()
        return values

    def seconds(self, run: Callable[[], object], calls: int) -> float:
        """For one of `calls` calls, each of which gives work to the stream, as the GPU's own clock has it."""
        begin = self.device.record(self.stream)
        for _ in range(calls):
            run()
        end = self.device.record(self.stream)
        self.device.synchronize(end)
        return self.device.milliseconds_between(begin, end) / 1000 / calls

    def facts(self) -> dict[str, Any]:
        """Device, driver, CUDA and clocks at this moment."""
        return {"GPU": self.device.name, "CUDA": build_info().cuda or "none"} | asked(self.device.identity)


def asked(identity: str) -> dict[str, str]:
    """What nvidia-smi says of this GPU; nothing where there is no nvidia-smi, or it does not know the GPU."""
    query = ["nvidia-smi", "--format=csv,noheader,nounits", "-i", identity]
    query.append("--query-gpu=" + ",".join(ASKED.values()))
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=SMI_LIMIT, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return {"driver": "unknown (no nvidia-smi)"}
    answers = [answer.strip() for answer in done.stdout.split(",")]
    if done.returncode != 0 or len(answers) != len(ASKED):
        return {"driver": "unknown (nvidia-smi did not say)"}
    return dict(zip(ASKED, answers, strict=True))
