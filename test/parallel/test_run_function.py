"""horovod.run with real ranks of this host."""

# private: _reducer: shows which rules count, without a reduction

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import launching
import pytest
from refusals import refused

import horovod
from horovod.runner import errors
from horovod.runner.errors import FunctionFailed

FACTOR = 7


@pytest.fixture(autouse=True)
def horovod_is_found_by_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in launching.environment("plain").items():
        monkeypatch.setenv(name, text)


def place(factor: int, *, shift: int = 0) -> tuple[int, int]:
    rank, size = int(os.environ["HOROVOD_RANK"]), int(os.environ["HOROVOD_SIZE"])
    return rank * factor + shift, size


@pytest.mark.quick
def test_results_come_by_rank() -> None:
    assert horovod.run(place, (10,), {"shift": 1}, num_proc=3) == [(1, 3), (11, 3), (21, 3)]
    assert horovod.run(place, args=(1,)) == [(0, 1)]
    with pytest.warns(DeprecationWarning, match="use num_proc"):
        assert horovod.run(place, (1,), np=2) == [(0, 2), (1, 2)]


def test_closures_and_lambdas() -> None:
    words = ["a", "b"]
    assert horovod.run(lambda: [word * FACTOR for word in words], num_proc=2) == [["aaaaaaa", "bbbbbbb"]] * 2


def test_horovod_inside() -> None:
    pytest.importorskip("horovod._native", reason="the native core is not built")

    def average(values: list[float]) -> tuple[list[float], str]:
        import torch

        import horovod.torch as hvd

        hvd.init()
        result: list[float] = hvd.allreduce(torch.tensor(values) + hvd.rank(), name="x").tolist()
        model = torch.nn.Linear(2, 2)
        plain = torch.optim.SGD(model.parameters(), lr=0.1)
        optimizer = hvd.DistributedOptimizer(plain, compression=hvd.Compression.fp16)
        hvd.shutdown()
        return result, str(optimizer._reducer.rules)

    forced = {"compression": "int8", "compression_force": True}
    assert horovod.run(average, ([1.0, 2.0],), num_proc=2, **forced) == [([1.5, 2.5], "int8")] * 2
    with refused(FunctionFailed, "alone", option="--compression-force", other="--compression"):
        horovod.run(average, ([1.0],), compression_force=True)


def test_megabytes_in_and_out() -> None:
    data = os.urandom(1 << 20) * 8  # all byte values
    first, second = horovod.run(lambda: data + bytes([int(os.environ["HOROVOD_RANK"])]), num_proc=2)
    assert first == data + b"\0" and second == data + b"\1"


@pytest.mark.quick
def test_output_is_shown_and_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def speak() -> None:
        print("out")
        print("err", file=sys.stderr)

    horovod.run(speak, num_proc=2, output_filename=str(tmp_path), verbose=1)
    shown = capsys.readouterr()
    assert (
        "[1]<stdout>:out\n" in shown.out
        and "[0]<stderr>:err\n" in shown.err
        and "agents start 2 ranks on" in shown.err
    )
    assert (tmp_path / "rank.1" / "stdout").read_text() == "out\n"


@pytest.mark.quick
def test_a_function_that_raises() -> None:
    def fail() -> None:
        if os.environ["HOROVOD_RANK"] == "1":
            raise KeyError("no such thing")
        time.sleep(60)

    with refused(errors.rank_raised, exit_code=1, ranks=(1,), type="KeyError") as error:
        horovod.run(fail, num_proc=2)
    said = str(error.value)
    assert "KeyError: 'no such thing'\n\nTraceback" in said
    assert "in fail" in said and "function_rank.py" not in said


@pytest.mark.parametrize(
    ("ending", "code", "facts", "named"),
    [
        (lambda: sys.exit(3), "rank_lost", {"exit_code": 3}, "exited with code 3"),
        (lambda: os.kill(os.getpid(), signal.SIGKILL), "rank_lost", {"exit_code": 137}, "signal 9"),
        (lambda: os._exit(0), "no_result", {"number": 0}, ""),
        (lambda: threading.Lock(), "rank_raised", {"exit_code": 1, "type": "TypeError"}, "returned a lock"),
    ],
)
def test_a_rank_that_does_not_return(
    ending: Callable[[], object], code: str, facts: dict[str, object], named: str
) -> None:
    with refused(FunctionFailed, code, **facts) as error:
        horovod.run(ending, num_proc=2)
    assert named in str(error.value) and (code != "rank_lost" or error.value.ranks in ((0,), (1,)))


@pytest.mark.quick
def test_what_cannot_start_is_said() -> None:
    with refused(FunctionFailed, "too_few_slots", np=3, slots=2):
        horovod.run(place, (1,), num_proc=3, hosts="localhost:2")
    with refused(FunctionFailed, "hosts_refused") as error:
        horovod.run(place, (1,), num_proc=1, hosts="nowhere.invalid:1", disable_cache=True)
    assert set(error.value.facts["failures"]) == {"nowhere.invalid"}


def test_another_python(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexport WRAPPED=yes\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    assert horovod.run(lambda: os.environ.get("WRAPPED"), executable=str(python)) == ["yes"]


@pytest.mark.quick
def test_nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It leaves no file, and only the caller's processes."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    mine = subprocess.Popen(["sleep", "300"])
    try:
        assert horovod.run(lambda: os.environ.get("HOROVOD_RUN_PAYLOAD"), num_proc=2) == [None, None]
        assert mine.poll() is None
        assert list(tmp_path.iterdir()) == []
    finally:
        mine.kill()
        mine.wait()


SCRIPT = """
import horovod, os, signal, threading, time
# A shell in the background has its children ignore it.
signal.signal(signal.SIGINT, signal.default_int_handler)
threading.Timer({delay}, lambda: os.kill(os.getpid(), signal.{name})).start()
horovod.run(lambda: print("up", flush=True) or time.sleep(300), num_proc=2)
"""


@pytest.mark.parametrize("name", ["SIGINT", "SIGKILL"])
def test_ending_the_caller_ends_the_ranks(name: str) -> None:
    mark = launching.fresh_mark()
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(name=name, delay=3)],
        env=launching.environment(mark),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == -getattr(signal, name)
    if name == "SIGINT":
        assert "KeyboardInterrupt" in done.stderr
    launching.all_end(mark, 15)
