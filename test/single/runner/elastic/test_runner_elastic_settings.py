"""Combinations of the options of elastic jobs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from refusals import refused

from horovod.runner import errors
from horovod.runner import settings as all_settings
from horovod.runner.elastic.settings import (
    HOST,
    MAX_WORKER_FAILURES,
    SLOT,
    asks_for_elastic,
    elastic_settings,
    refuse_alone,
    refuse_other_hosts,
)
from horovod.runner.errors import LaunchError

SCRIPT = {"np": 4, "host_discovery_script": "./hosts.sh"}
HOSTS = {"np": 3, "min_np": 2, "hosts": "a:2,b:2"}
OF_SCRIPT = "--host-discovery-script"
COOLDOWN, OF_COOLDOWN = "blacklist_cooldown_range", "--blacklist-cooldown-range"


def test_defaults_with_a_script() -> None:
    settings = elastic_settings(SCRIPT)
    limits = settings.limits
    assert (limits.np, limits.min_np, limits.max_np) == (4, 4, None)
    assert (limits.elastic_timeout, limits.reset_limit, limits.cooldown_range) == (600, None, None)
    assert limits.hosts_may_come and (settings.script, settings.slots_per_host) == ("./hosts.sh", 1)
    assert (limits.blacklist, limits.max_worker_failures) == (SLOT, MAX_WORKER_FAILURES)


def test_all_that_can_be_said() -> None:
    more: dict[str, Any] = {"min_np": 2, "max_np": 8, "slots_per_host": 2, "elastic_timeout": 60}
    more |= {"reset_limit": 0, "blacklist_cooldown_range": [10, 100]}
    settings = elastic_settings({**SCRIPT, "host_discovery_script": "echo a", **more})
    assert (settings.script, settings.slots_per_host) == ("echo a", 2)
    limits = settings.limits
    assert (limits.np, limits.min_np, limits.max_np, limits.reset_limit) == (4, 2, 8, 0)
    assert (limits.elastic_timeout, limits.cooldown_range) == (60, (10, 100))
    assert elastic_settings({**SCRIPT, "max_worker_failures": 3}).limits.max_worker_failures == 3
    assert elastic_settings({**HOSTS, "blacklist": "host"}).limits.blacklist == HOST


@pytest.mark.parametrize(
    ("hosts", "found"), [({}, ("localhost", 3)), ({"hosts": "a:4"}, ("a", 4)), ({"hosts": "a:3"}, ("a", 3))]
)
def test_one_host_is_enough(hosts: dict[str, str], found: tuple[str, int]) -> None:
    settings = elastic_settings({"np": 3, "min_np": 2, "max_np": 8, **hosts})
    assert settings.fixed_hosts == (found,) and not settings.limits.hosts_may_come


def test_a_batch_job_of_several_hosts_has_to_name_them() -> None:
    environment = {"SLURM_JOB_ID": "1", "SLURM_JOB_NODELIST": "n[1-2]", "SLURM_TASKS_PER_NODE": "2(x2)"}
    values = {"np": 2, "min_np": 1}
    with refused(errors.elastic_in_batch_job, scheduler="Slurm", hosts="n1:2,n2:2", np=2):
        refuse_other_hosts(values, environment)
    refuse_other_hosts({**values, "hosts": "localhost:2"}, environment)
    refuse_other_hosts(values, {**environment, "SLURM_JOB_NODELIST": "n1", "SLURM_TASKS_PER_NODE": "2"})
    refuse_other_hosts(values, {})


@pytest.mark.parametrize(
    ("name", "said", "typed"), [("blacklist", "host", "slot"), ("max_worker_failures", 3, 4)]
)
def test_rules_for_deaths_may_come_from_a_variable(name: str, said: object, typed: object) -> None:
    environment = {f"HOROVOD_ELASTIC_{name.upper()}": str(said)}
    for given, expected in (({}, said), ({name: typed}, typed)):
        values = all_settings.merged({"np": 2, **given}, {}, environment)
        assert values[name] == expected and not asks_for_elastic(values)


def test_fixed_hosts(tmp_path: Path) -> None:
    settings = elastic_settings(HOSTS)
    assert settings.fixed_hosts == (("a", 2), ("b", 2))
    assert not settings.limits.hosts_may_come
    file = tmp_path / "hosts"
    file.write_text("b slots=2\na slots=1\n")
    same = elastic_settings({"np": 3, "min_np": 1, "hostfile": str(file)})
    assert same.fixed_hosts == (("b", 2), ("a", 1))


def test_which_jobs_are_elastic() -> None:
    assert asks_for_elastic(SCRIPT) and asks_for_elastic({"np": 2, "min_np": 1})
    assert not asks_for_elastic({"np": 2, "elastic_timeout": 600, "max_np": None})


@pytest.mark.parametrize(
    ("given", "file", "restarts"),
    [
        ({"np": 2}, {}, None),  # the variable may be for torchrun
        ({"np": 2, "launcher": "mpi", "hosts": "localhost:2"}, {}, None),
        ({"np": 2, "min_np": 1}, {}, True),
        ({"np": 2}, {"min_np": 1}, True),
        ({"np": 2, "host_discovery_script": "x"}, {}, True),
        ({"np": 2, "elastic_restart": True}, {}, True),
        ({"np": 2}, {"elastic_restart": True}, True),
        ({"np": 2, "min_np": 1}, {"elastic_restart": False}, False),
    ],
)
def test_a_variable_of_the_shell_makes_no_job_elastic(
    given: dict[str, Any], file: dict[str, Any], restarts: bool | None
) -> None:
    values = all_settings.merged(given, file, {"HOROVOD_ELASTIC_RESTART": "1"})
    assert values.get("elastic_restart") == restarts
    assert asks_for_elastic(values) == (restarts is not None)


@pytest.mark.parametrize(
    ("values", "options"),
    [
        ({"np": 2, "max_np": 4}, ["--max-np"]),
        ({"np": 2, "reset_limit": 4, "slots_per_host": 1}, ["--slots-per-host", "--reset-limit"]),
        ({"blacklist_cooldown_range": [1, 2]}, ["--blacklist-cooldown-range"]),
    ],
)
def test_options_of_elastic_jobs_alone_are_refused(values: dict[str, Any], options: list[str]) -> None:
    with refused(errors.only_elastic, options=options):
        asks_for_elastic(values)


def test_flags_of_elastic_jobs_without_one_are_refused() -> None:
    given = {"elastic_timeout": 9, "reset_limit": 1, "blacklist": "host"}
    with refused(errors.only_elastic, options=["--reset-limit", "--elastic-timeout", "--blacklist"]):
        refuse_alone(given, {**given, "np": 2})
    refuse_alone({}, {"np": 2, "elastic_timeout": 600})  # the default, or of HOROVOD_ELASTIC_TIMEOUT
    refuse_alone(given, {**given, "np": 2, "min_np": 1})
    refuse_alone(given, {**given, **SCRIPT})


@pytest.mark.parametrize(
    ("values", "code", "facts"),
    [
        ({"min_np": 2}, "elastic_no_np", {}),
        ({**SCRIPT, "min_np": 5}, "min_np_above", {"min_np": 5, "np": 4}),
        ({**SCRIPT, "max_np": 3}, "max_np_below", {"max_np": 3, "np": 4}),
        ({**SCRIPT, "use_mpi": True}, "mpi_not_elastic", {"option": "--mpi"}),
        ({**SCRIPT, "ddp": True}, "ddp_not_elastic", {}),
        ({**SCRIPT, "hosts": "a,b"}, "hosts_exclude", {"options": ["--hosts", OF_SCRIPT]}),
        ({**SCRIPT, "hostfile": "x"}, "hosts_exclude", {"options": ["--hostfile", OF_SCRIPT]}),
        ({**SCRIPT, "host_discovery_script": " "}, "no_script", {"value": " "}),
        ({**SCRIPT, COOLDOWN: [5, 4]}, "wrong_value", {"option": OF_COOLDOWN, "value": "5 4"}),
        ({**SCRIPT, COOLDOWN: [1, 2, 3]}, "wrong_value", {"option": OF_COOLDOWN, "value": "1 2 3"}),
        ({**SCRIPT, COOLDOWN: 7}, "wrong_value", {"option": OF_COOLDOWN, "value": "7"}),
        ({**HOSTS, "hosts": "a:4", "blacklist": "host"}, "blacklist_one_host", {"host": "a"}),
        ({"np": 2, "min_np": 1, "blacklist": "host"}, "blacklist_one_host", {"host": "this one"}),
        ({**HOSTS, "blacklist": "host", "max_worker_failures": 2}, "failures_of_hosts", {}),
        ({**HOSTS, "np": 5}, "elastic_few_slots", {"np": 5, "slots": 4}),
        ({**HOSTS, "hostfile": "x"}, "hosts_exclude", {"options": ["--hosts", "--hostfile"]}),
        ({**HOSTS, "slots_per_host": 2}, "slots_without_script", {}),
        ({**HOSTS, "hosts": "a:x,b"}, "host_slots", {"host": "a"}),
    ],
)
def test_what_is_refused(values: dict[str, Any], code: str, facts: dict[str, Any]) -> None:
    with refused(LaunchError, code, **facts):
        elastic_settings(values)
