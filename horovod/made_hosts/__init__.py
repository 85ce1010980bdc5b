"""Hosts made of namespaces on one Linux machine, as root: a cluster for tests, measurements and learning.

    from horovod.made_hosts import MadeHosts

    with MadeHosts(2, rate="1gbit") as hosts:
        hosts.run("h1", ["horovodrun", "-np", "2", "-H", "h1,h2", "python", "train.py"])
        print(hosts.bytes("h1"))

    python -m horovod.made_hosts up 2 --rate 1gbit        # the same by hand; `--help` lists the rest

A host is a set of namespaces (network, UTS, PID, IPC, mount) with its own sshd. It sees the files, programs
and users of this machine, at the same paths. Each host has its own name, address, processes, shared memory,
folder for temporary files ($TMPDIR), /etc/hosts and ~/.ssh. All hosts are connected to one switch, by cables
whose rate can be limited. Hosts reach neither other networks nor other clusters.
"""

from horovod.made_hosts.cluster import MadeHosts
from horovod.made_hosts.errors import HostsError
from horovod.made_hosts.system import why_not

__all__ = ["HostsError", "MadeHosts", "why_not"]
