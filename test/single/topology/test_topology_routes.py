"""Routes of a topology are the core's own, computed from the core's facts; and their descriptions."""

# private: _facts: the core's input, which a route does not show

from __future__ import annotations

from dataclasses import replace

import pytest
import topology_machines as made

from horovod import _native as native
from horovod.common.options import BY_VARIABLE
from horovod.topology import routes, text
from horovod.topology.facts import Ranks

PLACES = {
    "two here": (0, 0),
    "four here": (0, 0, 0, 0),
    "two hosts": (0, 1),
    "four hosts": (0, 1, 2, 3),
    "two on each": (0, 0, 1, 1),
    "uneven": (0, 0, 0, 1),
}


def chosen(ranks: Ranks, size: int, compression: str = "none") -> routes.Route:
    (route,) = [r for r in routes.routes(ranks) if (r.size, r.compression) == (size, compression)]
    return route


@pytest.mark.parametrize("place", PLACES)
def test_the_route_is_the_cheapest(place: str) -> None:
    found = routes.routes(made.ranks_on(*PLACES[place]))
    assert [(route.compression, route.size) for route in found] == [
        (compression, size) for compression in ("none", "bit8") for size in (1_000, 1_000_000, 100_000_000)
    ]
    for route in found:
        assert route.milliseconds == min(route.estimates.values()) > 0
        assert route.is_encoded == (route.compression == "bit8")
        other = route.next_best()
        assert other is not None and other[0] != route.name and other[1] >= route.milliseconds


@pytest.mark.parametrize("place", PLACES)
def test_ranks_of_the_core_would_have_the_same_facts(place: str) -> None:
    """Worlds of threads with these places compute the facts of their group as the executor does."""
    hosts = PLACES[place]
    ranks = made.ranks_on(*hosts)
    for world in native.local_worlds(len(hosts), shares_memory=len(set(hosts)) == 1, hosts=list(hosts)):
        facts = routes._facts(ranks, 1000, "none")
        assert (facts.ranks, facts.hosts) == (world.size, len(set(hosts)))
        assert world.local_size <= facts.most_on_a_host
        assert facts.carriers <= world.local_size
        assert facts.shares_memory == (world.local_size == world.size)


def test_facts_of_compressed_and_uneven_ranks() -> None:
    facts = routes._facts(made.ranks_on(0, 0, 0, 1), 4_000_000, "bit8")
    assert (facts.most_on_a_host, facts.carriers, facts.has_host_windows) == (3, 1, True)
    assert (facts.bytes, facts.is_encoded) == (4_000_000, True)
    assert facts.wire_bytes == native.get_codec("bit8").encoded_bytes(1_000_000) < 1_100_000


def test_known_choices() -> None:
    assert chosen(made.ranks_on(0, 0, 0, 0), 100_000_000).name == "window scatter"
    assert chosen(made.ranks_on(0, 1), 100_000_000, "bit8").name == "exchange gather"
    assert chosen(made.ranks_on(0, 1, 2, 3), 100_000_000).name == "exchange scatter"
    assert chosen(made.ranks_on(0, 0, 1, 1), 100_000_000).name.startswith("hierarchical")
    without_windows = replace(made.ranks_on(0, 0, 1, 1), has_host_windows=False)
    assert chosen(without_windows, 100_000_000).name == "exchange ring"
    assert chosen(without_windows, 100_000_000, "bit8").name == "exchange scatter"


def test_a_network_that_is_four_times_as_fast_takes_a_quarter_of_the_time() -> None:
    slow = made.ranks_on(0, 1)
    fast = replace(slow, links=replace(slow.links, network_byte=slow.links.network_byte / 4))
    size = 100_000_000
    assert chosen(slow, size).milliseconds == pytest.approx(4 * chosen(fast, size).milliseconds, rel=0.01)
    assert chosen(slow, size).milliseconds == pytest.approx(850, rel=0.01)  # 100 MB at 8.5 ns a byte


def test_one_rank_is_alone() -> None:
    route = chosen(routes.one_host(1), 1000, "bit8")
    assert (route.name, route.is_encoded, route.milliseconds, route.next_best()) == ("alone", False, 0, None)


def test_settings_beat_costs() -> None:
    ranks = replace(made.ranks_on(0, 0, 0, 0), algorithm="gather")
    route = chosen(ranks, 100_000_000)
    assert route.name == "window gather" and "HOROVOD_ALLREDUCE_ALGORITHM" in route.reason
    assert route.milliseconds > route.estimates["window scatter"] > 0
    hierarchy = chosen(replace(ranks, algorithm="hierarchical"), 1000, "bit8")
    assert not hierarchy.is_encoded and "exact" in hierarchy.reason
    names = {route.name for route in routes.routes(replace(ranks, algorithm="auto", is_deterministic=True))}
    assert names == {"window scatter"}


def test_every_route_of_the_core_has_a_meaning() -> None:
    """Many places and settings together give all routes except those between GPUs."""
    names = {route.name for route in routes.routes(routes.one_host(1))}
    for hosts in PLACES.values():
        for algorithm in BY_VARIABLE["HOROVOD_ALLREDUCE_ALGORITHM"].choices:
            ranks = replace(made.ranks_on(*hosts), algorithm=algorithm)
            names |= {name for route in routes.routes(ranks) for name in (route.name, *route.estimates)}
    patterns = {name for name in native.allreduce_patterns() if not name.startswith("nccl ")}
    assert names == {"alone", *patterns}
    assert all(routes.meaning(name).endswith(".") for name in names)


def test_the_explanation() -> None:
    ranks = made.ranks_on(0, 1)
    shown = text.explanation(ranks, routes.routes(ranks))
    assert shown.startswith("Links between 2 ranks (measured when the job started):\n  memory   10.0 GB/s; ")
    assert "  network  941 Mbit/s in each direction; another host notices after 60 us\n" in shown
    assert "   100 MB  bit8         exchange gather" in shown
    assert "Each is the cheapest possible one here" in shown
    assert "\n\n  exchange gather  Every rank sends its numbers to every other." in shown
    assert max(map(len, shown.splitlines())) <= 100


def test_the_explanation_of_what_is_not_by_cost() -> None:
    ranks = replace(made.ranks_on(0, 0), algorithm="hierarchical", links=routes.one_host(1).links)
    shown = text.explanation(ranks, routes.routes(ranks))
    assert "Links between 2 ranks (assumed, as nothing was measured)" in shown and "network" not in shown
    assert "Not by cost: a hierarchy of one host is exact." in shown
    assert "none (exact)" in shown and "bit8" not in shown
    alone = text.explanation(routes.one_host(1), routes.routes(routes.one_host(1)))
    assert "There is one rank: nothing is sent." in alone and "ms" not in alone
