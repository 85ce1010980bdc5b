"""horovodrun: starts a command on N ranks, shows their output, and reports how they ended.

This package imports neither torch nor the native core. A job runs through these modules: `launch` (reads the
command line and the config file by the table of options), `starting`, then `by_agents` (this package's agents
start the ranks; see `agents`) or `by_mpirun` (one command line, made by `launchers`). `run` does the same
with a Python function: `run_function`, the modules above, `function_rank`.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from horovod.runner.run_function import run as run


def __getattr__(name: str) -> Any:
    # A lazy import, because every rank imports this package.
    if name == "run":
        from horovod.runner.run_function import run

        return run
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
