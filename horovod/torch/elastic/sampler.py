"""A sampler that knows which samples of an epoch are done, so that other ranks can continue with the rest."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sized
from typing import Any

import torch.utils.data

from horovod.common.basics import basics
from horovod.torch import errors

__all__ = ["ElasticSampler"]


class ElasticSampler(torch.utils.data.Sampler[int]):
    """Divides the remaining samples of an epoch among the ranks: each gets every size()-th.

    All ranks get the same number. If the samples do not divide evenly, at most size() - 1 of them are given
    out twice.

    Args:
        dataset: its samples 0 to len(dataset) - 1 are given out.
        shuffle: use another order in each epoch, the same on all ranks.
        seed: of these orders.

    Attributes:
        epoch: see ``set_epoch``.
        num_replicas, rank: size() and rank() when the remaining samples were divided.
        indices: the epoch's samples in their order.
        processed_num: the number of samples that are done, from the front.
        processed_indices: the samples that are done.
        remaining_indices: the remaining samples when they were divided.
        num_samples: the number of samples that each rank gets.
        total_size: the number that all ranks get together.
    """

    def __init__(self, dataset: Sized, shuffle: bool = True, seed: int = 0) -> None:
        self.dataset = dataset
        self.shuffle = shuffle
        self.seed = seed
        self.epoch = 0
        self.processed_num = 0
        self.indices: list[int] = []
        self.remaining_indices: list[int] = []
        self.num_replicas, self.rank = 1, 0
        self.num_samples = self.total_size = 0
        self.reset()

    @property
    def processed_indices(self) -> list[int]:
        return self.indices[: self.processed_num]

    def set_epoch(self, epoch: int) -> None:
        """Begin an epoch, of which nothing is done. Call it at the end of an epoch, not at its beginning.

        After a reset, training continues inside an epoch, of which such a call would forget what is done.
        """
        self.epoch = epoch
        self.processed_num = 0
        self.reset()

    def record_batch(self, batch_idx: int, batch_size: int) -> None:
        """Note that each rank has done a batch of ``batch_size`` samples.

        Call it for every batch, in order. ``batch_idx`` is ignored.
        """
        done = self.processed_num + batch_size * self.num_replicas
        self.processed_num = min(done, len(self.indices))

    def state_dict(self) -> dict[str, Any]:
        return {"epoch": self.epoch, "processed_num": self.processed_num}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue in that epoch, with that number of samples done, and divide the rest again.

        ValueError if the dataset has fewer samples.
        """
        epoch, done = int(state_dict["epoch"]), int(state_dict["processed_num"])
        if not 0 <= done <= len(self.dataset):
            raise errors.other_dataset(done=done, epoch=epoch, samples=len(self.dataset))
        self.epoch, self.processed_num = epoch, done
        self.reset()

    def reset(self) -> None:
        """Divide the remaining samples among the current ranks. ValueError before init()."""
        self.num_replicas, self.rank = basics.size(), basics.rank()
        self.indices = list(range(len(self.dataset)))
        if self.shuffle:
            random.Random(self.seed + self.epoch).shuffle(self.indices)
        self.remaining_indices = self.indices[self.processed_num :]
        self.num_samples = math.ceil(len(self.remaining_indices) / self.num_replicas)
        self.total_size = self.num_samples * self.num_replicas

    def __iter__(self) -> Iterator[int]:
        given = self.remaining_indices
        if given:  # repeated, as few samples may be left for many ranks
            given = (given * math.ceil(self.total_size / len(given)))[: self.total_size]
        return iter(given[self.rank :: self.num_replicas])

    def __len__(self) -> int:
        return self.num_samples
