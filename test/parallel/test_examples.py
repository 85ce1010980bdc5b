"""Every example, started in every way its documentation names: a few steps on generated data.

docs/textbook.md has runs on the real MNIST, with the textbook commands as they are typed.
"""

from __future__ import annotations

import csv
import gzip
import json
import re
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from example_runs import EXAMPLES, LAUNCHERS, job, needs_mpi, run, run_example

Logged = Callable[..., list[dict[str, Any]]]
STEPS = ["--max-steps", "3", "--batch-size", "32"]
TWO_EPOCHS = [*STEPS, "--epochs", "2"]


@pytest.fixture(scope="module")
def mnist_of_stripes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return as many images as MNIST has; rows 2d and 2d + 1 of digit d's image are white.

    Labels are compressed. Images are not: every rank would take longer to unpack them than to train.
    """
    folder = tmp_path_factory.mktemp("mnist")
    for name, count in (("train", 60_000), ("t10k", 10_000)):
        digits = bytes(i % 10 for i in range(count))
        images = [bytes(56 * d) + b"\xff" * 56 + bytes(28 * 28 - 56 * d - 56) for d in range(10)]
        pixels = b"".join(images) * (count // 10)
        for kind, dimensions, content in (
            ("images-idx3", (count, 28, 28), pixels),
            ("labels-idx1", (count,), digits),
        ):
            header = struct.pack(f">I{len(dimensions)}I", 0x0800 + len(dimensions), *dimensions)
            if kind == "labels-idx1":
                (folder / f"{name}-{kind}-ubyte.gz").write_bytes(gzip.compress(header + content))
            else:
                (folder / f"{name}-{kind}-ubyte").write_bytes(header + content)
    return folder


def records(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def check_log(path: Path, ranks: int, compression: str, epochs: int = 1, steps: int = 3) -> None:
    """Check that the log has each step and epoch and a final record, and that ranks ended equal."""
    found = records(path)
    marks = {"dataset": "mnist", "compression": compression, "ranks": ranks, "seed": 1}
    assert all(record.items() >= marks.items() for record in found)
    events = [(record["event"], record["epoch"], record.get("step")) for record in found]
    expected: list[tuple[str, int, int | None]] = []
    for epoch in range(1, epochs + 1):
        expected += [("step", epoch, step) for step in range(1, steps + 1)] + [("epoch", epoch, None)]
    assert events == [*expected, ("final", epochs, None)]
    assert all(record["seconds"] > 0 for record in found if record["event"] != "epoch")
    assert all(record["loss"] > 0 and 0 <= record["accuracy"] <= 1 for record in found)
    assert found[-1]["identical"] is True and len(found[-1]["checksum"]) == 64
    for record in found:
        if record["event"] == "step":
            assert record["steps"] == steps
            assert 0 <= record["wait_seconds"] <= record["seconds"]


def test_serial_and_both_logs(mnist_of_stripes: Path, tmp_path: Path) -> None:
    for name in ("log.csv", "log.jsonl"):
        log = str(tmp_path / name)
        script = ["pytorch_mnist.py", *TWO_EPOCHS, "--log-file", log]
        ended = run_example("python", *script, data=mnist_of_stripes)
        for part in ("dataset", "time per step", "test loss", "test accuracy"):
            assert part in ended.stdout
    check_log(tmp_path / "log.jsonl", ranks=1, compression="none", epochs=2)
    with (tmp_path / "log.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    found = records(tmp_path / "log.jsonl")
    assert len(rows) == len(found)
    for row, record in zip(rows, found, strict=True):
        filled = {name: value for name, value in row.items() if value != ""}
        assert filled.keys() == record.keys()
        for name in record.keys() - {"seconds"}:  # it differs between runs
            assert filled[name] == str(record[name])


@pytest.fixture
def logged(mnist_of_stripes: Path, tmp_path: Path) -> Logged:
    """Run a script; check its log and return it."""

    def run_and_check(launcher: str, *script: str, compression: str = "none") -> list[dict[str, Any]]:
        log = tmp_path / f"{launcher}.jsonl"
        run_example(launcher, *script, "--log-file", str(log), data=mnist_of_stripes)
        check_log(log, 1 if launcher == "python" else 2, compression, 2 if "--epochs" in script else 1)
        return records(log)

    return run_and_check


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_horovod(launcher: str, logged: Logged) -> None:
    logged(launcher, "pytorch_mnist_horovod.py", *TWO_EPOCHS)


@pytest.mark.parametrize(
    "flags",
    [["--fp16-allreduce"], ["--gradient-predivide-factor", "2"], ["--use-adasum"]],
    ids=lambda x: x[0],
)
def test_flags_of_horovods_recipe(flags: list[str], logged: Logged) -> None:
    compression = "fp16" if "--fp16-allreduce" in flags else "none"
    logged("horovodrun", "pytorch_mnist_horovod.py", *flags, *STEPS, compression=compression)


@pytest.mark.parametrize("ranks", [2, 4])
def test_process_sets(ranks: int) -> None:
    printed = run([*job(ranks), "pytorch_process_sets.py", "--no-cuda"]).stdout
    halves = re.findall(r"ranks \[(.*)\]: learning rate ([\d.]+), loss ([\d.]+), bit-identical", printed)
    members = ["0", "1"] if ranks == 2 else ["0, 1", "2, 3"]
    assert [(half, lr) for half, lr, _ in halves] == list(zip(members, ["0.001", "0.01"], strict=True))
    assert float(halves[1][2]) < 5.0 < float(halves[0][2])  # the smaller rate is too small


@pytest.mark.parametrize("detach", ["yes", "no"])
def test_dcgan(detach: str) -> None:
    printed = run([*job(2), "pytorch_dcgan.py", "--steps", "6", "--detach", detach]).stdout
    assert "step 5: critic" in printed and "the weights of 2 ranks are the same" in printed


def test_process_sets_need_two_ranks() -> None:
    ended = run(["python", "pytorch_process_sets.py"], expected_exit=1)
    assert "start it with 2 ranks or more" in ended.stderr


# Bytes of 46,730 gradients with 2 ranks. An exact gradient is sent once (half as partial sums, half as
# results). 45,568 of them are in parameters large enough for a codec, and their codes are sent once.
BYTES_SENT = {
    "none": 46_730 * 4,
    "fp16": 46_730 * 2,
    "bit16": 45_568 * 2 + 1_162 * 4,
    "bit8": 45_568 * 129 // 128 + 1_162 * 4,
}


@pytest.mark.parametrize("compression", BYTES_SENT)
def test_compress(compression: str, logged: Logged) -> None:
    flags = [] if compression == "none" else [f"--{compression}-allreduce"]
    *others, final = logged(
        "horovodrun", "pytorch_mnist_compress.py", *flags, *STEPS, compression=compression
    )
    assert final["bytes_sent"] == pytest.approx(3 * BYTES_SENT[compression], rel=0.01)
    assert final["tensor_bytes"] == 3 * 46_730 * 4
    waits = [record["wait_seconds"] for record in others if record["event"] == "step"]
    assert all(waits)  # each step needs the other rank


def test_compression_by_horovodrun_and_the_larger_network(mnist_of_stripes: Path, tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    text = "int4:rotation=hadamard"
    script = ["pytorch_mnist_compress.py", "--no-cuda", "--model", "mlp", *STEPS, "--log-file", str(log)]
    ended = run(
        ["horovodrun", "-np", "2", "--compression", text, "python", *script],
        MNIST_DATA_DIR=str(mnist_of_stripes),
        OMP_NUM_THREADS="1",
    )
    assert f"compression    {text}, 2 rank(s)" in ended.stdout
    check_log(log, ranks=2, compression=text)
    final = records(log)[-1]
    assert final["tensor_bytes"] == 3 * 1_863_690 * 4
    assert 7 < final["tensor_bytes"] / final["bytes_sent"] < 8


BIT8 = ["pytorch_mnist_compress.py", "--bit8-allreduce", *STEPS]


def test_compress_alone(logged: Logged) -> None:
    assert logged("python", *BIT8, compression="bit8")[-1]["bytes_sent"] == 0


@needs_mpi
def test_launchers_and_repetitions_give_the_same_model(logged: Logged) -> None:
    runs = [logged(launcher, *BIT8, compression="bit8") for launcher in ("horovodrun", "mpirun")]
    assert len({found[-1]["checksum"] for found in runs}) == 1


@needs_mpi
def test_hvd_false_trains_every_process_by_itself(mnist_of_stripes: Path) -> None:
    ended = run_example("mpirun", "pytorch_mnist_horovod.py", "--hvd", "False", *STEPS, data=mnist_of_stripes)
    assert ended.stdout.count("compression    none, 1 rank(s)") == 2


def test_compressions_exclude_each_other(mnist_of_stripes: Path) -> None:
    flags = ["--bit8-allreduce", "--fp16-allreduce"]
    ended = run_example("python", "pytorch_mnist_compress.py", *flags, data=mnist_of_stripes, expected_exit=2)
    assert "not allowed with argument" in ended.stderr


def test_missing_data_is_said_once_and_ends_all_ranks(tmp_path: Path) -> None:
    ended = run_example("horovodrun", "pytorch_mnist_horovod.py", data=tmp_path, expected_exit=None)
    assert ended.returncode != 0
    assert (ended.stdout + ended.stderr).count(f"{tmp_path} lacks train-images-idx3-ubyte") == 1


def test_digits_without_data_and_network(tmp_path: Path) -> None:
    pytest.importorskip("sklearn", reason="scikit-learn is not installed")
    # A copy elsewhere, so that no MNIST lies beside it; no server listens at the proxy's port.
    shutil.copytree(EXAMPLES, tmp_path / "copy" / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    log = tmp_path / "log.jsonl"
    options = ["--allow-digits", "--no-cuda", "--log-file", str(log)]
    ended = run(
        ["horovodrun", "-np", "2", "python", "pytorch_mnist_horovod.py", *options],
        cwd=tmp_path / "copy" / "examples",
        MNIST_DATA_DIR="",
        XDG_CACHE_HOME=str(tmp_path / "cache"),
        https_proxy="http://127.0.0.1:9",
    )
    assert ended.stdout.count("dataset=digits") == 1
    assert {record["dataset"] for record in records(log)} == {"digits"}
