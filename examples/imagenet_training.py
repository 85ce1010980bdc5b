"""Shared by the ImageNet recipes: arguments, data, checkpoints, learning rate, a step, validation."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import imagenet_data
import resnet
import torch
from ranks import positive
from torch.nn import functional
from torch.utils.data import Dataset

import horovod.torch as hvd

DECAYS = (1 / 3, 2 / 3, 8 / 9)  # parts of all epochs after which the rate falls to a tenth: 30, 60, 80 of 90


def make_parser(description: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    add = parser.add_argument
    add("--train-dir", help="folder of shards, see imagenet_data.py (default: generated images)")
    add("--val-dir", help="folder of shards to validate with; goes with --train-dir")
    add("--train-images", type=positive, default=2560, help="how many to generate")
    add("--val-images", type=positive, default=256, help="how many to generate")
    add("--image-size", type=positive, default=224, help="of generated images")
    add("--classes", type=positive, default=1000)
    add("--model", choices=list(resnet.MODELS), default="resnet50")
    add("--checkpoint-format", default="./checkpoint-{epoch}.pth.tar", help="file name, with {epoch} in it")
    add("--epochs", type=positive, default=90)
    add("--batch-size", type=positive, default=32, help="images per backward pass and rank")
    add("--val-batch-size", type=positive, default=32)
    add(
        "--batches-per-allreduce",
        type=positive,
        default=1,
        help="backward passes before gradients are reduced",
    )
    add("--base-lr", type=float, default=0.0125, help="learning rate for one batch of one rank")
    add("--warmup-epochs", type=float, default=5, help="over which the rate grows to that of all ranks")
    add("--momentum", type=float, default=0.9)
    add("--wd", type=float, default=0.00005, help="weight decay")
    add("--label-smoothing", type=float, default=0.0)
    add("--compression", choices=["none", "fp16", "bf16", "bit16", "bit8"], default="none")
    add("--fp16-allreduce", dest="compression", action="store_const", const="fp16")
    add("--use-adasum", action="store_true", help="combine gradients by Adasum, not by average")
    add("--gradient-predivide-factor", type=float, default=1.0, help="divide by so much before the sum")
    add("--sync-batch-norm", action="store_true", help="normalise over the batches of all ranks")
    add("--no-cuda", action="store_true", help="stay on the CPU")
    add("--seed", type=int, default=42)
    return parser


def parsed(parser: argparse.ArgumentParser) -> argparse.Namespace:
    args = parser.parse_args()
    if (args.train_dir is None) != (args.val_dir is None):
        parser.error("--train-dir and --val-dir go together")
    return args


def load_data(args: argparse.Namespace) -> tuple[Dataset[Any], Dataset[Any]]:
    if args.train_dir is not None:
        return imagenet_data.shards(args.train_dir), imagenet_data.shards(args.val_dir)
    generated = imagenet_data.GeneratedImages
    return (
        generated(args.train_images, args.image_size, args.classes),
        generated(args.val_images, args.image_size, args.classes, first=args.train_images),
    )


class Totals:
    """Loss and right answers over this rank's images, and then over all ranks'.

    Counted on the model's device, so that the host waits for a GPU only at the end.
    """

    def __init__(self, device: torch.device) -> None:
        self._counts = torch.zeros(3, dtype=torch.float64, device=device)

    def add(self, logits: torch.Tensor, labels: torch.Tensor, mean_loss: torch.Tensor) -> None:
        self._counts[0] += mean_loss.detach().double() * len(labels)
        self._counts[1] += (logits.argmax(dim=1) == labels).sum()
        self._counts[2] += len(labels)

    def of_all_ranks(self, name: str) -> str:
        """Loss and accuracy over all ranks, from sums, as ranks may have different numbers of images."""
        loss, correct, images = hvd.allreduce(self._counts, op=hvd.Sum, name=name).tolist()
        return f"{name} loss {loss / images:.4f}  accuracy {100 * correct / images:.2f} %"


class Checkpoints:
    """One checkpoint after each epoch, named by --checkpoint-format. Rank 0 writes them."""

    def __init__(self, args: argparse.Namespace, model: torch.nn.Module, optimizer: Any) -> None:
        self._args, self._model, self._optimizer = args, model, optimizer

    def of(self, epoch: int) -> Path:
        return Path(self._args.checkpoint_format.format(epoch=epoch))

    def newest(self) -> int:
        """The epoch of the newest checkpoint that this host sees; 0 without one."""
        return max((epoch for epoch in range(1, self._args.epochs + 1) if self.of(epoch).exists()), default=0)

    def take_up(self, epoch: int) -> None:
        saved = torch.load(self.of(epoch), map_location="cpu", weights_only=True)
        self._model.load_state_dict(saved["model"])
        self._optimizer.load_state_dict(saved["optimizer"])

    def save(self, epoch: int) -> None:
        path = self.of(epoch)
        partial = path.with_name(f"{path.name}.partial")
        torch.save({"model": self._model.state_dict(), "optimizer": self._optimizer.state_dict()}, partial)
        os.replace(partial, path)  # so that a file under its final name is always complete


def make_model(args: argparse.Namespace, device: torch.device) -> torch.nn.Module:
    model: torch.nn.Module = resnet.build(args.model, args.classes).to(device)
    return hvd.SyncBatchNorm.convert_sync_batchnorm(model) if args.sync_batch_norm else model


def make_optimizer(args: argparse.Namespace, model: torch.nn.Module) -> Any:
    optimizer = torch.optim.SGD(
        model.parameters(), lr=args.base_lr, momentum=args.momentum, weight_decay=args.wd
    )
    return hvd.DistributedOptimizer(
        optimizer,
        named_parameters=model.named_parameters(),
        compression=getattr(hvd.Compression, args.compression),
        backward_passes_per_step=args.batches_per_allreduce,
        op=hvd.Adasum if args.use_adasum else hvd.Average,
        gradient_predivide_factor=args.gradient_predivide_factor,
    )


def learning_rate(args: argparse.Namespace, size: int, epochs: float) -> float:
    """The rate after so many epochs: up from --base-lr (Goyal et al. 2017, arXiv:1706.02677), then down."""
    # A step averages over so many times as many images as --base-lr is for. Adasum needs no larger rate.
    scale = args.batches_per_allreduce * (1 if args.use_adasum else size)
    warmed_up = min(1.0, epochs / args.warmup_epochs) if args.warmup_epochs else 1.0
    decays = sum(epochs >= part * args.epochs for part in DECAYS)
    return float(args.base_lr * (1 + (scale - 1) * warmed_up) * 0.1**decays)


def step(
    args: argparse.Namespace,
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    batch: tuple[torch.Tensor, torch.Tensor],
    device: torch.device,
    totals: Totals,
) -> None:
    """Train on one batch of the loader, in --batches-per-allreduce backward passes."""
    images, labels = batch
    optimizer.zero_grad()
    for part in torch.split(torch.arange(len(images)), args.batch_size):
        x = flipped(images[part]).to(device, non_blocking=True)
        y = labels[part].to(device, non_blocking=True)
        logits = model(x)
        loss = functional.cross_entropy(logits, y, label_smoothing=args.label_smoothing)
        totals.add(logits, y, loss)
        (loss * (len(part) / len(images))).backward()
    optimizer.step()


def flipped(images: torch.Tensor) -> torch.Tensor:
    """Every image, or its mirror image, at random."""
    mirrored = torch.rand(len(images), 1, 1, 1) < 0.5
    return torch.where(mirrored, images.flip(3), images)


def validate(
    model: torch.nn.Module, batches: Iterable[tuple[torch.Tensor, torch.Tensor]], device: torch.device
) -> str:
    """The text with the model's validation results."""
    # Each rank's statistics come from other images. After averaging, all ranks have the model that is saved.
    buffers = [buffer for buffer in model.buffers() if buffer.is_floating_point()]
    hvd.grouped_allreduce_(buffers, name="running_statistics")
    totals = Totals(device)
    model.eval()
    with torch.no_grad():
        for images, labels in batches:
            x, y = (each.to(device, non_blocking=True) for each in (images, labels))
            logits = model(x)
            totals.add(logits, y, functional.cross_entropy(logits, y))
    return totals.of_all_ranks("validation")
