"""Reports on GPUs and on their operations."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from emulated_gpu import Gate, array, gpu_allreduce, gpu_submit, gpu_tensor, over
from ranks import on_ranks
from refusals import refused

from horovod import _native
from horovod.common.exceptions import WrongArgument


class TestTimeline:
    def traced(self, tmp_path: Path, transport: str) -> list[dict[str, Any]]:
        settings = over(transport)
        settings.timeline = str(tmp_path / "trace.json")

        def program(rank: int, engine: _native.Engine) -> None:
            gpu_allreduce(engine, "warm", np.ones(8, np.float32), rank)
            x = array(np.ones(3, np.float32), rank)
            gate = Gate(x)
            handle = gpu_submit(engine, "x", x)
            time.sleep(0.2)
            gate.open()
            engine.wait(handle)
            engine.stop_timeline()  # after it has seen the end

        on_ranks(2, program, settings=settings)
        events: list[dict[str, Any]] = json.loads((tmp_path / "trace.json").read_text())
        [process] = [e["pid"] for e in events if e["ph"] == "M" and e["args"]["name"] == "x"]
        return [e for e in events if e["pid"] == process]

    def test_an_operation_lasts_as_long_as_on_the_gpu(self, tmp_path: Path) -> None:
        mine = self.traced(tmp_path, "nccl")
        on_gpu = {e["name"]: e for e in mine if e["tid"] == 1 and e["ph"] == "X"}
        assert list(on_gpu) == ["ALLREDUCE", "WAIT_FOR_DATA", "NCCL_ALLREDUCE"]
        whole, waiting, working = on_gpu.values()
        assert waiting["dur"] > 150_000
        assert working["dur"] < waiting["dur"]
        assert abs(whole["dur"] - waiting["dur"] - working["dur"]) <= 2
        assert waiting["ts"] == whole["ts"] and abs(working["ts"] - waiting["ts"] - waiting["dur"]) <= 1
        assert whole["args"]["shape"] == "(3,)" and whole["args"]["route"].lower().startswith("nccl")
        assert [e["name"] for e in mine if e["ph"] == "B"] == ["NEGOTIATE_ALLREDUCE"]

    def test_each_member_of_a_group_has_the_route_of_its_dtype(self, tmp_path: Path) -> None:
        """int16 takes the host's route, as NCCL does not have it."""
        settings = over("nccl")
        settings.timeline = str(tmp_path / "trace.json")

        def program(rank: int, engine: _native.Engine) -> None:
            xs = [array(np.ones(3, dtype), rank) for dtype in (np.float32, np.int16)]
            result = engine.wait(engine.allreduce("g", [gpu_tensor(x) for x in xs], _native.Reduction()))
            for x in xs:
                result.order(x.stream.number)
                assert x.numpy().tolist() == [2] * 3

        on_ranks(2, program, settings=settings)
        events = json.loads((tmp_path / "trace.json").read_text())
        whole = {e["args"]["dtype"]: e["args"]["route"] for e in events if "route" in e.get("args", {})}
        assert whole == {"float32": "nccl allreduce", "int16": "host"}

    def test_the_phases_of_the_host_are_told(self, tmp_path: Path) -> None:
        mine = self.traced(tmp_path, "host")
        names = [e["name"] for e in mine if e["tid"] == 1 and e["ph"] == "X"]
        assert names[:2] == ["ALLREDUCE", "WAIT_FOR_DATA"]
        assert not any(name.startswith("NCCL") for name in names)


STAGES = ["encode", "copy_to_host", "reduce", "copy_back", "decode", "whole"]


@pytest.mark.parametrize("hosts", [(0, 0), (0, 1), (0, 0, 1, 1)], ids=str)
def test_the_stages_of_the_host_are_counted_when_they_are_done(hosts: tuple[int, ...]) -> None:
    """An operation's steps follow each other without gaps, from its beginning to its end."""

    def program(rank: int, engine: _native.Engine) -> dict[str, int]:
        for _ in range(3):
            gpu_allreduce(engine, "x", np.ones(300_000, np.float32), rank, codec=_native.get_codec("bit8"))
        engine.wait(engine.barrier("all rounds look at what the GPU has done"))
        return engine.counters()

    settings = over("host")
    for counters in on_ranks(len(hosts), program, settings=settings, hosts=hosts):
        times = {stage: counters[f"gpu_{stage}_microseconds"] for stage in STAGES}
        assert min(times.values()) > 0 and max(times.values()) == times["whole"], times


CPU_ONLY = """
import numpy as np
from horovod import _native
_native.use_device_library("/nowhere.so")
[world] = _native.local_worlds(1)
engine = _native.Engine(world, _native.Settings())
x = np.ones(3, np.float32)
view = _native.Tensor(x.ctypes.data, x.ctypes.data, [3], 6)
engine.wait(engine.allreduce("x", [view], _native.Reduction()))
try:
    engine.allreduce("x", [_native.Tensor(0, 0, [0], 6, device=0)], _native.Reduction())
except ValueError as error:
    print(error.code, error.facts["path"])
engine.shutdown()
assert "cuda" not in open("/proc/self/maps").read()
"""


def test_what_gpus_take_is_measured_once_and_known_alike(capfd: pytest.CaptureFixture[str]) -> None:
    def measured(deterministic: bool) -> list[str]:
        settings = over("nccl")
        settings.log_level, settings.deterministic = "info", deterministic

        def program(rank: int, engine: _native.Engine) -> None:
            for step in range(2):
                gpu_allreduce(engine, f"x{step}", np.ones(3, np.float32), rank)

        on_ranks(2, program, settings=settings)
        return re.findall(r"GPU \d+: (kernels .*)", capfd.readouterr().out)

    first, second = measured(deterministic=False)
    assert first == second != repr(_native.GpuCosts())
    assert first.split(", ")[2] == repr(_native.GpuCosts()).split(", ")[2]  # there is one host
    assert measured(deterministic=True) == []  # without a measurement there is no report


def test_cpu_tensors_open_no_cuda() -> None:
    """A GPU's tensor gets an error if the package has no CUDA."""
    command = [sys.executable, "-c", CPU_ONLY]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "built_without_cuda /nowhere.so\n"


OTHER_BUILD = """
from horovod import _native
_native.use_device_library({path!r})
print(_native.gpu_facts().why_none)
"""


@pytest.mark.parametrize(
    ("source", "interface"),
    [
        ('extern "C" { extern const char hvd_device_interface[5] = "0123"; }', "0123"),
        ("", "unknown"),
    ],
)
def test_a_library_of_another_build(source: str, interface: str, tmp_path: Path) -> None:
    """The core calls none of its functions, whose arguments may differ."""
    code, library = tmp_path / "other.cc", tmp_path / "libother.so"
    code.write_text(source)
    subprocess.run(["g++", "-shared", "-fPIC", "-o", library, code], check=True)
    command = [sys.executable, "-c", OTHER_BUILD.format(path=str(library))]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert f"{library} is of another build" in done.stdout and f"(interface {interface}, not " in done.stdout


CONTEXTS = """
import ctypes
from emulated_gpu import LIBRARY, array, call, emulation, gpu_allreduce
from ranks import on_ranks
import numpy as np
from horovod import _native
from horovod.common.exceptions import WrongArgument

cuda = ctypes.CDLL(str(emulation.runtime_path()))
contexts = lambda: [gpu for gpu in range(8) if cuda.emulatedCudaHasContext(gpu)]

assert _native.gpu_facts().count == 8
assert contexts() == [], f"looking made contexts on {contexts()}"


def program(rank, engine):
    call("cudaSetDevice", 2)  # as torch.cuda.set_device() does
    for codec in (None, _native.get_codec("bit8")):
        gpu_allreduce(engine, "x", np.ones(3, np.float32), 2, codec=codec)
    engine.wait(engine.allgather("g", [_native.Tensor(0, 0, [0], 6, device=2)]))


on_ranks(1, program)
assert contexts() == [2], f"the core made contexts on {contexts()}"
"""


def test_only_the_gpu_of_the_rank_gets_a_context() -> None:
    """A context takes about 500 MB, and the contexts of all ranks of a host would be on its first GPU."""
    folder = str(Path(__file__).resolve().parents[1] / "support")
    environment = os.environ | {"PYTHONPATH": folder + os.pathsep + os.environ.get("PYTHONPATH", "")}
    environment["EMULATED_CUDA_DEVICES"] = "8"  # independent of other tests
    command = [sys.executable, "-c", CONTEXTS]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, env=environment)
    assert done.returncode == 0, done.stderr


def test_what_this_process_sees() -> None:
    facts = _native.gpu_facts()
    assert (facts.count, facts.why_none) == (8, "")
    assert facts.names == ["Emulated GPU"] * 8
    assert len(set(facts.identities)) == 8 and all(name.startswith("GPU-") for name in facts.identities)
    assert facts.nccl_version == _native.nccl_version() == 22809 and facts.why_no_nccl == ""
    assert _native.device_library_is_installed()
    with refused(WrongArgument, "cuda_part_in_use", path="/nowhere.so"):
        _native.use_device_library("/nowhere.so")
