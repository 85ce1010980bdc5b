"""Random programs on tensors of the CPU and of emulated GPUs, mixed; some take each pattern of allreduce."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from emulated_gpu import GpuMemory
from hypothesis import HealthCheck, Phase, given, settings
from ways import WAYS, Case, Way, cases, ways

from horovod import _native

CASES = int(os.environ.get("HOROVOD_TEST_CASES", "150")) // 3 + 1  # for each number of ranks
SIZES = pytest.mark.parametrize("size", [2, 3, 4, 5])


@pytest.fixture(scope="module")
def gpus() -> list[GpuMemory]:
    """One GPU for each rank."""
    return [GpuMemory(rank) for rank in range(5)]


@pytest.mark.timeout(60 + 6 * CASES)
@SIZES
def test_random_programs_on_cpu_and_gpu_tensors(size: int, gpus: list[GpuMemory]) -> None:
    @settings(max_examples=CASES, deadline=None, suppress_health_check=list(HealthCheck))
    @given(case=cases(size, has_gpus=True))
    def run(case: Case) -> None:
        case.run(gpus)

    run()


def routes_of(case: Case, gpus: list[GpuMemory], path: Path) -> set[str]:
    """The patterns of rank 0's allreduces, from its timeline."""
    options = case.settings()
    options.timeline = str(path)
    case.run(gpus, options)
    return {
        event["args"]["route"] for event in json.loads(path.read_text()) if "route" in event.get("args", {})
    }


@SIZES
def test_every_pattern_is_taken(size: int, gpus: list[GpuMemory], tmp_path: Path) -> None:
    taken: set[str] = set()

    def take(way: Way) -> None:
        @settings(max_examples=2, derandomize=True, database=None, deadline=None, phases=[Phase.generate])
        @given(case=cases(size, has_gpus=True, way=way))
        def run(case: Case) -> None:
            routes = routes_of(case, gpus, tmp_path / "trace.json")
            assert way.pattern in routes | {""}, f"{case} took {routes}"
            taken.update(routes)

        run()

    for way in ways(size, has_gpus=True):
        take(way)
    needs_more_ranks = {way.pattern for way in WAYS if not way.places(size)}
    everything = {*_native.allreduce_patterns(), "host"} - needs_more_ranks
    assert taken - {"alone"} == everything
