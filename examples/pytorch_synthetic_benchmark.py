"""Images per second that ranks train together, on random images: the cost of a network or a compression.

    horovodrun -np 2 python pytorch_synthetic_benchmark.py
    horovodrun -np 2 python pytorch_synthetic_benchmark.py --compression bit8
    python pytorch_synthetic_benchmark.py                # one process, for comparison

Every step trains on the same batch, so that only computation and communication are timed. The flags are those
of Horovod's benchmark of the same name, plus --compression, --image-size and --sync-batch-norm.
"""

from __future__ import annotations

import argparse
import timeit
from collections.abc import Callable

import resnet
import torch
from ranks import Ranks, on_gpu, positive, prepare
from torch.nn import functional

import horovod.torch as hvd

CLASSES = 1000
CONFIDENCE = 1.96  # standard deviations around the mean that contain 95 % of a normal distribution


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Measure training on random images.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--model", choices=list(resnet.MODELS), default="resnet50")
    parser.add_argument("--batch-size", type=positive, default=32, help="images per step and rank")
    parser.add_argument("--image-size", type=positive, default=224, help="pixels of height and width")
    parser.add_argument("--num-warmup-batches", type=positive, default=10, help="steps that are not timed")
    parser.add_argument("--num-batches-per-iter", type=positive, default=10, help="steps timed as one")
    parser.add_argument("--num-iters", type=positive, default=10, help="timings")
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument("--compression", choices=["none", "fp16", "bf16", "bit16", "bit8"], default="none")
    choice.add_argument("--fp16-allreduce", dest="compression", action="store_const", const="fp16")
    parser.add_argument(
        "--use-adasum", action="store_true", help="combine gradients by Adasum, not by average"
    )
    parser.add_argument(
        "--sync-batch-norm", action="store_true", help="normalise over the batches of all ranks"
    )
    parser.add_argument("--no-cuda", action="store_true", help="stay on the CPU")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def make_step(args: argparse.Namespace, device: torch.device) -> Callable[[], None]:
    model: torch.nn.Module = resnet.build(args.model, CLASSES).to(device)
    if args.sync_batch_norm:
        model = hvd.SyncBatchNorm.convert_sync_batchnorm(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01 if args.use_adasum else 0.01 * hvd.size())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    optimizer = hvd.DistributedOptimizer(
        optimizer,
        named_parameters=model.named_parameters(),
        compression=getattr(hvd.Compression, args.compression),
        op=hvd.Adasum if args.use_adasum else hvd.Average,
    )
    images = torch.randn(args.batch_size, 3, args.image_size, args.image_size, device=device)
    labels = torch.randint(CLASSES, (args.batch_size,), device=device)

    def step() -> None:
        optimizer.zero_grad()
        functional.cross_entropy(model(images), labels).backward()
        optimizer.step()

    return step


def seconds_of(step: Callable[[], None], steps: int, device: torch.device) -> float:
    """Seconds that so many steps take, including the GPU's work."""
    begin = timeit.default_timer()
    for _ in range(steps):
        step()
    if on_gpu(device):
        torch.cuda.synchronize(device)
    return timeit.default_timer() - begin


def say(line: str) -> None:
    if hvd.rank() == 0:
        print(line, flush=True)


def main() -> None:
    args = parse_arguments()
    hvd.init()
    ranks = Ranks(hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size())
    device = prepare(args, ranks, serves_cuda=hvd.cuda_built())
    kind = "GPU" if device.type == "cuda" else "CPU"
    step = make_step(args, device)
    say(f"Model: {args.model}")
    say(f"Batch size: {args.batch_size}")
    say(f"Compression: {args.compression}")
    say(f"Number of {kind}s: {ranks.size}")

    say("Running warmup...")
    seconds_of(step, args.num_warmup_batches, device)
    say("Running benchmark...")
    rates = []
    for i in range(args.num_iters):
        seconds = seconds_of(step, args.num_batches_per_iter, device)
        rates.append(args.batch_size * args.num_batches_per_iter / seconds)
        say(f"Iter #{i}: {rates[-1]:.1f} img/sec per {kind}")

    per_rank = hvd.allreduce(torch.tensor(rates), name="rates")  # the average over ranks of each timing
    mean, spread = float(per_rank.mean()), CONFIDENCE * float(per_rank.std(correction=0))
    say(f"Img/sec per {kind}: {mean:.1f} +-{spread:.1f}")
    say(f"Total img/sec on {ranks.size} {kind}(s): {ranks.size * mean:.1f} +-{ranks.size * spread:.1f}")


if __name__ == "__main__":
    main()
