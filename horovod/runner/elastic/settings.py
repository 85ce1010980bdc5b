"""The options of elastic jobs, checked together: which hosts, how many workers, how long to wait.

Pure: `values` are those of the command line, the config file and the environment, by the names of the
options, as `settings.merged` gives them. A value that is missing or None is not given.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from horovod.common import time_limits
from horovod.common.sentences import facts_of
from horovod.runner import errors, hosts
from horovod.runner.errors import flag_of

SLOT, HOST = "slot", "host"  # what the death of a worker costs
# Of one host within FAILURE_WINDOW. A slot that always fails has at most 7 in it, as its cool-down
# doubles: so one broken GPU does not cost the host, and two do.
MAX_WORKER_FAILURES = 10
SHORTEST, LONGEST = 1, 3600  # seconds of a cool-down
_FOR_ELASTIC = ("max_np", "slots_per_host", "reset_limit", "blacklist_cooldown_range")
_WITH_VARIABLES = ("elastic_timeout", "blacklist", "max_worker_failures")


@dataclass(frozen=True)
class Limits:
    """How large an elastic job may be, and how long it waits for what; times in seconds.

    `np`: slots that the start waits for. `max_np` None: as many workers as there are slots.
    `hosts_may_come` False: hosts are those of the beginning, so nobody waits for others.
    `blacklist`: what the death of a worker costs, its SLOT or its HOST. `cooldown_range`: (lowest, highest)
    seconds after which that is used again; None: a host never, a slot by a default range.
    `max_worker_failures`: with SLOT, so many deaths of a host's workers within some minutes cost the host.
    `elastic_timeout`: of the start's wait for slots, and of each membership's wait for those that belong to
    it: at first for all that were started, then for survivors, and for `min_np` workers. Whoever has not
    asked so long after the first one did is left out. A survivor asks when it next uses Horovod, so that a
    long step, or a checkpoint, takes its time. Those that are waited for are named after `naming_after`.
    `newcomer_window`: for how long newcomers that are ready wait for others that are starting.
    `accusation_grace`: how long an accused worker may take to ask; it is `doubtful_grace` where another has
    failed in this generation: whoever follows that one looks silent too.
    `leave_grace`: from being told that it is out, or left out, until a worker is stopped. One that works, and
    that nobody accuses, has the elastic timeout before that.
    `notify_again`: between two notifications of the same change: one may be lost in a reset.
    """

    np: int
    min_np: int
    max_np: int | None
    hosts_may_come: bool = True
    elastic_timeout: float = 600.0
    reset_limit: int | None = None
    cooldown_range: tuple[float, float] | None = None
    blacklist: str = SLOT
    max_worker_failures: int = MAX_WORKER_FAILURES
    naming_after: float = time_limits.NAMING_AFTER
    newcomer_window: float = time_limits.NEWCOMER_WINDOW
    accusation_grace: float = time_limits.ACCUSATION_GRACE
    doubtful_grace: float = time_limits.DOUBTFUL_GRACE
    leave_grace: float = time_limits.LEAVE_GRACE
    notify_again: float = time_limits.NOTIFY_AGAIN


@dataclass(frozen=True)
class ElasticSettings:
    """Of one elastic job, checked. `script` is "" where the hosts are `fixed_hosts`, in order.

    `slots_per_host`: of a host for which the script says none. `restart`: after a loss processes are started
    again.
    """

    limits: Limits
    script: str
    fixed_hosts: tuple[tuple[str, int], ...]
    slots_per_host: int
    restart: bool = False


def asks_for_elastic(values: Mapping[str, Any]) -> bool:
    """Whether the job is elastic: it has a script, a lowest number of workers, or workers that are started
    again.

    LaunchError for options that only elastic jobs have, where it is not. Those that variables may set, as
    HOROVOD_ELASTIC_TIMEOUT, are none of these: a shell may set it for all of its jobs. For their flags there
    is `refuse_alone`.
    """
    if _is_elastic(values):
        return True
    _refuse(name for name in _FOR_ELASTIC if _is_given(values, name))
    return False


def _is_elastic(values: Mapping[str, Any]) -> bool:
    has_size = _is_given(values, "host_discovery_script") or _is_given(values, "min_np")
    return has_size or bool(values.get("elastic_restart"))


def without_restart_of_others(values: Mapping[str, Any], said: Mapping[str, Any]) -> dict[str, Any]:
    """`values`, but for a restart that only HOROVOD_ELASTIC_RESTART asks for, where the job is not elastic
    without: a shell may set it for ranks of torchrun. `said`: by the command line and the config file.
    """
    others = {name: value for name, value in values.items() if name != "elastic_restart"}
    return dict(values) if "elastic_restart" in said or _is_elastic(others) else others


def refuse_alone(given: Mapping[str, Any], values: Mapping[str, Any]) -> None:
    """LaunchError for flags of elastic jobs on a command line (`given`) of a job that is none."""
    if not _is_elastic(values):
        _refuse(name for name in (*_FOR_ELASTIC, *_WITH_VARIABLES) if _is_given(given, name))


def refuse_other_hosts(values: Mapping[str, Any], environment: Mapping[str, str]) -> None:
    """LaunchError in a batch job of several hosts, where an elastic job's are not named: silently taking this
    one alone would surprise.
    """
    if any(_is_given(values, name) for name in ("host_discovery_script", "hosts", "hostfile")):
        return
    allocation = hosts.allocation(environment)
    if allocation is not None and len(allocation.tasks) > 1:
        listed = ",".join(f"{host.name}:{host.slots}" for host in allocation.tasks)
        raise errors.elastic_in_batch_job(
            scheduler=allocation.scheduler, hosts=listed, np=values["np"]
        )


def _refuse(names: Iterable[str]) -> None:
    if alone := list(map(flag_of, names)):
        raise errors.only_elastic(options=alone)


def elastic_settings(values: Mapping[str, Any]) -> ElasticSettings:
    """Of a job for which `asks_for_elastic` holds. LaunchError says what is wrong, and what to do."""
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
    """The script, or "" without one."""
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
    """With slots for the start, as no others will come. Without names it is this machine, with `np` slots."""
    found = hosts.named(values.get("hosts"), values.get("hostfile"))
    if len(found) < 2 and blacklist == HOST:
        raise errors.blacklist_one_host(host=found[0].name if found else "this one")
    found = found or hosts.chosen(np, None, None)
    slots = sum(host.slots for host in found)
    if slots < np:
        raise errors.elastic_few_slots(np=np, slots=slots)
    return tuple((host.name, host.slots) for host in found)


def _cooldown_range(values: Mapping[str, Any]) -> tuple[int, int] | None:
    """horovod.run may be given anything else than two numbers."""
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
    """(lowest, highest) cool-down in seconds. ValueError says what is wrong with it."""
    if len(cooldown_range) != 2:
        raise errors.cooldown_no_pair(value=list(cooldown_range))
    lowest, highest = cooldown_range
    if not SHORTEST <= lowest <= highest <= LONGEST:
        raise errors.cooldown_bounds(shortest=SHORTEST, longest=LONGEST, lowest=lowest, highest=highest)
    return lowest, highest
