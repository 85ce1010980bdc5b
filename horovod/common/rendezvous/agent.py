"""Ranks that an agent of horovodrun has started: they meet in the store of its driver."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from horovod.common import errors
from horovod.common.agent_channel import VARIABLE, AgentChannel, Place, Removed, agent_channel
from horovod.common.launched import Launch
from horovod.common.rendezvous.store import StoreRendezvous, assignment_of

__all__ = ["AgentRendezvous", "by_agent"]

NAME = "horovodrun's agents"
_log = logging.getLogger("horovod")


class AgentRendezvous(StoreRendezvous):
    """As in any store. `generation`: of the job, as the launcher counts them."""

    def __init__(self, channel: AgentChannel, ranks: Sequence[int]) -> None:
        place = _assigned(channel)
        self.generation = place.generation
        assignment = assignment_of(place.rank, place.size, ranks)
        super().__init__(channel, assignment, NAME, job=[str(place.generation)])


def _assigned(channel: AgentChannel) -> Place:
    """A worker that the job does not want any more ends here, with code 0: nothing has failed."""
    try:
        return channel.assign()
    except Removed as out:
        _log.warning("horovod: this process is no part of the job any more, and ends: %s.", out)
        raise SystemExit(0) from None


def by_agent(launch: Launch, environment: Mapping[str, str], ranks: Sequence[int]) -> AgentRendezvous:
    """ValueError where this process has not inherited the channel, or the channel is broken."""
    channel = agent_channel(environment)
    if channel is None:
        value = environment.get(VARIABLE, "")
        raise errors.not_inherited(evidence=launch.evidence, setting=VARIABLE, value=value)
    return AgentRendezvous(channel, ranks)
