"""``python -m horovod.torch.ddp --compression bit8 train.py ...``: run a script with its DDP compressed.

It replaces ``python``, also in ``torchrun ... -m horovod.torch.ddp train.py ...``.
"""

from __future__ import annotations

import argparse
import os
import runpy
import sys
from collections.abc import Sequence
from importlib.metadata import entry_points
from pathlib import Path

from horovod.common.compressors import COMPRESSION_FORCE, DDP_COMPRESSION
from horovod.torch_autoload import compress_every_ddp, register_backend

DEFAULT = "bit8"


def main(arguments: Sequence[str]) -> None:
    """Run the script or module as ``__main__``. Processes that it starts inherit the setting."""
    parser = argparse.ArgumentParser(
        "python -m horovod.torch.ddp",
        description="Runs a training script with the gradients of every DistributedDataParallel compressed.",
    )
    parser.add_argument(
        "--compression",
        default=os.environ.get(DDP_COMPRESSION, "").strip() or DEFAULT,
        help=f"as bit8 or int4:rotation=hadamard; default: what {DDP_COMPRESSION} says, or {DEFAULT}",
    )
    parser.add_argument(
        "--compression-force",
        action="store_true",
        help="also where the script compresses in a way of its own; without it such ways count",
    )
    parser.add_argument("-m", dest="is_module", action="store_true", help="script is the name of a module")
    parser.add_argument("script", help="the script, or with -m the module")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="what the script is given")
    chosen = parser.parse_args(arguments)
    os.environ[DDP_COMPRESSION] = chosen.compression
    if chosen.compression_force:
        os.environ[COMPRESSION_FORCE] = "1"
    why = _why_others_are_not_compressed()
    if why:
        print(f"horovod: processes that the script starts are not compressed: {why}", file=sys.stderr)
    register_backend()
    compress_every_ddp()
    sys.argv = [chosen.script, *chosen.arguments]
    if chosen.is_module:
        runpy.run_module(chosen.script, run_name="__main__", alter_sys=True)
    else:
        if not getattr(sys.flags, "safe_path", False):
            sys.path[0] = str(Path(chosen.script).resolve().parent)  # as for `python train.py`
        runpy.run_path(chosen.script, run_name="__main__")


def _why_others_are_not_compressed() -> str:
    """Return why ``import torch`` in other processes does not load this package, or ""."""
    if os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD", "1") != "1":
        return f"TORCH_DEVICE_BACKEND_AUTOLOAD={os.environ['TORCH_DEVICE_BACKEND_AUTOLOAD']}."
    if all(point.value != "horovod.torch_autoload:load" for point in entry_points(group="torch.backends")):
        return "the installed package has no entry point for torch. Install it again: pip install ."
    return ""


if __name__ == "__main__":
    main(sys.argv[1:])
