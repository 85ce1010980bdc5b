"""What horovodrun tells the driver on its command line: nothing that is secret, for everybody reads that."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from horovod.runner.hosts import is_local
from horovod.runner.shell import Shell, Srun, Ssh

if TYPE_CHECKING:
    from horovod.runner.elastic.settings import ElasticSettings

__all__ = ["Plan", "agent_words"]

_HERE = os.path.dirname(os.path.abspath(__file__))
_DRIVER, _AGENT = os.path.join(_HERE, "driver.py"), os.path.join(_HERE, "agent.py")
_KINDS: dict[str, type[Shell]] = {"ssh": Ssh, "srun": Srun}


@dataclass(frozen=True)
class Plan:
    """`hosts`: names and slots, in the order in which ranks fill them; `here`: those that are this machine.

    `shell` reaches the others. `nonce`: of the cells (see `cells`). `elastic`: of a job whose hosts come and
    go; `hosts` are those of its beginning, and each name is a host of its own; `failed` are others, which
    cannot take part.
    """

    hosts: tuple[tuple[str, int], ...]
    here: tuple[str, ...]
    shell: Shell | None
    nonce: str
    elastic: ElasticSettings | None = None
    failed: tuple[str, ...] = ()

    def is_here(self, host: str) -> bool:
        """Whether a host is this machine."""
        return host in self.here or (self.elastic is not None and is_local(host))

    def words(self, command: Sequence[str]) -> list[str]:
        """The command line of the driver of a job whose ranks run `command`."""
        told: dict[str, Any] = {"hosts": self.hosts, "here": self.here, "nonce": self.nonce, "shell": None}
        if self.shell is not None:
            kind = next(name for name, kind in _KINDS.items() if isinstance(self.shell, kind))
            told["shell"] = [kind, self.shell.port, self.shell.identity_file]
        if self.elastic is not None:
            told |= {"elastic": dataclasses.asdict(self.elastic), "failed": self.failed}
        return [sys.executable, "-I", "-S", _DRIVER, json.dumps(told), *command]

    @classmethod
    def of(cls, text: str) -> Plan:
        told = json.loads(text)
        kind, *arguments = told["shell"] or ("",)
        shell = _KINDS[kind](*arguments) if kind else None
        hosts = tuple((name, slots) for name, slots in told["hosts"])
        elastic, failed = None, tuple(told.get("failed", ()))
        if "elastic" in told:  # other jobs do not wait for this to load
            from horovod.runner.elastic.settings import ElasticSettings

            elastic = ElasticSettings.of(told["elastic"])
        return cls(hosts, tuple(told["here"]), shell, told["nonce"], elastic, failed)


def agent_words(plan: Plan, host: str) -> list[str]:
    """How an agent is started on a host, in a process whose standard streams are the agent's."""
    words = [sys.executable, "-I", "-S", _AGENT]
    here = os.uname().nodename
    if plan.shell is None or plan.is_here(host) or host in ("localhost", here, here.partition(".")[0]):
        return words
    return plan.shell.command(host, [*words, "ssh"] if isinstance(plan.shell, Ssh) else words)
