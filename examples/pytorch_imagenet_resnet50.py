"""The ImageNet recipe: large batches with warm-up, checkpoints, and resuming an interrupted run.

    horovodrun -np 2 python pytorch_imagenet_resnet50.py --model resnet18 --image-size 64 --epochs 3

Without --train-dir it trains on generated images. Started again with the same arguments, it continues after
the last epoch that has a checkpoint, and ends with the same model, bit for bit, as an uninterrupted run.
(Also on a GPU, for which it selects deterministic cuDNN kernels.)
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

import torch
from imagenet_training import (
    Checkpoints,
    Totals,
    learning_rate,
    load_data,
    make_model,
    make_optimizer,
    make_parser,
    parsed,
    step,
    validate,
)
from ranks import Ranks, checksum, on_gpu, parameters_text, prepare
from torch.utils.data import DataLoader, DistributedSampler, Subset

import horovod.torch as hvd


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
        # One batch of the loader is trained on between two allreduces.
        batch = args.batch_size * args.batches_per_allreduce
        self.loader = DataLoader(train, batch, sampler=self.sampler, pin_memory=pin)
        own = range(ranks.rank, len(validation), ranks.size)  # type: ignore[arg-type]
        self.validation = DataLoader(Subset(validation, own), args.val_batch_size, pin_memory=pin)

        self.model = make_model(args, self.device)
        self.optimizer = make_optimizer(args, self.model)
        self.checkpoints = Checkpoints(args, self.model, self.optimizer)

    def resume(self) -> int:
        """Load the last checkpoint. Returns the number of epochs before it, 0 without one."""
        # Only rank 0's answer counts: other hosts may not see the file, or see it later.
        last = torch.tensor(self.checkpoints.newest())
        epochs_done = int(hvd.broadcast(last, root_rank=0, name="resume_from_epoch").item())
        if epochs_done > 0 and self.ranks.rank == 0:
            self.checkpoints.take_up(epochs_done)
        hvd.broadcast_parameters(self.model.state_dict(), root_rank=0)
        hvd.broadcast_optimizer_state(self.optimizer, root_rank=0)
        return epochs_done

    def train_epoch(self, epoch: int) -> str:
        """Train in epoch `epoch`, counted from 1. Returns the text about it."""
        totals = Totals(self.device)
        self.model.train()
        self.sampler.set_epoch(epoch)
        torch.manual_seed(self.args.seed + epoch * self.ranks.size + self.ranks.rank)
        for number, batch in enumerate(self.loader):
            for entry in self.optimizer.param_groups:
                epochs = epoch - 1 + number / len(self.loader)
                entry["lr"] = learning_rate(self.args, self.ranks.size, epochs)
            step(self.args, self.model, self.optimizer, batch, self.device, totals)
        return totals.of_all_ranks("train")


def main() -> None:
    args = parsed(make_parser("Train a ResNet."))
    hvd.init()
    ranks = Ranks(hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size())
    training = Training(args, ranks)
    epochs_done = training.resume()

    def say(line: str) -> None:
        if ranks.rank == 0:
            print(line, flush=True)

    if epochs_done:
        say(f"resuming after epoch {epochs_done}, from {training.checkpoints.of(epochs_done)}")
    for epoch in range(epochs_done + 1, args.epochs + 1):
        started = time.perf_counter()
        trained = training.train_epoch(epoch)
        seconds = time.perf_counter() - started
        validated = validate(training.model, training.validation, training.device)
        if ranks.rank == 0:
            training.checkpoints.save(epoch)
        say(f"epoch {epoch}/{args.epochs}  {trained}  {validated}  {seconds:.1f} s")
    checksums = hvd.allgather_object(checksum(training.model))
    say(f"parameters {parameters_text(checksums)}")
    if len(set(checksums)) > 1:
        sys.exit(f"rank {ranks.rank}: the ranks' parameters differ")


if __name__ == "__main__":
    main()
