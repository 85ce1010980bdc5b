"""The ImageNet recipe: large batches that are warmed up to, checkpoints, and resuming where a run was ended.

    horovodrun -np 2 python pytorch_imagenet_resnet50.py --model resnet18 --image-size 64 --epochs 3

Without --train-dir it trains on generated images. Started again with the same arguments, it goes on after the
last epoch that has a checkpoint and ends with the same model, bit for bit, as a run that was never ended. (On
a GPU too: it is why cuDNN is asked for kernels that repeat themselves.)
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import Any

import imagenet_data
import resnet
import torch
from ranks import Ranks, checksum, on_gpu, parameters_text, positive, prepare
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset, DistributedSampler, Subset

import horovod.torch as hvd

DECAYS = (1 / 3, 2 / 3, 8 / 9)  # parts of all epochs after which the rate falls to a tenth: 30, 60, 80 of 90


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Train a ResNet.", formatter_class=argparse.ArgumentDefaultsHelpFormatter
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
    args = parser.parse_args()
    if (args.train_dir is None) != (args.val_dir is None):
        parser.error("--train-dir and --val-dir go together")
    return args


def load_data(args: argparse.Namespace) -> tuple[Dataset[Any], Dataset[Any]]:
    """What to train on and what to validate with."""
    if args.train_dir is not None:
        return imagenet_data.shards(args.train_dir), imagenet_data.shards(args.val_dir)
    generated = imagenet_data.GeneratedImages
    return (
        generated(args.train_images, args.image_size, args.classes),
        generated(args.val_images, args.image_size, args.classes, first=args.train_images),
    )


class Totals:
    """Loss and right answers, over this rank's images until they are summed over all ranks'.

    They are counted where the model is, so that nobody waits for a GPU before the end.
    """

    def __init__(self, device: torch.device) -> None:
        self._counts = torch.zeros(3, dtype=torch.float64, device=device)

    def add(self, logits: torch.Tensor, labels: torch.Tensor, mean_loss: torch.Tensor) -> None:
        self._counts[0] += mean_loss.detach().double() * len(labels)
        self._counts[1] += (logits.argmax(dim=1) == labels).sum()
        self._counts[2] += len(labels)

    def of_all_ranks(self, name: str) -> str:
        """Sums, not averages of averages: ranks need not have equally many images."""
        loss, correct, images = hvd.allreduce(self._counts, op=hvd.Sum, name=name).tolist()
        return f"{name} loss {loss / images:.4f}  accuracy {100 * correct / images:.2f} %"


class Training:
    """A model, its optimizer, and this rank's share of the data."""

    def __init__(self, args: argparse.Namespace, ranks: Ranks) -> None:
        self.args, self.ranks = args, ranks
        self.device = prepare(args, ranks, serves_cuda=hvd.cuda_built())
        torch.backends.cudnn.deterministic = True
        pin = on_gpu(self.device)
        train, validation = load_data(args)
        self.sampler: DistributedSampler[Any] = DistributedSampler(
            train, ranks.size, ranks.rank, seed=args.seed
        )
        # One batch of the loader is what is trained on between two allreduces.
        batch = args.batch_size * args.batches_per_allreduce
        self.loader = DataLoader(train, batch, sampler=self.sampler, pin_memory=pin)
        own = range(ranks.rank, len(validation), ranks.size)  # type: ignore[arg-type]
        self.validation = DataLoader(Subset(validation, own), args.val_batch_size, pin_memory=pin)

        self.model: torch.nn.Module = resnet.build(args.model, args.classes).to(self.device)
        if args.sync_batch_norm:
            self.model = hvd.SyncBatchNorm.convert_sync_batchnorm(self.model)
        # A step averages over so many times as many images as --base-lr is for. Adasum needs no larger rate
        # for more ranks.
        self.lr_scale = args.batches_per_allreduce * (1 if args.use_adasum else ranks.size)
        optimizer = torch.optim.SGD(
            self.model.parameters(), lr=args.base_lr, momentum=args.momentum, weight_decay=args.wd
        )
        self.optimizer = hvd.DistributedOptimizer(
            optimizer,
            named_parameters=self.model.named_parameters(),
            compression=getattr(hvd.Compression, args.compression),
            backward_passes_per_step=args.batches_per_allreduce,
            op=hvd.Adasum if args.use_adasum else hvd.Average,
            gradient_predivide_factor=args.gradient_predivide_factor,
        )

    # Checkpoints: rank 0 writes and reads them, and everybody else learns from it.

    def checkpoint(self, epoch: int) -> Path:
        return Path(self.args.checkpoint_format.format(epoch=epoch))

    def resume(self) -> int:
        """Takes up the last checkpoint; returns how many epochs it has behind it, 0 if there is none."""
        found = [e for e in range(self.args.epochs, 0, -1) if self.checkpoint(e).exists()]
        # Only rank 0's answer counts: other hosts may not see the file, or see it later.
        last = torch.tensor(found[0] if found else 0)
        epochs_done = int(hvd.broadcast(last, root_rank=0, name="resume_from_epoch").item())
        if epochs_done > 0 and self.ranks.rank == 0:
            saved = torch.load(self.checkpoint(epochs_done), map_location="cpu", weights_only=True)
            self.model.load_state_dict(saved["model"])
            self.optimizer.load_state_dict(saved["optimizer"])
        hvd.broadcast_parameters(self.model.state_dict(), root_rank=0)
        hvd.broadcast_optimizer_state(self.optimizer, root_rank=0)
        return epochs_done

    def save(self, epoch: int) -> None:
        if self.ranks.rank == 0:
            path = self.checkpoint(epoch)
            partial = path.with_name(f"{path.name}.partial")
            state = {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}
            torch.save(state, partial)
            os.replace(partial, path)  # so that a file under its own name is always whole

    def learning_rate(self, epochs: float) -> float:
        """After so many epochs: up from --base-lr, as Goyal et al. 2017 (arXiv:1706.02677) do, then down."""
        warmed_up = min(1.0, epochs / self.args.warmup_epochs) if self.args.warmup_epochs else 1.0
        decays = sum(epochs >= part * self.args.epochs for part in DECAYS)
        return float(self.args.base_lr * (1 + (self.lr_scale - 1) * warmed_up) * 0.1**decays)

    def train_epoch(self, epoch: int) -> str:
        """Epoch number `epoch`, counted from 1; returns what to say about it."""
        totals = Totals(self.device)
        self.model.train()
        self.sampler.set_epoch(epoch)
        torch.manual_seed(self.args.seed + epoch * self.ranks.size + self.ranks.rank)
        for step, (images, labels) in enumerate(self.loader):
            for entry in self.optimizer.param_groups:
                entry["lr"] = self.learning_rate(epoch - 1 + step / len(self.loader))
            self.optimizer.zero_grad()
            for part in torch.split(torch.arange(len(images)), self.args.batch_size):
                x = flipped(images[part]).to(self.device, non_blocking=True)
                y = labels[part].to(self.device, non_blocking=True)
                logits = self.model(x)
                loss = functional.cross_entropy(logits, y, label_smoothing=self.args.label_smoothing)
                totals.add(logits, y, loss)
                (loss * (len(part) / len(images))).backward()
            self.optimizer.step()
        return totals.of_all_ranks("train")

    def validate(self) -> str:
        """Returns what to say about the model now."""
        # Each rank has seen other images; with the average, all ranks hold the model that rank 0 saves.
        buffers = [buffer for buffer in self.model.buffers() if buffer.is_floating_point()]
        hvd.grouped_allreduce_(buffers, name="running_statistics")
        totals = Totals(self.device)
        self.model.eval()
        with torch.no_grad():
            for images, labels in self.validation:
                x, y = (each.to(self.device, non_blocking=True) for each in (images, labels))
                logits = self.model(x)
                totals.add(logits, y, functional.cross_entropy(logits, y))
        return totals.of_all_ranks("validation")


def flipped(images: torch.Tensor) -> torch.Tensor:
    """Every image as it is, or its mirror image."""
    mirrored = torch.rand(len(images), 1, 1, 1) < 0.5
    return torch.where(mirrored, images.flip(3), images)


def main() -> None:
    args = parse_arguments()
    hvd.init()
    ranks = Ranks(hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size())
    training = Training(args, ranks)
    epochs_done = training.resume()

    def say(line: str) -> None:
        if ranks.rank == 0:
            print(line, flush=True)

    if epochs_done:
        say(f"resuming after epoch {epochs_done}, from {training.checkpoint(epochs_done)}")
    for epoch in range(epochs_done + 1, args.epochs + 1):
        started = time.perf_counter()
        trained = training.train_epoch(epoch)
        seconds = time.perf_counter() - started
        validated = training.validate()
        training.save(epoch)
        say(f"epoch {epoch}/{args.epochs}  {trained}  {validated}  {seconds:.1f} s")
    checksums = hvd.allgather_object(checksum(training.model))
    say(f"parameters {parameters_text(checksums)}")
    if len(set(checksums)) > 1:
        sys.exit(f"rank {ranks.rank}: the ranks' parameters differ")


if __name__ == "__main__":
    main()
