"""A typical Horovod script: MNIST's sizes, an argument for fp16, and otherwise Compression.none."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

import horovod.torch as hvd

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=64)
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--lr", type=float, default=0.01)
parser.add_argument("--fp16-allreduce", action="store_true", default=False)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc1 = nn.Linear(784, 512)
        self.fc2 = nn.Linear(512, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.log_softmax(self.fc2(F.relu(self.fc1(x.flatten(1)))), dim=1)


def main() -> None:
    args = parser.parse_args([])
    hvd.init()
    torch.manual_seed(42)
    images = torch.rand(512, 1, 28, 28)
    labels = images.mean((1, 2, 3)).argsort().argsort() * 10 // len(images)
    dataset = TensorDataset(images, labels)
    sampler = DistributedSampler(dataset, num_replicas=hvd.size(), rank=hvd.rank())
    loader = DataLoader(dataset, batch_size=args.batch_size, sampler=sampler)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr * hvd.size(), momentum=0.5)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    compression = hvd.Compression.fp16 if args.fp16_allreduce else hvd.Compression.none
    optimizer = hvd.DistributedOptimizer(
        optimizer, named_parameters=model.named_parameters(), compression=compression, op=hvd.Average
    )
    before, steps = hvd.metrics()["wire_bytes"], 0
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for data, target in loader:
            optimizer.zero_grad()
            loss = F.nll_loss(model(data), target)
            loss.backward()
            optimizer.step()
            steps += 1
    sent = hvd.metrics()["wire_bytes"] - before
    average_loss = hvd.allreduce(loss.detach(), name="avg_loss").item()
    if hvd.rank() == 0:
        plain = steps * sum(4 * parameter.numel() for parameter in model.parameters())
        print(f"loss {average_loss:.4f}: gradients of {plain} bytes travelled as {sent}")
    hvd.shutdown()


if __name__ == "__main__":
    main()
