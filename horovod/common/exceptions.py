"""Errors a user of any framework face may catch. The native core raises HorovodInternalError by this name."""

from __future__ import annotations

from horovod.common import notes

__all__ = [
    "HorovodInternalError", "HorovodVersionMismatchError", "HostsUpdatedInterrupt",
    "get_version_mismatch_message",
]


class HorovodInternalError(RuntimeError):
    """A collective failed: ranks disagreed about it, a peer is gone, or the engine was shut down.

    After a disagreement the job goes on and the next operation works; elastic training restores the last
    commit.
    """

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)
        notes.tell_of_failure(str(self))  # before this rank ends of it, perhaps


class HostsUpdatedInterrupt(RuntimeError):
    """The set of hosts has changed during an elastic job; the state is kept.

    ``skip_sync`` is True when every change was a removal, so that the remaining ranks already agree.
    """

    def __init__(self, skip_sync: bool = False) -> None:
        super().__init__("hosts of the elastic job were updated")
        self.skip_sync = skip_sync


def get_version_mismatch_message(name: str, version: str, installed_version: str) -> str:
    """Sentence for an extension built against one version of ``name`` and run with another."""
    return (
        f"Horovod was built for {name} {version}, but {name} {installed_version} is installed. "
        f"Install {name} {version}, or reinstall Horovod."
    )


class HorovodVersionMismatchError(ImportError):
    """The installed version of a framework is not the one that something was built for."""

    def __init__(self, name: str, version: str, installed_version: str) -> None:
        super().__init__(get_version_mismatch_message(name, version, installed_version), name=name)
        self.version = version
        self.installed_version = installed_version
