"""The model that sorts configurations before any is tried."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horovod.tune.search import Gradients, exposed_seconds, predictor

SIZES = [1 << 20] * 20


def wire(size: int) -> float:
    return 1e-3 + size / 100e6


def test_all_at_the_end_without_overlap() -> None:
    """A cycle longer than the backward pass: all is sent after it, as one bucket or as twenty."""
    gradients = Gradients(SIZES, 0.1)
    assert exposed_seconds(gradients, 1 << 30, 1.0, wire, 0.0) == pytest.approx(wire(20 << 20))
    assert exposed_seconds(gradients, 0, 1.0, wire, 0.0) == pytest.approx(20 * wire(1 << 20))


def test_what_computing_hides() -> None:
    gradients = Gradients(SIZES, 10.0)
    exposed = exposed_seconds(gradients, 1 << 30, 0.001, wire, 0.0)
    assert exposed == pytest.approx(wire(1 << 20)), "only the last gradient's"


def test_a_slow_wire_is_never_hidden() -> None:
    gradients = Gradients(SIZES, 0.01)
    least = 20 * (1 << 20) / 100e6 - 0.01
    for threshold in (0, 1 << 22, 1 << 30):
        for cycle in (0.0001, 0.001, 0.1):
            assert exposed_seconds(gradients, threshold, cycle, wire, 1e-4) > least


@given(
    st.lists(st.integers(0, 10**9), max_size=40),
    st.floats(1e-6, 1e3),
    st.floats(0, 1e3),
    st.integers(0, 10**9),
)
def test_it_ends_for_all_gradients(sizes: list[int], backward: float, cycle: float, threshold: int) -> None:
    """For any rounding of their times; all gradients are sent."""
    sent: list[int] = []

    def of_bucket(size: int) -> float:
        sent.append(size)
        return 0.0

    exposed_seconds(Gradients(sizes, backward), threshold, cycle, of_bucket, 0.0)
    assert sum(sent) == sum(sizes)


def test_nothing_to_send() -> None:
    assert exposed_seconds(Gradients([], 0.1), 1 << 20, 0.001, wire, 0.0) == 0.0
    assert exposed_seconds(Gradients([0, 0], 0.1), 1 << 20, 0.001, lambda size: 0.0, 0.0) == 0.0


def test_what_it_ranks_last() -> None:
    """Small thresholds pay a latency for each tensor; long cycles overlap nothing."""
    asked = []

    def of_bucket(size: int, algorithm: str) -> float:
        asked.append((size, algorithm))
        return wire(size) * (2 if algorithm == "scatter" else 1)

    seconds = predictor(Gradients([1 << 12] * 300, 0.05), of_bucket, 1e-4)

    def of(threshold: int, cycle: str, algorithm: str = "auto", **other: str) -> float:
        configuration = {"HOROVOD_FUSION_THRESHOLD": str(threshold), "HOROVOD_CYCLE_TIME": cycle}
        return seconds({**configuration, "HOROVOD_ALLREDUCE_ALGORITHM": algorithm, **other})

    assert of(1 << 27, "2") < of(0, "2") and of(1 << 27, "2") < of(1 << 27, "2", "scatter")
    assert of(1 << 27, "2", HOROVOD_TCP_CONNECTIONS="4") == of(1 << 27, "2")
    assert len(set(asked)) == len(asked), "a bucket's size is estimated once"
    assert seconds({}) == of(1 << 27, "1")
