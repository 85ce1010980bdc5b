"""Prints the requirements of one of the installed package's extras, one a line.

Usage: requirements_of.py EXTRA. `pip install -e .[extra]` would build the package again to read them.
"""

import sys
from importlib import metadata

from packaging.requirements import Requirement

for text in metadata.requires("horovod") or []:
    requirement = Requirement(text)
    if requirement.marker is not None and requirement.marker.evaluate({"extra": sys.argv[1]}):
        requirement.marker = None
        print(requirement)
