"""The ImageNet recipe for elastic jobs: `kill -9` a rank, and the others continue.

    horovodrun -np 2 --min-np 1 -H 127.0.0.1:1,127.0.0.2:1 python pytorch_imagenet_resnet50_elastic.py \\
        --model resnet18 --image-size 64 --epochs 3

pytorch_imagenet_resnet50.py is the recipe itself; docs/elastic.md explains the differences. The learning rate
follows the number of ranks. If all hosts fail at once, the same command continues after the last epoch with a
checkpoint that rank 0's host sees: let --checkpoint-format name a folder that all hosts share.
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
from ranks import Ranks, checksum, on_gpu, parameters_text, positive, prepare
from torch.utils.data import DataLoader, Dataset, Subset

import horovod.torch as hvd


def parse_arguments() -> argparse.Namespace:
    parser = make_parser("Train a ResNet, while ranks are lost and come.")
    parser.add_argument(
        "--batches-per-commit",
        type=positive,
        default=20,
        help="batches from one commit to the next; so many are done again at most where a rank is lost",
    )
    parser.add_argument(
        "--batches-per-host-check",
        type=positive,
        default=5,
        help="batches after which it is asked whether hosts came or are to go",
    )
    args = parsed(parser)
    if args.use_adasum:
        parser.error("--use-adasum needs a power of two ranks, and here their number changes")
    return args


def ranks_now() -> Ranks:
    return Ranks(hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size())


class Training:
    """A model, its optimizer, the data, and the state from which training continues."""

    def __init__(self, args: argparse.Namespace, images: Dataset[Any], unseen: Dataset[Any]) -> None:
        # No collectives here: a rank that comes later runs this alone.
        self.args, self.unseen = args, unseen
        self.device = prepare(args, ranks_now(), serves_cuda=hvd.cuda_built())
        # The sampler knows which images of the epoch are done, and divides the rest among the present ranks.
        self.sampler = hvd.elastic.ElasticSampler(images, seed=args.seed)  # type: ignore[arg-type]
        self.batch_images = args.batch_size * args.batches_per_allreduce
        self.loader: DataLoader[Any] = DataLoader(
            images, self.batch_images, sampler=self.sampler, pin_memory=on_gpu(self.device)
        )
        self.model = make_model(args, self.device)
        self.optimizer = make_optimizer(args, self.model)
        self.checkpoints = Checkpoints(args, self.model, self.optimizer)
        # All ranks get rank 0's state when training begins. Later ranks are not rank 0, and read no file.
        epochs_done = self.checkpoints.newest() if hvd.rank() == 0 else 0
        if epochs_done > 0:
            self.checkpoints.take_up(epochs_done)
            print(f"resuming after epoch {epochs_done}, from {self.checkpoints.of(epochs_done)}", flush=True)
        self.sampler.set_epoch(epochs_done + 1)
        self.state: Any = hvd.elastic.TorchState(
            model=self.model, optimizer=self.optimizer, sampler=self.sampler, epoch=epochs_done + 1
        )

    def train_epoch(self) -> str:
        """Train on the rest of the state's epoch. Returns the text about it."""
        totals = Totals(self.device)
        self.model.train()
        torch.manual_seed(self.args.seed + self.state.epoch * hvd.size() + hvd.rank())
        for number, batch in enumerate(self.loader, start=1):
            done = self.sampler.processed_num / len(self.sampler.indices)
            for entry in self.optimizer.param_groups:
                entry["lr"] = learning_rate(self.args, hvd.size(), self.state.epoch - 1 + done)
            step(self.args, self.model, self.optimizer, batch, self.device, totals)
            self.sampler.record_batch(number, self.batch_images)
            if number % self.args.batches_per_commit == 0:
                self.state.commit()
            elif number % self.args.batches_per_host_check == 0:
                self.state.check_host_updates()
        return totals.of_all_ranks("train") if len(self.loader) else "nothing was left to train on"

    def validated(self) -> str:
        own = range(hvd.rank(), len(self.unseen), hvd.size())  # type: ignore[arg-type]
        images: Dataset[Any] = Subset(self.unseen, own)
        batches: DataLoader[Any] = DataLoader(
            images, self.args.val_batch_size, pin_memory=on_gpu(self.device)
        )
        return validate(self.model, batches, self.device)


def main() -> None:
    args = parse_arguments()
    images, unseen = load_data(args)  # slow work comes first: other ranks may wait for this one
    hvd.init()
    training = Training(args, images, unseen)

    @hvd.elastic.run
    def train(state: Any) -> None:
        while state.epoch <= args.epochs:
            started = time.perf_counter()
            trained = training.train_epoch()
            seconds = time.perf_counter() - started
            validated = training.validated()
            hvd.barrier()  # detects ranks lost until here: no checkpoint of their unfinished work
            if hvd.rank() == 0:
                training.checkpoints.save(state.epoch)
                print(
                    f"epoch {state.epoch}/{args.epochs}  {trained}  {validated}  "
                    f"{hvd.size()} rank(s)  {seconds:.1f} s",
                    flush=True,
                )
            state.epoch += 1
            training.sampler.set_epoch(state.epoch)
            state.commit()
        finish(training.model)

    train(training.state)


def finish(model: torch.nn.Module) -> None:
    """Print the result. Exits with an error if ranks' parameters differ."""
    checksums = hvd.allgather_object(checksum(model))
    if hvd.rank() == 0:
        print(f"parameters {parameters_text(checksums)}")
    if len(set(checksums)) > 1:
        sys.exit(f"rank {hvd.rank()}: the ranks' parameters differ")


if __name__ == "__main__":
    main()
