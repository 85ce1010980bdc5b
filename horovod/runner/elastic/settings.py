"""What the options of elastic jobs say together: which hosts, how many workers, how long to wait.

Pure: `values` are those of the command line, the config file and the environment, as `settings.merged` gives
them, by the names of the options: np, min_np, max_np, hosts, hostfile, host_discovery_script, slots_per_host,
elastic_timeout, reset_limit, blacklist_cooldown_range, blacklist, max_worker_failures, use_mpi. A value that
is missing or None is not given.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from horovod.common.sentences import facts_of
from horovod.runner import errors, slurm
from horovod.runner import hosts as host_lists
from horovod.runner.elastic.blacklist import checked_range
from horovod.runner.elastic.discovery import FixedHosts, HostDiscovery, HostDiscoveryScript
from horovod.runner.elastic.limits import HOST, MAX_WORKER_FAILURES, SLOT, Limits

__all__ = [
    "ELASTIC_TIMEOUT",
    "ElasticSettings",
    "asks_for_elastic",
    "elastic_settings",
    "refuse_alone",
    "refuse_other_hosts",
    "without_restart_of_others",
]

ELASTIC_TIMEOUT = 600  # seconds, as with Horovod
_FLAGS = {
    "np": "-np",
    "min_np": "--min-np",
    "max_np": "--max-np",
    "slots_per_host": "--slots-per-host",
    "elastic_timeout": "--elastic-timeout",
    "reset_limit": "--reset-limit",
    "blacklist_cooldown_range": "--blacklist-cooldown-range",
    "blacklist": "--blacklist",
    "max_worker_failures": "--max-worker-failures",
    "host_discovery_script": "--host-discovery-script",
}
_FOR_ELASTIC = ("max_np", "slots_per_host", "reset_limit", "blacklist_cooldown_range")
_WITH_VARIABLES = ("elastic_timeout", "blacklist", "max_worker_failures")
_LOWEST = {"np": 1, "min_np": 1, "max_np": 1, "slots_per_host": 1, "elastic_timeout": 1, "reset_limit": 0}
_LOWEST["max_worker_failures"] = 1


@dataclass(frozen=True)
class ElasticSettings:
    """Of one elastic job, checked. `script` is "" where the hosts are `fixed_hosts`, in order.

    `slots_per_host`: of a host for which the script says none. `elastic_timeout` and the cool-down range
    are in seconds; `reset_limit` None: no limit. `blacklist`, `cooldown_range`, `max_worker_failures`: see
    `Limits`. `restart`: after a loss processes are started again.
    """

    np: int
    min_np: int
    max_np: int | None
    script: str
    fixed_hosts: tuple[tuple[str, int], ...]
    slots_per_host: int
    elastic_timeout: int
    reset_limit: int | None
    cooldown_range: tuple[int, int] | None
    restart: bool = False
    blacklist: str = SLOT
    max_worker_failures: int = MAX_WORKER_FAILURES

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> ElasticSettings:
        """What was made of one by way of JSON."""
        hosts = tuple((name, slots) for name, slots in record["fixed_hosts"])
        cooldown = tuple(record["cooldown_range"]) if record["cooldown_range"] else None
        return cls(**{**record, "fixed_hosts": hosts, "cooldown_range": cooldown})

    def discovery(self) -> HostDiscovery:
        if self.script:
            return HostDiscoveryScript(self.script, self.slots_per_host)
        return FixedHosts(dict(self.fixed_hosts))

    def limits(self) -> Limits:
        """For the membership machine."""
        return Limits(
            np=self.np,
            min_np=self.min_np,
            max_np=self.max_np,
            hosts_may_come=bool(self.script),
            elastic_timeout=float(self.elastic_timeout),
            reset_limit=self.reset_limit,
            cooldown_range=self.cooldown_range,
            blacklist=self.blacklist,
            max_worker_failures=self.max_worker_failures,
        )


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
    allocation = slurm.allocation(environment)
    if allocation is not None and len(allocation.tasks) > 1:
        listed = ",".join(f"{host.name}:{host.slots}" for host in allocation.tasks)
        raise errors.elastic_in_slurm(hosts=listed, np=values["np"])


def _refuse(names: Iterable[str]) -> None:
    alone = [_FLAGS[name] for name in names]
    if alone:
        raise errors.only_elastic(options=alone)


def elastic_settings(values: Mapping[str, Any]) -> ElasticSettings:
    """Of a job for which `asks_for_elastic` holds. LaunchError says what is wrong, and what to do."""
    numbers = {name: _number(values, name) for name in _LOWEST}
    np = numbers["np"]
    if np is None:
        raise errors.elastic_no_np()
    if values.get("use_mpi"):
        raise errors.mpi_not_elastic(option="--mpi")
    if values.get("ddp"):
        raise errors.ddp_not_elastic()
    min_np, max_np = _sizes(np, numbers["min_np"], numbers["max_np"])
    script, blacklist = _script(values), values.get("blacklist") or SLOT
    if blacklist == HOST and numbers["max_worker_failures"] is not None:
        raise errors.failures_of_hosts()
    if numbers["slots_per_host"] is not None and not script:
        raise errors.slots_without_script()
    return ElasticSettings(
        np=np,
        min_np=min_np,
        max_np=max_np,
        script=script,
        fixed_hosts=() if script else _fixed_hosts(values, np, blacklist),
        slots_per_host=numbers["slots_per_host"] or 1,
        elastic_timeout=numbers["elastic_timeout"] or ELASTIC_TIMEOUT,
        reset_limit=numbers["reset_limit"],
        cooldown_range=_cooldown_range(values),
        restart=bool(values.get("elastic_restart")),
        blacklist=blacklist,
        max_worker_failures=numbers["max_worker_failures"] or MAX_WORKER_FAILURES,
    )


def _sizes(np: int, min_np: int | None, max_np: int | None) -> tuple[int, int | None]:
    """The lowest number of workers, and the highest."""
    if min_np is not None and min_np > np:
        raise errors.min_np_above(min_np=min_np, np=np)
    if max_np is not None and max_np < np:
        raise errors.max_np_below(max_np=max_np, np=np)
    return min_np or np, max_np


def _is_given(values: Mapping[str, Any], name: str) -> bool:
    return values.get(name) is not None


def _number(values: Mapping[str, Any], name: str) -> int | None:
    value = values.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < _LOWEST[name]:
        raise errors.no_whole_number(option=_FLAGS[name], value=value, lowest=_LOWEST[name])
    return value


def _script(values: Mapping[str, Any]) -> str:
    """The script, or "" without one."""
    script = values.get("host_discovery_script")
    if script is None:
        return ""
    if not isinstance(script, str) or not script.strip():
        raise errors.no_script(value=script)
    for name, flag in (("hosts", "--hosts"), ("hostfile", "--hostfile")):
        if _is_given(values, name):
            raise errors.hosts_exclude(options=[flag, "--host-discovery-script"])
    return script


def _fixed_hosts(values: Mapping[str, Any], np: int, blacklist: str) -> tuple[tuple[str, int], ...]:
    """With slots for the start, as no others will come. Without names it is this machine, with `np` slots."""
    text, file = values.get("hosts"), values.get("hostfile")
    if text is not None and file is not None:
        raise errors.hosts_exclude(options=["--hosts", "--hostfile"])
    hosts: list[host_lists.Host] = []
    if text is not None:
        hosts = host_lists.from_text(text)
    elif file is not None:
        hosts = host_lists.from_file(file)
    if len(hosts) < 2 and blacklist == HOST:
        raise errors.blacklist_one_host(host=hosts[0].name if hosts else "this one")
    hosts = hosts or host_lists.chosen(np, None, None)
    slots = sum(host.slots for host in hosts)
    if slots < np:
        raise errors.elastic_few_slots(np=np, slots=slots)
    return tuple((host.name, host.slots) for host in hosts)


def _cooldown_range(values: Mapping[str, Any]) -> tuple[int, int] | None:
    given = values.get("blacklist_cooldown_range")
    if given is None:
        return None
    try:
        lowest, highest = (int(str(number)) for number in given)
        checked_range((lowest, highest))
    except (TypeError, ValueError) as error:
        shown = " ".join(map(str, given)) if isinstance(given, list | tuple) else repr(given)
        option = "--blacklist-cooldown-range"
        raise errors.wrong_value(**facts_of(error, option=option, value=shown)) from None
    return lowest, highest
