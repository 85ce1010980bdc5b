"""``hvd.elastic``: training that goes on in the same processes when ranks are lost or hosts come."""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from horovod.common import jobs, rejoining
from horovod.common.basics import basics
from horovod.common.elastic import ObjectState, State, is_elastic, run_fn
from horovod.torch.elastic import sampler, state
from horovod.torch.elastic.preload import load_compiler
from horovod.torch.elastic.process_group import Groups, init_process_group
from horovod.torch.elastic.sampler import ElasticSampler
from horovod.torch.elastic.state import TorchState
from horovod.torch.gradient_listener import listening_here

__all__ = [
    "ElasticSampler",
    "ObjectState",
    "State",
    "TorchState",
    "init_process_group",
    "run",
    "sampler",
    "state",
]

P = ParamSpec("P")
T = TypeVar("T")
_log = logging.getLogger("horovod")


def run(func: Callable[P, T]) -> Callable[P, T]:
    """Decorate ``func(state, ...)`` so that it goes on where ranks are lost and hosts come and go.

    It is called when all ranks have the state of rank 0. When a rank was lost, what waits for it raises
    HorovodInternalError: the state goes back to the last commit, this process joins the world of those who
    are left, and ``func`` is called again. When hosts have changed, ``state.commit()`` and
    ``state.check_host_updates()`` raise HostsUpdatedInterrupt: the same, but the state stays. So let both
    pass through, and have ``func`` go on from what ``state`` says. A RuntimeError of torch.distributed's that
    came of a lost rank is the same as HorovodInternalError; see ``init_process_group``.

    Any other exception ends the job, and so does a disagreement of ranks that comes a third time at the same
    commit. Before ``func``, run no collectives but ``hvd.init()``: new workers come to them alone.
    """
    passage = _Passage()
    keeps_on = run_fn(func, passage.join, passage.leave, passage.groups.loss_behind)

    @functools.wraps(func)
    def elastic(*args: P.args, **kwargs: P.kwargs) -> T:
        passage.groups.begin()
        jobs.current().follow_process_sets = _have_optimizers_follow
        return keeps_on(*args, **kwargs)

    return elastic


if is_elastic() and os.environ.get(rejoining.AGENT):
    load_compiler()


def _have_optimizers_follow() -> None:
    for optimizer in listening_here():
        optimizer._join_new_world()


class _Passage:
    """From one world to the next, with this rank's optimizers and process groups."""

    def __init__(self) -> None:
        self._dropped = False  # what error feedback owed
        self.groups = Groups()

    def leave(self) -> None:
        """Nobody works on gradients any more, and optimizers forget the step that they were in."""
        rejoining.leave()
        self.groups.leave()
        for optimizer in listening_here():
            optimizer._abandon_step()
            self._dropped |= optimizer._reducer.checkpoint.forget_residuals()

    def join(self) -> None:
        """Join the world that comes next."""
        self.leave()
        rejoining.rejoin()
        if self._dropped and basics.rank() == 0:
            _log.warning("horovod: error feedback begins anew: what it owed belonged to the world before.")
        self._dropped = False
