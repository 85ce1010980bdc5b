"""MNIST with DistributedDataParallel, started by torchrun, as PyTorch's examples and tutorials write it.

It does not use this package: it stands for scripts that must not be edited. Its images are random numbers.
"""

import argparse
import os

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3, 1)
        self.conv2 = nn.Conv2d(32, 64, 3, 1)
        self.dropout1 = nn.Dropout(0.25)
        self.dropout2 = nn.Dropout(0.5)
        self.fc1 = nn.Linear(9216, 128)
        self.fc2 = nn.Linear(128, 10)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.relu(self.conv2(x))
        x = F.max_pool2d(x, 2)
        x = self.dropout1(x)
        x = torch.flatten(x, 1)
        x = F.relu(self.fc1(x))
        x = self.dropout2(x)
        return F.log_softmax(self.fc2(x), dim=1)


def train(model, loader, optimizer, epoch, rank):
    model.train()
    for batch_idx, (data, target) in enumerate(loader):
        optimizer.zero_grad()
        loss = F.nll_loss(model(data), target)
        loss.backward()
        optimizer.step()
        if batch_idx % 4 == 0 and rank == 0:
            print(f"Train Epoch: {epoch} [{batch_idx}/{len(loader)}]\tLoss: {loss.item():.6f}")


def test(model, loader, rank):
    model.eval()
    totals = torch.zeros(2)
    with torch.no_grad():
        for data, target in loader:
            output = model(data)
            totals[0] += F.nll_loss(output, target, reduction="sum").item()
            totals[1] += output.argmax(dim=1).eq(target).sum().item()
    dist.all_reduce(totals)
    if rank == 0:
        print(f"Test set: Average loss: {totals[0]:.4f}, correct: {int(totals[1])}")


def main():
    parser = argparse.ArgumentParser(description="PyTorch MNIST Example")
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--save-model", default=None)
    args = parser.parse_args()

    dist.init_process_group("gloo")
    rank = int(os.environ["RANK"])
    torch.set_num_threads(1)
    torch.manual_seed(1)

    images, labels = torch.rand(256, 1, 28, 28), torch.randint(0, 10, (256,))
    dataset = TensorDataset(images, labels)
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=args.batch_size, sampler=sampler)

    model = DDP(Net())
    optimizer = optim.SGD(model.parameters(), lr=args.lr)
    for epoch in range(1, args.epochs + 1):
        sampler.set_epoch(epoch)
        train(model, loader, optimizer, epoch, rank)
        test(model, loader, rank)

    if args.save_model and rank == 0:
        torch.save(model.module.state_dict(), args.save_model)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
