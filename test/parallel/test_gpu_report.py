"""benchmarks/gpu_report.py: its parts, their ends, the resumed and carried files, and the tables.

The whole program runs on the emulated GPU, is killed in the middle, and continues. Speed is never checked.
"""

from __future__ import annotations

import argparse
import importlib
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import launching
import pytest
from benchmark_runs import BENCHMARKS
from gpu_jobs import emulated_gpus
from page_blocks import ROOT
from rank_jobs import mpirun

sys.path += [str(ROOT / "test"), str(ROOT / "test" / "single" / "support"), str(BENCHMARKS)]

import gpu_report
import gpus
import topology_machines as made
from emulated_cuda import build as emulation
from gpu_report import PARTS, Part

FACTS = {"GPU": "GPU of a test", "driver": "1.2", "CUDA": "13.0", "torch": "2.11", "commit": "abc"}
PRINTS_AND_WRITES = """
import json, sys
print("measuring")
open(sys.argv[sys.argv.index("--out") + 1], "w").write(json.dumps({"benchmark": "fake", "rows": []}))
"""
STARTS_ANOTHER = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(child.pid, flush=True)
time.sleep(600)
"""
STARTED_SECONDS = 10.0  # enough for a Python to start on a busy machine


def script(folder: Path, name: str, text: str, minutes: float = 1.0) -> Part:
    (folder / f"{name}.py").write_text(text)
    return Part(name, minutes, f"what {name} tells", str(folder / f"{name}.py"))


def chosen(folder: Path, *words: str) -> argparse.Namespace:
    out = folder / "out"
    out.mkdir(exist_ok=True)
    return gpu_report.arguments(["--installed", "--out", str(out), *words])


@pytest.fixture
def fakes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Part]:
    """Three parts: one is done, one exceeds its time, one fails."""
    table = [
        script(tmp_path, "good", PRINTS_AND_WRITES),
        script(tmp_path, "slow", STARTS_ANOTHER, minutes=STARTED_SECONDS / 60),
        script(tmp_path, "bad", "raise SystemExit('no such kernel')"),
    ]
    monkeypatch.setattr(gpu_report, "PARTS", table)
    monkeypatch.setattr(gpu_report, "facts_of", lambda python, environment: FACTS)
    return table


def is_running(pid: int) -> bool:
    """Return whether it runs; False also for a zombie."""
    command = Path(f"/proc/{pid}/cmdline")
    return command.exists() and command.read_bytes() != b""


def measured(options: argparse.Namespace, minutes: float = 60.0) -> dict[str, Any]:
    gpu_report.measure(options, Path(sys.executable), time.monotonic() + 60 * minutes)
    return gpu_report.read_records(options.out / "report.json")


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.name)
def test_a_part_is_short_and_its_command_is_understood(part: Part, monkeypatch: pytest.MonkeyPatch) -> None:
    assert 0 < part.minutes <= gpu_report.MOST_MINUTES
    first, *words = gpu_report.words_of(part, Path("result"))
    if part.is_test:
        assert first == "-m" and Path(words[-1]).is_file()
        return
    monkeypatch.chdir(BENCHMARKS)
    program: Any = importlib.import_module(Path(first).stem)
    options = program.arguments(words)
    assert (options.device, options.out) == ("cuda", "result")


def test_names_are_unique_and_what_is_most_telling_comes_first() -> None:
    names = [part.name for part in PARTS]
    assert len(set(names)) == len(names)
    assert names[:4] == ["codec", "host", "nccl", "step"]
    assert all(not part.is_test for part in PARTS[: names.index("tests")])


@pytest.mark.cold  # the child of a part that is ended
def test_each_part_is_recorded_with_how_it_ended(fakes: list[Part], tmp_path: Path) -> None:
    records = measured(chosen(tmp_path, "--quick"))
    minutes = f"{fakes[1].minutes:g}"
    outcomes = {name: record["outcome"] for name, record in records.items()}
    assert outcomes == {
        "good": "done",
        "slow": f"ended after {minutes} minutes",
        "bad": "failed with exit code 1",
    }
    assert records["good"]["facts"] == FACTS and records["good"]["figures"]["rows"] == []
    assert records["bad"]["output"] == "no such kernel\n" and records["bad"]["figures"] is None
    child = int(records["slow"]["output"])
    assert not is_running(child)
    log = (tmp_path / "out" / "report.log").read_text()
    assert log == f"measuring\n{child}\nno such kernel\n"


def test_what_has_a_record_is_not_done_again(fakes: list[Part], tmp_path: Path) -> None:
    gpu_report.PARTS = fakes = [fakes[0], fakes[2]]
    options = chosen(tmp_path)
    options.part = ["good"]
    first = measured(options)
    assert list(first) == ["good"]
    options.part = ["good", "bad"]
    assert [part.name for part in gpu_report.to_do(options)] == ["bad"]
    both = measured(options)
    assert both["good"] == first["good"] and "bad" in both
    options.again = True
    assert gpu_report.to_do(options) == fakes


def test_no_part_but_the_first_begins_that_may_end_too_late(
    fakes: list[Part], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert list(measured(chosen(tmp_path), minutes=0.0)) == ["good"]
    assert "slow may take" in capsys.readouterr().out


def test_tests_that_did_not_run_are_not_done(tmp_path: Path) -> None:
    case = "<testcase name='a'>{}</testcase>"
    module = "<skipped message='collection skipped'>('a.py', 14, 'Skipped: no CUDA')</skipped>"
    test = "<skipped message='no GPU'>a.py:3: no GPU</skipped>"
    cases = [case.format(inside) for inside in ("", module, test, "<failure/>", "<error/>")]
    report = tmp_path / "junit.xml"
    report.write_text(f"<testsuites><testsuite>{''.join(cases)}</testsuite></testsuites>")
    found = gpu_report.tests_in(report)
    assert (found["passed"], len(found["failed"]), found["skipped"]) == (1, 2, ["no CUDA", "no GPU"])
    assert gpu_report.outcome(0, found, 9) == "done"
    assert gpu_report.outcome(0, {"passed": 0}, 9) == gpu_report.outcome(5, {"passed": 0}, 9) == "skipped"
    assert gpu_report.outcome(1, found, 9) == "failed with exit code 1"
    assert gpu_report.outcome(0, None, 9) == "failed with exit code 0"


def test_missing_and_failed_parts_are_shown(fakes: list[Part], tmp_path: Path) -> None:
    nothing = gpu_report.read_records(tmp_path / "report.json")
    assert gpu_report.section(nothing) == "Not measured on a GPU yet."
    options = chosen(tmp_path)
    options.part = ["bad"]
    measured(options)
    text = gpu_report.section(gpu_report.read_records(options.out / "report.json"))
    assert text.count("### On a GPU: bad") == 1
    assert "Not measured on a GPU yet: `good`, `slow`." in text
    assert "GPU: GPU of a test, driver: 1.2, CUDA: 13.0, torch: 2.11, commit: abc." in text
    assert "```text\nno such kernel\n```" in text and "mulated" not in text


def test_wheels_are_for_the_other_machine_and_may_not_be_too_large(tmp_path: Path) -> None:
    folder = tmp_path / "wheels"
    folder.mkdir()
    (folder / "old.whl").touch()

    def download(command: list[str], check: bool) -> None:
        assert check and command[1:3] == ["-m", "pip"] and "--only-binary=:all:" in command
        assert "--python-version=3.12" in command and "--platform=manylinux2014_x86_64" in command
        assert set(gpu_report.REQUIREMENTS) <= set(command)
        folder.mkdir()
        with (folder / "new.whl").open("wb") as wheel:
            wheel.truncate(20 << 20)

    assert gpu_report.fetch_wheels(folder, download) == 20.0
    assert not (folder / "old.whl").exists()
    with (folder / "another.whl").open("wb") as wheel:
        wheel.truncate(41 << 20)
    with pytest.raises(gpu_report.Unfit, match=r"61\.0 MiB of wheels, and 60 are the most"):
        gpu_report.size_of(folder)


def test_what_a_figure_depends_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", made.FakeNvml(made.DGX_CARDS))
    assert gpus.asked("GPU-0") == {
        **{"driver": "535.104.05", "SM clock, MHz": "1980", "most": "1980", "memory clock, MHz": "2619"},
        **{
            "power limit, W": "700.00",
            "temperature, C": "35",
            "PCIe generation": "5",
            "PCIe lanes": "unknown",
        },
    }
    failed = "unknown (NVML, a part of NVIDIA's driver, failed: Not Found)"
    assert gpus.asked("GPU-1") == {"driver": failed}
    monkeypatch.setitem(sys.modules, "pynvml", made.FakeNvml(init_error=made.LibraryNotFound()))
    assert gpus.asked("GPU-0") == {"driver": "unknown (no NVIDIA driver)"}


def test_the_environment_sees_the_machines_packages(tmp_path: Path) -> None:
    python = gpu_report.make_environment(tmp_path / "environment")
    ask = "import sys, numpy; print(sys.prefix, numpy.__file__)"
    answer = subprocess.run([python, "-c", ask], capture_output=True, text=True, check=True)
    prefix, numpy = answer.stdout.split()
    assert Path(prefix) == tmp_path / "environment"
    assert not Path(numpy).is_relative_to(prefix)


def test_a_machine_that_cannot_be_measured_is_told_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "log"
    monkeypatch.setattr(gpu_report, "FINDS_A_GPU", "raise SystemExit(1)")
    with pytest.raises(gpu_report.Unfit, match="no PyTorch that finds a GPU"):
        gpu_report.prepare(log)
    monkeypatch.setattr(gpu_report, "FINDS_A_GPU", "")
    monkeypatch.setattr(gpu_report, "WHEELS", tmp_path)
    with pytest.raises(gpu_report.Unfit, match="run `make gpu-wheels` where there is a network"):
        gpu_report.prepare(log)
    said = r"pip install .*no-such-wheel(.|\n)* ends with\n(.|\n)*ERROR"
    with pytest.raises(gpu_report.Unfit, match=said):
        gpu_report.install(Path(sys.executable), ["no-such-wheel"], log)


def test_the_commit_is_told_or_git_knows_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GPU_REPORT_COMMIT", "told")
    assert gpu_report.commit() == "told"
    monkeypatch.delenv("GPU_REPORT_COMMIT")
    monkeypatch.setattr(gpu_report, "ROOT", tmp_path)
    assert gpu_report.commit() == "unknown"


def environment(mark: str) -> dict[str, str]:
    """Return the environment of programs that take host memory for an emulated GPU's, shared by ranks."""
    mpirun()
    more = {"HOROVOD_TEST_SHARED_GPU": "1", "BENCHMARK_PLACE": "emulated_place", "OMP_NUM_THREADS": "1"}
    more["BENCHMARK_DEVICE_LIBRARY"] = str(emulation.library_path())
    found = launching.environment(mark, **emulated_gpus(), **more)
    found["PYTHONPATH"] += f"{os.pathsep}{Path(__file__).parent}"
    return found


@pytest.mark.slow
@pytest.mark.timeout(600)  # seconds, unless the emulated CUDA has to be built
def test_on_the_emulated_gpu_it_is_killed_and_goes_on(tmp_path: Path) -> None:
    out = tmp_path / "out"
    names = ["codec", "host", "nccl"]
    mark = launching.fresh_mark()
    where = ["--installed", "--quick", "--out", str(out)]
    command = [sys.executable, str(BENCHMARKS / "gpu_report.py"), *where, "--part", *names]
    with subprocess.Popen(command, env=environment(mark)) as process:
        while not (out / "report.json").exists():
            assert process.poll() is None, "it ended before its first part was done"
            time.sleep(0.05)
        process.terminate()
        assert process.wait(60) == 128 + 15
    assert not launching.processes_of(mark)
    first = gpu_report.read_records(out / "report.json")
    assert list(first) == ["codec"]

    again = subprocess.run(command, env=environment(mark), capture_output=True, text=True, check=False)
    assert again.returncode == 0, again.stdout + again.stderr
    records = gpu_report.read_records(out / "report.json")
    assert records["codec"] == first["codec"]
    assert {name: record["outcome"] for name, record in records.items()} == dict.fromkeys(names, "done")
    written = again.stdout
    for name in names:
        assert f"### On an emulated GPU: {name}" in written
    assert written.count(gpu_report.EMULATED) == written.count(gpu_report.QUICK) == len(names)
    assert "On a GPU" not in written and "reduce 4 to codes" in written and "whole / slowest" in written
    assert "Not measured on a GPU yet: `step`, `step-shared`," in written
    assert records["host"]["facts"]["GPU"] == "emulated, number 0"
