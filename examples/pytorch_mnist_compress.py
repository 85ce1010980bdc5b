"""MNIST on several processes, with compressed gradients. Start it with any of

    horovodrun -np 2 python pytorch_mnist_compress.py --bit8-allreduce
    mpirun -n 2 python pytorch_mnist_compress.py --bit16-allreduce   # as root with --allow-run-as-root
    python pytorch_mnist_compress.py --bit8-allreduce    # a world of one: sends nothing, rounds nothing

Compared with pytorch_mnist_horovod.py, only the numbered lines are new. `python -m horovod.lab` runs this
script with several compressions and compares them (docs/lab.md).

    --fp16-allreduce    IEEE half, added up as half                                 2 bytes per element
    --bit16-allreduce   IEEE half on the wire, added up in float32                  2 bytes per element
    --bit8-allreduce    float8 E4M3, a power-of-two scale per block of 128      1.008 bytes per element

Without one of these, `horovodrun --compression` decides, which offers more.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
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
    warm_up_then_decay,
)
from ranks import Ranks, checksum, on_gpu, prepare
from torch.utils.data import DataLoader, DistributedSampler

import horovod.torch as hvd


def parse_arguments() -> argparse.Namespace:
    parser = make_parser("Train a small network on MNIST with compressed gradients.")
    choice = parser.add_mutually_exclusive_group()
    for name in ("fp16", "bit16", "bit8"):
        choice.add_argument(
            f"--{name}-allreduce",
            dest="compression",
            action="store_const",
            const=name,
            help=f"compress gradients with Compression.{name}",
        )
    # 1. `horovodrun --compression` sets this variable for the ranks.
    parser.set_defaults(compression=os.environ.get("HOROVOD_COMPRESSION", "").strip() or "none")
    return parser.parse_args()


def waited() -> float:
    """Seconds that this rank's training has waited for the other ranks since hvd.init()."""
    return hvd.metrics()["blocked_microseconds"] / 1e6


def traffic() -> Counter[str]:
    """Bytes since hvd.init(): of this rank's tensors, and sent to other ranks for them."""
    counters = hvd.metrics()
    return Counter(tensor_bytes=counters["tensor_bytes"], bytes_sent=counters["wire_bytes"])


def sum_over_ranks(counts: torch.Tensor) -> torch.Tensor:
    return hvd.allreduce(counts, op=hvd.Sum, name="test_counts")


def main() -> None:
    args = parse_arguments()
    hvd.init()
    ranks = Ranks(hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size())
    device = prepare(args, ranks, serves_cuda=hvd.cuda_built())
    data = load_data(args, ranks, hvd.allgather_object)

    sampler: DistributedSampler[Any] = DistributedSampler(data.train, ranks.size, ranks.rank, seed=args.seed)
    loader = DataLoader(data.train, batch_size=args.batch_size, sampler=sampler, pin_memory=on_gpu(device))
    model = MODELS[args.model]().to(device)
    optimizer: torch.optim.Optimizer = torch.optim.Adam(model.parameters(), lr=args.lr * ranks.size)
    # Parameters are broadcast exactly; compression applies to gradients only.
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    optimizer = hvd.DistributedOptimizer(
        optimizer,
        named_parameters=model.named_parameters(),
        # 2. Biases and parameters of fewer than 1024 elements are still sent exactly.
        compression=hvd.Compression.from_text(args.compression),
    )

    steps = steps_per_epoch(args, loader)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, warm_up_then_decay(args.epochs * steps))
    facts = {"dataset": data.name, "compression": args.compression, "ranks": ranks.size, "seed": args.seed}
    with Report(args, steps, speaks=ranks.rank == 0, facts=facts) as report:
        for_gradients: Counter[str] = Counter()
        for epoch in range(1, args.epochs + 1):
            sampler.set_epoch(epoch)
            report.epoch(epoch)
            for_gradients.subtract(traffic())
            train_epoch(model, loader, optimizer, schedule, device, report, waited)
            for_gradients.update(traffic())
            score = evaluate(model, data.test, device, ranks, sum_over_ranks)
            report.tested(score)
        # 3. Rounding does not let ranks drift apart: every rank applies the same decoded bytes, so the models
        #    of all ranks stay bit-identical, and their checksums show it.
        if not report.finish(score, hvd.allgather_object(checksum(model)), data.source, for_gradients):
            sys.exit(f"rank {ranks.rank}: the ranks' parameters differ")


if __name__ == "__main__":
    main()
