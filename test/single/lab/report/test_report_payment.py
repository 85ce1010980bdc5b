"""A report claims no more about compression's cost and gain than seeds, bytes, waiting and load allow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from lab_samples import PARAMETERS, sample_runs
from report_pages import HERE, PAY, explained, says, sentence, summarised, warned

from horovod.lab.load import Load
from horovod.lab.report.comparison import Conclusion, pairs
from horovod.lab.results import table
from horovod.lab.runs import Run

BASE = (0.10, 0.05)  # seconds of a step without compression, and of waiting in it


def paid(runs: Sequence[Run]) -> str:
    """Sentences on whether compression pays."""
    return explained(runs, PAY)


def pair(
    step: float, wait: float, seeds: int = 1, change: Callable[[Run], Run] = lambda run: run
) -> list[Run]:
    """A serial run, a run of two ranks without compression as in `BASE`, and one with bit8 as given."""

    def made(run: Run) -> Run:
        seconds, waited = (step, wait) if run.plan.compression == "bit8" else BASE
        steps, chance = len(run.step_seconds), 1 + 0.001 * run.plan.seed * (run.plan.compression == "bit8")
        run = replace(run, step_seconds=(seconds * chance,) * steps, step_waits=(waited * chance,) * steps)
        return change(run) if run.plan.compression == "bit8" else run

    return [made(run) for run in sample_runs(HERE, ("none", "bit8"), (1, 2), seeds)]


def sending(times: float) -> Callable[[Run], Run]:
    """As many bytes as two uncompressed ranks of the sample send, `times` over."""
    return lambda run: replace(run, bytes_sent=round(times * 4 * PARAMETERS * len(run.step_seconds)))


def conclusion(runs: Sequence[Run]) -> Conclusion:
    (found,) = pairs(table(runs))
    return found.conclusion


def busy(shares: dict[tuple[str, int], float]) -> Callable[[Run], Run]:
    """Make other programs take these shares of the processors during runs, by compression and seed."""

    def change(run: Run) -> Run:
        share = shares.get((run.plan.compression, run.plan.seed), 0.0) if run.plan.ranks > 1 else 0.0
        return replace(run, load=Load(0.0, share, 0.0))

    return change


@pytest.mark.parametrize("step", [0.05, 0.10, 0.15])
def test_with_one_seed_nothing_is_claimed(step: float) -> None:
    for seeds in (1, 3):
        runs = pair(step, 0.01, seeds)
        summary, said = summarised(runs), paid(runs)
        assert (conclusion(runs) is Conclusion.UNKNOWN) == (seeds == 1)
        assert says(summary, "compression_one_seed") == (seeds == 1)
        assert says(said, "pair_one_seed") == (seeds == 1)
        if seeds == 1:
            assert not says(summary, "compression_paid") and not says(said, "pair_paid")


def test_seeds_that_one_row_lacks_do_not_count() -> None:
    runs = [run for run in pair(0.05, 0.01, seeds=2) if (run.plan.compression, run.plan.seed) != ("bit8", 2)]
    assert conclusion(runs) is Conclusion.UNKNOWN
    assert says(summarised(runs), "compression_one_seed")


@pytest.mark.parametrize(
    ("step", "wait", "found", "key"),
    [
        (0.05, 0.01, Conclusion.PAID, "pair_paid"),
        (0.08, 0.03, Conclusion.PAID, "pair_paid"),
        (0.05, 0.04, Conclusion.UNEXPLAINED, "pair_unexplained"),  # wait 10 ms shorter, step 50 ms
        (0.05, 0.09, Conclusion.UNEXPLAINED, "pair_unexplained_chance"),  # faster, although it waits more
        (0.15, 0.09, Conclusion.COST, "pair_cost_coding"),
        (0.15, 0.01, Conclusion.COST, "pair_cost"),
        (0.0998, 0.01, Conclusion.UNDECIDED, "pair_undecided"),
    ],
)
def test_a_conclusion_needs_time_and_waiting(
    step: float, wait: float, found: Conclusion, key: str
) -> None:
    runs = pair(step, wait, seeds=3)
    assert conclusion(runs) is found
    (row,) = pairs(table(runs))
    said = paid(runs)
    assert sentence(key, explained=f"{100 * row.explained:.0f} %") in said and says(said, "rule")
    summary = summarised(runs)
    assert says(summary, "compression_paid", number=1, cases=1) == (found is Conclusion.PAID)


def test_less_time_is_not_called_faster_by_as_much() -> None:
    for step, key in ((0.074, "less"), (0.126, "more")):
        assert says(paid(pair(step, 0.02)), key, share="26\N{NO-BREAK SPACE}%")


def test_an_interval_is_of_the_paired_difference() -> None:
    """An effect on both runs of a seed, such as a slower machine, does not widen the interval."""

    def change(run: Run) -> Run:
        return replace(run, step_seconds=tuple(2**run.plan.seed * each for each in run.step_seconds))

    runs = [change(run) for run in pair(0.08, 0.02, seeds=4)]
    (found,) = pairs(table(runs))
    assert found.compressed.training_seconds.spread > 0.5 * found.compressed.training_seconds.mean
    assert found.time.low > 0
    assert 0.19 < found.saved_time < 0.21


def test_what_has_no_seed_in_common_is_compared_by_its_means() -> None:
    runs = pair(0.08, 0.02, seeds=2)
    (found,) = pairs(table([run for run in runs if (run.plan.compression == "bit8") == (run.plan.seed == 1)]))
    assert found.of_seeds == []
    plain, compressed = found.plain.training_seconds.mean, found.compressed.training_seconds.mean
    assert 1 - found.saved_time == pytest.approx(compressed / plain)
    assert 0.15 < found.saved_time < 0.25


def test_the_more_is_compared_the_wider_are_the_intervals() -> None:
    runs = sample_runs(HERE, ("none", "bit16", "bit8"), (1, 2, 4), seeds=3)
    several = {(each.compressed.algorithm, each.compressed.ranks): each for each in pairs(table(runs))}
    few = [run for run in runs if run.plan.ranks < 4 and run.plan.compression != "bit16"]
    (alone,) = pairs(table(few))
    assert several["bit8", 2].time.mean == alone.time.mean
    assert several["bit8", 2].time.half_width > 1.5 * alone.time.half_width


UNLIKE = {("none", 1): 0.4, ("none", 2): 0.3, ("bit8", 3): 0.2}


def test_runs_with_others_unequally_busy_are_not_compared() -> None:
    slower = pair(0.05, 0.01, seeds=4)
    assert conclusion(slower) is Conclusion.PAID
    runs = [busy(UNLIKE)(run) for run in slower]
    (found,) = pairs(table(runs))
    assert (found.left_out, found.time.seeds, found.conclusion) == (3, 1, Conclusion.UNKNOWN)
    assert says(summarised(runs), "compression_unlike")
    assert says(paid(runs), "pair_unlike")
    more = [busy(UNLIKE)(run) for run in pair(0.05, 0.01, seeds=6)]
    assert conclusion(more) is Conclusion.PAID
    assert says(paid(more), "pair_left_out", seeds="3 seeds")


def test_runs_with_others_equally_busy_are_compared_with_more_confidence() -> None:
    shares = {(name, seed): 0.4 + 0.01 * seed for name in ("none", "bit8") for seed in (1, 2, 3)}
    quiet = pair(0.05, 0.01, seeds=3)
    runs = [busy(shares)(run) for run in quiet]
    (alone,), (among_others,) = pairs(table(quiet)), pairs(table(runs))
    assert among_others.conclusion is Conclusion.PAID and among_others.is_disturbed
    assert among_others.time.half_width > 7 * alone.time.half_width
    assert says(paid(runs), "pair_disturbed", confidence="99.9\N{NO-BREAK SPACE}%")


def test_where_two_seeds_are_undisturbed_only_such_count() -> None:
    shares = {("none", 1): 0.06, ("bit8", 1): 0.06}
    (found,) = pairs(table([busy(shares)(run) for run in pair(0.05, 0.01, seeds=3)]))
    assert (found.left_out, found.time.seeds, found.is_disturbed) == (1, 2, False)


def test_an_interval_without_end_is_said_to_be_wide() -> None:
    """Two seeds contradict each other, at 99.9 %: e to the power of 1000 exceeds a float."""

    shares = {(name, seed): 0.5 for name in ("none", "bit8") for seed in (1, 2)}

    def change(run: Run) -> Run:
        is_slow = (run.plan.compression, run.plan.seed) == ("bit8", 1)
        slowed = tuple(each * (50 if is_slow else 1) for each in run.step_seconds)
        return busy(shares)(replace(run, step_seconds=slowed))

    odd = pair(0.08, 0.02, seeds=2, change=change)
    odd = [busy(shares)(run) for run in odd]
    assert conclusion(odd) is Conclusion.UNDECIDED
    interval = "> 1000\N{NO-BREAK SPACE}% more to 100\N{NO-BREAK SPACE}% less"
    assert says(paid(odd), "pair_interval", interval=interval)


def test_disturbed_runs_are_a_warning() -> None:
    (said,) = warned([busy(UNLIKE)(run) for run in pair(0.05, 0.01, seeds=3)])
    shares = {"limit": "5\N{NO-BREAK SPACE}%", "most": "40\N{NO-BREAK SPACE}%"}
    assert says(said, "warn_disturbed", number=3, all=9, **shares)


@pytest.mark.parametrize(
    ("times", "sentence"),
    [
        (1.0, "sends about as many bytes"),
        (0.96, "sends about as many bytes"),
        (0.5, "sends 2.00 times fewer bytes"),
        (2.0, "sends 2.00 times as many bytes"),
    ],
)
def test_bytes_are_called_fewer_where_they_are(times: float, sentence: str) -> None:
    runs = pair(0.05, 0.01, 3, change=sending(times))
    said = paid(runs)
    assert sentence in said
    assert says(said, "pair_paid") == says(summarised(runs), "bytes_saved") == (times == 0.5)
    assert says(said, "pair_unexplained_bytes") == (times != 0.5)


def test_bytes_beside_none_at_all_have_no_ratio() -> None:
    runs = [replace(run, bytes_sent=0) if run.plan.compression == "none" else run for run in pair(0.05, 0.01)]
    said = paid(runs)
    assert says(said, "less") and "bytes" not in said


def test_what_paid_is_named_before_what_cost() -> None:
    def change(run: Run) -> Run:
        step, wait = {"none": (0.1, 0.05), "bit16": (0.08, 0.03), "bit8": (0.12, 0.07)}[run.plan.compression]
        chance = 1 + 0.001 * run.plan.seed * (run.plan.compression != "none")
        steps = len(run.step_seconds)
        return replace(run, step_seconds=(step * chance,) * steps, step_waits=(wait * chance,) * steps)

    said = summarised([change(run) for run in sample_runs(HERE, ranks=(1, 2), seeds=3)])
    for key, row in (("compression_paid", "bit16 × 2"), ("compression_cost", "bit8 × 2")):
        assert says(said, key, number=1, cases=2, row=row, share="20\N{NO-BREAK SPACE}%"), said
    assert not says(said, "compression_undecided")
