"""The route of an allreduce is a pure function of sizes, places and costs, and reports its reason."""

from __future__ import annotations

from typing import Any

import pytest

from horovod import _native
from horovod.common.options import BY_VARIABLE

MB = 1_000_000


def route(algorithm: str = "auto", deterministic: bool = False, **facts: Any) -> tuple[str, bool, str]:
    """The route for ranks on one host that share memory; `facts` replace the defaults."""
    all_facts = _native.PlanFacts()
    facts = {"ranks": 2, "shares_memory": facts.get("hosts", 1) == 1, **facts}
    facts.setdefault("most_on_a_host", -(-facts["ranks"] // facts.get("hosts", 1)))
    facts.setdefault("carriers", facts["ranks"] // facts.get("hosts", 1))
    facts.setdefault("has_host_windows", facts.get("hosts", 1) > 1 and facts["most_on_a_host"] > 1)
    facts.setdefault("wire_bytes", facts["bytes"] // (4 if facts.get("is_encoded") else 1))
    for name, value in facts.items():
        setattr(all_facts, name, value)
    plan = _native.plan_allreduce(all_facts, algorithm, deterministic)
    return plan.route, plan.is_encoded, plan.reason


def test_one_rank_needs_no_wire() -> None:
    assert route(ranks=1, bytes=MB, is_encoded=True) == ("alone", False, "one rank")


@pytest.mark.parametrize("ranks", [2, 3, 4, 7, 16])
def test_large_sums_are_scattered_in_memory_and_small_ones_are_not(ranks: int) -> None:
    assert route(ranks=ranks, bytes=100 * MB)[0] == "window scatter"
    assert route(ranks=ranks, bytes=1000)[0] == "window gather"


def test_two_parties_quantise_once() -> None:
    """Two ranks send the same bytes either way; with more ranks, scattering sends less."""
    for size in (1000, MB, 100 * MB):
        assert route(ranks=2, bytes=size, is_encoded=True)[0] == "window gather"
        assert route(ranks=2, hosts=2, bytes=size, is_encoded=True)[0] == "exchange gather"
    assert route(ranks=4, hosts=2, bytes=MB, is_encoded=True)[0] == "hierarchical gather"
    assert route(ranks=4, hosts=4, bytes=100 * MB, is_encoded=True)[0] == "exchange scatter"
    assert route(ranks=8, hosts=4, bytes=100 * MB, is_encoded=True)[0] == "hierarchical scatter"


def test_a_hierarchy_is_for_hosts_of_several_ranks() -> None:
    assert route(ranks=8, hosts=2, bytes=100 * MB)[0].startswith("hierarchical")
    assert route(ranks=2, hosts=2, bytes=100 * MB)[0].startswith("exchange")
    assert route(ranks=8, hosts=2, bytes=100 * MB, has_host_windows=False)[0] == "exchange scatter"
    assert route("hierarchical", ranks=2, hosts=2, bytes=MB)[0].startswith("exchange")


@pytest.mark.parametrize(
    ("algorithm", "hosts", "expected"),
    [
        ("gather", 1, "window gather"),
        ("scatter", 1, "window scatter"),
        ("gather", 2, "exchange gather"),
        ("scatter", 2, "exchange scatter"),
    ],
)
def test_a_route_can_be_forced(algorithm: str, hosts: int, expected: str) -> None:
    for size in (8, 100 * MB):
        name, encoded, reason = route(algorithm, ranks=4, hosts=hosts, bytes=size, is_encoded=True)
        assert (name, encoded) == (expected, True)
        assert "HOROVOD_ALLREDUCE_ALGORITHM" in reason


@pytest.mark.parametrize(
    ("world", "possible"),
    [
        ((1, True, []), "auto"),
        ((3, True, []), "auto gather scatter"),
        ((3, False, []), "auto gather scatter ring"),
        ((2, False, [0, 1]), "auto gather scatter"),
        ((4, True, [0, 0, 1, 1]), "auto gather scatter ring hierarchical"),
        ((4, False, [0, 0, 1, 1]), "auto gather scatter ring"),
    ],
)
def test_which_algorithms_a_world_has_routes_of(world: tuple[int, bool, list[int]], possible: str) -> None:
    facts = _native.PlanFacts.of_world(_native.local_worlds(*world)[0])
    facts.sums_can_travel = True
    choices = BY_VARIABLE["HOROVOD_ALLREDUCE_ALGORITHM"].choices
    assert [each for each in choices if facts.has_routes(each)] == possible.split()
    assert facts.has_routes("gather:9,hierarchical") == ("hierarchical" in possible)
    facts.sums_can_travel = False
    assert not facts.has_routes("ring")
    facts.on_gpu = facts.has_nccl = facts.is_encoded = True
    assert facts.has_routes("hierarchical") == (len(set(world[2])) > 1 and world[0] == 4)


def test_the_facts_of_a_world_are_where_its_ranks_are() -> None:
    facts = _native.PlanFacts.of_world(_native.local_worlds(5, True, [0, 0, 0, 1, 1])[4])
    assert (facts.ranks, facts.hosts, facts.most_on_a_host, facts.carriers) == (5, 2, 3, 2)
    assert (facts.shares_memory, facts.has_host_windows) == (False, True)


def test_the_hierarchy_of_one_host_is_exact() -> None:
    name, encoded, reason = route("hierarchical", ranks=4, bytes=MB, is_encoded=True)
    assert (name, encoded) == ("window scatter", False)
    assert "exact" in reason


@pytest.mark.parametrize("hosts", [1, 2, 3])
@pytest.mark.parametrize("encoded", [False, True])
def test_deterministic_routes_do_not_depend_on_sizes(hosts: int, encoded: bool) -> None:
    sizes = (8, 4096, MB, 1000 * MB)
    facts: dict[str, Any] = {"deterministic": True, "ranks": 6, "hosts": hosts, "is_encoded": encoded}
    assert len({route(bytes=size, **facts)[0] for size in sizes}) == 1


def test_the_choice_is_the_cheapest_of_its_explanation() -> None:
    for size in (100, 10_000, MB, 100 * MB):
        for ranks, hosts in ((2, 1), (4, 2), (6, 3), (16, 4)):
            name, _, reason = route(ranks=ranks, hosts=hosts, bytes=size)
            costs = dict(part.removesuffix(" ms").rsplit(" ", 1) for part in reason[11:].split(", "))
            assert float(costs[name]) == min(float(cost) for cost in costs.values())


def test_a_slow_network_sends_fewer_bytes() -> None:
    """One round if messages are expensive; scattering if bytes are."""
    facts = _native.PlanFacts()
    facts.ranks, facts.hosts, facts.bytes, facts.wire_bytes = 4, 4, 100_000, 100_000
    costs = _native.LinkCosts()
    costs.network_latency, costs.network_byte = 1.0, 1e-12
    assert _native.plan_allreduce(facts, costs=costs).route == "exchange gather"
    costs.network_latency, costs.network_byte = 1e-9, 1e-6
    assert _native.plan_allreduce(facts, costs=costs).route == "exchange scatter"


def test_a_ring_is_for_large_sums_of_hosts_that_share_nothing_inside() -> None:
    """A ring sends each byte to one other host, but has many rounds."""
    among = {"ranks": 8, "hosts": 2, "has_host_windows": False, "sums_can_travel": True}
    assert route(bytes=100 * MB, **among)[0] == "exchange ring"
    assert route(bytes=1000, **among)[0] == "exchange gather"
    for other in ({"sums_can_travel": False}, {"has_host_windows": True}, {"ranks": 2}, {"hosts": 8}):
        assert route(bytes=100 * MB, **{**among, **other})[0] != "exchange ring"
    for deterministic in (False, True):
        assert route("ring", deterministic, bytes=1000, **among)[0] == "exchange ring"
    assert route(deterministic=True, bytes=100 * MB, **among)[0] == "exchange scatter"
