"""Tests the arithmetic, tables, plan and pictures of benchmarks/scaling.py on made-up figures."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from page_blocks import arguments_of

pytest.importorskip("torch", reason="the benchmark trains with torch, which is not installed")

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "benchmarks"))
import contenders  # noqa: E402 -- of the folder of benchmarks, as the next ones
import report  # noqa: E402
import scaling  # noqa: E402
import tables  # noqa: E402
import trained_models  # noqa: E402

TASK = {
    "kind": "hosts",
    "count": 2,
    "rate": "1gbit",
    "model": "vgg16",
    "w_over_c": 2.6,
    "within": 0.3,
    "bucket_view": False,
    "bucket_mb": None,
}

TURNED = f"ddp.compress bit8{contenders.MAY_TURN_OFF}"
CHOSEN = "compression is off: a step takes 20 ms with it and 10 ms without"


def visits(seconds: list[float], sent: float = 0.0, digest: int = 7) -> dict[str, Any]:
    return {"seconds": seconds, "sent": [sent], "digests": [digest]}


def documents(**changes: Any) -> list[dict[str, Any]]:
    """Results of two hosts: a step computes for 2 s, and DDP adds the time of 500 MB at 100 MB/s."""
    slow = {
        "serial": visits([1.9, 2.0, 2.1]),
        "alone": visits([2.0, 2.0, 2.0]),
        "DDP": visits([7.0, 7.2, 7.1], 500e6),
        "DDP fp16": visits([4.4, 4.5, 4.6], 250e6),
        "ddp.compress bit8": visits([2.5, 2.4, 2.5], 126e6),
    } | changes
    quick = {name: {**visit, "seconds": [s - 0.1 for s in visit["seconds"]]} for name, visit in slow.items()}
    quick["serial"]["seconds"] = []  # this contender trains on the first host only
    rest = {"batch": 2, "parameters": 125_000_000, "load": 2.5, "choices": {TURNED: CHOSEN}}
    return [{"contenders": slow, **rest}, {"contenders": quick, **rest}]


def made_up(count: int = 2, **changes: Any) -> dict[str, Any]:
    task = TASK | {"count": count, "bytes_per_second": 100e6}
    ranks = documents(**changes)
    return tables.run_of([ranks[0], *[ranks[1]] * (count - 1)], task) | {"load_before": 0.1}


def row(run: dict[str, Any], name: str) -> dict[str, Any]:
    return next(row for row in run["rows"] if row["contender"] == name)


def test_linearity_is_the_rate_over_that_of_as_many_devices_alone() -> None:
    assert tables.linearity(300.0, 100.0, 4) == pytest.approx(0.75)
    run = made_up()
    assert row(run, "serial")["samples_per_second"] == pytest.approx(1.0)  # 2 samples in the middle one of 3
    assert row(run, "serial")["linearity"] == pytest.approx(1.0)
    assert row(run, "DDP")["samples_per_second"] == pytest.approx(4 / 7.1)
    assert row(run, "DDP")["linearity"] == pytest.approx(4 / 7.1 / 1.0 / 2)
    assert row(run, "ddp.compress bit8")["linearity"] == pytest.approx(4 / 2.5 / 2)
    assert row(run, "ddp.compress bit8")["times_ddp"] == pytest.approx(7.1 / 2.5)
    assert row(run, "ddp.compress bit8")["times_fp16"] == pytest.approx(4.5 / 2.5)


def test_four_devices_are_compared_with_four_times_one() -> None:
    run = made_up(count=4)
    assert row(run, "DDP")["samples_per_second"] == pytest.approx(8 / 7.1)
    assert row(run, "DDP")["linearity"] == pytest.approx(2 / 7.1)
    assert row(run, "serial")["linearity"] == pytest.approx(1.0)


def test_wire_over_compute_is_float32_at_the_measured_rate_over_the_steps_of_those_alone() -> None:
    assert tables.wire_seconds(1000, 4, 100.0) == pytest.approx(4000 * 1.5 / 100)
    run = made_up()
    assert run["wire"] == pytest.approx(5.0) and run["compute"] == pytest.approx(2.0)
    assert run["ratio"] == pytest.approx(2.5)
    assert tables.title(run).endswith("W/C = 2.50 (2.6 ± 0.3 asked: met)")
    assert ", bucket_cap_mb = 2.5: compute" in tables.title(run | {"bucket_mb": 2.5})
    slow = made_up(alone=visits([3.0]))
    said = "W/C = 1.67 (2.6 ± 0.3 asked: NOT MET) (with serial's step as C: 2.50)"
    assert tables.title(slow).endswith(said)
    assert row(slow, "ddp.compress bit8")["times_alone"] == pytest.approx(3.0 / 2.5)


@pytest.mark.parametrize(
    ("one", "two", "unit", "wire", "ratio", "expected"),
    [
        (1.0, 1.9, 1, 4.94, 2.6, (2, 2.6)),
        (1.0, 1.9, 1, 4.7, 4.5, (1, 4.7)),
        (0.1, 0.2, 1, 10.0, 2.0, (50, 2.0)),
        (0.2, 0.4, 2, 10.0, 2.0, (50, 2.0)),  # of batches of 2 and 4
        (5.0, 10.0, 1, 1.0, 2.6, (1, 0.2)),  # even one sample computes too long
    ],
)
def test_the_batch_is_the_one_that_comes_nearest(
    one: float, two: float, unit: int, wire: float, ratio: float, expected: tuple[int, float]
) -> None:
    size, found = tables.batch_for([one, two], unit, wire, ratio)
    assert (size, found) == (expected[0], pytest.approx(expected[1]))


def test_where_no_batch_is_near_enough_it_says_which_pictures_would_be() -> None:
    seconds = [1.6, 3.0]  # 0.2 and 1.4 for each picture of 224 pixels: W/C of 2.94 or 1.57 at W = 4.7
    size, found = tables.batch_for(seconds, 1, 4.7, 2.6)
    assert not tables.is_near(TASK, found)
    batch, picture = tables.picture_for(seconds, 4.7, 2.6, 224)
    assert batch == 1 and tables.is_near(TASK, 4.7 / (0.2 + 1.4 * (picture / 224) ** 2))
    job = {"batch": size, "expected": found, "suggested": (batch, picture)}
    assert f"--picture {picture}" in scaling.not_near(job, TASK)


def test_ranks_that_end_with_different_parameters_are_no_result() -> None:
    ranks = documents()
    ranks[1]["contenders"]["DDP"]["digests"] = [8]
    with pytest.raises(tables.WrongResult, match=r"DDP, vgg16, 2 hosts: the ranks ended with different"):
        tables.run_of(ranks, TASK | {"bytes_per_second": 100e6})
    ranks = documents()
    ranks[1]["contenders"]["alone"]["digests"] = [8]  # these ranks do not communicate
    tables.run_of(ranks, TASK | {"bytes_per_second": 100e6})


def test_the_table_has_a_line_for_each_contender() -> None:
    rows = report.table_of(made_up()["rows"], tables.TRAINED).splitlines()
    lines = [[cell.strip() for cell in row.split("|")[1:-1]] for row in rows]
    heading = ["contender", "samples/s", "linearity", "x alone", "step", "spread", "MB sent", "x DDP"]
    assert lines[0] == [*heading, "x DDP fp16"]
    assert lines[2] == ["serial", "1", "1.00", "0.50", "2.00 s", "5%", "0.0", "1.77", "1.12"]
    assert lines[6] == ["ddp.compress bit8", "1.6", "0.80", "0.80", "2.50 s", "2%", "126.0", "2.84", "1.80"]


def test_runs_of_several_numbers_of_hosts_are_put_side_by_side() -> None:
    text = tables.scaling_text({"machine": {"cores": 2}, "runs": [made_up(4), made_up(2)]})
    assert "**vgg16, hosts, 1gbit: samples/s (linearity)**" in text
    assert re.search(r"\| DDP +\| 0\.563 \(0\.28\) \| 1\.13 \(0\.28\) \|", text)


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(7.384, "4.0% slower than DDP (at most 5% slower asked: met)"),
     (7.81, "10.0% slower than DDP (at most 5% slower asked: NOT MET)"),
     (6.39, "10.0% faster than DDP (at most 5% slower asked: met)")],
)  # fmt: skip
def test_what_may_turn_off_costs_beside_plain_ddp(seconds: float, said: str) -> None:
    run = made_up(**{TURNED: visits([seconds])})
    assert tables.choices(run) == [f"{TURNED}: {CHOSEN}", f"{TURNED}: {said}"]
    assert tables.choices(made_up()) == []


def test_the_plan_says_what_runs_where_and_what_it_takes(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--list", "--models", "vgg16", "mnist", "--processes", "1", "2", "--compressions", "bit8"]
    assert scaling.main(words) == 0
    shown = capsys.readouterr().out
    assert "| vgg16 | 2 processes of one host |     2 |  553.4 MB |" in shown
    jobs = scaling.plan(scaling.arguments(words))
    assert [(job["model"], job["count"]) for job in jobs] == [
        ("vgg16", 1), ("vgg16", 2), ("mnist", 1), ("mnist", 2),
    ]  # fmt: skip
    assert jobs[0]["contenders"] == ["serial", "DataParallel"]
    assert jobs[1]["contenders"] == [
        *("serial", "DataParallel", "alone", "DDP", "DDP fp16", "DDP PowerSGD"),
        *("ddp.compress bit8", "ddp.compress bit8, may turn off", "Horovod bit8"),
    ]


def test_on_hosts_of_one_device_each_there_is_no_data_parallel() -> None:
    jobs = scaling.plan(scaling.arguments(["--hosts", "2", "4", "--rate", "10gbit", "--w-over-c", "2.6"]))
    assert [(job["kind"], job["count"], job["rate"], job["w_over_c"]) for job in jobs] == [
        ("hosts", 2, "10gbit", 2.6), ("hosts", 4, "10gbit", 2.6),
    ]  # fmt: skip
    assert all("DataParallel" not in job["contenders"] for job in jobs)
    ours = [name for name in jobs[0]["contenders"] if name.startswith("ddp.compress")]
    assert [name.split()[1] for name in ours[:6]] == ["bit16", "bit8", "int8", "int4", "topk", "powersgd"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--contenders", "Horovod bit9"], "there is no 'bit9'"),
        (["--contenders", "smoke signals"], "'smoke signals' is none of serial, DataParallel"),
        (["--contenders", "Horovod bit8, may turn off"], "only ddp.compress may turn off"),
        (["--contenders", "Horovod bit8, watched"], "only ddp.compress may turn off, or is watched"),
        (["--batch", "2", "--w-over-c", "2.6"], "one chooses the batch, the other is it"),
        (["--w-over-c", "0"], "--w-over-c is above 0"),
        (["--hosts", "0"], "are at least 1"),
        (["--bucket-mb", "0"], "--bucket-mb is above 0"),
    ],
)
def test_what_cannot_be_is_said_at_once(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        scaling.arguments(words)
    assert said in " ".join(capsys.readouterr().err.split())


def test_models_have_the_published_sizes_and_their_batches_fit() -> None:
    sizes = {name: trained_models.parameter_count(name) for name in trained_models.MODELS}
    assert sizes["vgg16"] == 138_357_544 and sizes["resnet50"] == 25_557_032
    assert sizes["deeplabv3_resnet101"] == 58_630_997 and sizes["mnist"] == 46_730
    for name in trained_models.MODELS:
        model = trained_models.build(name, small=True)
        inputs, answers = trained_models.batch(name, 2, seed=3, small=True)
        loss = trained_models.loss_of(name, model(inputs), answers)
        loss.backward()
        assert all(parameter.grad is not None for parameter in model.parameters()), name
        other = trained_models.batch(name, 2, seed=4, small=True)[0]
        assert inputs.shape == other.shape and not bool((inputs == other).all())


def test_figures_that_were_written_are_shown_again_with_a_picture(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib", reason="plots are drawn with matplotlib, which is not installed")
    files = [tmp_path / f"{count}.json" for count in (2, 4)]
    for path, count in zip(files, (2, 4), strict=True):
        path.write_text(json.dumps({"machine": {"cores": 2}, "runs": [made_up(count)]}))
    joined = str(tmp_path / "joined.json")
    assert scaling.main(["--shown", *map(str, files), "--plots", str(tmp_path), "--out", joined]) == 0
    shown = capsys.readouterr().out
    assert "2 hosts, 1gbit" in shown and "4 hosts, 1gbit" in shown
    assert scaling.main(["--shown", joined]) == 0 and capsys.readouterr().out == shown
    picture = (tmp_path / "scaling.svg").read_text()
    assert "<svg" in picture


def test_the_commands_of_the_page_are_understood() -> None:
    commands = arguments_of("benchmarks/scaling.py", "docs/benchmarks.md")
    assert len(commands) == 4
    for words in commands:
        chosen = scaling.arguments(words)
        assert chosen.shown or scaling.plan(chosen)
