"""Hugging Face Accelerate, with compressed gradients: one line after `prepare`. Start it with any of

horovodrun -np 2 --ddp python accelerate_mnist.py --compression bit8
torchrun --nproc-per-node 2 accelerate_mnist.py --compression bit8
python accelerate_mnist.py                                            # a world of one
"""

from __future__ import annotations

from itertools import islice

import mnist_frameworks
import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from mnist_model import MnistNet
from mnist_training import TEST_BATCH
from torch.nn import functional
from torch.utils.data import DataLoader

from horovod.torch import ddp


def main() -> None:
    args = mnist_frameworks.parse_arguments("Train a small network on MNIST with Accelerate.")
    set_seed(args.seed)
    data = mnist_frameworks.load(args)
    # Without a GPU, Accelerate needs cpu=True: otherwise each process expects a GPU.
    accelerator = Accelerator(cpu=args.no_cuda or not torch.cuda.is_available())
    model = MnistNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr * accelerator.num_processes)
    model, optimizer, train, test = accelerator.prepare(
        model,
        optimizer,
        DataLoader(data.train, args.batch_size, shuffle=True),
        DataLoader(data.test, TEST_BATCH),
    )
    if args.compression != "none":
        ddp.compress(model, args.compression)  # `prepare` has wrapped it, unless there is only one process

    for _ in range(args.epochs):
        model.train()
        for images, labels in islice(train, args.max_steps):
            optimizer.zero_grad()
            accelerator.backward(functional.cross_entropy(model(images), labels))
            optimizer.step()

    model.eval()
    right = total = 0
    with torch.no_grad():
        for images, labels in test:
            guesses, truth = accelerator.gather_for_metrics((model(images).argmax(dim=1), labels))
            right, total = right + int((guesses == truth).sum()), total + len(truth)
    mnist_frameworks.tell(accelerator.unwrap_model(model), right / total, args.compression)
    accelerator.end_training()


if __name__ == "__main__":
    main()
