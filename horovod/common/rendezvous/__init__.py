"""How ranks that no MPI has started meet: one small file for each environment.

`meeting.open_over_tcp` makes a world of those who meet, wherever that is. Nothing in here knows how ranks
talk when they are connected: that is the core's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from horovod.common.launched import AGENT, FOLDER, STEP, STORE, Launch
from horovod.common.rendezvous.agent import by_agent
from horovod.common.rendezvous.folder import by_folder
from horovod.common.rendezvous.meeting import Rendezvous, open_over_tcp
from horovod.common.rendezvous.slurm import by_step
from horovod.common.rendezvous.store import Store
from horovod.common.rendezvous.torchrun import by_environment, make_stores_with

__all__ = ["Rendezvous", "Store", "make_stores_with", "open_over_tcp", "rendezvous_of"]

_Meet = Callable[[Launch, Mapping[str, str], Sequence[int]], Rendezvous]
_BY_MEETING: dict[str, _Meet] = {
    STORE: by_environment,
    STEP: by_step,
    FOLDER: by_folder,
    AGENT: by_agent,
}


def rendezvous_of(launch: Launch, environment: Mapping[str, str], ranks: Sequence[int]) -> Rendezvous:
    """Where this launch's ranks meet; `ranks` of them, or all for none. ValueError where they cannot."""
    return _BY_MEETING[launch.meets](launch, environment, ranks)
