"""Errors a user of any framework face may catch. The native core raises these by name.

Each states the failure and the remedy, also as fields: ``code``, ``facts``, ``tensor``, ``ranks``,
``values``, ``remedy`` (``horovod.common.sentences.Explained``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from horovod.common import notes
from horovod.common.sentences import Explained, causes

__all__ = [
    "CannotStart", "DeviceFailure", "Disagreement", "HorovodInternalError", "HorovodVersionMismatchError",
    "HostsUpdatedInterrupt", "LostRank", "NotInitialized", "NotServed", "ShutDown", "Stalled",
    "TensorChanged", "WrongArgument", "WrongSetting", "WrongType", "WrongUse", "get_version_mismatch_message",
]


class HorovodInternalError(Explained, RuntimeError):
    """A collective failed: ranks disagreed about it, a peer is gone, or the engine was shut down.

    After a disagreement the job continues and the next operation works; elastic training restores the last
    commit.
    """

    def __init__(
        self, *arguments: object, code: str = "", facts: Mapping[str, Any] | None = None, remedy: str = ""
    ) -> None:
        super().__init__(*arguments, code=code, facts=facts, remedy=remedy)
        if code and follows_others(self):  # before this rank perhaps ends because of it
            notes.tell_of_failure(str(self), self.ranks)


class Disagreement(HorovodInternalError):
    """Ranks request different operations under one name (``tensor``, ``values``).

    The job continues, unless some ranks have begun theirs.
    """


class LostRank(HorovodInternalError):
    """``ranks`` are silent. The job has ended."""


class Stalled(HorovodInternalError):
    """``ranks`` live, and have not requested the operation that others wait for."""


class ShutDown(HorovodInternalError):
    """A rank has left the job, so the engine carries out nothing more."""


class DeviceFailure(HorovodInternalError):
    """CUDA, NCCL or memory failed on ``ranks``."""


class TensorChanged(HorovodInternalError):
    """The memory of ``tensor`` was resized or replaced while an operation used it."""


class WrongArgument(Explained, ValueError):
    """A mistake of the caller, found before the engine sent anything."""


class NotInitialized(Explained, ValueError):
    """There is no job, and never was one."""


class WrongSetting(Explained, ValueError):
    """The value of a variable, flag or file is unusable: ``facts["setting"]``, ``facts["value"]``."""


class WrongType(Explained, TypeError):
    """An argument has an unusable type."""


class WrongUse(Explained, RuntimeError):
    """A call at a wrong time, such as a second step() before backward()."""


class CannotStart(Explained, ValueError):
    """The job could not be formed."""


class NotServed(Explained, NotImplementedError):
    """A feature that exists and is refused, for all ranks alike."""


_FOLLOWING = (LostRank, Stalled, ShutDown)
# Phrases of gloo, NCCL and the system, and of our errors after torch's futures have kept only their text.
_IN_OTHER_WORDS = re.compile(
    r"Connection (?:closed|reset) by|Broken pipe|remote process exited|\b(?:LostRank|Stalled|ShutDown): "
)


def _is_of(error: BaseException, kinds: tuple[type[Explained], ...]) -> bool:
    """Whether the error is of these classes, or passes on the facts of one that was."""
    passed_on = error.facts.get("cause_class") if isinstance(error, Explained) else None
    return isinstance(error, kinds) or passed_on in [kind.__name__ for kind in kinds]


def lost_ranks(error: BaseException | None) -> tuple[int, ...]:
    """The ranks that an error or one of its causes says are lost; sorted."""
    for each in causes(error):
        if isinstance(each, Explained) and _is_of(each, (LostRank,)):
            return tuple(sorted(set(each.ranks)))
    return ()


def follows_others(error: BaseException | None) -> bool:
    """Whether an error or one of its causes says that another rank is the cause."""
    is_ours = any(_is_of(each, _FOLLOWING) for each in causes(error))
    return is_ours or _IN_OTHER_WORDS.search(str(error)) is not None


class HostsUpdatedInterrupt(RuntimeError):
    """The set of hosts has changed during an elastic job; the state is kept.

    ``skip_sync`` is True when every change was a removal, so that the remaining ranks already agree.
    """

    def __init__(self, skip_sync: bool = False) -> None:
        super().__init__("hosts of the elastic job were updated")
        self.skip_sync = skip_sync


def get_version_mismatch_message(name: str, version: str, installed_version: str) -> str:
    """The message for an extension built against one version of ``name`` and run with another."""
    return (
        f"Horovod was built for {name} {version}, but {name} {installed_version} is installed. "
        f"Install {name} {version}, or reinstall Horovod."
    )


class HorovodVersionMismatchError(ImportError):
    """The installed version of a framework differs from the version used for the build."""

    def __init__(self, name: str, version: str, installed_version: str) -> None:
        super().__init__(get_version_mismatch_message(name, version, installed_version), name=name)
        self.version = version
        self.installed_version = installed_version
