"""A report chooses its sentences by its numbers: each test makes numbers and reads the sentences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from lab_samples import MADE_HOSTS, sample_environment, sample_host, sample_runs
from report_pages import (
    ACCURACY,
    HERE,
    LIMITS,
    PAY,
    SAME_MODEL,
    SPEED,
    bullets,
    explained,
    named,
    says,
    sentence,
    summarised,
    warned,
)

from horovod.lab.environment import Environment
from horovod.lab.load import Load
from horovod.lab.report import numbers
from horovod.lab.report.facts import codec_errors
from horovod.lab.results import table
from horovod.lab.runs import Run


def timed(run: Run, step: float, wait: float = 0.0) -> Run:
    """The run with steps of one length, in seconds."""
    steps = len(run.step_seconds)
    return replace(run, step_seconds=(step,) * steps, step_waits=(wait,) * steps)


def accurate(run: Run, accuracy: float) -> Run:
    return replace(run, epochs=(*run.epochs[:-1], replace(run.epochs[-1], accuracy=accuracy)))


def changed(change: Callable[[Run], Run], **which: object) -> list[Run]:
    """Sample runs of one to four ranks, each as `change` makes it."""
    return [change(run) for run in sample_runs(HERE, **which)]  # type: ignore[arg-type]


def test_the_fastest_and_the_most_accurate_are_found() -> None:
    def change(run: Run) -> Run:
        best = (run.plan.compression, run.plan.ranks) == ("bit8", 2)
        return accurate(timed(run, 0.01 if best else 0.1), 0.97 if best else 0.9)

    said = summarised(changed(change))
    assert says(said, "scope", runs="7 runs", script="examples/pytorch_mnist_compress.py", dataset="mnist")
    time = "2.35\N{NO-BREAK SPACE}s"
    assert says(said, "fastest", row="bit8 × 2", time=time, speed_up="20.00")
    assert says(said, "fastest_by_chance")  # of one seed
    assert says(said, "accuracy_one_seed", best="bit8 × 2", high="97.00\N{NO-BREAK SPACE}%")


@pytest.mark.parametrize(("nearness", "is_close"), [(0.2, False), (0.5005, True)])
def test_the_fastest_of_several_seeds_is_so_by_more_than_chance(nearness: float, is_close: bool) -> None:
    def change(run: Run) -> Run:
        share = {"none": 0.0, "bit16": nearness, "bit8": 0.5}[run.plan.compression]
        return timed(run, 0.1 * (1 - share) * (1 + 0.001 * run.plan.seed * (run.plan.compression != "bit8")))

    assert says(summarised(changed(change, ranks=(2,), seeds=3)), "fastest_by_chance") == is_close


def test_more_than_ideal_is_no_praise() -> None:
    said = explained(changed(lambda run: timed(run, 0.3 if run.plan.ranks == 1 else 0.1)), SPEED)
    assert says(said, "above_ideal") and not says(said, "near_ideal")


def test_when_nothing_beats_the_serial_run_it_says_so() -> None:
    runs = changed(lambda run: timed(run, 0.01 * run.plan.ranks**2))
    assert says(summarised(runs), "fastest_is_serial")
    said = explained(runs, SPEED)
    assert says(said, "slower_than_serial") and not says(said, "near_ideal")


def test_without_compressed_runs_nothing_is_said_of_compression() -> None:
    runs = sample_runs(HERE, compressions=("none",))
    assert "ompression" not in summarised(runs) and explained(runs, PAY) == ""


@pytest.mark.parametrize(("cores", "crowded"), [(1, True), (3, True), (4, False)])
def test_more_ranks_than_cores_are_named(cores: int, crowded: bool) -> None:
    said = summarised(sample_runs(HERE), sample_environment(sample_host(cores=cores)))
    assert says(said, "crowded", ranks=4) == crowded


def test_cores_of_hosts_that_nobody_asked_are_not_guessed() -> None:
    runs = sample_runs(HERE, places=("node1:2,node2:2",))
    assert not says(summarised(runs, sample_environment(sample_host(cores=1))), "crowded")
    two = sample_environment(sample_host("node1", 1), sample_host("node2", 1))
    assert says(summarised(runs, two), "crowded", ranks=4, cores="2 usable cores")


def test_without_a_serial_run_no_speed_up_is_claimed() -> None:
    runs = sample_runs(HERE, ranks=(2, 4))
    assert says(explained(runs, SPEED), "no_serial") and not says(summarised(runs), "fastest")


def test_a_rate_limited_place_is_compared_with_memory() -> None:
    runs = sample_runs(HERE) + sample_runs(HERE, ranks=(2, 4), places=(MADE_HOSTS,))
    place = "2 hosts at 1 Gbit/s"
    slow = next(
        row for row in table(runs) if (row.place, row.algorithm, row.ranks) == (MADE_HOSTS, "none", 2)
    )
    second = f"{1e3 * slow.step_seconds.mean:.1f}\N{NO-BREAK SPACE}ms"
    paid = explained(runs, PAY)
    assert says(paid, "between_places", row="none × 2", second=second, there=place)
    assert says(paid, "between_places", row="bit8 × 2") and f"none × 4 on {place}" in explained(
        runs, LIMITS
    )


def test_places_are_compared_by_checksums() -> None:
    runs = sample_runs(HERE, ranks=(2,), places=("memory", MADE_HOSTS))
    assert says(explained(runs, SAME_MODEL), "places_apart")
    same = [replace(run, checksum=run.plan.compression) for run in runs]
    assert says(explained(same, SAME_MODEL), "places_same")
    alone = explained(sample_runs(HERE), SAME_MODEL)
    assert not says(alone, "places_same") and not says(alone, "places_apart")


def test_ranks_that_drifted_apart_are_a_warning_and_no_praise() -> None:
    runs = sample_runs(HERE)
    assert warned(runs) == [] and says(explained(runs, SAME_MODEL), "identical")
    runs[-1] = replace(runs[-1], identical=False)
    (warning,) = warned(runs)
    assert says(warning, "warn_not_identical", runs=runs[-1].folder.name)
    assert says(
        explained(runs, SAME_MODEL), "not_identical", runs=f"bit8 × 4 ({runs[-1].folder.name})"
    )


def test_what_cannot_be_compared_is_a_warning() -> None:
    runs = sample_runs(HERE, seeds=2)
    rows = table(runs)
    other = [replace(run, dataset="digits") if run.plan.ranks == 4 else run for run in runs]
    assert any("digits, mnist" in text for text in warned(other, rows))
    fewer = runs[:-1]
    assert warned(fewer) == [sentence("warn_seeds")]
    for field, value in (("script", "mine.py"), ("arguments", ("--lr", "1"))):
        last = replace(runs[-1], plan=replace(runs[-1].plan, **{field: value}))
        assert len(warned([*fewer, last], rows)) == 1


def test_long_compressions_get_short_names_that_are_explained() -> None:
    long = ("int4:rotation=hadamard,levels=lloyd", "int4:error_feedback=1,block_size=64")
    rows, names = named(sample_runs(HERE, compressions=("none", *long), ranks=(1, 2)))
    assert [names.series(row) for row in rows] == ["serial", "none × 2", "int4 (a) × 2", "int4 (b) × 2"]
    assert names.shortened == {long[0]: "int4 (a)", long[1]: "int4 (b)"}


def with_accuracies(
    accuracies: dict[tuple[str, int], Sequence[float]], steps: int | None = None
) -> list[Run]:
    """Runs of compressions and ranks, with an accuracy for each seed; `steps` sets their number of steps."""
    seeds = len(next(iter(accuracies.values())))
    made = []
    for run in sample_runs(HERE, sorted({name for name, _ in accuracies} - {"serial"}), seeds=seeds):
        found = accuracies.get((run.plan.algorithm, run.plan.ranks))
        if found is not None:
            run = accurate(run, found[run.plan.seed - 1])
            count = steps or len(run.step_seconds)
            made.append(replace(run, step_seconds=(0.1,) * count, step_waits=(0.0,) * count))
    return made


@pytest.mark.parametrize(
    ("plain", "other", "said"),
    [
        ([0.95], [0.95004], ["accuracy_unchanged"]),
        ([0.95], [0.9501], [("accuracy_change", "0.01"), "seeds_unknown"]),
        ([0.95, 0.95], [0.93, 0.93], [("accuracy_change", "2.00"), ("beyond_seeds", "-2.00", "-2.00")]),
        ([0.95, 0.95], [0.97, 0.97], [("accuracy_change", "2.00"), ("beyond_seeds", "+2.00", "+2.00")]),
        ([0.90, 0.95], [0.95, 0.90], [("accuracy_unchanged")]),
        ([0.90, 0.94], [0.94, 0.92], [("accuracy_change", "1.00"), ("within_seeds", "-37.12", "+39.12")]),
    ],
)
def test_the_largest_change_of_accuracy_is_said_with_its_interval(
    plain: list[float], other: list[float], said: list[Any]
) -> None:
    """Two seeds: 95 % of all t with one degree of freedom are below 12.706."""
    wanted = []
    for key, *values in ((one,) if isinstance(one, str) else one for one in said):
        if key == "accuracy_change":
            wanted.append(sentence(key, row="bit8 × 2", points=values[0]))
        else:
            wanted.append(sentence(key, **dict(zip(("low", "high"), values, strict=False))))
    runs = with_accuracies({("none", 2): plain, ("bit8", 2): other})
    assert bullets(runs, ACCURACY)[:-1] == wanted  # the last is of the codec


def test_of_several_compressions_that_which_changed_most_is_named() -> None:
    accuracies = {
        ("none", 2): [0.9],
        ("bit16", 2): [0.91],
        ("bit8", 2): [0.88],
        ("none", 4): [0.8],
        ("bit8", 4): [0.79],
    }
    runs = with_accuracies(accuracies)
    assert bullets(runs, ACCURACY)[0] == sentence("accuracy_change", row="bit8 × 2", points="2.00")
    plain = [run for run in runs if run.plan.compression == "none"]
    assert bullets(plain, ACCURACY) == []  # nothing to compare


@pytest.mark.parametrize(
    ("serial", "parallel", "key", "points"),
    [
        ([0.95, 0.95, 0.95], [0.93, 0.93, 0.93], "fewer_updates_lower", "2.00"),
        ([0.93, 0.93, 0.93], [0.95, 0.95, 0.95], "fewer_updates_not_lower", "2.00"),
        ([0.95, 0.92, 0.95], [0.93, 0.93, 0.93], "fewer_updates_unclear", "1.00"),
        ([0.95, 0.95, 0.95], [0.95, 0.95, 0.95004], "fewer_updates_equal", ""),
        ([0.95], [0.93], "fewer_updates_unclear", "2.00"),
    ],
)
def test_what_fewer_and_larger_steps_did(
    serial: list[float], parallel: list[float], key: str, points: str
) -> None:
    runs = with_accuracies({("serial", 1): serial, ("none", 2): parallel, ("none", 4): parallel})
    steps = {"steps": len(runs[-1].step_seconds), "alone": len(runs[0].step_seconds)}
    assert steps == {"steps": 117, "alone": 470}
    assert bullets(runs, ACCURACY) == [sentence(key, row="none × 4", points=points, **steps)]


def test_where_as_many_steps_were_taken_nothing_is_said_of_fewer() -> None:
    runs = with_accuracies({("serial", 1): [0.9], ("none", 2): [0.8]}, steps=50)
    assert bullets(runs, ACCURACY) == bullets(runs[:1], ACCURACY) == []
    (error,) = codec_errors(["bit8"])
    share = f"{numbers.small(100 * error.nmse)} %"
    alone = with_accuracies({("bit8", 2): [0.8]})
    assert bullets(alone, ACCURACY) == [sentence("codec_loses", codec="bit8", share=share)]


def limited(step: float, wait: float, cores: int | None = 4, busy: float = 0.0, serial: bool = True) -> str:
    """The sentence on how a step of none × 4 spends its time, compared with a serial step of 20 ms."""

    def change(run: Run) -> Run:
        run = replace(run, load=Load(0.0, busy if run.plan.ranks == 4 else busy / 25, 0.0))
        return timed(run, 0.02) if run.plan.ranks == 1 else timed(run, step, wait)

    environment = sample_environment(sample_host(cores=cores)) if cores else Environment((), ())
    (said,) = bullets(changed(change, ranks=(1, 2, 4) if serial else (2, 4)), LIMITS, environment)
    return said


@pytest.mark.parametrize(
    ("step", "wait", "rest", "key"),
    [
        (0.0219, 0.0019, {}, "limit_none"),
        (0.0221, 0.0021, {}, "limit_waiting"),
        (0.0221, 0.0, {}, "limit_compute"),
        (0.040, 0.010, {}, "limit_waiting"),  # equals the slowdown of computation
        (0.041, 0.010, {}, "limit_compute"),
        (0.041, 0.010, {"cores": 3}, "limit_cores"),
        (0.041, 0.010, {"cores": None}, "limit_unknown"),
        (0.041, 0.010, {"cores": 3, "busy": 0.5}, "limit_slower"),
        (0.040, 0.010, {"busy": 0.5}, "limit_waiting"),
    ],
)
def test_where_a_step_goes(step: float, wait: float, rest: dict[str, Any], key: str) -> None:
    said = limited(step, wait, **rest)
    shares = {
        "step": f"{1e3 * step:.1f}",
        "wait": numbers.plain(1e3 * wait),
        "share": f"{100 * wait / step:.0f}",
    }
    beside = {
        "compute": f"{1e3 * (step - wait):.1f}",
        "alone": "20.0",
        "factor": f"{(step - wait) / 0.02:.2f}",
    }
    sentences = [
        sentence("wait_share", row="none × 4", **shares),
        sentence("compute_beside_serial", **beside),
        sentence(key),
    ]
    if "busy" in rest:
        sentences.append(sentence("busy_meanwhile", share="50 %", serial="2 %"))
    assert said == " ".join(sentences)


def test_without_a_serial_run_only_the_wait_is_told() -> None:
    said = limited(0.040, 0.010, serial=False)
    assert said == sentence("wait_share", row="none × 4", step="40.0", wait="10.0", share="25")


def test_of_each_place_the_largest_run_without_compression_is_looked_at() -> None:
    runs = sample_runs(HERE) + sample_runs(HERE, ranks=(2,), compressions=("bit8",), places=(MADE_HOSTS,))
    rows, names = named(runs)
    said = bullets(runs, LIMITS)
    assert [one.partition(" takes")[0] for one in said] == [
        f"A step of {names.row(row)}"
        for row in rows
        if (row.ranks == 4 and row.algorithm == "none") or row.place == MADE_HOSTS
    ]
    assert bullets(sample_runs(HERE, ranks=(1,)), LIMITS) == []


def test_without_parallel_runs_nothing_is_said_of_one_model() -> None:
    assert bullets(sample_runs(HERE, ranks=(1,)), SAME_MODEL) == []
    runs = sample_runs(HERE, ranks=(2,), places=("memory", MADE_HOSTS), compressions=("none", "bit8"))
    alike = [
        replace(run, checksum="same" if run.plan.compression == "none" else run.checksum) for run in runs
    ]
    identical = sentence("identical")
    assert bullets(alike, SAME_MODEL) == [identical, sentence("places_apart")]  # of bit8
    assert bullets(alike[::2], SAME_MODEL) == [identical, sentence("places_same")]
    assert bullets(alike[:2], SAME_MODEL) == [identical]  # at one place
