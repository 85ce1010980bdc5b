"""The estimated time of a route: rounds, bytes on a cable and passes over memory, counted separately.

Each test sets one cost to 1 and the others to 0: the estimate is then how often that cost is paid.
"""

from __future__ import annotations

from typing import Any

import pytest

from horovod import _native

BYTES, WIRE = 1 << 20, 1 << 18
GPU = {"on_gpu": True, "has_nccl": True, "op": 1}
ONE_HOST: dict[str, Any] = {"ranks": 4, "hosts": 1, "most_on_a_host": 4, "carriers": 4}
HOSTS: dict[str, Any] = {"ranks": 12, "hosts": 3, "most_on_a_host": 4, "carriers": 2}
KINDS = {  # settings that allow several routes
    "window": ONE_HOST | {"shares_memory": True},
    "messages inside a host": ONE_HOST | {"sums_can_travel": True},
    "messages": HOSTS | {"sums_can_travel": True},
    "hierarchy": HOSTS | {"has_host_windows": True},
    "NCCL inside a host": ONE_HOST | GPU | {"is_encoded": True},
    "NCCL": HOSTS | GPU | {"is_encoded": True},
    "NCCL's own inside a host": ONE_HOST | GPU,
    "NCCL's own": HOSTS | GPU,
}


def estimates(kind: str, *paid: str, scale: float = 1.0, **facts: Any) -> dict[str, float]:
    """Seconds of each route. `paid`: the costs that are 1, for example "links.memory_byte"; if empty, all
    costs are the defaults times `scale`.
    """
    known = _native.PlanFacts()
    for name, value in (KINDS[kind] | {"bytes": BYTES, "wire_bytes": WIRE} | facts).items():
        setattr(known, name, value)
    costs = {"links": _native.LinkCosts(), "gpu": _native.GpuCosts()}
    for group, each in costs.items():
        for name in (name for name in dir(each) if not name.startswith("_")):
            value = float(f"{group}.{name}" in paid) if paid else getattr(each, name)
            setattr(each, name, scale * value)
    return dict(_native.plan_allreduce(known, costs=costs["links"], gpu_costs=costs["gpu"]).estimates)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("encoded", [False, True])
def test_where_all_is_twice_as_dear_every_route_is(kind: str, encoded: bool) -> None:
    facts = {} if "NCCL" in kind else {"is_encoded": encoded, "sums_can_travel": not encoded}
    once, twice = estimates(kind, **facts), estimates(kind, scale=2.0, **facts)
    assert once and {name: 2 * value for name, value in once.items()} == twice


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_becomes_cheaper_with_more_bytes_or_ranks(kind: str) -> None:
    once = estimates(kind)
    for more in ({"bytes": 2 * BYTES, "wire_bytes": 2 * WIRE}, {"ranks": 3 * KINDS[kind]["ranks"]}):
        dearer = estimates(kind, **more)
        assert all(dearer[name] >= once[name] > 0 for name in once)


@pytest.mark.parametrize(
    ("kind", "paid", "rounds"),
    [
        ("window", "links.memory_latency", {"window gather": 1, "window scatter": 2}),
        (
            "messages inside a host",
            "links.memory_latency",
            {"exchange gather": 1, "exchange scatter": 2, "exchange ring": 6},
        ),
        (
            "messages",
            "links.network_latency",
            {"exchange gather": 1, "exchange scatter": 2, "exchange ring": 22},
        ),
        ("hierarchy", "links.network_latency", {"hierarchical gather": 1, "hierarchical scatter": 2}),
        ("hierarchy", "links.memory_latency", {"hierarchical gather": 2, "hierarchical scatter": 2}),
        ("NCCL inside a host", "gpu.local_latency", {"nccl gather": 1, "nccl scatter": 2}),
        ("NCCL", "gpu.network_latency", {"nccl gather": 1, "nccl scatter": 2}),
        ("NCCL", "gpu.local_latency", {"nccl hierarchical": 2}),
        ("NCCL's own inside a host", "gpu.local_latency", {"nccl allreduce": 2}),
        ("NCCL's own", "gpu.network_latency", {"nccl allreduce": 2}),
    ],
)
def test_rounds(kind: str, paid: str, rounds: dict[str, int]) -> None:
    """A ring of n ranks has n - 1 rounds for the sums and as many for the results."""
    found = estimates(kind, paid)
    assert {name: found[name] for name in rounds} == rounds


@pytest.mark.parametrize(
    ("kind", "paid", "messages"),
    [
        # The 4 ranks of a host send to the 8 others: the whole tensor, or a slice and a sum.
        ("messages", "links.network_byte", {"exchange gather": 32, "exchange scatter": 32 * 2 / 12}),
        ("messages", "links.network_byte", {"exchange ring": 2 * 11 / 12}),
        ("hierarchy", "links.network_byte", {"hierarchical gather": 2, "hierarchical scatter": 2 * 2 / 3}),
        ("NCCL inside a host", "gpu.local_byte", {"nccl gather": 3, "nccl scatter": 2 * 3 / 4}),
        ("NCCL", "gpu.network_byte", {"nccl gather": 32, "nccl scatter": 32 * 2 / 12}),
    ],
)
def test_bytes_on_the_busiest_cable(kind: str, paid: str, messages: dict[str, float]) -> None:
    """Counted in messages of all tensors."""
    found = estimates(kind, paid)
    assert {name: found[name] / WIRE for name in messages} == pytest.approx(messages)


@pytest.mark.parametrize(
    ("kind", "where"), [("NCCL's own inside a host", "local"), ("NCCL's own", "network")]
)
def test_bytes_of_ncclallreduce(kind: str, where: str) -> None:
    """The ring sends elements instead of codes, as scattering does."""
    others = KINDS[kind]["ranks"] - 1
    found = estimates(kind, f"gpu.{where}_byte")["nccl allreduce"]
    assert found == pytest.approx(2 * others / (others + 1) * BYTES)


@pytest.mark.parametrize("ranks", [2, 4, 16])
def test_passes_over_memory_in_a_window(ranks: int) -> None:
    """Gathering reads the numbers of all ranks; scattering reads each slice once."""
    among = {"ranks": ranks, "most_on_a_host": ranks}
    found = estimates("window", "links.memory_byte", **among)
    assert found["window gather"] == (1 + ranks) * BYTES
    assert found["window scatter"] == pytest.approx((1 + 2 * (ranks - 1) / ranks) * BYTES)
    codes = estimates("window", "links.memory_byte", is_encoded=True, **among)
    assert codes["window gather"] == 2 * found["window gather"], "encoding is a pass more for each"
    assert codes["window gather"] > codes["window scatter"] or ranks == 2


@pytest.mark.parametrize(
    ("kind", "passes", "encoded"),
    [
        ("messages", {"exchange gather": 13, "exchange scatter": 1 + 2 * 11 / 12}, False),
        ("messages", {"exchange ring": 2 * 11 / 12 + 1 / 12}, False),
        # 3 inside a host; between hosts the rounds of three parties, shared by two carriers.
        ("hierarchy", {"hierarchical gather": 3 + 4 / 2, "hierarchical scatter": 3 + (1 + 4 / 3) / 2}, False),
        (
            "hierarchy",
            {"hierarchical gather": 3 + 2 * 4 / 2, "hierarchical scatter": 3 + 2 * (3 + 1 / 3) / 2},
            True,
        ),
    ],
)
def test_passes_over_memory_between_hosts(kind: str, passes: dict[str, float], encoded: bool) -> None:
    found = estimates(kind, "links.memory_byte", is_encoded=encoded)
    assert {name: found[name] / BYTES for name in passes} == pytest.approx(passes)


def test_messages_inside_of_a_host_are_copied_twice() -> None:
    found = estimates("messages inside a host", "links.memory_byte")
    assert found["exchange gather"] == 5 * BYTES + 2 * 3 * WIRE
    assert found["exchange scatter"] == pytest.approx(2.5 * BYTES + 2 * 1.5 * WIRE)
    assert found["exchange ring"] == pytest.approx(1.75 * BYTES + 2 * 1.5 * WIRE)


def test_kernels_make_the_same_passes() -> None:
    inside = estimates("NCCL inside a host", "gpu.kernel_byte")
    assert inside == pytest.approx({"nccl gather": 2 * 5 * BYTES, "nccl scatter": 2 * 3.25 * BYTES})
    assert inside == {
        name.replace("window", "nccl"): value
        for name, value in estimates("window", "links.memory_byte", is_encoded=True).items()
    }


def test_what_runs_side_by_side_counts_as_the_longest_of_it() -> None:
    """Between hosts, transfer and addition overlap: only the more expensive one counts."""
    for kind, work, travel in (
        ("messages", "links.memory_byte", "links.network_byte"),
        ("hierarchy", "links.memory_byte", "links.network_byte"),
        ("NCCL inside a host", "gpu.kernel_byte", "gpu.local_byte"),
        ("NCCL", "gpu.kernel_byte", "gpu.network_byte"),
    ):
        working, moving, both = (estimates(kind, *paid) for paid in ((work,), (travel,), (work, travel)))
        for name in both.keys() - {"nccl hierarchical"}:  # which moves bytes inside of hosts too
            assert both[name] == max(working[name], moving[name])


def test_what_links_cost_is_said_in_units_that_people_know() -> None:
    costs = _native.LinkCosts()
    costs.memory_latency, costs.memory_byte = 2.5e-6, 2e-10
    costs.network_latency, costs.network_byte = 1e-4, 8e-9
    assert repr(costs) == "memory 2.5 us + 5.0 GB/s, network 100 us + 1.00 Gbit/s"
