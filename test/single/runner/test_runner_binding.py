"""``--bind auto`` on simulated /sys trees of other machines."""

import os
from pathlib import Path

import pytest

from horovod.runner import binding
from horovod.runner.binding import Core, Place, cores_of, node_of_network, places, processors_in


def machine(
    sys: Path, nodes: int, cores: int, threads: int = 2, cards: dict[str, tuple[int, int]] | None = None
) -> int:
    """Make a machine numbered as by Linux: first all cores' first threads. Returns its processors' number."""
    count = nodes * cores
    for node in range(nodes):
        own = [node * cores + core + count * thread for thread in range(threads) for core in range(cores)]
        write(sys / f"devices/system/node/node{node}/cpulist", ",".join(map(str, own)))
    for processor in range(count * threads):
        siblings = [processor % count + count * thread for thread in range(threads)]
        path = sys / f"devices/system/cpu/cpu{processor}/topology/thread_siblings_list"
        write(path, ",".join(map(str, siblings)))
    for name, (node, speed) in (cards or {}).items():
        write(sys / f"class/net/{name}/device/numa_node", str(node))
        if speed:
            write(sys / f"class/net/{name}/speed", str(speed))
    (sys / "class/net/lo").mkdir(parents=True, exist_ok=True)
    return count * threads


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n")


@pytest.mark.parametrize(
    ("text", "numbers"),
    [("0-3,8", [0, 1, 2, 3, 8]), ("5", [5]), ("", []), ("\n", []), ("0-1,4-5\n", [0, 1, 4, 5])],
)
def test_lists_of_processors(text: str, numbers: list[int]) -> None:
    assert processors_in(text) == numbers


def test_two_nodes_with_hyper_threads(tmp_path: Path) -> None:
    cores = cores_of(range(machine(tmp_path, nodes=2, cores=4)), tmp_path)
    assert cores[0] == Core(0, (0, 8)) and cores[-1] == Core(1, (7, 15)) and len(cores) == 8
    two = places(cores, 2)
    assert two == [Place((0, 1, 2, 3, 8, 9, 10, 11), 11), Place((4, 5, 6, 7, 12, 13, 14, 15), 15)]
    four = places(cores, 4)
    assert [place.processors for place in four] == [
        (0, 1, 8, 9),
        (2, 3, 10, 11),
        (4, 5, 12, 13),
        (6, 7, 14, 15),
    ]
    assert places(cores, 1)[0].processors == tuple(range(16))
    three = places(cores, 3)
    assert sorted(p for place in three for p in place.processors) == list(range(16)), "each processor once"


def test_the_first_rank_is_where_the_fastest_card_is(tmp_path: Path) -> None:
    cards = {"eth0": (0, 1000), "ib0": (1, 100_000), "eth1": (-1, 400_000), "down": (0, 0)}
    cores = cores_of(range(machine(tmp_path, 2, 4, cards=cards)), tmp_path)
    assert node_of_network(tmp_path) == 1
    assert places(cores, 2, 1) == list(reversed(places(cores, 2)))


def test_no_card_has_a_node(tmp_path: Path) -> None:
    machine(tmp_path, 1, 2, cards={"eth0": (-1, 1000)})
    assert node_of_network(tmp_path) is None
    assert node_of_network(tmp_path / "nothing") is None


def test_without_hyper_threads_the_engine_is_anywhere(tmp_path: Path) -> None:
    cores = cores_of(range(machine(tmp_path, 1, 4, threads=1)), tmp_path)
    assert places(cores, 2) == [Place((0, 1), None), Place((2, 3), None)]


def test_only_what_the_process_may_use(tmp_path: Path) -> None:
    """As in a container: only some processors, and one hyper-thread of some cores."""
    machine(tmp_path, 2, 4)
    cores = cores_of([1, 2, 3, 9, 12], tmp_path)
    assert cores == [Core(0, (1, 9)), Core(0, (2,)), Core(0, (3,)), Core(1, (12,))]
    assert places(cores, 2) == [Place((1, 2, 9), None), Place((3, 12), None)]


def test_nothing_is_known(tmp_path: Path) -> None:
    assert cores_of([0, 1], tmp_path) == [Core(0, (0,)), Core(0, (1,))]


def test_ranks_that_have_to_share(tmp_path: Path) -> None:
    cores = cores_of(range(machine(tmp_path, 1, 2)), tmp_path)
    assert places(cores, 3) == [] and places(cores, 0) == []


def test_binding_this_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bound: list[tuple[int, ...]] = []
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(machine(tmp_path, 2, 4))))
    monkeypatch.setattr(os, "sched_setaffinity", lambda process, processors: bound.append(tuple(processors)))
    monkeypatch.setattr(os, "environ", {})
    place = binding.bind(1, 2, tmp_path)
    assert place is not None and bound == [place.processors] == [(4, 5, 6, 7, 12, 13, 14, 15)]
    assert (os.environ["OMP_NUM_THREADS"], os.environ["HOROVOD_THREAD_AFFINITY"]) == ("4", "11,15")
    os.environ["OMP_NUM_THREADS"] = "1"
    binding.bind(0, 2, tmp_path)
    assert os.environ["OMP_NUM_THREADS"] == "1", "what the user has set stays"
    assert binding.bind(0, 9, tmp_path) is None and len(bound) == 2
