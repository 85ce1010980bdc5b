"""Measurements of the core: its thread's processor time, and the costs of links, on which all ranks agree."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
from ranks import allreduce, on_ranks, stepped_engines
from tcp_worlds import tcp_settings, tcp_worlds

from horovod import _native


def test_processor_time_of_the_engines_thread_grows_with_its_work() -> None:
    all_have_looked = threading.Barrier(2)  # a rank that leaves ends the others' threads

    def program(rank: int, engine: _native.Engine) -> tuple[int, int, float]:
        began = time.process_time()
        before = engine.cpu_microseconds()
        x = np.ones(1 << 20, np.float32)
        for _ in range(5):
            allreduce(engine, "x", x)
        after = engine.cpu_microseconds()
        all_have_looked.wait(60)
        return before, after, time.process_time() - began

    for before, after, seconds in on_ranks(2, program):
        assert 0 <= before < after
        assert (after - before) / 1e6 <= seconds + 0.02, "it is a part of the process'"


def test_without_a_thread_there_is_none() -> None:
    with stepped_engines(1) as [engine]:
        assert engine.cpu_microseconds() == 0


def figures(costs: _native.LinkCosts) -> tuple[float, ...]:
    return costs.memory_latency, costs.memory_byte, costs.network_latency, costs.network_byte


USUAL = figures(_native.LinkCosts())


@pytest.mark.parametrize("hosts", [[0, 0, 0], [0, 0, 1], [0, 1, 2]], ids=["one", "two", "three"])
def test_all_ranks_measure_the_same(hosts: list[int]) -> None:
    """The slowest measurement of any rank; a network's cost only if the job has a network."""
    settings = tcp_settings(deterministic=False)
    found = [figures(world.links) for world in tcp_worlds(3, hosts, settings)]
    assert found[0] == found[1] == found[2]
    memory_latency, memory_byte, *network = found[0]
    assert memory_latency == USUAL[0], "which is not measured"
    assert 1e-12 < memory_byte < 1e-8 and memory_byte != USUAL[1]
    if len(set(hosts)) == 1:
        assert tuple(network) == USUAL[2:]
    else:
        assert 1e-7 < network[0] < 1.0 and 1e-13 < network[1] < 1e-6 and tuple(network) != USUAL[2:]


@pytest.mark.parametrize(("size", "deterministic"), [(1, False), (2, True)])
def test_what_is_not_measured_is_as_usual(size: int, deterministic: bool) -> None:
    """A single rank has no links, and deterministic jobs do not measure."""
    for world in tcp_worlds(size, settings=tcp_settings(deterministic=deterministic)):
        assert figures(world.links) == USUAL
