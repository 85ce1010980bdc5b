"""Tests benchmarks/convergence.py without training: its statistics, conclusions and requested runs."""

from __future__ import annotations

import json
import math
import random
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

sys.path.append(str(Path(__file__).resolve().parents[3] / "benchmarks"))

import convergence
from convergence_results import conclusion, first_reached, label, paired, section
from convergence_tasks import Language

from horovod.lab.intervals import Estimate, estimate, t_quantile


@pytest.mark.parametrize(
    ("degrees", "quantile"),
    # From any printed table of Student's t, two-sided 95 %; the last is the normal distribution's.
    [(1, 12.706), (2, 4.303), (3, 3.182), (4, 2.776), (5, 2.571), (9, 2.262), (30, 2.042), (100_000, 1.960)],
)
def test_t_quantiles_are_those_of_the_tables(degrees: int, quantile: float) -> None:
    assert t_quantile(degrees) == pytest.approx(quantile, abs=6e-4)


def test_estimate_of_a_sample_worked_out_by_hand() -> None:
    found = estimate([1.0, 2.0, 3.0, 4.0, 5.0])
    assert found.mean == 3.0
    assert found.half_width == pytest.approx(2.7764 * math.sqrt(2.5) / math.sqrt(5), rel=1e-4)
    assert estimate([7.0]) == Estimate(7.0, math.inf, 1)
    assert math.isnan(estimate([1.0, math.nan, 2.0]).mean)


def test_95_percent_of_the_intervals_hold_the_true_mean() -> None:
    dice = random.Random(1)
    trials = 4000
    held = 0
    for _ in range(trials):
        found = estimate([dice.gauss(0.3, 2.0) for _ in range(5)])
        held += found.mean - found.half_width <= 0.3 <= found.mean + found.half_width
    # Six standard deviations of a count; with the normal distribution's 1.96 it would be 88 %.
    assert abs(held / trials - 0.95) < 6 * math.sqrt(0.95 * 0.05 / trials)


def test_differences_are_paired_by_seed() -> None:
    baseline: dict[int, Any] = {1: {"loss": 2.0, "accuracy": 0.99}, 2: {"loss": 4.0, "accuracy": 0.97}}
    runs: dict[int, Any] = {2: {"loss": 4.04, "accuracy": 0.975}, 3: {"loss": 9.0, "accuracy": 0.1}}
    assert paired(runs, baseline, "loss") == pytest.approx([1.0])
    assert paired(runs, baseline, "accuracy") == pytest.approx([0.5])


def test_time_to_a_target_is_interpolated() -> None:
    curve = [{"step": 10, "loss": 4.0}, {"step": 20, "loss": 3.0}, {"step": 30, "loss": 3.5}]
    assert first_reached({"curve": curve}, "loss", 3.25, "step") == pytest.approx(17.5)
    assert (
        first_reached({"curve": curve}, "loss", 5.0, "step") == 10
    )  # before the first test: no earlier figure
    assert math.isnan(first_reached({"curve": curve}, "loss", 2.0, "step"))
    rising = [{"seconds": 1.0, "accuracy": 0.5}, {"seconds": 3.0, "accuracy": 0.9}]
    assert first_reached({"curve": rising}, "accuracy", 0.7, "seconds") == pytest.approx(2.0)


def test_only_being_worse_breaks_a_limit() -> None:
    assert conclusion("language", "bit8", Estimate(0.39, 0.1, 5)) == "yes (0.4)"
    assert conclusion("language", "bit8", Estimate(0.41, 0.1, 5)) == "NO (0.4)"
    assert conclusion("language", "bit8", Estimate(-3.0, 0.1, 5)) == "yes (0.4)"
    assert conclusion("language", "bit8", Estimate(math.nan, math.nan, 5)) == "NO (0.4)"
    assert conclusion("mnist", "bit8", Estimate(-0.21, 0.1, 5)) == "NO (0.2)"
    assert conclusion("mnist", "bit8", Estimate(0.5, 0.1, 5)) == "yes (0.2)"
    assert conclusion("mnist", "fp16", Estimate(-9.0, 0.1, 5)) == ""


def test_labels_leave_out_the_names_of_options() -> None:
    assert label("bit8") == "bit8"
    assert label("int4:rotation=hadamard,levels=lloyd,error_feedback=1") == "int4 hadamard lloyd feedback"


def record(**values: Any) -> dict[str, Any]:
    """The parts of a run's result that tables and plans read."""
    always = {"loss": 2.0, "accuracy": 0.5, "steps": 10, "ranks": 2, "batch": 16, "learning_rate": 0.1}
    cost = {"data": "a text", "seconds": 1.0, "bytes_sent": 1000, "identical": True, "curve": []}
    return always | cost | values


def test_seeds_are_added_while_an_interval_with_a_limit_is_wide() -> None:
    args = convergence.parse_arguments(["--max-seeds", "4"])
    baseline = {seed: record() for seed in (1, 2, 3)}
    noisy = {seed: record(loss=2.0 + 0.05 * seed) for seed in (1, 2, 3)}
    calm = {seed: record(loss=2.0 + 0.0005 * seed) for seed in (1, 2, 3)}
    language = {"none": baseline, "bit8": noisy, "int8": calm, "fp16": noisy}
    wanted = convergence.too_wide(args, {"language": language, "mnist": {"none": baseline, "bit8": noisy}})
    assert wanted == [("language", "none", 4), ("language", "bit8", 4)]
    args.max_seeds = 3
    assert convergence.too_wide(args, {"language": language}) == []


def test_a_kept_run_of_other_settings_is_not_taken_for_this_one(tmp_path: Path) -> None:
    args = convergence.parse_arguments(["--out", str(tmp_path), "--steps", "10"])
    run = ("language", "int4:error_feedback=1", 3)
    assert convergence.finished(args, run) is None
    file = convergence.file_of(tmp_path, run)
    file.parent.mkdir()
    kept = {"compression": run[1], "ranks": 2, "steps": 10, **Language(0, 2).facts()}
    file.write_text(json.dumps(kept))
    assert convergence.finished(args, run) == kept
    args.np = 4
    with pytest.raises(SystemExit, match="ranks 2, not 4"):
        convergence.finished(args, run)


def test_ranks_that_ended_differently_are_said() -> None:
    runs = {1: record(), 2: record()}
    assert "bit-identical" in section({"language": {"none": runs}})
    runs[2]["identical"] = False
    assert "1 ended with DIFFERENT parameters" in section({"language": {"none": runs}})


def test_language_ranks_learn_different_text_and_test_all_of_it_once() -> None:
    first, second = (next(Language(rank, 2).batches(seed=7)) for rank in (0, 1))
    assert not torch.equal(first[0], second[0])
    again = next(Language(0, 2).batches(seed=7))
    assert torch.equal(first[0], again[0]) and torch.equal(first[1], again[1])
    assert torch.equal(first[0][:, 1:], first[1][:, :-1])  # the answer is the next byte
    whole = [batch[0] for batch in Language(0, 1).held_out(thorough=False)]
    shares = [[batch[0] for batch in Language(rank, 2).held_out(thorough=False)] for rank in (0, 1)]
    assert len(shares[0]) + len(shares[1]) == len(whole)
    assert all(torch.equal(shares[i % 2][i // 2], batch) for i, batch in enumerate(whole))


def test_language_sees_no_future() -> None:
    torch.manual_seed(1)
    task = Language(0, 1)
    model = task.build().eval()
    text = next(task.batches(seed=1))[0]
    changed = text.clone()
    changed[:, 40:] = 0
    with torch.no_grad():
        before, after = model(text), model(changed)
    # The same values in other products, so rounding differs.
    assert torch.allclose(before[:, :40], after[:, :40], atol=1e-5)
    assert not torch.allclose(before[:, 40:], after[:, 40:], atol=1e-2)
