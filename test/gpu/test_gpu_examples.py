"""MNIST and ResNet on a GPU, with every compression, alone and with two ranks that share it."""

from pathlib import Path

import pytest
import real_gpu

real_gpu.need_one()

from example_runs import job, real_mnist, run  # noqa: E402

COMPRESSIONS = ["none", "fp16", "bf16", "bit16", "bit8", "int8", "int4", "topk", "powersgd"]
LIMIT = 200.0  # seconds


@pytest.mark.timeout(LIMIT + 30)
@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("ranks", [1, 2])
def test_mnist(ranks: int, compression: str) -> None:
    data = real_mnist()
    where = ["--data-dir", str(data)] if data is not None else ["--allow-digits"]
    command = [*job(ranks), "pytorch_mnist_compress.py", "--max-steps", "30", *where]
    done = run(command, time_limit=LIMIT, HOROVOD_COMPRESSION=compression)
    assert "training on the CPU" not in done.stdout
    assert "bit-identical" in done.stdout


@pytest.mark.timeout(LIMIT + 30)
@pytest.mark.parametrize("compression", ["none", "bf16", "bit8"])
def test_resnet50(compression: str, tmp_path: Path) -> None:
    sizes = ["--train-images", "64", "--val-images", "16", "--image-size", "64", "--classes", "10"]
    where = ["--checkpoint-format", str(tmp_path / "{epoch}.pt"), "--epochs", "1", "--batch-size", "8"]
    options = ["--compression", compression, "--sync-batch-norm"]
    done = run([*job(2), "pytorch_imagenet_resnet50.py", *sizes, *where, *options], time_limit=LIMIT)
    assert "bit-identical on 2 rank(s)" in done.stdout


@pytest.mark.timeout(LIMIT + 30)
def test_synthetic_benchmark_counts_gpus() -> None:
    counts = ["--num-warmup-batches", "1", "--num-batches-per-iter", "2", "--num-iters", "2"]
    sizes = ["--model", "resnet50", "--batch-size", "4", "--image-size", "64", "--compression", "bit8"]
    done = run([*job(2), "pytorch_synthetic_benchmark.py", *counts, *sizes], time_limit=LIMIT)
    assert "Number of GPUs: 2" in done.stdout
