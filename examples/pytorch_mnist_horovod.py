"""MNIST on several processes with Horovod. Start it with any of

    horovodrun -np 2 python pytorch_mnist_horovod.py
    mpirun -n 2 python pytorch_mnist_horovod.py          # as root: mpirun --allow-run-as-root -n 2 ...
    python pytorch_mnist_horovod.py                      # a world of one, no launcher

with, as in Horovod's own recipe, `--fp16-allreduce`, `--gradient-predivide-factor 2` or `--use-adasum`. The
numbered comments mark all that turns pytorch_mnist.py into this script. With `--hvd False` none of it
happens, and every process trains alone on all data, for comparison.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import torch
from mnist_model import MODELS
from mnist_report import Report
from mnist_training import (
    evaluate,
    load_data,
    make_parser,
    steps_per_epoch,
    train_epoch,
    truth,
    warm_up_then_decay,
)
from ranks import Ranks, checksum, on_gpu, prepare
from torch.utils.data import DataLoader, DistributedSampler

import horovod.torch as hvd


def parse_arguments() -> argparse.Namespace:
    parser = make_parser("Train a small network on MNIST with Horovod.")
    parser.add_argument("--hvd", type=truth, default=True, help="False trains without Horovod")
    parser.add_argument("--fp16-allreduce", action="store_true", help="gradients travel as IEEE half")
    parser.add_argument(
        "--use-adasum", action="store_true", help="combine gradients by Adasum, not by average"
    )
    parser.add_argument(
        "--gradient-predivide-factor", type=float, default=1.0, help="divide by so much before the sum"
    )
    return parser.parse_args()


def sum_over_ranks(counts: torch.Tensor) -> torch.Tensor:
    return hvd.allreduce(counts, op=hvd.Sum, name="test_counts")


def main() -> None:
    args = parse_arguments()
    ranks = Ranks()
    if args.hvd:
        # 1. Join the other processes, and get this process' place among them.
        hvd.init()
        ranks = Ranks(hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size())
    device = prepare(args, ranks, serves_cuda=hvd.cuda_built() or not args.hvd)
    data = load_data(args, ranks, hvd.allgather_object if args.hvd else None)

    # 2. Every rank trains on its own share of the images. The shares are drawn again in every epoch.
    sampler: DistributedSampler[Any] = DistributedSampler(data.train, ranks.size, ranks.rank, seed=args.seed)
    loader = DataLoader(data.train, batch_size=args.batch_size, sampler=sampler, pin_memory=on_gpu(device))
    model = MODELS[args.model]().to(device)
    # 3. A step now averages over size times as many images, so its rate may be size times as large. Adasum
    #    adds gradients that point in different directions, so it needs no other learning rate.
    lr = args.lr if args.use_adasum else args.lr * ranks.size
    optimizer: torch.optim.Optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    if args.hvd:
        # 4. All ranks begin with rank 0's parameters and optimizer state.
        hvd.broadcast_parameters(model.state_dict(), root_rank=0)
        hvd.broadcast_optimizer_state(optimizer, root_rank=0)
        # 5. The wrapped optimizer averages the gradients over all ranks before every step.
        optimizer = hvd.DistributedOptimizer(
            optimizer,
            named_parameters=model.named_parameters(),
            compression=hvd.Compression.fp16 if args.fp16_allreduce else hvd.Compression.none,
            op=hvd.Adasum if args.use_adasum else hvd.Average,
            gradient_predivide_factor=args.gradient_predivide_factor,
        )

    steps = steps_per_epoch(args, loader)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, warm_up_then_decay(args.epochs * steps))
    compression = "fp16" if args.fp16_allreduce else "none"
    facts = {"dataset": data.name, "compression": compression, "ranks": ranks.size, "seed": args.seed}
    # 6. Only rank 0 prints and writes files.
    with Report(args, steps, speaks=ranks.rank == 0, facts=facts) as report:
        for epoch in range(1, args.epochs + 1):
            sampler.set_epoch(epoch)
            report.epoch(epoch)
            train_epoch(model, loader, optimizer, schedule, device, report)
            # 7. Every rank tests a share of the test images; their counts are added up.
            score = evaluate(model, data.test, device, ranks, sum_over_ranks if args.hvd else None)
            report.tested(score)
        checksums = hvd.allgather_object(checksum(model)) if args.hvd else [checksum(model)]
        if not report.finish(score, checksums, data.source):
            sys.exit(f"rank {ranks.rank}: the ranks' parameters differ")


if __name__ == "__main__":
    main()
