"""Options of Horovod that this package cannot honour, with the reason.

A row moves to the launcher's or the ranks' options when the package serves it.
"""

from __future__ import annotations

from horovod.common.options.option import UNSERVED, Option

__all__ = ["NOT_SERVED"]


def _row(reason: str, *flags: str, off: str = "", variable: str = "", key: str = "") -> Option:
    """A row, named after its first flag, else its key, else its variable. `off` flags are accepted."""
    return Option(
        name=(flags[0].lstrip("-") if flags else key or variable).replace("-", "_"),
        flags=flags,
        off_flags=(off,) if off else (),
        variable=variable,
        key=key,
        type="bool" if off else "string",
        part=UNSERVED,
        unserved=reason,
    )


_GLOO = "there is no Gloo here, and no MPI is needed: leave the option out"

NOT_SERVED: tuple[Option, ...] = (
    _row("allgathers go from every rank to every rank; leave the option out",
        "--hierarchical-allgather", off="--no-hierarchical-allgather",
        variable="HOROVOD_HIERARCHICAL_ALLGATHER", key="params.hierarchical_allgather"),
    _row(_GLOO, variable="HOROVOD_GLOO_IFACE"),
    _row(_GLOO, "--gloo-timeout-seconds",
        variable="HOROVOD_GLOO_TIMEOUT_SECONDS", key="library_options.gloo_timeout_seconds"),
    _row("there is no jsrun launcher; leave it out and name the hosts with -H, or use jsrun by itself",
        "--jsrun"),
    _row("each process set has one NCCL communicator, on its own stream; leave the option out",
        "--num-nccl-streams",
        variable="HOROVOD_NUM_NCCL_STREAMS", key="library_options.num_nccl_streams"),
    _row("nothing is copied into a fusion buffer, so there are no copies to batch; leave the variable out",
        variable="HOROVOD_BATCH_D2D_MEMCOPIES"),
    _row("operations on a GPU complete as events anyway, and no thread waits for them; leave the variable "
        "out", variable="HOROVOD_ENABLE_ASYNC_COMPLETION"),
    _row("Adasum chooses the size of the pieces that it sends; leave the variable out",
        variable="HOROVOD_ADASUM_MPI_CHUNK_SIZE"),
    _row("there is no oneCCL here; leave the variable out", variable="HOROVOD_CCL_CACHE"),
    _row("there is no TensorFlow here; leave the variable out", variable="HOROVOD_ENABLE_XLA_OPS"),
)
