"""Places for ranks: this host, hosts of a cluster, or hosts made on this machine for the lab."""

from __future__ import annotations

import re
from dataclasses import dataclass

from horovod.common.sentences import facts_of
from horovod.lab import errors
from horovod.lab.runs import THIS_HOST
from horovod.runner import hosts
from horovod.runner.errors import LaunchError

_MADE = re.compile(r"(\d+) hosts (?:at (\S+)|unlimited)")
_RATE = re.compile(r"[1-9]\d*(\.\d+)?[kmgt]?bit|none", re.IGNORECASE)


@dataclass(frozen=True)
class MadePlace:
    """Hosts made by `horovod.made_hosts`, with cables of a rate ("none": unlimited)."""

    count: int
    rate: str

    @property
    def name(self) -> str:
        """Its name in a plan and the report."""
        limit = "unlimited" if self.rate == "none" else f"at {self.rate}"
        return f"{self.count} hosts {limit}"


def made_place(place: str) -> MadePlace | None:
    """The made hosts of a plan's place; None for another place."""
    found = _MADE.fullmatch(place)
    return MadePlace(int(found[1]), found[2] or "none") if found else None


def check_rate(rate: str) -> None:
    """PlaceError unless `rate` is a rate of a cable."""
    if not _RATE.fullmatch(rate):
        raise errors.wrong_rate(value=rate)


def check_ranks(place: str, ranks: int) -> None:
    """PlaceError if so many ranks do not fit into a place."""
    made = made_place(place)
    if made is not None:
        if ranks < made.count:
            raise errors.hosts_without_rank(ranks=ranks, hosts=made.count)
    elif place != THIS_HOST:
        try:
            hosts.chosen(ranks, place, None)
        except LaunchError as error:
            raise errors.wrong_hosts(**facts_of(error, why=str(error).replace("-np", "--np"))) from None


def hosts_of(place: str, ranks: int) -> str:
    """The value of `horovodrun -H`; "" for this host."""
    made = made_place(place)
    if made is None:
        return "" if place == THIS_HOST else place
    slots = -(-ranks // made.count)  # rounded up: the last host may have fewer
    return ",".join(f"h{number}:{slots}" for number in range(1, made.count + 1))
