"""The environment of an experiment: the environment table of a report, as data.

environment = collect()                                  # this host
environment = collect(["-np", "2", "-H", "h1:1,h2:1"])   # as horovodrun would reach them
from_json(to_json(environment)) == environment
"""

from horovod.lab.environment.collecting import collect
from horovod.lab.environment.entries import Entry, Environment, from_json, to_json

__all__ = ["Entry", "Environment", "collect", "from_json", "to_json"]
