"""What the MNIST examples share: options, one epoch of training, testing, and the checksum of a model.

Nothing here knows Horovod, so the serial example reads the same as the parallel ones. Where ranks have to
talk, the caller passes in the function that does it.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import Any

import mnist_data
import torch
from mnist_report import Report, Score, log_format
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

WARM_UP = 0.1  # part of all steps
TEST_BATCH = 1000


@dataclass(frozen=True)
class Ranks:
    """This process' place among all of the job; the default is a job of one process."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1


def make_parser(description: str) -> argparse.ArgumentParser:
    """The options that all MNIST examples have."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--epochs", type=positive, default=1, help="passes over the training data")
    parser.add_argument("--batch-size", type=positive, default=64, help="images per step and rank")
    parser.add_argument("--lr", type=float, default=0.002, help="learning rate for one rank")
    parser.add_argument("--seed", type=int, default=1, help="of the first parameters and of the shuffling")
    parser.add_argument("--data-dir", help="folder of MNIST's IDX files; see mnist_data.py (default: search)")
    parser.add_argument("--allow-digits", action="store_true", help="with neither data nor network: digits")
    parser.add_argument("--no-cuda", action="store_true", help="stay on the CPU")
    parser.add_argument("--log-interval", type=positive, default=50, help="steps between printed lines")
    parser.add_argument("--log-file", type=log_format, help="record every step in this .csv or .jsonl file")
    parser.add_argument("--max-steps", type=positive, help="at most so many steps per epoch, for a quick try")
    return parser


def positive(text: str) -> int:
    """An integer of at least 1, for argparse."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not 1 or more")
    return number


def truth(text: str) -> bool:
    """True or False written out, for argparse."""
    if text.lower() not in ("true", "false"):
        raise argparse.ArgumentTypeError(f"{text} is neither True nor False")
    return text.lower() == "true"


def prepare(args: argparse.Namespace, ranks: Ranks, serves_cuda: bool = True) -> torch.device:
    """Sets the seed and this rank's share of the cores; returns the device to train on.

    serves_cuda: whether what combines the ranks' gradients takes them from a GPU.
    """
    torch.manual_seed(args.seed)
    # Each rank would otherwise start a thread per core, and the ranks of a host would wait for each other.
    torch.set_num_threads(max(1, usable_cores() // ranks.local_size))
    if args.no_cuda or not torch.cuda.is_available():
        return torch.device("cpu")
    if not serves_cuda:
        if ranks.rank == 0:
            print("training on the CPU: this build of Horovod does not serve tensors on a GPU", flush=True)
        return torch.device("cpu")
    device = torch.device("cuda", ranks.local_rank % torch.cuda.device_count())
    torch.cuda.set_device(device)
    return device


def usable_cores() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def load_data(
    args: argparse.Namespace, ranks: Ranks, gather: Callable[[str], list[str]] | None = None
) -> mnist_data.Data:
    """The data of `mnist_data.load`. Ends the program, on every rank, unless all ranks have the same data.

    gather: takes a string of this rank, returns those of all; None with one rank.
    """
    data = None
    try:
        data = mnist_data.load(args.data_dir, args.allow_digits, print if ranks.rank == 0 else silent)
        answer = f"dataset {data.name}"
    except mnist_data.DataError as error:
        answer = f"error: {error}"
    answers = gather(answer) if gather else [answer]
    if data is None or len(set(answers)) > 1:
        by_rank = [f"rank {rank}: {text}" for rank, text in enumerate(answers)]
        message = answer if len(set(answers)) == 1 else "\n".join(by_rank)
        sys.exit(message if ranks.rank == 0 else 1)
    return data


def silent(line: str) -> None:
    """Prints nothing."""


def steps_per_epoch(args: argparse.Namespace, loader: DataLoader[Any]) -> int:
    """Batches of this rank in one epoch, within --max-steps."""
    return min(len(loader), args.max_steps or len(loader))


def warm_up_then_decay(steps: int) -> Callable[[int], float]:
    """Factor on the learning rate by step: linearly up over the first tenth, then linearly down to nearly 0.

    The warm-up is what makes a learning rate multiplied by the number of ranks safe (Goyal et al. 2017,
    arXiv:1706.02677); the decay takes out the noise of the last steps, some 0.4 points of test accuracy here.
    """

    def factor(step: int) -> float:
        return min(1.0, (step + 1) / (WARM_UP * steps)) * (1.0 - step / (steps + 1))

    return factor


def train_epoch(
    model: torch.nn.Module,
    loader: DataLoader[Any],
    optimizer: torch.optim.Optimizer,
    schedule: torch.optim.lr_scheduler.LRScheduler,
    device: torch.device,
    report: Report,
) -> None:
    """One pass over this rank's share of the data; `report` is told of every step and bounds their number."""
    model.train()
    started = time.perf_counter()
    for images, labels in islice(loader, report.steps_per_epoch):
        images, labels = images.to(device), labels.to(device)
        optimizer.zero_grad()
        logits = model(images)
        loss = functional.cross_entropy(logits, labels)
        loss.backward()  # a DistributedOptimizer sends each gradient off as soon as it is known,
        optimizer.step()  # and waits here for the averages over all ranks
        schedule.step()
        correct = int((logits.argmax(dim=1) == labels).sum())
        now = time.perf_counter()
        report.step(now - started, loss.item(), correct / len(labels))
        started = now


def evaluate(
    model: torch.nn.Module,
    data: TensorDataset,
    device: torch.device,
    ranks: Ranks,
    sum_over_ranks: Callable[[torch.Tensor], torch.Tensor] | None = None,
) -> Score:
    """Tests every size-th image, beginning at this rank's number, and adds up what all ranks counted.

    Counts are summed, not percentages averaged: shares need not be equally large.
    """
    model.eval()
    counts = torch.zeros(3, dtype=torch.float64)  # right answers, images, summed loss
    shares = [torch.split(tensor[ranks.rank :: ranks.size], TEST_BATCH) for tensor in data.tensors]
    with torch.no_grad():
        for images, labels in zip(*shares, strict=True):
            images, labels = images.to(device), labels.to(device)
            logits = model(images)
            loss = functional.cross_entropy(logits, labels, reduction="sum").item()
            counts += torch.tensor([int((logits.argmax(dim=1) == labels).sum()), len(labels), loss])
    if sum_over_ranks is not None:
        counts = sum_over_ranks(counts)
    return Score(correct=int(counts[0]), total=int(counts[1]), loss_sum=float(counts[2]))


def checksum(model: torch.nn.Module) -> str:
    """SHA-256 over the bytes of all parameters and buffers: equal when two models are bit-identical."""
    digest = hashlib.sha256()
    for name, tensor in model.state_dict().items():
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
