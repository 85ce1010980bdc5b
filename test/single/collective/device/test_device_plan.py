"""The route of an allreduce of GPU tensors, and its carrier, are pure functions of shared facts."""

from __future__ import annotations

from typing import Any

import pytest
from native_testing import testing
from ranks import DTYPES, MAX, MIN, PRODUCT, SUM
from refusals import refused

from horovod import _native
from horovod.common.exceptions import WrongArgument

MB = 1_000_000
FLOAT32 = DTYPES["float32"][0]
FLOAT64 = DTYPES["float64"][0]
IN_FLOAT32 = ("float16", "bfloat16", "float32")


def route(algorithm: str = "auto", deterministic: bool = False, **given: Any) -> tuple[str, bool, str]:
    """The route for two ranks whose GPUs NCCL connects; `facts` replace the defaults."""
    facts = _native.PlanFacts()
    given = {"ranks": 2, "has_nccl": True, "dtype": FLOAT32, "op": SUM, "wire_bytes": MB, **given}
    given["on_gpu"], given["bytes"] = True, given["wire_bytes"] * (4 if given.get("is_encoded") else 1)
    given.setdefault("carriers", -(-given["ranks"] // given.get("hosts", 1)))
    given.setdefault("most_on_a_host", -(-given["ranks"] // given.get("hosts", 1)))
    for name, value in given.items():
        setattr(facts, name, value)
    plan = _native.plan_allreduce(facts, algorithm, deterministic)
    return plan.route, plan.is_encoded, plan.reason


@pytest.mark.parametrize("has_nccl", [True, False])
def test_one_rank_needs_no_wire(has_nccl: bool) -> None:
    assert route(ranks=1, is_encoded=True, has_nccl=has_nccl) == ("alone", False, "one rank")


def test_elements_go_by_ncclallreduce() -> None:
    for ranks, hosts in ((2, 1), (8, 1), (16, 2), (128, 16)):
        assert route(ranks=ranks, hosts=hosts)[:2] == ("nccl allreduce", False)


@pytest.mark.parametrize("encoded", [True, False])
def test_without_nccl_the_host_reduces_and_says_why(encoded: bool) -> None:
    why = "rank 1 has no NCCL: none found"
    assert route(has_nccl=False, why_no_nccl=why, is_encoded=encoded) == ("host", encoded, why)


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_nccl_does_not_reduce_goes_by_the_host(dtype: str) -> None:
    number = DTYPES[dtype][0]
    is_float = "float" in dtype
    for op in (SUM, MIN, MAX, PRODUCT):
        serves = dtype != "int16" and not (is_float and op in (MIN, MAX))
        name, _, reason = route(dtype=number, op=op)
        assert name == ("nccl allreduce" if serves else "host")
        if not serves:
            assert dtype in reason


def test_codes_of_two_are_gathered_and_of_more_scattered() -> None:
    assert route(is_encoded=True, wire_bytes=100 * MB)[:2] == ("nccl gather", True)
    assert route(is_encoded=True, ranks=4, wire_bytes=100 * MB)[:2] == ("nccl scatter", True)
    assert route(is_encoded=True, ranks=4, wire_bytes=1000)[:2] == ("nccl gather", True)
    assert route(is_encoded=True, ranks=4, hosts=4, wire_bytes=MB)[:2] == ("nccl scatter", True)
    assert route(is_encoded=True, ranks=4, hosts=2, wire_bytes=MB)[:2] == ("nccl hierarchical", True)


def test_rounds_and_bytes_are_weighed_by_what_was_measured() -> None:
    """A second round saves bytes: with slower bytes it pays off earlier."""

    def smallest_scattered(**costs: float) -> int:
        measured = _native.GpuCosts()
        for name, value in costs.items():
            setattr(measured, name, value)
        for power in range(30):
            facts = _native.PlanFacts()
            facts.ranks = facts.most_on_a_host = 4
            facts.on_gpu = facts.has_nccl = facts.is_encoded = True
            facts.bytes, facts.wire_bytes = 4 << power, 1 << power
            plan = _native.plan_allreduce(facts, gpu_costs=measured)
            gather, scatter = dict(plan.estimates)["nccl gather"], dict(plan.estimates)["nccl scatter"]
            assert plan.route == ("nccl gather" if gather <= scatter else "nccl scatter")
            if scatter < gather:
                return power
        raise AssertionError("never")

    fast = smallest_scattered(local_byte=1e-11)
    assert fast - smallest_scattered(local_byte=1e-10) in (3, 4)  # a factor of 10
    assert fast - smallest_scattered(local_byte=1e-11, local_latency=15e-7) in (3, 4)


def test_costs_in_words() -> None:
    text = "<kernels 500 GB/s, NCCL 15 us + 10.0 GB/s, between hosts 50 us + 9.41 Gbit/s>"
    assert f"<{_native.GpuCosts()!r}>" == text


@pytest.mark.parametrize("encoded", [True, False])
@pytest.mark.parametrize("algorithm", ["gather", "scatter"])
def test_a_route_can_be_forced(algorithm: str, encoded: bool) -> None:
    for hosts in (1, 2):
        for dtype in IN_FLOAT32:
            name, used, reason = route(
                algorithm, ranks=4, hosts=hosts, dtype=DTYPES[dtype][0], is_encoded=encoded
            )
            assert (name, used) == (f"nccl {algorithm}", encoded)
            assert "HOROVOD_ALLREDUCE_ALGORITHM" in reason
    name, _, reason = route(algorithm, ranks=4, dtype=DTYPES["int64"][0])
    assert name == "nccl allreduce"
    assert "kernels have no Sum of int64" in reason


def test_the_hierarchy_of_one_host_is_exact() -> None:
    name, used, reason = route("hierarchical", ranks=4, is_encoded=True)
    assert (name, used) == ("nccl allreduce", False)
    assert reason.startswith("a hierarchy of one host is exact")
    assert route("hierarchical", ranks=4, is_encoded=True, has_nccl=False)[:2] == ("host", False)
    assert route("hierarchical", ranks=4, hosts=2, is_encoded=True)[:2] == ("nccl hierarchical", True)
    assert route("hierarchical", ranks=4, hosts=4, is_encoded=True)[:2] == ("nccl scatter", True)


def test_kernels_have_their_limits() -> None:
    assert route(is_encoded=True, dtype=FLOAT64)[:2] == ("host", True)
    assert route(is_encoded=True, ranks=65, wire_bytes=100 * MB)[:2] == ("host", True)
    assert route("gather", is_encoded=True, ranks=64)[0] == "nccl gather"
    assert route(is_encoded=True, ranks=128, hosts=16)[0] == "nccl hierarchical"
    assert route(is_encoded=True, ranks=130, hosts=65)[0] == "host"
    assert route("scatter", ranks=65)[0] == "nccl allreduce"


@pytest.mark.parametrize("ranks", [2, 3, 8])
@pytest.mark.parametrize("encoded", [True, False])
def test_deterministic_routes_do_not_depend_on_sizes(ranks: int, encoded: bool) -> None:
    sizes = (8, 4096, MB, 1000 * MB)
    facts: dict[str, Any] = {"deterministic": True, "ranks": ranks, "is_encoded": encoded}
    assert len({route(wire_bytes=size, **facts)[0] for size in sizes}) == 1


def test_deterministic_sums_have_one_order() -> None:
    """NCCL's order depends on an element's place in its bucket; two terms, and integers, need no order."""
    for dtype in IN_FLOAT32:
        assert route(deterministic=True, ranks=4, dtype=DTYPES[dtype][0])[0] == "nccl scatter"
    assert route(deterministic=True, ranks=4, dtype=FLOAT64)[0] == "host"
    assert route(deterministic=True, ranks=4, op=PRODUCT)[0] == "host"
    assert route(deterministic=True, ranks=2)[0] == "nccl allreduce"
    assert route(deterministic=True, ranks=4, dtype=DTYPES["int32"][0])[0] == "nccl allreduce"


def test_what_cannot_be_is_refused() -> None:
    with refused(WrongArgument, "algorithm_unknown", value="tree"):
        _native.plan_allreduce(_native.PlanFacts(), "tree")
    facts = _native.PlanFacts()
    with refused(WrongArgument, "dtype_unknown", value=99):
        facts.dtype = 99
    with refused(WrongArgument, "reduce_op_unknown", value=9):
        facts.op = 9


def peers(transport: str = "auto", **changes: Any) -> list[testing.DevicePeer]:
    """Ranks 0, 3 and 4 with a GPU each; `changes` are of the last."""
    all_peers = []
    for rank in (0, 3, 4):
        peer = testing.DevicePeer()
        peer.rank, peer.gpu, peer.nccl_version, peer.transport = rank, f"GPU-{rank}", 22809, transport
        all_peers.append(peer)
    for name, value in changes.items():
        setattr(all_peers[-1], name, value)
    return all_peers


@pytest.mark.parametrize("transport", ["auto", "nccl"])
def test_gpus_of_their_own_are_joined_by_nccl(transport: str) -> None:
    assert testing.agree_on_gpu_transport(peers(transport)) == (True, "", "")


def test_the_host_can_be_asked_for() -> None:
    has_nccl, why, error = testing.agree_on_gpu_transport(peers("host"))
    assert (has_nccl, why, error) == (False, "HOROVOD_GPU_TRANSPORT asks for it", "")


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"gpu": "GPU-3"}, "rank 3 and rank 4 share a GPU, GPU-3, and NCCL serves one rank of each"),
        ({"nccl_version": 0, "why_no_nccl": "not found"}, "rank 4 has no NCCL: not found"),
        ({"nccl_version": 22105}, "rank 0 has NCCL 2.28.9, rank 4 has 2.21.5"),
    ],
)
def test_what_nccl_cannot_join_goes_by_the_host(changes: dict[str, Any], why: str) -> None:
    assert testing.agree_on_gpu_transport(peers(**changes)) == (False, why, "")
    has_nccl, reason, error = testing.agree_on_gpu_transport(peers("nccl", **changes))
    assert (has_nccl, reason) == (False, why)
    assert error.startswith(f"HOROVOD_GPU_TRANSPORT=nccl cannot be: {why}.")


def test_gpus_out_of_reach_go_by_the_host_but_not_if_nccl_is_asked_for() -> None:
    changes = {"out_of_reach": "GPU-0"}
    why = "rank 4 has no peer access to GPU-0"
    assert testing.agree_on_gpu_transport(peers(**changes)) == (False, why, "")
    assert testing.agree_on_gpu_transport(peers("nccl", **changes)) == (True, "", "")


def test_ranks_with_different_settings_are_told_so() -> None:
    ranks = peers("host")
    ranks[-1].transport = "auto"
    has_nccl, _, error = testing.agree_on_gpu_transport(ranks)
    assert not has_nccl
    assert error == "HOROVOD_GPU_TRANSPORT is 'host' on rank 0 and 'auto' on rank 4; give all ranks one value"
