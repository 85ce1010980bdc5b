"""Commands for made hosts: python -m horovod.made_hosts up 2 --rate 1gbit."""

from __future__ import annotations

import argparse
import os
import sys

from horovod.made_hosts.cluster import MadeHosts
from horovod.made_hosts.errors import HostsError

EXAMPLES = """\
  python -m horovod.made_hosts up 2 --rate 1gbit
  python -m horovod.made_hosts exec h1 horovodrun -np 2 -H h1,h2 python train.py
  python -m horovod.made_hosts bytes h1
  python -m horovod.made_hosts down
"""
ON_A_HOST = {
    "kill": "end all processes of a host; its connections are closed",
    "cut": "cut a host's power: its peers hear nothing",
    "unlink": "pull out a host's network cable",
    "link": "put it in again",
    "boot": "start a host that was killed or cut",
    "bytes": "bytes that a host has received and sent",
}


def parser() -> argparse.ArgumentParser:
    whole = argparse.ArgumentParser(
        prog="python -m horovod.made_hosts",
        description="Hosts on this machine, made of namespaces, with ssh between them. Needs root.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    whole.add_argument("--name", default="hosts", help="of the cluster, where there are several")
    actions = whole.add_subparsers(dest="action", required=True, metavar="ACTION")
    up = actions.add_parser("up", help="make h1, h2, ..., or make them anew")
    up.add_argument("count", type=int, help="how many hosts")
    up.add_argument("--rate", default="none", help="limit of each cable and direction, as 1gbit or 100mbit")
    up.add_argument("--rtt", default="none", help="of a round trip, as 20ms; for rates up to 200mbit")
    actions.add_parser("down", help="end all their processes and remove them")
    actions.add_parser("status", help="addresses, and who is up")
    execute = actions.add_parser("exec", help="run a command on a host")
    execute.add_argument("host")
    execute.add_argument("words", nargs=argparse.REMAINDER, metavar="COMMAND")
    for action, meaning in ON_A_HOST.items():
        actions.add_parser(action, help=meaning).add_argument("host")
    rate = actions.add_parser("rate", help="limit all cables anew")
    rate.add_argument("rate", help='as "1gbit", or "none"')
    return whole


def main(words: list[str]) -> int:
    chosen = parser().parse_args(words)
    try:
        if chosen.action == "up":
            MadeHosts(chosen.count, rate=chosen.rate, rtt=chosen.rtt, name=chosen.name, keep=True).up()
            return 0
        if chosen.action == "down":  # works without a cluster too
            MadeHosts(1, name=chosen.name).down()
            return 0
        hosts = MadeHosts.open(chosen.name)
        if chosen.action == "exec":
            command = hosts.command(chosen.host, chosen.words or ["bash"])
            os.execv(command[0], command)
        elif chosen.action == "status":
            print("\n".join(f"{host} {state}" for host, state in hosts.status().items()))
            if hosts.rtt != "none":
                print(f"switch: round trips of {hosts.rtt}, {hosts.switch_seconds():.1f} s of processor")
        elif chosen.action == "rate":
            hosts.rate(chosen.rate)
        elif chosen.action == "bytes":
            print(*hosts.bytes(chosen.host))
        else:
            getattr(hosts, chosen.action)(chosen.host)
    except HostsError as error:
        print(f"made_hosts: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
