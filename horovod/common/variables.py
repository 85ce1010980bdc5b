"""Variables HOROVOD_* as they are found: one that cannot be shown is refused, and one that means nothing to
anybody was mistyped: it is told of, with what may be meant.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping

from horovod.common import errors
from horovod.common.names import did_you_mean
from horovod.common.options import BY_VARIABLE
from horovod.common.options.other_variables import BEGINNINGS, OTHER_VARIABLES

__all__ = ["KNOWN", "refuse_what_is_no_text", "unknown", "warn_of_unknown"]

_PREFIX = "HOROVOD_"

KNOWN = frozenset(BY_VARIABLE) | OTHER_VARIABLES
# Kubernetes gives every container such variables about a service; one may be called horovod.
_OF_KUBERNETES = re.compile(r"_SERVICE_(HOST|PORT(_\w+)?)|_PORT(_\d+_(TCP|UDP)(_\w+)?)?")
_told: set[str] = set()


def unknown(environment: Mapping[str, str]) -> list[str]:
    """A sentence for each variable HOROVOD_* that is set and means nothing, with the one that may be meant.

    Not its value, which may be nobody's business: variables of the user's own may have this prefix too.
    """
    names = sorted(name for name in environment if name.startswith(_PREFIX))
    return [
        f"{name} is no variable of horovod and does nothing{did_you_mean(name, BY_VARIABLE)}"
        for name in names
        if name not in KNOWN and not name.startswith(BEGINNINGS) and not _OF_KUBERNETES.search(name)
    ]


def warn_of_unknown(environment: Mapping[str, str]) -> None:
    """Log these sentences, each once in the life of a process."""
    for sentence in unknown(environment):
        if sentence not in _told:
            _told.add(sentence)
            logging.getLogger("horovod").warning("horovod: %s (docs/configuration.md lists all).", sentence)


def refuse_what_is_no_text(environment: Mapping[str, str]) -> None:
    """WrongSetting for a variable of ours whose bytes are not UTF-8: what quotes it could not be shown."""
    for name, value in environment.items():
        if name.startswith(_PREFIX):
            try:
                value.encode()
            except UnicodeEncodeError:
                raise errors.no_text(setting=name, value=os.fsencode(value)) from None
