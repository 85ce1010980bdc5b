"""All error messages of horovod.made_hosts; horovod.common.sentences explains the format."""

from __future__ import annotations

from horovod.common.sentences import Explained


class HostsError(Explained, RuntimeError):
    """Hosts could not be made or changed; the message has the command and its output."""


class WrongHosts(HostsError):
    """The host or cluster does not exist, or the request is invalid."""


not_possible = HostsError.says("{why}")
no_name = WrongHosts.says("a name is made of letters and digits, not {got!r}")
no_such_count = WrongHosts.says("a cluster has 1 to {most} hosts, not {got}")
no_cluster = WrongHosts.says("there is no cluster named {got}")
no_host = WrongHosts.says("there is no host {got}", "there are {choices:listed}")
no_round_trip = WrongHosts.says('a round trip takes a time of up to 10 s as "20ms", or "none", not {got!r}')
not_installed = HostsError.says("{program} is not installed", "apt-get install {package}")
too_slow = HostsError.says("`{command}` took more than {limit:g} s")
failed = HostsError.says("`{command}` failed with exit code {exit_code}: {said}")
too_slow_on_host = HostsError.says("{words} on {host} took more than {limit:g} s: {said}")
not_started = HostsError.says("{host} did not start: {said}")
not_killed = HostsError.says("processes {processes} of {host} cannot be killed")
not_up = HostsError.says("{host} is not up")
