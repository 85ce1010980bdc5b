"""The lab's plans: their runs, the names of the runs' folders, and refused plans."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest
from lab_logs import plan, records, written

from horovod import made_hosts
from horovod.lab import command_line, errors, folders
from horovod.lab.command_line import parse
from horovod.lab.conduct import environment_of, words_of
from horovod.lab.places import MadePlace, made_place
from horovod.lab.plan import PARALLEL_EXAMPLE, SERIAL_EXAMPLE, digest, folder_name, in_rounds, sources
from horovod.lab.runs import THIS_HOST, Plan


def names(*words: str) -> list[str]:
    return [folder_name(each) for each in parse(["--list", *words]).plans]


def test_the_usual_experiment() -> None:
    kinds = ["serial", *(f"np{n}-{name}" for n in (2, 4) for name in ("none", "bit16", "bit8"))]
    assert names() == [f"{kind}-seed{seed}" for kind in kinds for seed in (1, 2, 3)]


def test_runs_are_done_in_rounds() -> None:
    """One run of each kind, then the next seed of each, in reverse order."""
    options = ["--list", "--np", "1", "2", "--compression", "none", "bit8", "--seeds"]
    found = [folder_name(each) for each in in_rounds(parse([*options, "3"]).plans)]
    kinds = ["serial", "np2-none", "np2-bit8"]
    expected = [(1, kinds), (2, kinds[::-1]), (3, kinds)]
    assert found == [f"{kind}-seed{seed}" for seed, of_it in expected for kind in of_it]
    assert sorted(found) == sorted(names(*options[1:], "3"))


def test_scripts_and_commands(tmp_path: Path) -> None:
    serial, parallel = parse(["--list", "--np", "2", "1", "--compression", "int8", "--seeds", "1"]).plans
    assert (serial.algorithm, parallel.algorithm) == ("serial", "int8")
    assert Path(serial.script).resolve() == SERIAL_EXAMPLE
    assert Path(parallel.script).resolve() == PARALLEL_EXAMPLE
    options = ["--epochs", "3", "--seed", "1", "--log-file", str(tmp_path / "log"), "--allow-digits"]
    python, *words = words_of(serial, tmp_path / "log")
    assert words == [serial.script, *options]
    expected = [python, "-m", "horovod.runner", "-np", "2", "--compression", "int8", python, parallel.script]
    assert words_of(parallel, tmp_path / "log") == [*expected, *options]
    on_hosts = dataclasses.replace(parallel, place="2 hosts at 1gbit", ranks=3)
    assert words_of(on_hosts, tmp_path / "log")[7:9] == ["-H", "h1:2,h2:2"]


def test_every_rank_computes_with_the_threads_of_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOROVOD_COMPRESSION", "bit8")
    (one,) = parse(["--list", "--np", "1", "--seeds", "1", "--threads", "3"]).plans
    found = environment_of(one)
    assert found["OMP_NUM_THREADS"] == "3"
    assert "HOROVOD_COMPRESSION" not in found  # otherwise the variable would decide in the serial run


def test_names_of_what_is_not_usual(tmp_path: Path) -> None:
    assert names("--np", "1", "2", "--compression", "none", "--epochs", "1", "--seeds", "1") == [
        "serial-seed1-epochs1",
        "np2-none-seed1-epochs1",
    ]
    script = tmp_path / "my_train.py"
    script.touch()
    for pattern, words in {
        r"np2-int4_rotation_hadamard-seed1-\w{6}": ["--compression", "int4:rotation=hadamard"],
        r"np2-none-seed1-a_2_b_2-\w{6}": ["-H", "a:2,b:2"],
        r"np2-none-seed1-my_train-\w{6}": ["--script", str(script)],
        r"np2-none-seed1-\w{6}": ["--threads", "2"],
        r"np2-none-seed1-(?!0)\w{6}": ["--", "--batch-size", "8"],
    }.items():
        (name,) = names("--np", "2", "--seeds", "1", "--compression", "none", *words)
        assert re.fullmatch(pattern, name), name


def test_plans_that_differ_have_folders_that_differ() -> None:
    base = plan()
    changes = [
        {},
        *({"script": name} for name in ("a.py", "b/a.py", "other/a.py")),
        *({"compression": text} for text in ("none", "int4:levels=lloyd", "int4:levels_lloyd=1")),
        *({"place": text} for text in ("a:1,b:1", "a,b:1", "2 hosts at 1gbit", "2 hosts unlimited")),
        *({"arguments": words} for words in (("--x", "1"), ("--x", "2"), ("--x 1",))),
        *({"ranks": 4}, {"seed": 2}, {"epochs": 3}, {"threads": 2}),
    ]
    found = [folder_name(dataclasses.replace(base, **change)) for change in changes]  # type: ignore[arg-type]
    assert len(set(found)) == len(changes)
    assert all(re.fullmatch(r"[\w-]+", name) for name in found)


def test_only_the_same_plan_is_finished(tmp_path: Path) -> None:
    folder = written(tmp_path, plan(), records(plan()))
    assert folders.is_finished(tmp_path, plan())
    edited = plan(digest="another text")
    assert folders.folder_of(tmp_path, edited) == folder
    assert not folders.is_finished(tmp_path, edited)
    (folder / folders.LOAD).rename(folder / "away")
    assert not folders.is_finished(tmp_path, plan()), "who knows what disturbed it"
    (folder / "away").rename(folder / folders.LOAD)
    folders.prepare(tmp_path, edited)
    kept = folder.with_name(f"{folder.name}~1")
    assert folders.plan_in(kept) == plan()  # finished runs are kept
    folders.prepare(tmp_path, edited)  # unfinished runs are not
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == [folder.name, kept.name]


def test_made_hosts_are_compared_with_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(made_hosts, "why_not", lambda: "")
    words = ["--made-hosts", "2", "--rates", "none", "1gbit", "--compression", "none", "--seeds", "1"]
    found = parse([*words, "--list", "--np", "1", "2"]).plans
    places = [THIS_HOST, THIS_HOST, "2 hosts unlimited", "2 hosts at 1gbit"]
    assert [(each.ranks, each.place) for each in found] == list(zip([1, 2, 2, 2], places, strict=True))
    assert {each.arguments for each in found} == {("--allow-digits", "--model", "mlp")}
    found = parse([*words, "--list", "--np", "2", "--", "--model=conv"]).plans
    assert {each.arguments for each in found} == {("--allow-digits", "--model=conv")}


REFUSED = {
    "--np 0": "--np: '0'",
    "--np two": "--np: 'two'",
    "--seeds 0": "--seeds: '0'",
    "--epochs -1": "epochs",
    "--compression bit9": "--compression: .*'bit9'.* bf16, bit16, bit8",
    "--compression bit8:": "--compression: .*'bit8:'",
    "--compression int4:levels=odd": "--compression: .*levels",
    "--script nowhere.py": re.escape(str(errors.no_script(path="nowhere.py"))),
    "-H a:2,b:1": r"--np 4 .* \(3: a:2,b:1\)",
    "-H a:none": r"slots of a\b",
    "--repeat-disturbed 0": "--repeat-disturbed: '0'",
    "--rates 1gbit": re.escape(str(errors.rates_without_hosts())),
    "--made-hosts 1": re.escape(str(errors.one_host())),
    "--made-hosts 3": re.escape(str(errors.hosts_without_rank(ranks=2, hosts=3))),
    "--made-hosts 2 --rates fast": re.escape(str(errors.wrong_rate(value="fast"))),
    "--made-hosts 2 -H a": "-H/--hosts.*--made-hosts|--made-hosts.*-H",
    "--lang fr": "--lang: .*'fr'",
}


@pytest.mark.parametrize("words", REFUSED)
def test_refused(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ending:
        parse(["--list", *words.split()])
    assert ending.value.code == 2
    assert re.search(REFUSED[words], capsys.readouterr().err)


def test_made_hosts_without_root(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(made_hosts, "why_not", lambda: "making hosts needs root")
    with pytest.raises(SystemExit):
        parse(["--made-hosts", "2"])
    assert str(errors.hosts_impossible(why="making hosts needs root")) in capsys.readouterr().err


def test_a_script_may_register_a_compressor(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text('hvd.Compression.register("mine", Mine)\n')
    options = ["--list", "--script", str(script), "--np", "2", "--seeds", "1", "--compression"]
    (found,) = parse([*options, "mine:keep=3"]).plans
    assert isinstance(found, Plan) and found.compression == "mine:keep=3"
    with pytest.raises(SystemExit):
        parse([*options, "mine", "bit8:block_size=odd"])


def test_what_is_not_installed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(command_line, "REQUIRED", ("rich", "no_such_library"))
    with pytest.raises(SystemExit):
        parse([])
    assert "not installed: no_such_library (pip install no_such_library)" in capsys.readouterr().err


def test_what_decides_a_run_besides_its_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script, model, layer = tmp_path / "train.py", tmp_path / "model.py", tmp_path / "parts" / "layer.py"
    layer.parent.mkdir()
    script.write_text("import os, model")
    model.write_text("from parts import layer")
    layer.write_text("import train")
    (tmp_path / "other.py").write_text("")
    assert sources(script) == {script, model, layer}
    found = [digest(str(script))]
    assert digest(str(script)) == found[0]
    (tmp_path / "other.py").write_text("changed = True")
    monkeypatch.setenv("HOROVOD_COMPRESSION", "bit8")
    assert digest(str(script)) == found[0], "what no run depends on, and what every run has of its own"
    layer.write_text("import train as t")
    found.append(digest(str(script)))
    monkeypatch.setenv("HOROVOD_FUSION_THRESHOLD", "0")
    found.append(digest(str(script)))
    assert len(set(found)) == 3


def test_a_place_is_known_by_its_name() -> None:
    for place in (MadePlace(2, "none"), MadePlace(12, "100mbit")):
        assert made_place(place.name) == place
    assert made_place(THIS_HOST) is made_place("h1:2,h2:2") is None


def test_a_rate_is_one_rate_however_it_is_written() -> None:
    assert len(names("--np", "2", "--seeds", "1", "--made-hosts", "2", "--rates", "1gbit", "1Gbit")) == 6
