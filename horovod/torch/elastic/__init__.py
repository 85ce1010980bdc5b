"""``hvd.elastic``: training that continues in the same processes when ranks are lost or hosts are added."""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import torch

from horovod.common import jobs, rejoining
from horovod.common.agent_messages import VARIABLE as AGENT
from horovod.common.basics import basics
from horovod.common.elastic import ObjectState, State, is_elastic, run_fn
from horovod.torch.elastic import sampler, state
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
    "load_compiler",
    "run",
    "sampler",
    "state",
]

P = ParamSpec("P")
T = TypeVar("T")
_log = logging.getLogger("horovod")


def run(func: Callable[P, T]) -> Callable[P, T]:
    """Decorate ``func(state, ...)`` so that training continues when ranks are lost and hosts change.

    ``func`` is called when all ranks have the state of rank 0. When a rank is lost, operations that wait for
    it raise HorovodInternalError. Then the state returns to the last commit, this process joins the world of
    the remaining ranks, and ``func`` is called again. When hosts have changed, ``state.commit()`` and
    ``state.check_host_updates()`` raise HostsUpdatedInterrupt, with the same effect, but the state is kept.

    So do not catch these two, and let ``func`` continue from ``state``. A RuntimeError of torch.distributed
    due to a lost rank counts as HorovodInternalError; see ``init_process_group``. Any other exception ends
    the job, as does the third disagreement of ranks at the same commit.

    Before ``func``, run no collectives except ``hvd.init()``: new workers would run them alone.
    """
    passage = _Passage()
    keeps_on = run_fn(func, passage.join, passage.leave, passage.groups.loss_behind)

    @functools.wraps(func)
    def elastic(*args: P.args, **kwargs: P.kwargs) -> T:
        passage.groups.begin()
        jobs.current().follow_process_sets = _have_optimizers_follow
        return keeps_on(*args, **kwargs)

    return elastic


def load_compiler() -> None:
    """Load torch's compiler, which torch otherwise imports for the first optimizer, in 1.7 s of a core.

    Scripts make that after ``hvd.init()``, when other ranks wait for this worker.
    """
    torch.optim.SGD([torch.zeros(1)], lr=1.0)


if is_elastic() and os.environ.get(AGENT):
    load_compiler()


def _have_optimizers_follow() -> None:
    for optimizer in listening_here():
        optimizer._join_new_world()


class _Passage:
    """The transition from one world to the next, with this rank's optimizers and process groups."""

    def __init__(self) -> None:
        self._dropped = False  # residuals were dropped
        self.groups = Groups()

    def leave(self) -> None:
        """Leave the world. Optimizers forget their current step."""
        rejoining.leave()
        self.groups.leave()
        for optimizer in listening_here():
            optimizer._abandon_step()
            self._dropped |= optimizer._reducer.checkpoint.forget_residuals()

    def join(self) -> None:
        self.leave()
        rejoining.rejoin()
        if self._dropped and basics.rank() == 0:
            _log.warning("horovod: error feedback begins anew: what it owed belonged to the world before.")
        self._dropped = False
