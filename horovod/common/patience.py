"""Tells a script that ranks disagree about, again and again, from ranks that were lost."""

from __future__ import annotations

import os
from typing import Any

from horovod.common.exceptions import HorovodInternalError, Stalled, follows_others, lost_ranks

__all__ = ["MOST_REFUSALS", "Patience", "is_scripts_own"]

_PACKAGE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "")
MOST_REFUSALS = 3  # in a row, of which none has come any further: then it is the script


class Patience:
    """How often the function of elastic training was refused something, and came no further. That a rank does
    not ask for what others wait for is one more way to disagree.

    Each attempt begins at a commit, and may make that one again on its way to what is refused. So a replay is
    told by how many commits it makes: none or that one, or as many as the attempt before, give or take one
    where the clock says when to commit. What is refused may differ, as where shapes are random.

    All ranks hear of a refusal, at the same commit, and so decide alike.
    """

    def __init__(self) -> None:
        self._count = 0  # of refusals
        self._made = 0  # commits, by the attempt before
        self._begun = 0

    def begin(self, state: Any) -> None:
        """An attempt begins."""
        self._begun = _commits_of(state)

    def is_over(self, error: Exception, state: Any) -> bool:
        """Whether an attempt ends by the third refusal in a row, and made no progress."""
        if lost_ranks(error):
            self._count = 0
            return False
        if follows_others(error) and not isinstance(error, Stalled):
            return False  # one has left, perhaps for the same refusal
        made, before = _commits_of(state) - self._begun, self._made
        is_replay = made <= 1 or abs(made - before) <= 1
        self._count = self._count + 1 if is_replay else 1
        self._made = made
        return self._count >= MOST_REFUSALS


def is_scripts_own(error: BaseException) -> bool:
    """Whether an error was raised by code of the script, and passes on none of ours."""
    before = error.__cause__ or error.__context__
    if isinstance(before, HorovodInternalError):
        return is_scripts_own(before)
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    return at is not None and not at.tb_frame.f_code.co_filename.startswith(_PACKAGE)


def _commits_of(state: Any) -> int:
    """How many the function has made; 0 for a state that does not count them."""
    saves = getattr(state, "_saves", 0)
    return saves if type(saves) is int else 0
