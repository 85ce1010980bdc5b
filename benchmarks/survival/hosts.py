"""Made hosts that may lose their power at any moment, without harm to the machine that they are made on."""

from __future__ import annotations

from pathlib import Path

from horovod.made_hosts import MadeHosts


def without_login_scripts(hosts: MadeHosts, *names: str) -> None:
    """Have logins on these hosts read no ~/.bashrc, until they are started again.

    Hosts share this machine's files. pyenv's line there takes a lock in the home at each login: a host that
    is cut just then leaves it, and all logins of this machine wait for it from then on.
    """
    script = Path.home() / ".bashrc"
    for name in names if script.exists() else ():
        hosts.run(name, ["mount", "--bind", "/dev/null", str(script)])
