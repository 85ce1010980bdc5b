"""Hugging Face Trainer, with compressed gradients: one callback. Start it with any of

    horovodrun -np 2 --ddp python trainer_text.py --compression bit8
    torchrun --nproc-per-node 2 trainer_text.py --compression bit8
    python trainer_text.py                                            # a world of one

A small GPT-2 (only its architecture: nothing is downloaded) learns to continue a text, byte by byte. The
default text is the folder docs/ of this repository.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from ranks import checksum, parameters_text, positive
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

from horovod.torch import ddp

DOCS = Path(__file__).resolve().parents[1] / "docs"
LENGTH = 64  # bytes that the model sees


class Windows(Dataset[dict[str, torch.Tensor]]):
    """Chunks of LENGTH bytes of a text. Models of transformers shift the labels themselves."""

    def __init__(self, text: bytes) -> None:
        whole = len(text) // LENGTH * LENGTH
        self._rows = torch.frombuffer(bytearray(text[:whole]), dtype=torch.uint8).long().view(-1, LENGTH)

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, row: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self._rows[row], "labels": self._rows[row]}


class CompressGradients(TrainerCallback):
    """Compresses when training begins: the trainer has wrapped its model, unless there is one process."""

    def __init__(self, trainer: Trainer, compression: str) -> None:
        self.trainer, self.compression = trainer, compression

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        ddp.compress(self.trainer.model_wrapped, self.compression)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument(
        "--compression", default="none", help="of gradients: none, bit8, int8, topk:k=100, ..."
    )
    parser.add_argument("--text", type=Path, help="file to learn from (default: docs/ of this repository)")
    parser.add_argument("--max-steps", type=positive, default=200, help="steps")
    parser.add_argument("--batch-size", type=positive, default=16, help="rows per step and rank")
    parser.add_argument("--lr", type=float, default=0.003, help="learning rate")
    parser.add_argument("--seed", type=int, default=1, help="of the first parameters and of the shuffling")
    parser.add_argument("--no-cuda", action="store_true", help="stay on the CPU")
    return parser.parse_args()


def text_of(args: argparse.Namespace) -> bytes:
    if args.text:
        return args.text.read_bytes()
    return b"\n".join(path.read_bytes() for path in sorted(DOCS.glob("*.md")))


def train(args: argparse.Namespace, folder: str) -> None:
    torch.manual_seed(args.seed)
    shape = {"vocab_size": 256, "n_positions": LENGTH, "n_embd": 64, "n_layer": 2, "n_head": 2}
    model = GPT2LMHeadModel(GPT2Config(**shape, bos_token_id=None, eos_token_id=None))
    options = TrainingArguments(
        output_dir=folder,
        max_steps=args.max_steps,
        per_device_train_batch_size=args.batch_size,
        learning_rate=args.lr,
        seed=args.seed,
        use_cpu=args.no_cuda or not torch.cuda.is_available(),  # otherwise it wraps no model without a GPU
        ddp_find_unused_parameters=False,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        logging_strategy="no",
    )
    trainer = Trainer(model=model, args=options, train_dataset=Windows(text_of(args)))
    if args.compression != "none":
        trainer.add_callback(CompressGradients(trainer, args.compression))
    loss = trainer.train().training_loss
    checksums = [checksum(model)]
    if dist.is_initialized():
        mine, checksums = checksums[0], [""] * dist.get_world_size()
        dist.all_gather_object(checksums, mine)
    if trainer.is_world_process_zero():
        print(f"compression    {args.compression}, {len(checksums)} rank(s)")
        print(f"training loss  {loss:.4f} (mean of {args.max_steps} steps)")
        print(f"parameters     {parameters_text(checksums)}", flush=True)
    if len(set(checksums)) > 1:
        sys.exit(1)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        train(parse_arguments(), scratch)
