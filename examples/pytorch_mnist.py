"""MNIST on one process, without Horovod: the starting point of the other examples.

    python pytorch_mnist.py --epochs 1 --log-file steps.csv

Compare with pytorch_mnist_horovod.py to see the additions for training on several processes.
"""

from __future__ import annotations

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
from torch.utils.data import DataLoader


def main() -> None:
    args = make_parser("Train a small network on MNIST, on one process.").parse_args()
    alone = Ranks()
    device = prepare(args, alone)

    data = load_data(args, alone)
    loader = DataLoader(data.train, batch_size=args.batch_size, shuffle=True, pin_memory=on_gpu(device))
    model = MODELS[args.model]().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)

    steps = steps_per_epoch(args, loader)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, warm_up_then_decay(args.epochs * steps))
    facts = {"dataset": data.name, "compression": "none", "ranks": 1, "seed": args.seed}
    with Report(args, steps, speaks=True, facts=facts) as report:
        for epoch in range(1, args.epochs + 1):
            report.epoch(epoch)
            train_epoch(model, loader, optimizer, schedule, device, report)
            score = evaluate(model, data.test, device, alone)
            report.tested(score)
        report.finish(score, [checksum(model)], data.source)


if __name__ == "__main__":
    main()
