"""The hook that ``import torch`` runs: entry point "horovod" of torch's group ``torch.backends``.

It registers the c10d backend "horovod". With HOROVOD_DDP_COMPRESSION in the environment, it compresses every
DistributedDataParallel, also in processes that the script starts. Both are imported at the first use, when
wrong settings are reported too: ``import torch`` stays fast, and never fails because of this package.
TORCH_DEVICE_BACKEND_AUTOLOAD=0 switches all of it off.

At exit the process also waits for gloo's threads (`gloo_threads`), which torch leaves running.
"""

from __future__ import annotations

import functools
import multiprocessing
import os
import warnings
from typing import Any

import horovod.gloo_threads  # noqa: F401  has the process wait for them when it exits
from horovod.common.compressors import DDP_COMPRESSION


def load() -> None:
    """Called by torch at the end of its import. Warns if this torch lacks a needed interface."""
    try:
        is_rank_0 = "TORCHELASTIC_RUN_ID" in os.environ and os.environ.get("RANK") == "0"
        # not a child process of a rank
        if is_rank_0 and multiprocessing.parent_process() is None:
            _warn_of_unknown_variables()
        register_backend()
        if os.environ.get(DDP_COMPRESSION, "").strip():
            compress_every_ddp()
    except Exception as error:
        warnings.warn(
            'horovod: this torch has no place for the backend "horovod", or for compression of every '
            f"DistributedDataParallel ({type(error).__name__}: {error}). All else works.",
            stacklevel=2,
        )


def _warn_of_unknown_variables() -> None:
    """Warn of misspelt variables. Under torchrun nothing else may load this package to do so."""
    from horovod.common import notes, variables

    if notes.VARIABLE not in os.environ:
        variables.warn_of_unknown(os.environ)


def register_backend() -> None:
    """Make ``init_process_group("horovod")`` work. Idempotent. Does nothing if torch has no c10d."""
    import torch.distributed as dist

    if dist.is_available() and "horovod" not in dist.Backend.backend_list:
        dist.Backend.register_backend("horovod", _process_group, extended_api=True, devices=["cpu", "cuda"])


def _process_group(options: Any, nccl_options: Any) -> Any:
    from horovod.torch.ddp.backend import HorovodProcessGroup

    return HorovodProcessGroup(options, nccl_options)


def compress_every_ddp() -> None:
    """Compress each DistributedDataParallel that is made later, as HOROVOD_DDP_COMPRESSION names."""
    from torch.nn.parallel import DistributedDataParallel

    make = DistributedDataParallel.__init__
    if getattr(make, "is_compressing", False):
        return

    @functools.wraps(make)
    def make_and_compress(model: DistributedDataParallel, *args: Any, **kwargs: Any) -> None:
        make(model, *args, **kwargs)
        from horovod.torch.ddp.without_editing import compress_wrapped

        compress_wrapped(model)

    make_and_compress.is_compressing = True  # type: ignore[attr-defined]
    DistributedDataParallel.__init__ = make_and_compress  # type: ignore[method-assign, assignment]
