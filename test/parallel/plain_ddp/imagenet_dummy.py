"""Training of an image classifier as scripts for ImageNet are written, on dummy data, with torch alone.

It has learning-rate steps, momentum, meters averaged over ranks, validation, checkpoints of rank 0 and
`--resume`, and gradients accumulated under no_sync(). torchrun starts it.
"""

import argparse
import contextlib
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class DummyImages(Dataset):
    """Noise that is brighter in one channel, by class."""

    def __init__(self, count, side, classes):
        self.count, self.side, self.classes = count, side, classes

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        made = torch.Generator().manual_seed(index)
        label = index % self.classes
        image = torch.randn(3, self.side, self.side, generator=made)
        image[label % 3] += 1.0
        return image, label


class Block(nn.Module):
    def __init__(self, inside, outside, stride):
        super().__init__()
        self.first = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(outside)
        self.second = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(outside)
        self.shortcut = nn.Conv2d(inside, outside, 1, stride, bias=False)

    def forward(self, x):
        inner = self.norm2(self.second(torch.relu(self.norm1(self.first(x)))))
        return torch.relu(inner + self.shortcut(x))


def network(classes):
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, 2, 1, bias=False), nn.BatchNorm2d(32), nn.ReLU(),
        Block(32, 64, 2), Block(64, 128, 2), Block(128, 256, 2),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, classes),
    )  # fmt: skip


class Meter:
    """A mean over samples, and with `over_ranks` over the samples of all ranks."""

    def __init__(self):
        self.sum, self.count = 0.0, 0

    def update(self, value, n):
        self.sum, self.count = self.sum + value * n, self.count + n

    def over_ranks(self):
        both = torch.tensor([self.sum, float(self.count)], dtype=torch.float64)
        dist.all_reduce(both)
        return (both[0] / both[1]).item()


def train(model, loader, criterion, optimizer, epoch, args):
    losses = Meter()
    model.train()
    for step, (images, labels) in enumerate(loader):
        synchronizes = (step + 1) % args.accumulate == 0
        with contextlib.nullcontext() if synchronizes else model.no_sync():
            loss = criterion(model(images), labels)
            (loss / args.accumulate).backward()
        losses.update(loss.item(), len(labels))
        if synchronizes:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
    return losses.over_ranks()


@torch.no_grad()
def validate(model, loader):
    right = Meter()
    model.eval()
    for images, labels in loader:
        right.update((model(images).argmax(1) == labels).float().mean().item(), len(labels))
    return 100 * right.over_ranks()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--dummy", type=int, default=128, help="images of each rank's epoch")
    parser.add_argument("--side", type=int, default=32)
    parser.add_argument("--classes", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--accumulate", type=int, default=2)
    parser.add_argument("--lr", type=float, default=0.02)
    parser.add_argument("--resume", default="")
    args = parser.parse_args()

    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = DistributedDataParallel(network(args.classes))
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    optimizer = torch.optim.SGD(model.parameters(), args.lr, momentum=0.9, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=30, gamma=0.1)
    begin = 0
    if args.resume and os.path.exists(args.resume):
        kept = torch.load(args.resume, weights_only=True)
        model.module.load_state_dict(kept["model"])
        optimizer.load_state_dict(kept["optimizer"])
        scheduler.load_state_dict(kept["scheduler"])
        begin = kept["epoch"]

    sets = [DummyImages(count * world, args.side, args.classes) for count in (args.dummy, 48)]
    samplers = [DistributedSampler(each, shuffle=number == 0) for number, each in enumerate(sets)]
    loaders = [DataLoader(d, args.batch_size, sampler=s) for d, s in zip(sets, samplers, strict=True)]
    for epoch in range(begin, args.epochs):
        samplers[0].set_epoch(epoch)
        since = time.perf_counter()
        loss = train(model, loaders[0], criterion, optimizer, epoch, args)
        accuracy = validate(model, loaders[1])
        scheduler.step()
        if rank == 0:
            seconds = time.perf_counter() - since
            print(f"epoch {epoch + 1}: loss {loss:.4f}, accuracy {accuracy:.1f} % in {seconds:.1f} s")
            if args.resume:
                parts = {"model": model.module, "optimizer": optimizer, "scheduler": scheduler}
                states = {name: part.state_dict() for name, part in parts.items()}
                torch.save({**states, "epoch": epoch + 1}, args.resume)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
