"""Whether variables can be shown at all; imports little, as every process of horovodrun asks."""

from __future__ import annotations

import os
from collections.abc import Mapping

from horovod.common import errors

__all__ = ["refuse_what_is_no_text"]


def refuse_what_is_no_text(environment: Mapping[str, str]) -> None:
    """WrongSetting for a variable of ours whose bytes are not UTF-8: what quotes it could not be shown."""
    for name, value in environment.items():
        if name.startswith("HOROVOD_"):
            try:
                value.encode()
            except UnicodeEncodeError:
                raise errors.no_text(setting=name, value=os.fsencode(value)) from None
