"""What ``import torch`` runs of this package: the entry point "horovod" of torch's group ``torch.backends``.

It makes the c10d backend "horovod" known, and with HOROVOD_DDP_COMPRESSION in the environment it has every
DistributedDataParallel compressed, in processes that the script starts too. What does either is imported when
it is first used, and that is when it speaks of a wrong setting: ``import torch`` stays as fast as it was, and
never fails because of this package. TORCH_DEVICE_BACKEND_AUTOLOAD=0 switches all of it off.

At its exit the process also waits for gloo's threads (`wait_for_gloo`), which torch leaves running; and in
destroy_process_group(), where DDP is compressed.
"""

from __future__ import annotations

import atexit
import functools
import multiprocessing
import os
import time
import warnings
from pathlib import Path
from typing import Any

__all__ = [
    "COMPRESSION_FORCE", "DDP_COMPRESSION", "compress_every_ddp", "load", "register_backend", "wait_for_gloo",
    "wait_for_gloo_in_destroy_process_group",
]  # fmt: skip

DDP_COMPRESSION, COMPRESSION_FORCE = "HOROVOD_DDP_COMPRESSION", "HOROVOD_COMPRESSION_FORCE"
GLOO_THREAD = "pt_gloo_runloop"  # torch names those so that execute a process group's collectives


def load() -> None:
    """Called by torch at the end of its import. A torch that has what is needed elsewhere gets a warning."""
    try:
        is_rank_0 = "TORCHELASTIC_RUN_ID" in os.environ and os.environ.get("RANK") == "0"
        if is_rank_0 and multiprocessing.parent_process() is None:  # no worker of a rank's
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
    """Under torchrun nothing else may look, if the one that was mistyped would switch us on."""
    from horovod.common import notes, variables

    if notes.VARIABLE not in os.environ:
        variables.warn_of_unknown(os.environ)


def register_backend() -> None:
    """Make ``init_process_group("horovod")`` work; nothing when it does already, or torch has no c10d."""
    import torch.distributed as dist

    if dist.is_available() and "horovod" not in dist.Backend.backend_list:
        dist.Backend.register_backend("horovod", _process_group, extended_api=True, devices=["cpu", "cuda"])


def _process_group(options: Any, nccl_options: Any) -> Any:
    from horovod.torch.ddp.backend import HorovodProcessGroup

    return HorovodProcessGroup(options, nccl_options)


def compress_every_ddp() -> None:
    """Have each DistributedDataParallel that is made later compressed as HOROVOD_DDP_COMPRESSION says."""
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


@atexit.register
def wait_for_gloo(most_seconds: float = 2.0) -> None:
    """Return when gloo's threads are at rest, or after ``most_seconds``; at once where there are none.

    Such a thread lets go of a collective after the collective has ended. If that was started in
    ``backward()``, an object of Python goes with it (torch 2.13 keeps the context there), which takes the
    interpreter's lock. A thread that comes to it when the interpreter has ended aborts the process:
    "terminate called without an active exception", after a training that went well.
    """
    deadline = time.monotonic() + most_seconds
    looks_at_rest = 0
    # One look is not enough: who waits for the lock sleeps as well, and has it only while this thread sleeps.
    while looks_at_rest < 3 and time.monotonic() < deadline:
        states = _states_of_threads(GLOO_THREAD)
        if not states:
            return
        looks_at_rest = looks_at_rest + 1 if states == {"S"} else 0
        time.sleep(0.001)


def wait_for_gloo_in_destroy_process_group() -> None:
    """Have ``destroy_process_group()`` wait for gloo's threads; nothing when it does already.

    What it has let go of is freed with the last DistributedDataParallel: by a destructor that waits for the
    threads, with the interpreter locked (torch 2.13). A thread that still has a tensor of Python in its hands
    waits for that lock, and the process hangs after its last line. On busy cores one job of ten did.
    """
    import torch.distributed.distributed_c10d as c10d

    # The last of what destroy_process_group() does; scripts may have imported that itself by its name.
    name = "_unregister_all_process_groups"
    forget: Any = getattr(c10d, name, None)
    if forget is None or getattr(forget, "waits_for_gloo", False):
        return

    @functools.wraps(forget)
    def wait_and_forget() -> None:
        wait_for_gloo()
        forget()

    wait_and_forget.waits_for_gloo = True  # type: ignore[attr-defined]
    setattr(c10d, name, wait_and_forget)


def _states_of_threads(name: str) -> set[str]:
    """The states (S: sleeping, R: running or ready to) of this process' threads of a name, on Linux."""
    states = set()
    for file in Path("/proc/self/task").glob("*/stat"):
        try:
            _, _, rest = file.read_bytes().partition(f"({name}) ".encode())
        except OSError:
            continue  # it has ended meanwhile
        if rest:
            states.add(chr(rest[0]))
    return states
