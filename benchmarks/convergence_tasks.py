"""The tasks of benchmarks/convergence.py: a network on MNIST, a language model on Python's standard library.

This module does not use Horovod. Every rank draws its batches from a generator that depends only on the seed
and the rank. Runs of one seed thus see the same data and begin with the same parameters, and the difference
between two of them is due to the compression.
"""

from __future__ import annotations

import hashlib
import math
import platform
import sys
import sysconfig
from abc import ABC, abstractmethod
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import nn
from torch.nn import functional

sys.path.append(str(Path(__file__).resolve().parents[1] / "examples"))

import mnist_data
import mnist_model

Batch = tuple[torch.Tensor, torch.Tensor]


class Task(ABC):
    """A model, its data and its figure of merit. `rank` and `size` select this rank's share of the data."""

    name: ClassVar[str]
    judged_by: ClassVar[str]  # the figure of merit: "loss" or "accuracy"
    target: ClassVar[float]  # of the figure of merit, for the time to it
    steps: ClassVar[int]
    interval: ClassVar[int]  # steps between two tests
    batch_size: ClassVar[int]  # per rank
    learning_rate: ClassVar[float]

    def __init__(self, rank: int, size: int) -> None:
        self._rank = rank
        self._size = size

    @abstractmethod
    def build(self) -> nn.Module:
        """Return the model; its first parameters come from torch's global generator."""

    @abstractmethod
    def batches(self, seed: int) -> Iterator[Batch]:
        """Yield this rank's batches without end."""

    @abstractmethod
    def held_out(self, thorough: bool) -> Iterator[Batch]:
        """Yield this rank's share of the test data: all of it, or a part that is quick."""

    @property
    @abstractmethod
    def data(self) -> str:
        """Return a description of the data: equal texts mean equal data."""

    def facts(self) -> dict[str, Any]:
        """Return all facts that a result depends on, except compression, seed and number of ranks."""
        return {"batch": self.batch_size, "learning_rate": self.learning_rate, "data": self.data}

    def loss(self, model: nn.Module, batch: Batch) -> torch.Tensor:
        """Return the mean cross entropy of a batch, in nats."""
        logits = model(batch[0]).flatten(0, -2)
        return functional.cross_entropy(logits, batch[1].flatten())

    @torch.no_grad()
    def score(self, model: nn.Module, thorough: bool = True) -> torch.Tensor:
        """Return float64 [summed loss, right answers, answers] over this rank's share of held-out data."""
        model.eval()
        sums = torch.zeros(3, dtype=torch.float64)
        for inputs, answers in self.held_out(thorough):
            logits = model(inputs).flatten(0, -2)
            flat = answers.flatten()
            loss = functional.cross_entropy(logits, flat, reduction="sum")
            right = (logits.argmax(dim=1) == flat).sum()
            sums += torch.tensor([loss.item(), right.item(), flat.numel()], dtype=torch.float64)
        model.train()
        return sums

    def _generator(self, seed: int) -> torch.Generator:
        return torch.Generator().manual_seed(seed * 1000 + self._rank)


class Mnist(Task):
    """The examples' network of 46,730 parameters; with two ranks it trains for two epochs."""

    name = "mnist"
    judged_by = "accuracy"
    target = 0.97
    steps = 938
    interval = 67
    batch_size = 64
    learning_rate = 0.004
    images_held_out = (2000, 10_000)  # over all ranks: for the curve, and for the final accuracy

    @cached_property
    def _data(self) -> mnist_data.Data:
        return mnist_data.load(None, allow_digits=False, say=lambda line: None)

    @property
    def data(self) -> str:
        return self._data.name

    def facts(self) -> dict[str, Any]:
        return super().facts() | {"held_out": list(self.images_held_out)}

    def build(self) -> nn.Module:
        return mnist_model.MnistNet()

    def batches(self, seed: int) -> Iterator[Batch]:
        """Yield batches epoch by epoch: all ranks shuffle alike, and each takes its share."""
        shuffling = torch.Generator().manual_seed(seed)
        images, labels = self._data.train.tensors
        while True:
            share = torch.randperm(len(labels), generator=shuffling)[self._rank :: self._size]
            for chosen in share.split(self.batch_size):
                yield images[chosen], labels[chosen]

    def held_out(self, thorough: bool) -> Iterator[Batch]:
        share = slice(self._rank, self.images_held_out[thorough], self._size)
        images, labels = (tensor[share] for tensor in self._data.test.tensors)
        return zip(images.split(500), labels.split(500), strict=True)


class Block(nn.Module):
    """One layer of a transformer, normalising before attention and before the two linear maps."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self._heads = heads
        self.attention_norm = nn.LayerNorm(width)
        self.query_key_value = nn.Linear(width, 3 * width)
        self.attended = nn.Linear(width, width)
        self.linear_norm = nn.LayerNorm(width)
        self.widen = nn.Linear(width, 4 * width)
        self.narrow = nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map [batch, length, width] to the same shape."""
        packed = self.query_key_value(self.attention_norm(x))
        query, key, value = packed.unflatten(-1, (3, self._heads, -1)).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.attended(mixed.transpose(1, 2).flatten(2))
        return x + self.narrow(functional.gelu(self.widen(self.linear_norm(x))))


class LanguageModel(nn.Module):
    """A causal transformer over bytes: [batch, length] of int64 to [batch, length, 256] of logits."""

    def __init__(self, context: int, width: int = 96, heads: int = 4, layers: int = 2) -> None:
        super().__init__()
        self.bytes = nn.Embedding(256, width)
        self.positions = nn.Embedding(context, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        self.logits = nn.Linear(width, 256, bias=False)
        for embedding in (self.bytes, self.positions):
            nn.init.normal_(embedding.weight, std=1 / math.sqrt(width))

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        x = self.bytes(text) + self.positions.weight[: text.shape[1]]
        logits: torch.Tensor = self.logits(self.norm(self.blocks(x)))
        return logits


class Language(Task):
    """A transformer of 279,000 parameters that predicts the next byte of Python's standard library.

    The text is the top-level modules of the library in the order of their names, without the module that the
    build of each Python generates. Every tenth file is held out.
    """

    name = "language"
    judged_by = "loss"
    target = 2.0
    steps = 300
    interval = 20
    batch_size = 16
    learning_rate = 0.006
    context = 64
    batches_held_out = (4, 64)  # of 32 rows, over all ranks: for the curve, and for the final loss

    @cached_property
    def _texts(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the bytes to learn and the bytes held out, each 1-D int64."""
        files = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))
        texts = [file.read_bytes() for file in files if not file.name.startswith("_sysconfigdata")]
        if not texts:
            raise FileNotFoundError(f"no modules in {sysconfig.get_paths()['stdlib']}: nothing to learn from")
        learnt = b"".join(text for i, text in enumerate(texts) if i % 10 != 9)
        held_out = b"".join(texts[9::10])
        as_tensor = [
            torch.frombuffer(bytearray(text), dtype=torch.uint8).long() for text in (learnt, held_out)
        ]
        return as_tensor[0], as_tensor[1]

    @property
    def data(self) -> str:
        digest = hashlib.sha256(b"".join(text.byte().numpy().tobytes() for text in self._texts))
        return f"standard library of Python {platform.python_version()}, SHA-256 {digest.hexdigest()[:16]}"

    def facts(self) -> dict[str, Any]:
        return super().facts() | {"context": self.context, "held_out": list(self.batches_held_out)}

    def build(self) -> nn.Module:
        return LanguageModel(self.context)

    def batches(self, seed: int) -> Iterator[Batch]:
        generator = self._generator(seed)
        while True:
            yield self._rows(self._texts[0], self.batch_size, generator)

    def held_out(self, thorough: bool) -> Iterator[Batch]:
        generator = torch.Generator().manual_seed(0)
        for number in range(self.batches_held_out[thorough]):
            batch = self._rows(self._texts[1], 32, generator)  # all ranks draw it alike, and one rank uses it
            if number % self._size == self._rank:
                yield batch

    def _rows(self, text: torch.Tensor, count: int, generator: torch.Generator) -> Batch:
        """Return windows at random places, and the byte that follows each of their bytes."""
        starts = torch.randint(len(text) - self.context, (count, 1), generator=generator)
        rows = text[starts + torch.arange(self.context + 1)]
        return rows[:, :-1], rows[:, 1:]


TASKS: dict[str, type[Task]] = {task.name: task for task in (Mnist, Language)}
