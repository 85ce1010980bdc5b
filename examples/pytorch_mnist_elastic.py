"""MNIST in an elastic job: `kill -9` a rank, and the others continue. Start it with

    horovodrun -np 2 --min-np 1 -H 127.0.0.1:1,127.0.0.2:1 python pytorch_mnist_elastic.py

or with a script that prints the available hosts: docs/elastic.md. The numbered comments mark the differences
from pytorch_mnist_horovod.py.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import torch
from mnist_model import MODELS
from mnist_training import evaluate, load_data, make_parser
from ranks import Ranks, checksum, prepare
from torch.nn import functional
from torch.utils.data import DataLoader

import horovod.torch as hvd

COMMIT_EVERY = 20  # steps


def parse_arguments() -> argparse.Namespace:
    parser = make_parser("Train a small network on MNIST, while ranks are lost and come.")
    return parser.parse_args()


def ranks_now() -> Ranks:
    return Ranks(hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size())


def main() -> None:
    args = parse_arguments()
    hvd.init()
    device = prepare(args, ranks_now(), serves_cuda=hvd.cuda_built())
    # 1. No collective before train(): a rank that comes later runs these lines alone.
    data = load_data(args, ranks_now())
    # 2. The sampler knows which images of the epoch are done, and divides the rest among the present ranks.
    sampler = hvd.elastic.ElasticSampler(data.train, seed=args.seed)
    loader: DataLoader[Any] = DataLoader(data.train, batch_size=args.batch_size, sampler=sampler)
    model = MODELS[args.model]().to(device)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.Adam(model.parameters(), lr=args.lr * hvd.size()),
        named_parameters=model.named_parameters(),
    )
    # 3. The state from which training continues. It also gives new ranks the parameters: no broadcast here.
    state = hvd.elastic.TorchState(model=model, optimizer=optimizer, sampler=sampler, epoch=1, step=0)

    def adapt_learning_rate() -> None:
        for group in optimizer.param_groups:
            group["lr"] = args.lr * hvd.size()

    state.register_reset_callbacks([adapt_learning_rate])

    # 4. Each call begins at the position in the state.
    @hvd.elastic.run
    def train(state: Any) -> None:
        while state.epoch <= args.epochs:
            model.train()
            for number, (images, labels) in enumerate(loader):
                if args.max_steps and state.step >= args.max_steps:
                    break
                optimizer.zero_grad()
                loss = functional.cross_entropy(model(images.to(device)), labels.to(device))
                loss.backward()
                optimizer.step()
                sampler.record_batch(number, args.batch_size)
                state.step += 1
                # 5. If a rank is lost, the steps since the last commit are repeated.
                if state.step % COMMIT_EVERY == 0:
                    state.commit()
                if state.step % args.log_interval == 0 and hvd.rank() == 0:
                    print(
                        f"epoch {state.epoch} step {state.step}: loss {loss.item():.3f}, {hvd.size()} ranks"
                    )
            state.epoch, state.step = state.epoch + 1, 0
            sampler.set_epoch(state.epoch)
            state.commit()
        score = evaluate(
            model, data.test, device, ranks_now(), lambda counts: hvd.allreduce(counts, op=hvd.Sum)
        )
        finish(model, score.correct / score.total)

    train(state)


def finish(model: torch.nn.Module, accuracy: float) -> None:
    """Print the result. Exits with an error if ranks' parameters differ."""
    same = len(set(hvd.allgather_object(checksum(model)))) == 1
    if not same:
        sys.exit(f"rank {hvd.rank()}: the ranks' parameters differ")
    if hvd.rank() == 0:
        print(f"test accuracy  {100 * accuracy:.2f} %, parameters bit-identical on {hvd.size()} rank(s)")


if __name__ == "__main__":
    main()
