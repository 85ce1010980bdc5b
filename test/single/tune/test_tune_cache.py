"""Results of a tuning, stored in files for the next job."""

import fcntl
import json
import os
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from refusals import refused

from horovod.tune import __main__ as command
from horovod.tune import errors
from horovod.tune.cache import Cache, Key, Stored

KEY = Key("EPYC, 10 Gbit/s", "0123abcd", "Net", "2+2", "1.0, torch 2.13.0", "optimizer")
STORED = Stored(KEY, {"HOROVOD_CYCLE_TIME": "2"}, {"gain": [1.2, 1.1, 1.3]})


@pytest.fixture
def warnings() -> list[str]:
    return []


@pytest.fixture
def cache(tmp_path: Path, warnings: list[str]) -> Cache:
    return Cache(tmp_path / "tune", warnings.append)


def test_what_is_kept_is_found(cache: Cache, warnings: list[str]) -> None:
    assert cache.find(KEY) is None and cache.keep(STORED)
    assert cache.find(KEY) == STORED and cache.all() == [STORED] and not warnings
    assert cache.keep(replace(STORED, settings={"HOROVOD_CYCLE_TIME": "5"}))
    assert cache.all()[0].settings == {"HOROVOD_CYCLE_TIME": "5"}
    assert sorted(path.suffix for path in cache.folder.iterdir()) == ["", ".json"], (
        "nothing half written stays"
    )


@pytest.mark.parametrize("part", Key.__dataclass_fields__)
def test_another_workload_has_a_file_of_its_own(part: str, cache: Cache) -> None:
    other = replace(KEY, **{part: "another"})
    cache.keep(STORED)
    assert cache.find(other) is None and cache.path(other) != cache.path(KEY)


def test_people_can_read_it(cache: Cache) -> None:
    cache.keep(STORED)
    data = json.loads(cache.path(KEY).read_text())
    assert data["key"]["machine"] == KEY.machine and data["figures"] == STORED.figures
    assert len(cache.path(KEY).read_text().splitlines()) > 10


SPOILED = {
    "cut": lambda text: text[: len(text) // 2],
    "empty": lambda text: "",
    "no object": lambda text: "[1]",
    "deep": lambda text: "[" * 100_000,
    "another format": lambda text: text.replace('"format": 1', '"format": 2'),
    "a number for a text": lambda text: text.replace('"2"', "2"),
    "a part of the key is missing": lambda text: text.replace('"face"', '"farce"'),
    "no figures": lambda text: text.replace('"figures"', '"numbers"'),
    "too long": lambda text: text + " " * (1 << 20),
    "no text": lambda text: "\udcff",
}


@pytest.mark.parametrize("way", SPOILED)
def test_what_cannot_be_read_counts_as_absent(way: str, cache: Cache, warnings: list[str]) -> None:
    cache.keep(STORED)
    path = cache.path(KEY)
    path.write_bytes(SPOILED[way](path.read_text()).encode(errors="surrogateescape"))
    assert cache.find(KEY) is None
    (warning,) = warnings
    assert str(path) in warning and "is not used" in warning
    assert warning.endswith("this job is tuned as if there were none, and what is found replaces it")
    assert cache.keep(STORED) and cache.find(KEY) == STORED, "and is written over"


def test_a_file_of_another_key(cache: Cache, warnings: list[str]) -> None:
    cache.keep(STORED)
    other = replace(KEY, world="4")
    cache.path(KEY).rename(cache.path(other))
    assert cache.find(other) is None and "of another workload" in warnings[0]


@pytest.mark.timeout(10)
@pytest.mark.parametrize("kind", ["pipe", "device", "folder"])
def test_what_is_no_file_counts_as_absent(kind: str, cache: Cache, warnings: list[str]) -> None:
    """The read does not wait for a pipe's writer."""
    cache.folder.mkdir()
    path = cache.path(KEY)
    make = {"pipe": os.mkfifo, "device": lambda path: path.symlink_to("/dev/zero"), "folder": Path.mkdir}
    make[kind](path)
    assert cache.find(KEY) is None and len(warnings) == 1 and str(path) in warnings[0]
    assert cache.keep(STORED) == (kind != "folder")
    assert len(cache.all()) == (kind != "folder") and cache.clear() == (kind != "folder")


@pytest.mark.timeout(10)
def test_a_pipe_for_a_lock(cache: Cache, warnings: list[str]) -> None:
    cache.folder.mkdir()
    os.mkfifo(cache.folder / "lock")
    assert not cache.keep(STORED) and "is not kept for the next job" in warnings[0]


@pytest.mark.parametrize("is_there", [True, False])
def test_a_link_for_a_lock(is_there: bool, cache: Cache, warnings: list[str], tmp_path: Path) -> None:
    """The link's target is neither created nor locked."""
    target = tmp_path / "of somebody else"
    if is_there:
        target.write_text("mine")
    cache.folder.mkdir()
    (cache.folder / "lock").symlink_to(target)
    link = str(errors.symbolic_link(path=str(cache.folder / "lock")))
    assert not cache.keep(STORED) and link in warnings[0]
    assert target.exists() == is_there and cache.all() == []
    with refused(errors.symbolic_link, path=str(cache.folder / "lock")):
        cache.clear()


@pytest.mark.parametrize("function", ["replace", "fsync"])
def test_what_was_not_written_leaves_nothing(
    function: str, cache: Cache, warnings: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, function, fail)
    assert not cache.keep(STORED) and "No space left" in warnings[0]
    assert {path.name for path in cache.folder.iterdir()} <= {"lock"}


def test_only_files_of_ours_are_removed(cache: Cache, warnings: list[str]) -> None:
    """HOROVOD_AUTOTUNE_CACHE may name a folder with other files."""
    cache.keep(STORED)
    for name in ("package.json", "tmpab12.tmp", "0123456789abcdef.json.bak", "0123456789ABCDEF.json"):
        (cache.folder / name).write_text("mine")
    (cache.folder / "fedcba9876543210.json").mkdir()
    (cache.folder / "horovod-tune-x1.tmp").write_text("of a job that was killed")
    assert cache.all() == [STORED] and not warnings
    assert cache.clear() == 2
    left = {"package.json", "tmpab12.tmp", "0123456789abcdef.json.bak", "0123456789ABCDEF.json"}
    assert {path.name for path in cache.folder.iterdir()} == {*left, "fedcba9876543210.json", "lock"}


def test_a_folder_that_cannot_be_written(tmp_path: Path, warnings: list[str]) -> None:
    (tmp_path / "file").write_text("")
    cache = Cache(tmp_path / "file" / "tune", warnings.append)
    assert not cache.keep(STORED) and "is not kept for the next job" in warnings[0]
    assert cache.find(KEY) is None and cache.clear() == 0


def test_jobs_at_once(cache: Cache, warnings: list[str]) -> None:
    """A reader finds the complete file of one writer."""
    many = [replace(STORED, figures={"text": str(i) * 20_000}) for i in range(8)]
    writers = [threading.Thread(target=lambda one=one: [cache.keep(one) for _ in range(10)]) for one in many]
    for writer in writers:
        writer.start()
    while any(writer.is_alive() for writer in writers):
        assert cache.find(KEY) in [None, *many]
    assert cache.find(KEY) in many and not warnings


@pytest.mark.parametrize(
    ("environment", "folder"),
    [
        ({"HOROVOD_AUTOTUNE_CACHE": "/data/tuned"}, "/data/tuned"),
        ({"HOROVOD_AUTOTUNE_CACHE": " ", "XDG_CACHE_HOME": "/x"}, "/x/horovod/tune"),
        ({}, "/home/me/.cache/horovod/tune"),
    ],
)
def test_where_it_is(environment: dict[str, str], folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert Cache.usual_folder(environment) == Path(folder)


def test_the_command(
    cache: Cache, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOROVOD_AUTOTUNE_CACHE", str(cache.folder))

    def said(what: str) -> str:
        assert command.main([what]) == 0
        return capsys.readouterr().out

    assert said("show") == f"nothing was kept in {cache.folder}\n"
    cache.keep(STORED)
    cache.keep(replace(STORED, key=replace(KEY, model_name="Other"), figures={"gain": None}))
    shown = said("show")
    assert "Net; optimizer\n  found before, for ranks: 2+2; EPYC, 10 Gbit/s; horovod 1.0, torch" in shown
    assert "  HOROVOD_CYCLE_TIME=2\n  gain: 1.20x (1.10 to 1.30)" in shown and "nothing was faster" in shown
    assert "docs/tuning.md" in said("explain")
    assert said("clear") == f"2 file(s) removed from {cache.folder}\n" and cache.all() == []


def test_a_record_is_shown_to_a_reader() -> None:
    """Its model's size, its date, values in units, and the line to type; no digest."""
    versions = "1.0 (a43ad53123b8e2dc), torch 2.13.0"
    key = replace(KEY, machine="EPYC", world="4 on 2 over tcp", face="optimizer, bit8", versions=versions)
    settings = {"HOROVOD_FUSION_THRESHOLD": "134217728", "HOROVOD_CYCLE_TIME": "2"}
    figures = {**STORED.figures, "date": "2026-11-29", "parameters": 525_568, "tensors": 4}
    assert command.shown(Stored(key, settings, figures)).splitlines() == [
        "Net: 525,568 parameters in 4 tensors; optimizer, bit8",
        "  found on 2026-11-29, for ranks: 4 on 2 host(s) over tcp; EPYC; horovod 1.0, torch 2.13.0",
        "  HOROVOD_FUSION_THRESHOLD=134217728 (128 MiB)",
        "  HOROVOD_CYCLE_TIME=2",
        "  gain: 1.20x (1.10 to 1.30)",
        "  to use it: horovodrun -np 4 --autotune python ...",
    ]


def test_the_command_where_it_fails(
    cache: Cache, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The error is one line, with exit code 1."""

    def complaint(folder: str, what: str = "clear") -> str:
        monkeypatch.setenv("HOROVOD_AUTOTUNE_CACHE", folder)
        assert command.main([what]) == 1
        said = capsys.readouterr()
        assert said.out == "" and len(said.err.splitlines()) == 1
        return said.err.removeprefix("python -m horovod.tune: ")

    cache.keep(STORED)
    with open(cache.folder / "lock") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        assert complaint(str(cache.folder)) == f"{cache.folder}: {errors.folder_locked()}\n"
    assert complaint("/proc/self").startswith("/proc/self/lock: ")
    for what in ("show", "clear"):
        assert complaint("x" * 300, what).endswith("File name too long\n")
        assert complaint("~nosuchuser/x", what).startswith("HOROVOD_AUTOTUNE_CACHE names no folder: ")
    assert command.main(["explain"]) == 0
    assert cache.all() == [STORED]
