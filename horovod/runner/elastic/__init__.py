"""Elastic jobs: the hosts, the running workers, and the memberships. Only `discovery` starts a process."""
