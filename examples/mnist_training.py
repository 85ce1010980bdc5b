"""Shared by the MNIST examples: options, one epoch of training, and testing.

This file does not know Horovod, so the serial example reads the same as the parallel ones. For communication
between ranks, the caller passes a function.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from itertools import islice
from typing import Any

import mnist_data
import torch
from mnist_model import MODELS
from mnist_report import Report, Score, log_format
from ranks import Ranks, positive
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

WARM_UP = 0.1  # part of all steps
TEST_BATCH = 1000


def make_parser(description: str) -> argparse.ArgumentParser:
    """The options that all MNIST examples have."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--model", choices=list(MODELS), default="conv", help="network; see mnist_model.py")
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


def truth(text: str) -> bool:
    """True or False written out, for argparse."""
    if text.lower() not in ("true", "false"):
        raise argparse.ArgumentTypeError(f"{text} is neither True nor False")
    return text.lower() == "true"


def load_data(
    args: argparse.Namespace, ranks: Ranks, gather: Callable[[str], list[str]] | None = None
) -> mnist_data.Data:
    """The data of `mnist_data.load`. Exits, on every rank, unless all ranks have the same data.

    gather: takes a string of this rank, returns the strings of all; None with one rank.
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
    """Print nothing."""


def steps_per_epoch(args: argparse.Namespace, loader: DataLoader[Any]) -> int:
    """Batches of this rank in one epoch, within --max-steps."""
    return min(len(loader), args.max_steps or len(loader))


def warm_up_then_decay(steps: int) -> Callable[[int], float]:
    """Factor on the learning rate by step: linearly up over the first tenth, then linearly down to nearly 0.

    The warm-up makes a learning rate multiplied by the number of ranks safe (Goyal et al. 2017,
    arXiv:1706.02677). The decay reduces the noise of the last steps, worth 0.4 points of test accuracy here.
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
    waited: Callable[[], float] = lambda: 0.0,
) -> None:
    """One pass over this rank's share of the data. `report` records every step and limits their number.

    waited: the seconds that this rank has waited for the others so far; 0 with one rank.
    """
    model.train()
    started, waited_before = time.perf_counter(), waited()
    for images, labels in islice(loader, report.steps_per_epoch):
        images, labels = images.to(device, non_blocking=True), labels.to(device, non_blocking=True)
        optimizer.zero_grad()
        logits = model(images)
        loss = functional.cross_entropy(logits, labels)
        loss.backward()  # a DistributedOptimizer sends each gradient as soon as it is known,
        optimizer.step()  # and waits here for the averages over all ranks
        schedule.step()
        correct = int((logits.argmax(dim=1) == labels).sum())
        now, waited_now = time.perf_counter(), waited()
        report.step(now - started, loss.item(), correct / len(labels), waited_now - waited_before)
        started, waited_before = now, waited_now


def evaluate(
    model: torch.nn.Module,
    data: TensorDataset,
    device: torch.device,
    ranks: Ranks,
    sum_over_ranks: Callable[[torch.Tensor], torch.Tensor] | None = None,
) -> Score:
    """Test every size-th image, beginning at this rank's number, and add up the counts of all ranks.

    Sums counts instead of averaging percentages, because shares may differ in size.
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
