"""A typical Horovod benchmark: an argument for fp16, and otherwise Compression.none."""

import argparse
import timeit

import torch
import torch.nn.functional as F

import horovod.torch as hvd

parser = argparse.ArgumentParser()
parser.add_argument("--fp16-allreduce", action="store_true", default=False)
parser.add_argument("--batch-size", type=int, default=8)
parser.add_argument("--num-iters", type=int, default=3)
args = parser.parse_args([])

hvd.init()
model = torch.nn.Sequential(
    torch.nn.Conv2d(3, 32, 3, stride=2, bias=False),
    torch.nn.BatchNorm2d(32),
    torch.nn.ReLU(),
    torch.nn.Conv2d(32, 64, 3, stride=2, bias=False),
    torch.nn.BatchNorm2d(64),
    torch.nn.Flatten(),
    torch.nn.Linear(64 * 7 * 7, 100),
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01 * hvd.size())
compression = hvd.Compression.fp16 if args.fp16_allreduce else hvd.Compression.none
optimizer = hvd.DistributedOptimizer(
    optimizer, named_parameters=model.named_parameters(), compression=compression, op=hvd.Average
)
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
hvd.broadcast_optimizer_state(optimizer, root_rank=0)
data = torch.randn(args.batch_size, 3, 32, 32)
target = torch.randint(100, (args.batch_size,))


def benchmark_step() -> None:
    optimizer.zero_grad()
    F.cross_entropy(model(data), target).backward()
    optimizer.step()


before = hvd.metrics()["wire_bytes"]
seconds = timeit.timeit(benchmark_step, number=args.num_iters)
sent = hvd.metrics()["wire_bytes"] - before
if hvd.rank() == 0:
    plain = args.num_iters * sum(4 * parameter.numel() for parameter in model.parameters())
    rate = args.num_iters * args.batch_size / seconds
    print(f"{rate:.1f} images/s per rank: gradients of {plain} bytes travelled as {sent}")
hvd.shutdown()
