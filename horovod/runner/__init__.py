"""horovodrun: starts a command on N ranks, shows their output, and says truthfully how they ended.

Stands apart from the rest: imports neither torch nor the native core. The way of a job: `launch` (command
line and config file, held by the table of options) -> `starting` -> `by_agents` (agents of our own start the
ranks; see `agents`) or `by_mpirun` (one command line, made by `launchers`). `run` does it with a Python
function: `run_function` -> the same way -> `function_rank`.
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
