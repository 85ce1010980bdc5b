"""Prints the requirements of some of the installed package's extras, one a line.

Usage: requirements_of.py [--always] EXTRA... `--always` adds the package's own requirements. `pip install -e
.[extra]` would build the package again to read them.
"""

import sys
from importlib import metadata

from packaging.requirements import Requirement

extras = [word for word in sys.argv[1:] if word != "--always"]
for text in metadata.requires("horovod") or []:
    requirement = Requirement(text)
    marker = requirement.marker
    if marker is None or "extra" not in str(marker):
        if "--always" in sys.argv:
            print(requirement)
    elif any(marker.evaluate({"extra": extra}) for extra in extras):
        requirement.marker = None
        print(requirement)
