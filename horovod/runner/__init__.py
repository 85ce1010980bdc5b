"""horovodrun: starts a command on N ranks, shows their output, and says truthfully how they ended.

Stands apart from the rest: imports neither torch nor the native core. The way of a job:
`launch` (command line and config file, held by the table in `options`) -> `job_hosts` (`remote_hosts` asks
them over ssh and chooses networks) -> `starting` (one command line: of mpirun, made by `launchers`, or of the
driver of `agents`, which needs no MPI) -> `supervise` (runs it) -> `rank` (one small process per rank) ->
`output` and `outcome`. `run` does it with a Python function: `run_function` -> `function_job` -> the same way
-> `function_rank`. With --ddp, `rendezvous` finds where the ranks of torch.distributed meet, and `ddp_rank`
tells each its place.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from horovod.runner.run_function import run as run


def __getattr__(name: str) -> Any:
    # Only when it is asked for: every rank imports this package.
    if name == "run":
        from horovod.runner.run_function import run

        return run
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
