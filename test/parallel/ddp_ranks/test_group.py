"""The group that tests of this folder run in: as many ranks as were started, each in its place."""

import os

import torch
import torch.distributed as dist


def test_ranks_hear_of_each_other(rank: int, size: int) -> None:
    assert (rank, size) == (int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
    ranks = torch.empty(size, dtype=torch.int64)
    dist.all_gather_into_tensor(ranks, torch.tensor([rank]))
    assert ranks.tolist() == list(range(size))
