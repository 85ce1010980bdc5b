"""Elastic jobs whose processes are started again after a loss, instead of continuing: ``--elastic-restart``.

Commits are kept in their host's memory (host_memory.py). The driver of horovodrun ends and starts the
processes (runner/agents/restart_job.py) when workers report that they leave; torchrun's agents do so without
a report.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Mapping

from horovod.common import errors, host_memory
from horovod.common.agent_channel import agent_channel
from horovod.common.agent_messages import VARIABLE as AGENT
from horovod.common.options import BY_VARIABLE

LEAVES = 75  # exit code of a worker that is to be started again: EX_TEMPFAIL
_VARIABLE, _RUN_ID, _RESTARTS = "HOROVOD_ELASTIC_RESTART", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_MAX_RESTARTS"
_log = logging.getLogger("horovod")


class Restart(SystemExit):
    """Exit of this process, to be started again."""


def is_on(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether processes are started again, by horovodrun's agent, HOROVOD_ELASTIC_RESTART or torchrun."""
    if AGENT in environment:
        return host_memory.VARIABLE in environment
    if is_asked_for(environment):
        return bool(BY_VARIABLE[_VARIABLE].read(environment))
    allowed = environment.get(_RESTARTS, "") if _RUN_ID in environment else ""
    return allowed.isdecimal() and int(allowed) > 0


def is_asked_for(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether a user or launcher has set it on or off; otherwise is_on() guesses."""
    return AGENT in environment or bool(environment.get(_VARIABLE, "").strip())


def folder(environment: Mapping[str, str] = os.environ) -> str:
    """The folder of this host's commits. ValueError if no launcher here restarts processes."""
    if AGENT not in environment:
        return host_memory.checked(host_memory.of_torchrun(environment))
    path = environment.get(host_memory.VARIABLE, "")
    if not path:
        raise errors.agent_keeps_nothing(path=host_memory.ROOT)
    return host_memory.checked(path)


def place_on_host(environment: Mapping[str, str] = os.environ) -> tuple[int, int]:
    """This process' number among the processes that share the folder, and their number.

    The launcher counts them: to horovodrun, two names of one machine are hosts with separate folders.
    """
    channel = agent_channel(environment)
    if channel is not None and channel.place is not None:
        return channel.place.local_rank, channel.place.local_size
    return int(environment.get("LOCAL_RANK", "0")), int(environment.get("LOCAL_WORLD_SIZE", "1"))


def tell_of_none(why: str) -> None:
    """Warn that no commits are kept, for a job that did not request them."""
    _log.warning(
        "horovod: torchrun may start workers again, and they would begin anew: no commits are kept on this "
        "host, as %s. docs/elastic.md says what can be kept; HOROVOD_ELASTIC_RESTART=0 silences this.",
        why,
    )


def leave(why: str, commits: int, is_lost: bool) -> None:
    """End this process, so that it is started again. Returns if no agent is there to receive the report.

    Restart: the launcher has received the report. `commits`: made by this process; if repeatedly no process
    makes any, the job ends. `is_lost`: a rank was lost, or an operation failed; else hosts have changed.
    """
    channel = agent_channel(os.environ)
    if channel is None:
        return
    _log.warning("horovod: this process ends, and is started again: %s", why)
    with contextlib.suppress(ValueError):  # the agent is gone, and this process ends anyway
        channel.leaves(why, commits, is_lost)
    raise Restart(LEAVES)
