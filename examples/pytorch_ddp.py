"""PyTorch's DistributedDataParallel, complete, and with compressed gradients in one line. Start it with

    torchrun --nproc-per-node 2 pytorch_ddp.py --compression bit8
    python pytorch_ddp.py --spawn 2 --compression bit8    # starts its processes itself
    python pytorch_ddp.py                                 # a world of one

The numbered comments mark the code that several processes need; docs/ddp.md explains them. Only number 7 uses
this package: with --compression none, the default, the script is plain PyTorch.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import mnist_data
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from confusion import Confusion
from mnist_training import warm_up_then_decay
from ranks import Ranks, checksum, on_gpu, parameters_text, positive, prepare
from recipes import RECIPES, Recipe, logits_of, loss_of
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, Subset


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split(".")[0])
    add = parser.add_argument
    add("--spawn", type=positive, metavar="N", help="start N processes on this machine, without torchrun")
    add("--compression", default="none", help="of gradients: bit8, int8, topk:..., or none (the default)")
    add("--model", choices=list(RECIPES), default="mnist", help="network; default: mnist")
    add("--aux", action="store_true", help="segmentation: train a second classifier, too")
    add("--data-dir", help="folder of MNIST's IDX files; see mnist_data.py (default: search, then download)")
    add("--allow-digits", action="store_true", help="with neither MNIST nor network: scikit-learn's digits")
    add("--image-size", type=positive, help="of generated images (default: 224; 513 for segmentation)")
    add("--train-images", type=positive, help="of MNIST, at most so many; of others, so many are generated")
    add("--test-images", type=positive, help="the same, to test with")
    add("--epochs", type=positive, default=1, help="passes over the training data; default: 1")
    add("--batch-size", type=positive, help="images per step and rank")
    add("--max-steps", type=positive, help="at most so many steps per epoch, for a quick try")
    add("--lr", type=float, help="learning rate for one rank")
    add("--checkpoint", type=Path, help="file that rank 0 writes after each epoch (default: none)")
    add("--resume", action="store_true", help="go on after the epoch in --checkpoint, if that file is there")
    add("--log-interval", type=positive, default=50, help="steps between printed lines; default: 50")
    add("--seed", type=int, default=1)
    add("--no-cuda", action="store_true", help="stay on the CPU")
    args = parser.parse_args()
    recipe = RECIPES[args.model]
    if args.resume and not args.checkpoint:
        parser.error("--resume needs --checkpoint, the file to go on from")
    if args.aux and not recipe.segments:
        parser.error(f"--aux is of segmentation: {args.model} has no second classifier")
    if args.image_size and not recipe.image_size:
        parser.error(f"--image-size is of generated images: {args.model} has images of its own")
    for name in ("image_size", "train_images", "test_images", "batch_size", "lr"):
        if getattr(args, name) is None:
            setattr(args, name, getattr(recipe, name))
    return args


# 1. This process' place: torchrun and `horovodrun --ddp` set variables; with spawn it is an argument.


def start(args: argparse.Namespace) -> None:
    is_launched = "RANK" in os.environ
    if is_launched and args.spawn:
        sys.exit(f"a launcher has started {os.environ['WORLD_SIZE']} processes already: leave out --spawn")
    if is_launched:
        rank, size, local_rank = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
        train(args, Ranks(rank, size, local_rank, int(os.environ.get("LOCAL_WORLD_SIZE", size))), "env://")
        return
    # Without a launcher the processes meet at a file: unlike a port, no other program can have taken it.
    with tempfile.TemporaryDirectory() as folder:
        meeting_point = f"file://{folder}/meeting-point"
        if args.spawn:
            mp.spawn(spawned, (args, meeting_point), nprocs=args.spawn)
        else:
            train(args, Ranks(), meeting_point)


def spawned(number: int, args: argparse.Namespace, meeting_point: str) -> None:
    """Run process `number`. mp.spawn ends the others if one fails."""
    train(args, Ranks(number, args.spawn, number, args.spawn), meeting_point)


def train(args: argparse.Namespace, ranks: Ranks, meeting_point: str) -> None:
    # 2. Seeds, this process' share of the cores, and its GPU, before any code uses one.
    device = prepare(args, ranks)
    if on_gpu(device) and ranks.local_size > torch.cuda.device_count():
        sys.exit(
            f"rank {ranks.rank}: {ranks.local_size} processes and {torch.cuda.device_count()} GPU(s) on this "
            "host, and NCCL wants one for each: start fewer, or pass --no-cuda"
        )
    backend = "nccl" if on_gpu(device) else "gloo"
    dist.init_process_group(backend, init_method=meeting_point, rank=ranks.rank, world_size=ranks.size)
    try:
        Training(args, ranks, device).run()
    finally:
        dist.destroy_process_group()


@contextmanager
def rank_0_first(ranks: Ranks) -> Iterator[None]:
    """3. Rank 0 runs the block first, then the others, which find the data that it has prepared."""
    if ranks.rank > 0:
        dist.barrier()
    yield
    if ranks.rank == 0:
        dist.barrier()


class Training:
    """A model, its optimizer, and this rank's share of the data."""

    def __init__(self, args: argparse.Namespace, ranks: Ranks, device: torch.device) -> None:
        self.args, self.ranks, self.device = args, ranks, device
        self.recipe: Recipe = RECIPES[args.model]
        with rank_0_first(ranks):
            try:
                self.data = self.recipe.load(args)
            except mnist_data.DataError as error:
                sys.exit(f"rank {ranks.rank}: {error}")
        self.load_shares()
        self.model = self.recipe.build(args).to(device)
        # 6. Copies rank 0's parameters to all, and averages gradients during backward().
        self.parallel = DistributedDataParallel(
            self.model, device_ids=[device.index] if on_gpu(device) else None
        )
        self.compression: Any = None
        if args.compression != "none":
            from horovod.torch import ddp

            # 7. Compresses the gradients. The state that is kept between steps goes into the checkpoint.
            self.compression = ddp.compress(self.parallel, args.compression)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=args.lr, momentum=0.9, weight_decay=1e-4)
        self.steps = min(len(self.train_batches), args.max_steps or len(self.train_batches))
        self.rate = warm_up_then_decay(args.epochs * self.steps)

    def load_shares(self) -> None:
        args, ranks = self.args, self.ranks
        pin = on_gpu(self.device)
        train, test = self.data.train, self.data.test
        # 4. Every rank trains on other images: rank r on those at places r, r + size, ... of the epoch's
        #    order. If shares differ in length, the sampler repeats the first images at the end.
        self.sampler = DistributedSampler(train, ranks.size, ranks.rank, seed=args.seed)
        # The last batch may have one image, which batch normalisation cannot handle.
        self.train_batches = DataLoader(
            train, args.batch_size, sampler=self.sampler, pin_memory=pin, drop_last=True
        )
        if not len(self.train_batches):
            sys.exit(
                f"rank {ranks.rank}: {len(train)} images are fewer than {ranks.size} batch(es) of "
                f"{args.batch_size}, one for each rank: give a smaller --batch-size"
            )
        # 5. Each image is tested by exactly one rank, so shares may differ in length by one.
        own = Subset(test, range(ranks.rank, len(test), ranks.size))
        self.test_batches = DataLoader(own, args.batch_size, pin_memory=pin)

    def run(self) -> None:
        done = self.resume() if self.args.resume else 0
        sizes = sum(parameter.numel() for parameter in self.model.parameters())
        self.say(
            f"{self.args.model}, {sizes:,} parameters, on {self.data.source}; {self.ranks.size} rank(s) over "
            f"{dist.get_backend()}, compression {self.args.compression}"
        )
        for epoch in range(done + 1, self.args.epochs + 1):
            started = time.perf_counter()
            trained = self.train_epoch(epoch)
            seconds = time.perf_counter() - started
            tested = self.test()
            self.save(epoch)
            self.say(
                f"epoch {epoch}/{self.args.epochs}  train {self.text(trained)}  test {self.text(tested)}  "
                f"{seconds:.1f} s"
            )
        checksums = [""] * self.ranks.size
        dist.all_gather_object(checksums, checksum(self.model))
        self.say(f"parameters {parameters_text(checksums)}")
        if len(set(checksums)) > 1:
            sys.exit(f"rank {self.ranks.rank}: the ranks' parameters differ")

    def train_epoch(self, epoch: int) -> Confusion:
        """Train in epoch `epoch`, counted from 1. Returns the model's results on the images of all ranks."""
        seen = Confusion(self.recipe.classes, self.device)
        size, rank = self.ranks.size, self.ranks.rank
        left = len(range(rank, len(self.sampler.dataset), size))  # without images that the sampler repeats
        self.parallel.train()
        # 8. Another order in each epoch, the same on all ranks, and random numbers that depend only on epoch
        #    and rank: so a resumed run draws the same ones as an uninterrupted run.
        self.sampler.set_epoch(epoch)
        torch.manual_seed(self.args.seed + epoch * size + rank)
        for step, (inputs, targets) in enumerate(islice(self.train_batches, self.steps)):
            for group in self.optimizer.param_groups:
                # 9. n ranks make batches n times as large, so the rate is n times as large.
                group["lr"] = self.args.lr * size * self.rate((epoch - 1) * self.steps + step)
            inputs, targets = (each.to(self.device, non_blocking=True) for each in (inputs, targets))
            self.optimizer.zero_grad()
            outputs = self.parallel(inputs)
            loss = loss_of(outputs, targets)
            loss.backward()
            self.optimizer.step()
            seen.add(logits_of(outputs)[: max(left, 0)], targets[: max(left, 0)])
            left -= len(inputs)
            if (step + 1) % self.args.log_interval == 0:
                self.say(f"epoch {epoch} step {step + 1}/{self.steps}  loss {loss.item():.4f} on rank 0")
        seen.reduce(dist.all_reduce)
        return seen

    def test(self) -> Confusion:
        """The model's results on all test images."""
        # Each rank's normalisation has other statistics: all take rank 0's, which it saves.
        for buffer in self.model.buffers():
            dist.broadcast(buffer, src=0)
        seen = Confusion(self.recipe.classes, self.device)
        self.model.eval()
        with torch.no_grad():  # and not through DDP, which would wait for ranks with one batch more
            for inputs, targets in self.test_batches:
                seen.add(self.model(inputs.to(self.device)), targets.to(self.device))
        # 10. Sums counts of all ranks first, then divides.
        seen.reduce(dist.all_reduce)
        return seen

    def text(self, seen: Confusion) -> str:
        iou = f"  mean IoU {100 * seen.mean_iou:.2f} %" if self.recipe.segments else ""
        accuracy = f"accuracy {100 * seen.accuracy:.2f} % ({seen.correct} of {seen.total})"
        return f"loss {seen.loss:.4f}  {accuracy}{iou}"

    def save(self, epoch: int) -> None:
        """11. Rank 0 writes. A file under its final name is always complete."""
        path: Path | None = self.args.checkpoint
        if path is None:
            return
        if self.compression:
            # Each rank has its own state of error feedback for the next step: all send it to rank 0.
            self.compression.consolidate_residuals(to=0)
        if self.ranks.rank == 0:
            state = {
                "epoch": epoch,
                "model": self.model.state_dict(),
                "optimizer": self.optimizer.state_dict(),
            }
            if self.compression:
                state["compression"] = self.compression.state_dict()
            partial = path.with_name(f"{path.name}.partial")
            torch.save(state, partial)
            os.replace(partial, path)

    def resume(self) -> int:
        """12. Load the checkpoint. Returns its epoch, 0 without one."""
        path, found = self.args.checkpoint, [None]
        if self.ranks.rank == 0 and path.exists():
            found = [torch.load(path, map_location="cpu", weights_only=True)]
        dist.broadcast_object_list(found, src=0)  # other hosts may not see the file
        if found[0] is None:
            return 0
        saved: dict[str, Any] = found[0]
        self.settle_buckets()
        self.model.load_state_dict(saved["model"])
        self.optimizer.load_state_dict(saved["optimizer"])
        if self.compression:
            self.compression.load_state_dict(saved.get("compression"))
        self.say(f"resuming after epoch {saved['epoch']}, from {path}")
        return int(saved["epoch"])

    def settle_buckets(self) -> None:
        """Make one backward pass without a step, after which DDP builds its buckets again.

        Three or more ranks sum in an order that depends on the buckets: without this pass the next epoch
        would round differently.
        """
        inputs, targets = (each.to(self.device) for each in next(iter(self.train_batches)))
        loss_of(self.parallel(inputs), targets).backward()

    def say(self, line: str) -> None:
        if self.ranks.rank == 0:
            print(line, flush=True)


if __name__ == "__main__":
    start(parse_arguments())
