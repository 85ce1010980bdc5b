"""Two trainings in one job: each half of the ranks averages gradients by itself; all compare at the end.

    horovodrun -np 2 python pytorch_process_sets.py
    horovodrun -np 4 python pytorch_process_sets.py

The halves fit the same function with different learning rates. Neither waits for the other: operations on
disjoint process sets are independent, even under the same names.
"""

from __future__ import annotations

import argparse
import sys

import torch
from ranks import Ranks, checksum, positive, prepare

import horovod.torch as hvd

LEARNING_RATES = (0.001, 0.01)  # of the first half and of the second


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train two models in one job.")
    parser.add_argument("--steps", type=positive, default=50)
    parser.add_argument("--no-cuda", action="store_true", help="stay on the CPU")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def train(steps: int, lr: float, device: torch.device, half: hvd.ProcessSet) -> tuple[float, str]:
    """Train a linear model on the ranks of `half`. Returns its loss over these ranks, and its checksum."""
    model = torch.nn.Linear(16, 1).to(device)
    for name, tensor in model.state_dict().items():
        # 3. root_rank is the rank in the job, also for an operation of a process set.
        hvd.broadcast_(tensor, root_rank=half.ranks[0], name=name, process_set=half)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=lr),
        named_parameters=model.named_parameters(),
        process_set=half,  # 4. the ranks to average with
    )
    for _ in range(steps):
        x = torch.randn(32, 16, device=device)
        loss = ((model(x) - x.sum(1, keepdim=True)) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    mean = hvd.allreduce(loss.detach(), name="loss", process_set=half)
    return mean.item(), checksum(model)


def main() -> None:
    args = parse_arguments()
    # 1. "dynamic" allows adding sets after init, when the number of ranks is known.
    hvd.init(process_sets="dynamic")
    ranks = Ranks(hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size())
    if ranks.size < 2:
        sys.exit("pytorch_process_sets.py divides the ranks into two halves: start it with 2 ranks or more")
    device = prepare(args, ranks, serves_cuda=hvd.cuda_built())
    torch.manual_seed(args.seed + ranks.rank)

    # 2. All ranks add all sets, in the same order, including sets that they are not in.
    middle = ranks.size // 2
    halves = [hvd.add_process_set(range(middle)), hvd.add_process_set(range(middle, ranks.size))]
    own = 0 if halves[0].included() else 1
    result = train(args.steps, LEARNING_RATES[own], device, halves[own])

    # 5. Without a process set, an operation covers all ranks.
    results = hvd.allgather_object(result)
    for half, lr in zip(halves, LEARNING_RATES, strict=True):
        losses, checksums = zip(*(results[rank] for rank in half.ranks), strict=True)
        if len(set(checksums)) > 1:
            sys.exit(f"rank {ranks.rank}: the parameters differ within the ranks {half.ranks}")
        if ranks.rank == 0:
            print(f"ranks {half.ranks}: learning rate {lr}, loss {losses[0]:.4f}, bit-identical", flush=True)


if __name__ == "__main__":
    main()
