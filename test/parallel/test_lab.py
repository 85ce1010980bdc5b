"""The lab as a whole: it does all runs and reports, resumes after any end, and names what failed."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path

import busy
import lab_runs
import launching
import pytest
from lab_runs import done, logs, start, write_script

from horovod.lab import errors

pytestmark = pytest.mark.timeout(300)
TWO = ("--np", "1", "2", "--compression", "none", "--epochs", "1", "--out", "out", "--script")
RUN = re.compile(r"^run \d+ of \d+: ([\w-]+)$", re.MULTILINE)


def short(name: str) -> str:
    """Return a run's name without the part that all have in common here."""
    return name.partition("-epochs1")[0]


def started(said: str) -> list[str]:
    return [short(name) for name in RUN.findall(said)]


def test_all_runs_and_a_report(tmp_path: Path) -> None:
    script = write_script(tmp_path)
    said = done(tmp_path, *TWO, str(script), "--seeds", "2")
    expected = ["serial-seed1", "np2-none-seed1", "np2-none-seed2", "serial-seed2"]  # in rounds
    assert started(said) == expected
    assert [short(name) for name in logs(tmp_path / "out")] == sorted(expected)
    for name in ("report.html", "report.md", "environment.json"):
        assert (tmp_path / "out" / name).stat().st_size > 0
    output = next((tmp_path / "out").glob("runs/np2*/output.txt")).read_text()
    for path in (tmp_path / "out").glob("runs/*/load.json"):
        assert set(json.loads(path.read_text())) == {"before", "during", "after"}
    assert re.match(r"\$ \S+ -m horovod.runner -np 2 --compression none .*--log-file", output)

    assert f"python -m horovod.lab {' '.join(TWO)} {script}" in (tmp_path / "out" / "report.md").read_text()

    said = done(tmp_path, *TWO, str(script), "--seeds", "2")  # again: only the report
    assert started(said) == [] and "4 of 4 runs are done already" in said
    script.write_text(script.read_text() + "# edited\n")
    said = done(tmp_path, *TWO, str(script), "--seeds", "1")
    assert started(said) == ["serial-seed1", "np2-none-seed1"]  # another script's runs do not count


def end(process: subprocess.Popen[str], how: signal.Signals) -> str:
    process.send_signal(how)
    said, _ = process.communicate(timeout=60)
    return said


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_ended_in_the_middle(how: signal.Signals, tmp_path: Path) -> None:
    script, mark = write_script(tmp_path), launching.fresh_mark()
    slow = [*TWO, str(script), "--seeds", "1", "--", "--pause", "0.3"]
    process = start(tmp_path, *slow, mark=mark)
    running = tmp_path / "out" / "runs"
    busy.until(lambda: any(path.stat().st_size for path in running.glob("np2*/log.jsonl")), 120)
    said = end(process, how)
    assert process.returncode == (-9 if how == signal.SIGKILL else 128 + how)
    if how != signal.SIGKILL:
        assert f"stopped by {how.name}; the same command goes on where it was" in said
        assert not launching.processes_of(mark)
    launching.all_end(mark, 120)  # no process is left to wait for them
    assert not list(tmp_path.glob("out/report.*"))
    before = {path: path.stat().st_mtime_ns for path in running.glob("serial*/log.jsonl")}
    assert len(before) == 1

    said = done(tmp_path, *slow)
    assert started(said) == ["np2-none-seed1"]
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert {name: len(found) for name, found in logs(tmp_path / "out").items()} == {
        path.name: 5 for path in running.iterdir()
    }
    assert (tmp_path / "out" / "report.html").exists()


def test_a_run_that_fails(tmp_path: Path) -> None:
    script = write_script(tmp_path)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "report.html").write_text("of an earlier experiment")
    ways = ["--fail", "2,1", "--lie", "1,2", "--forget", "2,2"]
    said = done(tmp_path, *TWO, str(script), "--seeds", "3", "--", *ways, code=1)
    both = ["serial", "np2-none"]
    rounds = [(1, both), (2, both[::-1]), (3, both)]
    assert started(said) == [f"{kind}-seed{seed}" for seed, kinds in rounds for kind in kinds]
    assert re.search(r"np2-none-seed1-\S+ FAILED. .*: it ended with exit code 3\. The end", said)
    # The last words of the script, and horovodrun's.
    assert "the data is gone" in said and re.search("rank [01] on host", said)
    assert re.search(r"serial-seed2-\S+ FAILED. .*log.jsonl, line 1: ranks is 7, but the plan", said)
    assert re.search(r"np2-none-seed2-\S+ FAILED. .*line 5: the final record is missing", said)
    assert "no report: 3 of 6 runs failed" in said
    assert not list(tmp_path.glob("out/report.*"))
    said = done(tmp_path, *TWO, str(script), "--seeds", "3", "--", *ways, code=1)
    assert started(said) == ["np2-none-seed1", "np2-none-seed2", "serial-seed2"]


def test_a_log_that_was_spoiled_later(tmp_path: Path) -> None:
    script = write_script(tmp_path)
    words = [*TWO, str(script), "--seeds", "1"]
    done(tmp_path, *words)
    (log,) = tmp_path.glob("out/runs/np2*/log.jsonl")
    lines = log.read_text().splitlines(keepends=True)
    log.write_text("".join(lines[:1] + lines[2:]))
    said = done(tmp_path, *words, code=1)
    assert re.search(r"no report: \S+/log.jsonl, line 2: step 3 of epoch 1 ", said)
    assert not list(tmp_path.glob("out/report.*")), "the earlier report is not to be taken for this one's"


def test_a_hang_up_ends_it_unless_it_is_told_not_to(tmp_path: Path) -> None:
    script = write_script(tmp_path)
    words = [*TWO, str(script), "--seeds", "1", "--np", "1", "--", "--pause", "1"]
    for before, code in ((["env", "--default-signal=HUP"], 129), (["nohup"], 0)):
        folder = tmp_path / before[0]
        folder.mkdir()
        process = start(folder, *words, before=before)
        busy.until(lambda folder=folder: list(folder.glob("out/runs/*/log.jsonl")), 120)
        process.send_signal(signal.SIGHUP)
        said, _ = process.communicate(timeout=60)
        assert process.returncode == code, said


def test_a_folder_that_is_none(tmp_path: Path) -> None:
    script = write_script(tmp_path)
    (tmp_path / "out").write_text("a file")
    said = done(tmp_path, *TWO, str(script), code=2)
    assert said.startswith("lab: ") and "out" in said and len(said.splitlines()) == 1


def test_one_lab_in_a_folder(tmp_path: Path) -> None:
    script = write_script(tmp_path)
    words = [*TWO, str(script), "--seeds", "1", "--", "--pause", "5"]
    first = start(tmp_path, *words)
    try:
        busy.until(lambda: (tmp_path / "out" / "runs").exists(), 120)
        assert str(errors.folder_in_use(path="out")) in done(tmp_path, *words, code=2)
    finally:
        end(first, signal.SIGTERM)


def test_bad_options_start_nothing(tmp_path: Path) -> None:
    said = done(tmp_path, *TWO, "nowhere.py", code=2)
    assert str(errors.no_script(path="nowhere.py")) in said
    assert not (tmp_path / "out").exists()


def test_a_terminal_gets_a_bar(tmp_path: Path) -> None:
    script = write_script(tmp_path)
    ours, its = pty.openpty()
    words = [*TWO, str(script), "--seeds", "1", "--np", "1", "--", "--pause", "0.5"]
    process = subprocess.Popen(
        [sys.executable, "-m", "horovod.lab", *words],
        cwd=tmp_path,
        env=launching.environment("lab", TERM="xterm", COLUMNS="150"),
        stdin=subprocess.DEVNULL,
        stdout=its,
        stderr=its,
    )
    os.close(its)
    said = b""
    while True:
        try:
            part = os.read(ours, 1 << 16)
        except OSError:  # Linux reports the closed other end this way
            break
        said += part
    os.close(ours)
    assert process.wait(60) == 0, said
    text = re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", said.decode())
    assert "run 1 of 1: serial-seed1" in text
    assert re.search(r"epoch 1/1 +step 2/3 +loss 0\.5", text), text


def test_ranks_are_told_their_compression(tmp_path: Path) -> None:
    script = write_script(tmp_path)
    words = ["--np", "2", "--compression", "bit8", "int4:rotation=hadamard", "--seeds", "1", "--epochs", "1"]
    done(tmp_path, *words, "--out", "out", "--script", str(script))
    found = {records[0]["compression"] for records in lab_runs.logs(tmp_path / "out").values()}
    assert found == {"bit8", "int4:rotation=hadamard"}
