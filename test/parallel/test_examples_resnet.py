"""The ResNet examples: the benchmark on random images, and the ImageNet recipe, ended and resumed."""

from __future__ import annotations

import contextlib
import re
import signal
import sys
from pathlib import Path

import psutil
import pytest
import torch
from example_runs import CHECKSUM, EXAMPLES, check_resumed, job, run, started, wait_for_checkpoint

sys.path.insert(0, str(EXAMPLES))
import imagenet_data

TINY = ["--model", "resnet18", "--image-size", "32", "--batch-size", "4", "--no-cuda"]
QUICK = ["--num-warmup-batches", "1", "--num-batches-per-iter", "1", "--num-iters", "3"]
NUMBER = r"(\d+\.\d)"

BENCHMARKS = {
    "fp16": ["--fp16-allreduce"],
    "bit8": ["--compression", "bit8", "--sync-batch-norm"],
    "adasum": ["--use-adasum"],
}


# The benchmark


@pytest.mark.parametrize("name", BENCHMARKS)
def test_benchmark(name: str) -> None:
    script = ["pytorch_synthetic_benchmark.py", *TINY, *QUICK, *BENCHMARKS[name]]
    printed = run([*job(2), *script]).stdout
    rates = re.findall(rf"Iter #\d: {NUMBER} img/sec per CPU", printed)
    ((mean, _),) = re.findall(rf"Img/sec per CPU: {NUMBER} \+-{NUMBER}", printed)
    ((ranks, total, _),) = re.findall(rf"Total img/sec on (\d) CPU\(s\): {NUMBER} \+-{NUMBER}", printed)
    assert "Model: resnet18" in printed and "Batch size: 4" in printed and "Number of CPUs: 2" in printed
    assert len(rates) == 3 and ranks == "2"
    assert float(mean) > 0 and float(total) == pytest.approx(2 * float(mean), abs=0.2)


def test_benchmark_of_resnet50_alone() -> None:
    script = ["pytorch_synthetic_benchmark.py", *TINY, *QUICK, "--model", "resnet50"]
    printed = run(["python", *script]).stdout
    assert "Model: resnet50" in printed and "Total img/sec on 1 CPU(s)" in printed


# The ImageNet recipe

RECIPE = [
    *("pytorch_imagenet_resnet50.py", *TINY, "--batch-size", "8", "--classes", "4", "--val-images", "39"),
    *("--base-lr", "0.02", "--warmup-epochs", "1"),
]
EPOCH = re.compile(r"epoch (\d+)/\d+  train loss ([\d.]+) .*  validation loss ([\d.]+)  accuracy ([\d.]+) %")


def recipe(folder: Path, epochs: int, images: int, *options: str) -> list[str]:
    """Return the command of a run of 2 ranks that has its checkpoints in `folder`."""
    numbers = ["--epochs", str(epochs), "--train-images", str(images)]
    return [*job(2), *RECIPE, *numbers, "--checkpoint-format", f"{folder}/{{epoch}}.pth.tar", *options]


def end_after_first_epoch(command: list[str], folder: Path) -> None:
    """Start a run of three epochs, and end it when the first checkpoint exists."""
    with started(command) as process:
        wait_for_checkpoint(process, folder / "1.pth.tar", 60)
        process.send_signal(signal.SIGTERM)  # horovodrun ends its ranks
        process.communicate(timeout=30)
        assert process.returncode != 0
    assert not (folder / "3.pth.tar").exists(), "it was faster than this test"


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_resumed_run_ends_with_the_same_model(tmp_path: Path) -> None:
    folders = [tmp_path / "whole", tmp_path / "broken"]
    for folder in folders:
        folder.mkdir()
    whole, broken = (recipe(folder, 3, 128) for folder in folders)
    wanted = run(whole).stdout
    end_after_first_epoch(broken, folders[1])
    found = run(broken).stdout

    check_resumed(EPOCH, wanted, found)
    assert float(EPOCH.findall(wanted)[-1][3]) > 45, "it learns: one in four is chance, 70 % were seen"


OPTIONS = [
    ["--fp16-allreduce", "--label-smoothing", "0.1", "--gradient-predivide-factor", "2"],
    ["--batches-per-allreduce", "2", "--compression", "bit8", "--sync-batch-norm"],
    ["--use-adasum"],
]


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: options[0])
def test_options_of_the_recipe(options: list[str], tmp_path: Path) -> None:
    printed = run(recipe(tmp_path, 1, 48, *options)).stdout
    assert len(EPOCH.findall(printed)) == 1
    assert [ranks for ranks, _ in CHECKSUM.findall(printed)] == ["2"]


@pytest.mark.timeout(200)
@pytest.mark.cold
def test_an_elastic_run_goes_on_without_a_rank(tmp_path: Path) -> None:
    script, *options = RECIPE
    hosts = ["--min-np", "1", "--blacklist", "host", "-H", "127.0.0.1:1,127.0.0.2:1"]
    numbers = ["--epochs", "3", "--train-images", "160", "--checkpoint-format", f"{tmp_path}/{{epoch}}.pt"]
    command = ["horovodrun", "-np", "2", *hosts, "python", script.replace(".py", "_elastic.py")]
    often = ["--batches-per-commit", "3", "--batches-per-host-check", "1"]
    with started([*command, *options, *numbers, *often]) as process:
        wait_for_checkpoint(process, tmp_path / "1.pt", 90)
        (lost,) = [worker for worker in workers_of(process.pid, command[-1]) if rank_of(worker) == "1"]
        lost.kill()
        printed, said = process.communicate(timeout=90)
    assert process.returncode == 0, said
    ranks = re.findall(r"epoch (\d)/3 .* (\d) rank\(s\)", printed)
    assert [epoch for epoch, _ in ranks] == ["1", "2", "3"] and ranks[0][1] == "2" and ranks[-1][1] == "1"
    assert re.search(r"goes on as rank 0 of 1, commit [1-9]", said), said
    assert CHECKSUM.findall(printed)[0][0] == "1"

    numbers[1] = "4"
    again = run(["horovodrun", "-np", "1", *command[-2:], *options, *numbers]).stdout
    assert "resuming after epoch 3" in again and len(EPOCH.findall(again)) == 1


def workers_of(pid: int, script: str) -> list[psutil.Process]:
    found = []
    for each in psutil.Process(pid).children(recursive=True):
        with contextlib.suppress(psutil.Error):  # it has ended
            found += [each] if each.cmdline()[1:2] == [script] else []
    return found


def rank_of(worker: psutil.Process) -> str:
    return str(worker.environ()["HOROVOD_RANK"])


def test_shards_of_a_folder(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    for name, count in (("train/a.pt", 10), ("train/b.pt", 14), ("val/a.pt", 5)):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        images = torch.randint(256, (count, 3, 32, 32), generator=generator, dtype=torch.uint8)
        torch.save({"images": images, "labels": torch.arange(count) % 4}, path)
    folders = ["--train-dir", str(tmp_path / "train"), "--val-dir", str(tmp_path / "val")]
    assert len(CHECKSUM.findall(run(recipe(tmp_path, 1, 1, *folders)).stdout)) == 1
    data = imagenet_data.shards(str(tmp_path / "train"))
    assert len(data) == 24 and data[11][1] == 1 and data[11][0].shape == (3, 32, 32)
    torch.save({"images": torch.zeros(3, 3, 8, 8), "labels": torch.zeros(3)}, tmp_path / "val" / "b.pt")
    with pytest.raises(ValueError, match="expected uint8 images"):
        imagenet_data.shards(str(tmp_path / "val"))
    with pytest.raises(FileNotFoundError, match="holds no shard"):
        imagenet_data.shards(str(tmp_path))


def test_wrong_options() -> None:
    script = ["python", "pytorch_imagenet_resnet50.py", "--train-dir", "somewhere"]
    assert "--train-dir and --val-dir go together" in run(script, expected_exit=2).stderr
