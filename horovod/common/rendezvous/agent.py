"""Ranks that an agent of `horovodrun --launcher tcp` has started: they meet in the store of its driver."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from horovod.common.agent_channel import VARIABLE, AgentChannel, agent_channel
from horovod.common.launched import Launch
from horovod.common.rendezvous.store import StoreRendezvous, assignment_of

__all__ = ["AgentRendezvous", "by_agent"]

NAME = "horovodrun's agents"


class AgentRendezvous(StoreRendezvous):
    """As in any store. `generation`: of the job, as the launcher counts them."""

    def __init__(self, channel: AgentChannel, ranks: Sequence[int]) -> None:
        place = channel.assign(_generations.get(id(channel), 0))
        self.generation = _generations[id(channel)] = place.generation
        assignment = assignment_of(place.rank, place.size, ranks)
        super().__init__(channel, assignment, NAME, job=[str(place.generation)])


_generations: dict[int, int] = {}  # of each channel, the last that this process was a part of


def by_agent(launch: Launch, environment: Mapping[str, str], ranks: Sequence[int]) -> AgentRendezvous:
    """ValueError where this process has not inherited the channel, or is out (`agent_channel.Removed`)."""
    channel = agent_channel(environment)
    if channel is None:
        raise ValueError(
            f"{launch.evidence} says that horovodrun has started this process, but what "
            f"{VARIABLE}={environment.get(VARIABLE, '')} names is not open in it. What a rank starts "
            "is no rank; and a script that starts Python as the rank has to leave open what it inherits"
        )
    return AgentRendezvous(channel, ranks)
