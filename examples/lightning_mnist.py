"""Lightning, with compressed gradients: one callback. Start it with any of

    horovodrun -np 2 --ddp python lightning_mnist.py --compression bit8
    torchrun --nproc-per-node 2 lightning_mnist.py --compression bit8
    python lightning_mnist.py                                            # a world of one

Without --compression it is plain Lightning, which horovodrun --ddp --compression, or python -m
horovod.torch.ddp, can compress without a change of the script.
"""

from __future__ import annotations

from typing import Any

import lightning
import mnist_frameworks
import torch
from mnist_model import MnistNet
from mnist_training import TEST_BATCH
from torch.nn import functional
from torch.utils.data import DataLoader

from horovod.torch.lightning import CompressGradients


class Digits(lightning.LightningModule):
    """A network that learns digits, and measures its accuracy."""

    def __init__(self, lr: float) -> None:
        super().__init__()
        self.network = MnistNet()
        self.lr = lr

    def training_step(self, batch: list[torch.Tensor], _: int) -> torch.Tensor:
        images, labels = batch
        return functional.cross_entropy(self.network(images), labels)

    def validation_step(self, batch: list[torch.Tensor], _: int) -> None:
        images, labels = batch
        accuracy = (self.network(images).argmax(dim=1) == labels).float().mean()
        self.log("accuracy", accuracy, sync_dist=True)  # the mean over ranks, weighted by their images

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=self.lr)


def main() -> None:
    args = mnist_frameworks.parse_arguments("Train a small network on MNIST with Lightning.")
    ranks = mnist_frameworks.place()
    lightning.seed_everything(args.seed)
    data = mnist_frameworks.load(args)
    trainer = lightning.Trainer(
        accelerator="cpu" if args.no_cuda else "auto",
        devices=ranks.local_size,
        num_nodes=ranks.size // ranks.local_size,
        strategy="ddp" if ranks.size > 1 else "auto",
        callbacks=[CompressGradients(args.compression)] if args.compression != "none" else [],
        max_epochs=args.epochs,
        limit_train_batches=args.max_steps,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    digits = Digits(args.lr * ranks.size)
    # Lightning gives each loader a DistributedSampler.
    trainer.fit(
        digits,
        DataLoader(data.train, args.batch_size, shuffle=True),
        DataLoader(data.test, TEST_BATCH),
    )
    accuracy: Any = trainer.callback_metrics["accuracy"]
    mnist_frameworks.tell(digits, float(accuracy), args.compression)


if __name__ == "__main__":
    main()
