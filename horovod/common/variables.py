"""Checks of HOROVOD_* variables.

One with unprintable bytes is an error. An unknown one, probably mistyped, causes a warning with the name that
may be meant.
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
# Kubernetes sets such variables in every container for each service; one may be called horovod.
_OF_KUBERNETES = re.compile(r"_SERVICE_(HOST|PORT(_\w+)?)|_PORT(_\d+_(TCP|UDP)(_\w+)?)?")
_told: set[str] = set()


def unknown(environment: Mapping[str, str]) -> list[str]:
    """A sentence for each unknown HOROVOD_* variable that is set, with the one that may be meant.

    Omits values, which may be private: users' own variables may have this prefix too.
    """
    names = sorted(name for name in environment if name.startswith(_PREFIX))
    return [
        f"{name} is no variable of horovod and does nothing{did_you_mean(name, BY_VARIABLE)}"
        for name in names
        if name not in KNOWN and not name.startswith(BEGINNINGS) and not _OF_KUBERNETES.search(name)
    ]


def warn_of_unknown(environment: Mapping[str, str]) -> None:
    """Log these sentences, each once per process."""
    for sentence in unknown(environment):
        if sentence not in _told:
            _told.add(sentence)
            logging.getLogger("horovod").warning("horovod: %s (docs/configuration.md lists all).", sentence)


def refuse_what_is_no_text(environment: Mapping[str, str]) -> None:
    """WrongSetting for a HOROVOD_* variable that is not UTF-8: messages could not quote it."""
    for name, value in environment.items():
        if name.startswith(_PREFIX):
            try:
                value.encode()
            except UnicodeEncodeError:
                raise errors.no_text(setting=name, value=os.fsencode(value)) from None
