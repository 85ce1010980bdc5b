"""Shared by the examples of Lightning and Accelerate: options, data, and rank 0's summary."""

from __future__ import annotations

import argparse
import os
import sys

import mnist_data
import torch
import torch.distributed as dist
from mnist_training import silent
from ranks import Ranks, checksum, parameters_text, positive


def parse_arguments(description: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument(
        "--compression", default="none", help="of gradients: none, bit8, int8, topk:k=100, ..."
    )
    parser.add_argument("--epochs", type=positive, default=1, help="passes over the training data")
    parser.add_argument("--max-steps", type=positive, help="at most so many steps per epoch, for a quick try")
    parser.add_argument("--batch-size", type=positive, default=64, help="images per step and rank")
    parser.add_argument("--lr", type=float, default=0.002, help="learning rate for one rank")
    parser.add_argument("--seed", type=int, default=1, help="of the first parameters and of the shuffling")
    parser.add_argument("--data-dir", help="folder of MNIST's IDX files; see mnist_data.py (default: search)")
    parser.add_argument("--allow-digits", action="store_true", help="with neither data nor network: digits")
    parser.add_argument("--no-cuda", action="store_true", help="stay on the CPU")
    return parser.parse_args()


def place() -> Ranks:
    """This process' place, from the variables that torchrun and `horovodrun --ddp` set; else a job of one."""
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
    defaults = (0, 1, 0, 1)
    return Ranks(*(int(os.environ.get(*pair)) for pair in zip(names, map(str, defaults), strict=True)))


def load(args: argparse.Namespace) -> mnist_data.Data:
    """The data. Every rank may call it at once. Exits if there is none."""
    try:
        return mnist_data.load(args.data_dir, args.allow_digits, silent if place().rank else print)
    except mnist_data.DataError as error:
        sys.exit(str(error))  # each rank prints it: when the first exits, the launcher ends the others


def tell(model: torch.nn.Module, accuracy: float, compression: str) -> None:
    """Print the result on rank 0. Exits with an error if ranks' parameters differ. Collective."""
    checksums = [checksum(model)]
    if dist.is_initialized():
        mine, checksums = checksums[0], [""] * dist.get_world_size()
        dist.all_gather_object(checksums, mine)
    if place().rank == 0:
        print(f"compression    {compression}, {len(checksums)} rank(s)")
        print(f"test accuracy  {100 * accuracy:.2f} %")
        print(f"parameters     {parameters_text(checksums)}", flush=True)
    if len(set(checksums)) > 1:
        sys.exit(1)
