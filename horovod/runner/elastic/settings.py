"""The options of elastic jobs, checked together: hosts, numbers of workers, time limits.

Pure functions: `values` are the merged options by name, as `settings.merged` returns them. A missing value or
None means not given.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from horovod.common import time_limits
from horovod.common.sentences import facts_of
from horovod.runner import errors, hosts
from horovod.runner.errors import flag_of

SLOT, HOST = "slot", "host"  # the cost of a worker's death
# Of one host within FAILURE_WINDOW. A slot that always fails has at most 7, as its cool-down doubles: so one
# broken GPU does not cost the host, and two do.
MAX_WORKER_FAILURES = 10
SHORTEST, LONGEST = 1, 3600  # seconds of a cool-down
_FOR_ELASTIC = ("max_np", "slots_per_host", "reset_limit", "blacklist_cooldown_range")
_WITH_VARIABLES = ("elastic_timeout", "blacklist", "max_worker_failures")


@dataclass(frozen=True)
class Limits:
    """The size limits of an elastic job, and its time limits in seconds."""

    np: int  # slots that the start waits for
    min_np: int  # workers that each membership needs
    max_np: int | None  # most workers; None: as many as there are slots
    hosts_may_come: bool = True  # if False, no hosts are added later, so the job never waits for any
    # How long the start waits for slots, and each membership for its workers: all that were started at first,
    # later survivors and `min_np` workers. Workers that have not asked this long after the first one are left
    # out. A survivor asks when it next uses Horovod, so long steps and checkpoints use up this time.
    elastic_timeout: float = 600.0
    reset_limit: int | None = None  # most changes of membership; None: no limit
    # (lowest, highest) seconds until a failed host or slot is used again; None: never for a host, a default
    # range for a slot.
    cooldown_range: tuple[float, float] | None = None
    blacklist: str = SLOT  # the cost of a worker's death, its SLOT or its HOST
    # With SLOT: the deaths of a host's workers within FAILURE_WINDOW that cost the host.
    max_worker_failures: int = MAX_WORKER_FAILURES
    naming_after: float = time_limits.NAMING_AFTER  # time after which a message names the awaited workers
    accusation_grace: float = time_limits.ACCUSATION_GRACE  # how long an accused worker may take to ask
    # The same if another worker has failed in this generation, as its followers look silent.
    doubtful_grace: float = time_limits.DOUBTFUL_GRACE


@dataclass(frozen=True)
class ElasticSettings:
    """The checked settings of an elastic job."""

    limits: Limits
    script: str  # "" if the hosts are `fixed_hosts`, in order
    fixed_hosts: tuple[tuple[str, int], ...]
    slots_per_host: int  # of a host for which the script gives no number
    restart: bool = False  # processes are started again after a loss


def asks_for_elastic(values: Mapping[str, Any]) -> bool:
    """Whether the job is elastic: it has a script, a minimum number of workers, or restarts.

    LaunchError for options of elastic jobs in another job. Options that also have a variable, such as
    HOROVOD_ELASTIC_TIMEOUT, are exempt, as a shell may set it for all its jobs; `refuse_alone` checks their
    flags.
    """
    if _is_elastic(values):
        return True
    _refuse(name for name in _FOR_ELASTIC if _is_given(values, name))
    return False


def _is_elastic(values: Mapping[str, Any]) -> bool:
    has_size = _is_given(values, "host_discovery_script") or _is_given(values, "min_np")
    return has_size or bool(values.get("elastic_restart"))


def without_restart_of_others(values: Mapping[str, Any], said: Mapping[str, Any]) -> dict[str, Any]:
    """Return `values` without a restart that only HOROVOD_ELASTIC_RESTART requests, if the job is not elastic
    otherwise: a shell may set it for ranks of torchrun.

    `said`: options of the command line and the config file.
    """
    others = {name: value for name, value in values.items() if name != "elastic_restart"}
    return dict(values) if "elastic_restart" in said or _is_elastic(others) else others


def refuse_alone(given: Mapping[str, Any], values: Mapping[str, Any]) -> None:
    """LaunchError for flags of elastic jobs on a command line (`given`) of another job."""
    if not _is_elastic(values):
        _refuse(name for name in (*_FOR_ELASTIC, *_WITH_VARIABLES) if _is_given(given, name))


def refuse_other_hosts(values: Mapping[str, Any], environment: Mapping[str, str]) -> None:
    """LaunchError in a batch job of several hosts whose elastic job names no hosts: using only this host
    would surprise.
    """
    if any(_is_given(values, name) for name in ("host_discovery_script", "hosts", "hostfile")):
        return
    allocation = hosts.allocation(environment)
    if allocation is not None and len(allocation.tasks) > 1:
        listed = ",".join(f"{host.name}:{host.slots}" for host in allocation.tasks)
        raise errors.elastic_in_batch_job(scheduler=allocation.scheduler, hosts=listed, np=values["np"])


def _refuse(names: Iterable[str]) -> None:
    if alone := list(map(flag_of, names)):
        raise errors.only_elastic(options=alone)


def elastic_settings(values: Mapping[str, Any]) -> ElasticSettings:
    """Return the settings of a job for which `asks_for_elastic` holds. LaunchError for wrong options."""
    np = values.get("np")
    if np is None:
        raise errors.elastic_no_np()
    if values.get("use_mpi"):
        raise errors.mpi_not_elastic(option="--mpi")
    if values.get("ddp"):
        raise errors.ddp_not_elastic()
    script = _script(values)
    if _is_given(values, "slots_per_host") and not script:
        raise errors.slots_without_script()
    limits = _limits(values, np, bool(script))
    listed = () if script else _fixed_hosts(values, np, limits.blacklist)
    is_again = bool(values.get("elastic_restart"))
    return ElasticSettings(limits, script, listed, values.get("slots_per_host") or 1, is_again)


def _limits(values: Mapping[str, Any], np: int, hosts_may_come: bool) -> Limits:
    min_np, max_np = values.get("min_np") or np, values.get("max_np")
    if min_np > np:
        raise errors.min_np_above(min_np=min_np, np=np)
    if max_np is not None and max_np < np:
        raise errors.max_np_below(max_np=max_np, np=np)
    if values.get("blacklist") == HOST and _is_given(values, "max_worker_failures"):
        raise errors.failures_of_hosts()
    alike = ("elastic_timeout", "reset_limit", "blacklist", "max_worker_failures")
    given = {name: values[name] for name in alike if _is_given(values, name)}
    return Limits(np, min_np, max_np, hosts_may_come, cooldown_range=_cooldown_range(values), **given)


def _is_given(values: Mapping[str, Any], name: str) -> bool:
    return values.get(name) is not None


def _script(values: Mapping[str, Any]) -> str:
    script: str | None = values.get("host_discovery_script")
    if script is None:
        return ""
    if not script.strip():
        raise errors.no_script(value=script)
    for name in ("hosts", "hostfile"):
        if _is_given(values, name):
            raise errors.hosts_exclude(options=[flag_of(name), "--host-discovery-script"])
    return script


def _fixed_hosts(values: Mapping[str, Any], np: int, blacklist: str) -> tuple[tuple[str, int], ...]:
    """Return the hosts, with enough slots for the start, as no others will come. The default is this machine
    with `np` slots.
    """
    found = hosts.named(values.get("hosts"), values.get("hostfile"))
    if len(found) < 2 and blacklist == HOST:
        raise errors.blacklist_one_host(host=found[0].name if found else "this one")
    found = found or hosts.chosen(np, None, None)
    slots = sum(host.slots for host in found)
    if slots < np:
        raise errors.elastic_few_slots(np=np, slots=slots)
    return tuple((host.name, host.slots) for host in found)


def _cooldown_range(values: Mapping[str, Any]) -> tuple[int, int] | None:
    given = values.get("blacklist_cooldown_range")
    if given is None:
        return None
    numbers = given if isinstance(given, list) else [given]
    try:
        return checked_range(numbers)
    except ValueError as error:
        shown, option = " ".join(map(str, numbers)), "--blacklist-cooldown-range"
        raise errors.wrong_value(**facts_of(error, option=option, value=shown)) from None


def checked_range(cooldown_range: Sequence[int]) -> tuple[int, int]:
    """Return (lowest, highest) cool-down in seconds. ValueError for a malformed range."""
    if len(cooldown_range) != 2:
        raise errors.cooldown_no_pair(value=list(cooldown_range))
    lowest, highest = cooldown_range
    if not SHORTEST <= lowest <= highest <= LONGEST:
        raise errors.cooldown_bounds(shortest=SHORTEST, longest=LONGEST, lowest=lowest, highest=highest)
    return lowest, highest
