"""HOROVOD_THREAD_AFFINITY: the core on which each rank's engine runs, or the reason why it cannot."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Sequence
from pathlib import Path

import busy
import pytest
from refusals import refused

from horovod import _native
from horovod.common.exceptions import WrongSetting

CORES = sorted(os.sched_getaffinity(0))
NOT_OURS = max(CORES) + 1


def engine_threads() -> set[int]:
    """The ids of this process's threads."""
    found = set()
    for path in Path("/proc/self/task").glob("*/comm"):
        with contextlib.suppress(OSError):  # the thread has ended meanwhile
            if path.read_text() == "horovod-engine\n":
                found.add(int(path.parent.name))
    return found


def cores_of(affinity: str, hosts: Sequence[int] = (0,)) -> list[set[int]]:
    """The cores on which each rank's engine may run."""
    settings = _native.Settings()
    settings.thread_affinity = affinity
    found, engines = [], []
    try:
        for world in _native.local_worlds(len(hosts), hosts=list(hosts)):
            before = engine_threads()
            engines.append(_native.Engine(world, settings))
            found.append(cores_when_settled(before, is_pinned=affinity != ""))
    finally:
        for engine in engines:
            engine.shutdown()
    return found


def cores_when_settled(before: set[int], is_pinned: bool) -> set[int]:
    """The cores of the new thread, once it has set its name, which it does before its core."""
    end = busy.limit(20)
    while True:
        cores = [os.sched_getaffinity(thread) for thread in engine_threads() - before]
        if cores and (len(cores[0]) == 1 or not is_pinned or time.monotonic() > end):
            return cores[0]


def test_engines_run_where_the_process_may() -> None:
    assert cores_of("") == [set(CORES)]


def test_each_rank_of_a_host_has_the_core_that_is_listed_for_it() -> None:
    """Cores follow the local ranks."""
    first, last = CORES[0], CORES[-1]
    listed = f"{last},{first}"
    assert cores_of(listed, [0, 0]) == [{last}, {first}]
    assert cores_of(listed, [0, 1, 1]) == [{last}, {last}, {first}]


def test_one_number_is_that_of_the_first_rank() -> None:
    first = CORES[0]
    assert cores_of(f"{first}", [0, 1]) == [{first}, {first}]
    if first + 1 in CORES:
        assert cores_of(f"{first}", [0, 0]) == [{first}, {first + 1}]


VARIABLE = "HOROVOD_THREAD_AFFINITY"


@pytest.mark.parametrize(
    "affinity", ["a", "0,x", "0,1x", "-1", "0,-1", "0,,1", "0 1", "99999999999999999999"]
)
def test_what_is_no_list_of_cores(affinity: str) -> None:
    with refused(WrongSetting, "no_core_numbers", setting=VARIABLE, value=affinity):
        cores_of(affinity)


def test_a_list_that_is_too_short() -> None:
    listed = f"{CORES[0]},{CORES[0]}"
    with refused(WrongSetting, "no_core_for_rank", setting=VARIABLE, value=listed, local_rank=2):
        cores_of(listed, [0, 0, 0])
    assert cores_of(listed, [0, 0, 1]) == [{CORES[0]}] * 3


@pytest.mark.parametrize("core", [NOT_OURS, 1023, 1024, 2**31 - 1])
def test_a_core_that_the_process_has_not(core: int) -> None:
    with refused(WrongSetting, "core_not_allowed", setting=VARIABLE, local_rank=0, core=core):
        cores_of(f"{core}")


def test_a_core_that_only_a_later_rank_has_not() -> None:
    with refused(WrongSetting, "core_not_allowed", local_rank=1, core=NOT_OURS):
        cores_of(f"{CORES[-1]}", [0, 0])
