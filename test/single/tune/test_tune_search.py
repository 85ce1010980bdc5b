"""The search for the best settings, on simulated jobs with known true times."""

import statistics

import pytest
from refusals import refused
from tune_landscapes import (
    ALGORITHM,
    CONNECTIONS,
    CYCLE,
    FUSION,
    MESSAGE,
    STEPS,
    WRONG,
    best_of,
    far_away,
    ordinary,
    searched,
    slow_link,
)

from horovod.tune import errors
from horovod.tune.knobs import Knob, Space
from horovod.tune.paired import gain_of
from horovod.tune.search import Limits

SEEDS = range(25)
MODELS = {
    "right": ordinary,
    "knows nothing": lambda configuration: 0.0,
    "upside down": lambda c: -ordinary(c),
}


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(
    "start", [WRONG, {FUSION.name: "1024"}, {CYCLE.name: "50"}], ids=["both", "fusion", "cycle"]
)
def test_a_wrong_start_is_mended(start: dict[str, str], model: str) -> None:
    """Within 3 % of the best, on noisy machines and even with a wrong model."""
    space = Space([FUSION, CYCLE], start)
    for noise in (0.01, 0.05):
        found = [searched(space, ordinary, noise, seed, MODELS[model]) for seed in SEEDS]
        off = sorted(ordinary(each.best) / best_of(space, ordinary) for each in found)
        assert statistics.median(off) < 1.03 and off[-2] < 1.06, off


def test_right_defaults_stay_or_get_better() -> None:
    """Noise does not choose a worse configuration: of 50 jobs none ends slower by more than 1 %."""
    space = Space([FUSION, CYCLE], {})
    for noise in (0.02, 0.1):
        for seed in SEEDS:
            best = searched(space, ordinary, noise, seed).best
            assert ordinary(best) < 1.01 * ordinary(space.start), (noise, seed, best)


def test_where_nothing_matters_nothing_is_chosen() -> None:
    space = Space([FUSION, CYCLE], {})
    changed = [seed for seed in range(60) if searched(space, lambda c: 0.1, 0.05, seed).best != space.start]
    assert len(changed) <= 3, "the bound on a gain is of 99.5 %, and some ten duels are fought"


@pytest.mark.parametrize(("gain", "is_chosen"), [(0.006, False), (0.03, True)])
def test_a_gain_below_what_is_worth_it_changes_nothing(gain: float, is_chosen: bool) -> None:
    """Even if the gain is certain."""
    space = Space([FUSION, CYCLE], {})
    for seed in range(5):
        best = searched(space, lambda c: 0.1 - 0.1 * gain * (c != space.start), 0.0005, seed).best
        assert (best != space.start) == is_chosen


def test_a_default_that_is_wrong_is_found_by_descent() -> None:
    """The model ignores connections, so candidates have more than one only by chance."""
    space = Space([FUSION, CYCLE, CONNECTIONS], {})
    for seed in SEEDS:
        best = searched(space, slow_link, 0.03, seed, predicted=ordinary).best
        assert slow_link(best) < 1.05 * best_of(space, slow_link), best


def test_among_six_settings_the_one_that_counts_is_found() -> None:
    """In the blocks of 400 steps: every setting gets a candidate, and settings that improved come first."""
    space = Space([FUSION, CYCLE, ALGORITHM, CONNECTIONS, MESSAGE, STEPS], {})
    for noise, worst in ((0.02, 1.03), (0.05, 1.03)):
        found = [
            searched(space, far_away, noise, seed, lambda _: 0.0, limits=Limits(blocks=77)) for seed in SEEDS
        ]
        off = sorted(far_away(each.best) / best_of(space, far_away) for each in found)
        assert off[-3] < worst, off


def test_another_process_for_half_of_the_search() -> None:
    space = Space([FUSION, CYCLE], WRONG)
    off = []
    for seed in SEEDS:
        found = searched(space, ordinary, 0.03, seed, disturbed=range(10, 50))
        off.append(ordinary(found.best) / best_of(space, ordinary))
    assert sorted(off)[-3] < 1.05, sorted(off)


def test_it_stops_in_time_and_says_why() -> None:
    space = Space([FUSION, CYCLE], WRONG)
    for blocks in (0, 1, 7, 30):
        result = searched_or_none(space, blocks)
        assert result.blocks <= blocks and result.why == f"all {blocks} blocks were used"
    done = searched(space, ordinary, 0.01, 1, limits=Limits(blocks=10_000))
    assert done.why == "no neighbour is faster" and done.blocks < 300


def searched_or_none(space: Space, blocks: int):  # type: ignore[no-untyped-def]
    """With a limit of 0 blocks the search ends before its first request."""
    if blocks:
        return searched(space, ordinary, 0.01, 1, limits=Limits(blocks=blocks))
    from horovod.tune.search import look

    with pytest.raises(StopIteration) as over:
        next(look(space, ordinary, Limits(blocks=0)))
    return over.value.value


def test_what_has_lost_is_not_tried_again() -> None:
    space = Space([FUSION, CYCLE], {})
    result = searched(space, ordinary, 0.005, 3, limits=Limits(blocks=10_000))
    fought = [(tuple(duel.incumbent.items()), tuple(duel.challenger.items())) for duel in result.duels]
    assert len(set(fought)) == len(fought)
    won = [duel for duel in result.duels if duel.is_won]
    assert all(duel.gain.low > 1 for duel in won) and (not won or won[-1].challenger == result.best)


def test_a_hopeless_one_gets_one_pair() -> None:
    space = Space([Knob("HOROVOD_A", ("1", "2", "3"), "1")], {})
    seconds = {"1": 0.1, "2": 0.2, "3": 0.3}
    result = searched(space, lambda c: seconds[c["HOROVOD_A"]], 0.01, 1)
    assert result.best == space.start and result.blocks <= 6


class TestGain:
    def test_the_interval_holds_the_truth(self) -> None:
        import random

        draw = random.Random(5)
        inside = 0
        for _ in range(400):
            pairs = [(1.1 * draw.lognormvariate(0, 0.1), draw.lognormvariate(0, 0.1)) for _ in range(5)]
            gain = gain_of(pairs)
            inside += gain.low < 1.1 < gain.high
        assert 365 <= inside <= 395, "95 % of 400"

    def test_what_pairs_share_does_not_count(self) -> None:
        gain = gain_of([(2.0, 1.0), (20.0, 10.0), (0.2, 0.1)])
        assert (round(gain.ratio, 9), round(gain.low, 6), round(gain.high, 6)) == (2.0, 2.0, 2.0)

    def test_one_pair_says_nothing(self) -> None:
        gain = gain_of([(2.0, 1.0)])
        assert gain.low == 0 and gain.high == float("inf") and gain.ratio == pytest.approx(2)

    def test_more_than_the_table_has(self) -> None:
        pairs = [(1.0 + 0.01 * (i % 3), 1.0) for i in range(40)]
        assert gain_of(pairs).low < gain_of(pairs).ratio < gain_of(pairs).high
        assert gain_of(pairs, 0.995).low < gain_of(pairs).low

    @pytest.mark.parametrize(
        "pairs", [[], [(1.0, 0.0)], [(-1.0, 1.0)], [(float("nan"), 1.0)], [(float("inf"), 1.0)]]
    )
    def test_what_is_no_time(self, pairs: list[tuple[float, float]]) -> None:
        with refused(errors.no_pairs):
            gain_of(pairs)


class TestSpace:
    def test_what_the_job_was_given_is_a_choice_in_its_place(self) -> None:
        space = Space([FUSION, CYCLE], WRONG)
        assert (
            space.choices(FUSION.name)[:3] == ("0", "1024", "65536") and space.choices(CYCLE.name)[-1] == "50"
        )
        words = Space([Knob("HOROVOD_B", ("auto", "gather"), "auto")], {"HOROVOD_B": "ring"})
        assert words.choices("HOROVOD_B") == ("auto", "gather", "ring")

    def test_all_or_those_nearby(self) -> None:
        space = Space([FUSION, CYCLE, CONNECTIONS], {})
        everything = space.all()
        assert len(everything) == 7 * 8 * 4 == len({tuple(each.items()) for each in everything})
        near = space.all(most=100)
        assert all(sum(each[k] != space.start[k] for k in each) <= 2 for each in near) and len(near) > 60

    def test_neighbours_end_at_the_ends(self) -> None:
        space = Space([CYCLE], {CYCLE.name: "0.1"})
        (up,) = space.neighbours(space.start, CYCLE.name)
        assert up == {CYCLE.name: "0.25"}
        assert [each[CYCLE.name] for each in space.neighbours({CYCLE.name: "2"}, CYCLE.name, 2)] == [
            "0.5",
            "10",
        ]

    def test_wrong_ones(self) -> None:
        with refused(errors.no_knob, names=["HOROVOD_X"], choices=["HOROVOD_CYCLE_TIME"]):
            Space([CYCLE], {"HOROVOD_X": "1"})
        with refused(errors.same_names, names=[CYCLE.name] * 2):
            Space([CYCLE, CYCLE], {})
        for choices in ((), ("1", "1")):
            with refused(errors.same_choices, knob="HOROVOD_A", choices=choices):
                Knob("HOROVOD_A", choices, "1")

    def test_what_is_in_it(self) -> None:
        space = Space([FUSION, CYCLE], {})
        assert space.is_in(space.start) and not space.is_in({CYCLE.name: "1"})
        assert not space.is_in({**space.start, CYCLE.name: "7"}) and not space.is_in(
            {**space.start, "x": "1"}
        )
