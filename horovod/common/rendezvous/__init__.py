"""How ranks that no MPI has started meet.

`meeting.open_over_tcp` makes a world of those who meet, wherever that is. Nothing in here knows how ranks
talk when they are connected: that is the core's.
"""

from __future__ import annotations

from horovod.common.rendezvous.meeting import Rendezvous, open_over_tcp
from horovod.common.rendezvous.places import make_stores_with, rendezvous_of
from horovod.common.rendezvous.store import Store

__all__ = ["Rendezvous", "Store", "make_stores_with", "open_over_tcp", "rendezvous_of"]
