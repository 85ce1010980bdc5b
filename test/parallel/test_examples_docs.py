"""Every command of docs/examples.md runs and prints what the page says; the page knows every example."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from example_runs import EXAMPLES, ROOT, real_mnist, run

PAGE = (ROOT / "docs" / "examples.md").read_text()
COMMANDS = re.findall(r"^(?:python|horovodrun) .*$", PAGE, re.MULTILINE)
PRINTED = {  # script -> what its output ends with
    "pytorch_mnist.py": r"parameters +bit-identical on 1 rank\(s\)",
    "pytorch_mnist_horovod.py": r"parameters +bit-identical on 2 rank\(s\)",
    "pytorch_mnist_elastic.py": r"test accuracy +[\d.]+ %, parameters bit-identical on 2 rank\(s\)",
    "pytorch_synthetic_benchmark.py": r"Total img/sec on 2 CPU\(s\): [\d.]+ \+-[\d.]+",
    "pytorch_imagenet_resnet50.py": r"epoch 3/3 .*\n.*parameters bit-identical on 2 rank\(s\)",
    "pytorch_imagenet_resnet50_elastic.py": r"epoch 3/3 .*\n.*parameters bit-identical on 2 rank\(s\)",
    "pytorch_dcgan.py": r"the weights of 2 ranks are the same",
    "pytorch_process_sets.py": r"ranks \[0, 1\]: .*\n.*ranks \[2, 3\]: learning rate 0.01, loss .*, bit-id",
    "pytorch_ddp.py": r"epoch 1/1 .*\n.*parameters bit-identical on 1 rank\(s\)",
}
BY_OTHERS = {  # command -> the test that runs it
    "horovodrun -np 2 python examples/pytorch_mnist_compress.py --bit8-allreduce": "test_examples_mnist.py",
}


def script_of(command: str) -> str:
    (name,) = re.findall(r"examples/(\w+\.py)", command)
    return str(name)


@pytest.mark.parametrize("command", COMMANDS, ids=script_of)
def test_a_documented_command(command: str, tmp_path: Path) -> None:
    if command in BY_OTHERS:
        runs_it = Path(__file__).with_name(BY_OTHERS[command])
        assert command in runs_it.read_text(), f"{command} is run by {runs_it} no more"
        return
    if any(name in command for name in ("mnist", "pytorch_ddp")) and real_mnist() is None:
        pytest.skip("no real MNIST: neither $MNIST_DATA_DIR nor ../shared/data/mnist")
    (tmp_path / "examples").symlink_to(EXAMPLES)  # so that checkpoints are not written into the repository
    printed = run([*shlex.split(command)], cwd=tmp_path, MNIST_DATA_DIR=str(real_mnist() or "")).stdout
    assert re.search(PRINTED[script_of(command)], printed), printed


def test_the_page_knows_every_example() -> None:
    scripts = {path.name for path in EXAMPLES.glob("pytorch_*.py")}
    assert {script_of(command) for command in COMMANDS} == scripts
    assert set(re.findall(r"^\| `(.*\.py)` \|", PAGE, re.MULTILINE)) == scripts
