"""Ranks of an mpirun that shall talk over TCP all the same: MPI serves to meet."""

from __future__ import annotations

from collections.abc import Sequence

from horovod import _native as native
from horovod.common.build_info import build_info
from horovod.common.launched import Launch
from horovod.common.mpi_here import mpi_here

__all__ = ["MpiRendezvous"]


class MpiRendezvous:
    """Joins MPI. ValueError where that fails."""

    name = "MPI"
    host = ""

    def __init__(self, settings: native.Settings, launch: Launch, ranks: Sequence[int]) -> None:
        libmpi = mpi_here(build_info().mpi).library_path()
        self._meeting = native.MpiMeeting(settings, libmpi, launch.size, launch.evidence, list(ranks))
        self.rank = self._meeting.rank
        self.size = self._meeting.size

    def allgather(self, topic: str, value: bytes) -> list[bytes]:
        """Every rank's value, by rank. Collective."""
        return self._meeting.gather(value)

    def done(self) -> None:
        """MPI keeps nothing."""
