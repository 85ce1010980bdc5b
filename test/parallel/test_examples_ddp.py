"""examples/pytorch_ddp.py: started in each of its ways, ended and resumed; its figures equal one process'."""

from __future__ import annotations

import functools
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from example_runs import (
    CHECKSUM,
    EXAMPLES,
    check_resumed,
    needs_mnist,
    real_mnist,
    run,
    started,
    wait_for_checkpoint,
)

sys.path.insert(0, str(EXAMPLES))
import deeplab
import imagenet_data
import scenes_data
from confusion import Confusion

SCRIPT = ["pytorch_ddp.py", "--no-cuda"]
SCENES = [*SCRIPT, "--model", "deeplabv3_resnet18", "--image-size", "33", "--batch-size", "2"]
FIGURES = r"loss ([\d.]+)  accuracy ([\d.]+) % \((\d+) of (\d+)\)(?:  mean IoU ([\d.]+) %)?"
EPOCH = re.compile(rf"epoch (\d+)/\d+  train {FIGURES}  test {FIGURES}")
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MNIST_DATA_DIR": str(real_mnist() or "")}
ONE_STORE_EACH = {**ONE_THREAD, "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
TIME_LIMIT = 200


def launched(ranks: int, script: list[str], *options: str) -> list[str]:
    return ["torchrun", "--standalone", "--nproc-per-node", str(ranks), *options, *script]


def spawning(ranks: int, script: list[str]) -> list[str]:
    return ["python", *script, "--spawn", str(ranks)]


def printed_by(command: list[str]) -> str:
    return run(command, time_limit=TIME_LIMIT, **ONE_THREAD).stdout


STARTS = {
    "torchrun, 1 rank": (1, launched(1, [*SCRIPT])),
    "torchrun, 2 ranks": (2, launched(2, [*SCRIPT, "--compression", "bit8"])),
    "spawn, 1 rank": (1, spawning(1, [*SCRIPT, "--compression", "bit8"])),
    "spawn, 2 ranks": (2, spawning(2, [*SCRIPT])),
    "nobody": (1, ["python", *SCRIPT]),
}


@needs_mnist
@pytest.mark.timeout(TIME_LIMIT + 50)
@pytest.mark.parametrize("way", STARTS)
def test_each_way_to_start_it_learns_a_bit_of_mnist(way: str) -> None:
    ranks, command = STARTS[way]
    printed = printed_by([*command, "--train-images", "4000", "--test-images", "1001"])
    ((_, *train, loss, accuracy, correct, total, _),) = EPOCH.findall(printed)
    assert train[3] == "3968", "62 batches of 64"
    assert total == "1001", "each image was tested once, though two ranks cannot share 1001 equally"
    assert float(accuracy) == pytest.approx(100 * int(correct) / 1001, abs=0.006)
    assert float(accuracy) > 65 and float(loss) < 1.2, "one in ten is chance; 80 % were seen"
    assert CHECKSUM.findall(printed)[0][0] == str(ranks)
    assert f"{ranks} rank(s) over gloo" in printed


# Ended and resumed

RESUMED = {  # -> ranks. Three ranks add in an order that depends on DDP's buckets, if gradients are exact
    "none": 3,
    "int4:error_feedback=1": 2,
}


def recipe(compression: str, checkpoint: Path) -> list[str]:
    amounts = ["--train-images", "960", "--test-images", "99", "--epochs", "3", "--batch-size", "16"]
    return [*SCRIPT, *amounts, "--compression", compression, "--checkpoint", str(checkpoint)]


def kill_a_rank_after_the_first_epoch(command: list[str], checkpoint: Path) -> None:
    """Kill a rank as the kernel does when memory runs out. The launcher ends the others."""
    with started(command, **ONE_THREAD) as process:
        wait_for_checkpoint(process, checkpoint, TIME_LIMIT)
        ranks = [child for child in psutil.Process(process.pid).children() if child.is_running()]
        os.kill(ranks[-1].pid, signal.SIGKILL)
        process.communicate(timeout=60)
        assert process.returncode != 0


@needs_mnist
@pytest.mark.cold  # it kills a child of torchrun, as the next test does
@pytest.mark.timeout(3 * TIME_LIMIT)
@pytest.mark.parametrize("compression", RESUMED)
def test_a_resumed_run_ends_with_the_same_model(compression: str, tmp_path: Path) -> None:
    ranks = RESUMED[compression]
    whole, broken = (recipe(compression, tmp_path / name) for name in ("whole", "broken"))
    wanted = printed_by(launched(ranks, whole))
    kill_a_rank_after_the_first_epoch(launched(ranks, broken), tmp_path / "broken")
    saved = torch.load(tmp_path / "broken", weights_only=True)
    assert saved["epoch"] in (1, 2), "a whole file, from before the end"

    found = printed_by(launched(ranks, [*broken, "--resume"]))
    assert f"resuming after epoch {saved['epoch']}" in found
    check_resumed(EPOCH, wanted, found)


@needs_mnist
@pytest.mark.cold
@pytest.mark.timeout(2 * TIME_LIMIT)
def test_torchrun_restarts_it_where_it_was(tmp_path: Path) -> None:
    """The first start has --resume too, but no checkpoint to resume from.

    docs/ddp.md sets the variable: in torchrun's store of all attempts the new ranks would find the addresses
    of the dead ones.
    """
    whole, broken = (recipe("bit8", tmp_path / name) for name in ("whole", "broken"))
    wanted = printed_by(launched(2, whole))
    with started(launched(2, [*broken, "--resume"], "--max-restarts", "1"), **ONE_STORE_EACH) as process:
        wait_for_checkpoint(process, tmp_path / "broken", TIME_LIMIT)
        os.kill(psutil.Process(process.pid).children()[0].pid, signal.SIGKILL)
        printed, errors = process.communicate(timeout=TIME_LIMIT)
    assert process.returncode == 0, errors
    assert "resuming after epoch" in printed
    assert CHECKSUM.findall(printed) == CHECKSUM.findall(wanted) != []


# Figures


def counted_by_hand(logits: torch.Tensor, targets: torch.Tensor, classes: int) -> tuple[float, float, int]:
    """Return accuracy and mean IoU by their definitions, from sets of places, and the known places."""
    predicted, known = logits.argmax(dim=1), targets >= 0
    places = range(targets.numel())
    is_known, true, said = known.flatten().tolist(), targets.flatten().tolist(), predicted.flatten().tolist()
    ious = []
    for label in range(classes):
        is_it = {i for i in places if is_known[i] and true[i] == label}
        is_said = {i for i in places if is_known[i] and said[i] == label}
        if is_it | is_said:
            ious.append(len(is_it & is_said) / len(is_it | is_said))
    right = sum(is_known[i] and true[i] == said[i] for i in places)
    return right / sum(is_known), sum(ious) / len(ious), sum(is_known)


def test_counts_of_all_ranks_are_those_of_one_process() -> None:
    """Shares differ in length, and in the classes on each rank, so the ranks' averages would be wrong."""
    torch.manual_seed(0)
    classes, logits = 6, torch.randn(7, 6, 5, 4)
    targets = torch.randint(-1, 4, (7, 5, 4))  # class 5 occurs nowhere, unless specified
    targets[targets == -1] = scenes_data.UNKNOWN
    parts = [Confusion(classes) for _ in range(3)]
    for rank, part in enumerate(parts):
        for i in range(rank, 7, 3):
            part.add(logits[i : i + 1], targets[i : i + 1])
    whole = parts[0]
    tensors = [iter((part.counts, part.loss_sum)) for part in parts]
    whole.reduce(lambda tensor: tensor.copy_(sum((next(each) for each in tensors), torch.zeros_like(tensor))))

    accuracy, mean_iou, total = counted_by_hand(logits, targets, classes)
    assert whole.total == total and whole.accuracy == accuracy
    assert whole.mean_iou == pytest.approx(mean_iou, rel=1e-12)
    loss = torch.nn.functional.cross_entropy(logits.double(), targets).item()
    assert whole.loss == pytest.approx(loss, rel=1e-6)  # the script's losses are float32


def test_a_class_that_nobody_says_and_nobody_is_does_not_count() -> None:
    confusion = Confusion(3)
    confusion.add(torch.tensor([[1.0, 0, 0], [1, 0, 0], [0, 1, 0]]), torch.tensor([0, 1, 1]))
    assert confusion.mean_iou == (1 / 2 + 1 / 2) / 2
    confusion.add(torch.zeros(0, 3), torch.zeros(0, dtype=torch.int64))
    assert confusion.total == 3, "a share may be empty"


def test_a_segmentation_has_the_figures_that_one_process_computes(tmp_path: Path) -> None:
    """Three ranks test seven pictures; then this process tests them with the saved model."""
    checkpoint = tmp_path / "model.pt"
    amounts = ["--train-images", "12", "--test-images", "7", "--checkpoint", str(checkpoint), "--aux"]
    printed = printed_by(spawning(3, [*SCENES, *amounts]))
    model = deeplab.build("deeplabv3_resnet18", aux=True)
    model.load_state_dict(torch.load(checkpoint, weights_only=True)["model"])
    model.eval()
    wanted = Confusion(scenes_data.CLASSES)
    with torch.no_grad():
        for picture, classes in scenes_data.GeneratedScenes(7, 33, first=12):  # type: ignore[attr-defined]
            wanted.add(model(picture[None]), classes[None])
    ((_, *_, loss, accuracy, correct, total, mean_iou),) = EPOCH.findall(printed)
    # Convolutions of two pictures at once may round differently: a pixel may change its class.
    assert int(total) == wanted.total and int(correct) == pytest.approx(wanted.correct, abs=2)
    assert float(accuracy) == pytest.approx(100 * wanted.accuracy, abs=0.05)
    assert float(mean_iou) == pytest.approx(100 * wanted.mean_iou, abs=0.05)
    assert float(loss) == pytest.approx(wanted.loss, abs=1e-3)


@needs_mnist
def test_images_that_the_sampler_repeats_are_not_counted_twice() -> None:
    """Ten images are padded to twelve for four ranks; each has a batch of three."""
    amounts = ["--train-images", "10", "--test-images", "10", "--batch-size", "3"]
    ((_, *train, _, _, _, total, _),) = EPOCH.findall(printed_by(spawning(4, [*SCRIPT, *amounts])))
    assert train[3] == "10" and total == "10"


# Models


@pytest.mark.timeout(TIME_LIMIT + 50)
def test_the_large_segmentation_model_at_a_tiny_size() -> None:
    script = [*SCRIPT, "--model", "deeplabv3_resnet101", "--image-size", "17", "--batch-size", "2"]
    amounts = ["--train-images", "4", "--test-images", "3", "--compression", "bit8"]
    printed = printed_by(launched(2, [*script, *amounts]))
    assert "deeplabv3_resnet101, 58,630,997 parameters, on generated scenes; 2 rank(s) over gloo" in printed
    assert len(EPOCH.findall(printed)) == 1 and [ranks for ranks, _ in CHECKSUM.findall(printed)] == ["2"]


def test_images_of_a_resnet() -> None:
    script = [*SCRIPT, "--model", "resnet18", "--image-size", "32", "--batch-size", "4"]
    amounts = ["--train-images", "16", "--test-images", "5", "--max-steps", "1", "--log-interval", "1"]
    printed = printed_by(launched(2, [*script, *amounts]))
    ((_, *train, _, _, _, total, _),) = EPOCH.findall(printed)
    assert (train[3], total) == ("8", "5"), "one step of two ranks, and all tests"
    assert re.search(r"epoch 1 step 1/1  loss [\d.]+ on rank 0", printed)


@pytest.mark.parametrize(
    "generated",
    [scenes_data.GeneratedScenes, functools.partial(imagenet_data.GeneratedImages, classes=3)],
    ids=["scenes", "images"],
)
def test_what_is_generated_is_the_same_everywhere(generated: Any) -> None:
    whole, others = generated(20, 24), generated(5, 24, first=7)
    for index in range(5):
        for one, other in zip(whole[7 + index], others[index], strict=True):
            assert torch.equal(torch.as_tensor(one), torch.as_tensor(other))
    with pytest.raises(IndexError):
        others[5]


def test_a_scene() -> None:
    picture, classes = scenes_data.GeneratedScenes(1)[0]
    assert picture.shape == (3, 513, 513) and classes.shape == (513, 513)
    assert picture.dtype == torch.float32 and classes.dtype == torch.int64
    values = {*classes.unique().tolist()}
    assert {scenes_data.UNKNOWN, 0} < values <= {scenes_data.UNKNOWN, *range(scenes_data.CLASSES)}


# Order and images: a new order in each epoch, other images on each rank

ORDERS = """
import os
import sys
import pytorch_ddp
from torch.utils.data import TensorDataset
import recipes, torch

class Seen(TensorDataset):
    def __getitem__(self, index):
        seen.append(index)
        return super().__getitem__(index)

seen = []
images = Seen(torch.zeros(24, 1, 28, 28), torch.zeros(24, dtype=torch.int64))
data = recipes.Data("zeros", images, images)
recipes.RECIPES["mnist"] = recipes.Recipe(recipes.RECIPES["mnist"].build, lambda args: data, 10, 4, 0.1)
train_epoch = pytorch_ddp.Training.train_epoch

def noted(self, epoch):
    seen.clear()
    result = train_epoch(self, epoch)
    words = ["images", epoch, self.ranks.rank, *seen]
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())  # print() would mix with the other rank's
    return result

pytorch_ddp.Training.train_epoch = noted
pytorch_ddp.start(pytorch_ddp.parse_arguments())
"""


def test_ranks_share_each_epoch_in_an_order_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "orders.py").write_text(ORDERS)
    script = [str(tmp_path / "orders.py"), "--no-cuda", "--epochs", "2"]
    environment = {**ONE_THREAD, "PYTHONPATH": f"{EXAMPLES}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    printed = run(launched(2, script), time_limit=TIME_LIMIT, **environment).stdout
    found = re.findall(r"images (\d) (\d) ([\d ]+)", printed)
    seen = {(int(epoch), int(rank)): [int(i) for i in order.split()] for epoch, rank, order in found}
    for epoch in (1, 2):
        assert sorted(seen[epoch, 0] + seen[epoch, 1]) == list(range(24)), "all images, each on one rank"
    assert seen[1, 0] != seen[2, 0]


# Refusals


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--resume"], "--resume needs --checkpoint"),
        (["--aux"], "--aux is of segmentation: mnist has no second classifier"),
        (["--image-size", "20"], "--image-size is of generated images"),
    ],
)
def test_wrong_options(options: list[str], sentence: str) -> None:
    assert sentence in run(["python", *SCRIPT, *options], expected_exit=2).stderr


@needs_mnist
def test_too_few_images() -> None:
    command = ["python", *SCRIPT, "--train-images", "63"]
    sentence = (
        "rank 0: 63 images are fewer than 1 batch(es) of 64, one for each rank: give a smaller --batch-size"
    )
    assert sentence in run(command, expected_exit=1, **ONE_THREAD).stderr


def test_spawning_below_a_launcher() -> None:
    done = refused(launched(1, [*SCRIPT, "--spawn", "2"]))
    assert "a launcher has started 1 processes already: leave out --spawn" in done.stderr


@pytest.mark.parametrize("command", [launched(2, SCRIPT), spawning(2, SCRIPT)], ids=["torchrun", "spawn"])
def test_no_data_ends_all_ranks(command: list[str], tmp_path: Path) -> None:
    done = refused([*command, "--data-dir", str(tmp_path)])
    assert f"rank 0: {tmp_path} lacks train-images-idx3-ubyte" in done.stderr
    assert "rank 1: " not in done.stderr, "it waited for rank 0, and was ended"


def refused(command: list[str]) -> subprocess.CompletedProcess[str]:
    return run(command, time_limit=TIME_LIMIT, expected_exit=1, **ONE_THREAD)
