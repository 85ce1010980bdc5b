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
    of_an_extra = requirement.marker is not None and "extra" in str(requirement.marker)
    marker = requirement.marker
    wanted = any(marker is not None and marker.evaluate({"extra": extra}) for extra in extras)
    if wanted if of_an_extra else "--always" in sys.argv:
        if of_an_extra:
            requirement.marker = None
        print(requirement)
