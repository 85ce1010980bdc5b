"""A run: its options, and the results in its log."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from horovod.lab.load import Load

SERIAL = "serial"  # the algorithm of a run without Horovod; the others are named after their compression
THIS_HOST = "memory"  # the place of ranks of one host, which exchange data through its memory


@dataclass(frozen=True)
class Plan:
    """One run to do. Equal plans are the same run."""

    script: str  # path, as given
    ranks: int
    compression: str  # as in HOROVOD_COMPRESSION: "none", "bit8", "int4:error_feedback=1"
    seed: int
    epochs: int
    place: str = THIS_HOST  # THIS_HOST, hosts as "node1:2,node2:2", or made hosts as "2 hosts at 1gbit"
    arguments: tuple[str, ...] = ()  # further arguments of the script
    threads: int = 1  # of computation, for each rank
    digest: str = ""  # of the script and all other inputs of a run: plan.digest

    @property
    def algorithm(self) -> str:
        """A row's name in the results: "serial", or the compression."""
        return SERIAL if self.ranks == 1 else self.compression


@dataclass(frozen=True)
class Epoch:
    """The state after an epoch."""

    number: int  # from 1
    seconds: float  # of training since the beginning, without tests of the model
    train_loss: float  # mean over the epoch's steps of rank 0
    test_loss: float
    accuracy: float  # on the test data, 0 to 1


@dataclass(frozen=True)
class Trial:
    """Consecutive steps that the autotuner measured with the same settings."""

    first_step: int  # of the run, from 1
    last_step: int
    seconds: float  # of one step, on average
    is_incumbent: bool  # with the settings then in use, with which others were compared


@dataclass(frozen=True)
class Run:
    """A finished run, from its log. Times are rank 0's, in seconds."""

    plan: Plan
    folder: Path  # with the log, and the output of the ranks
    dataset: str
    step_seconds: tuple[float, ...]  # of all steps of all epochs, in order
    step_waits: tuple[float, ...]  # of these, the time that the training thread waited for other ranks
    step_losses: tuple[float, ...]
    epochs: tuple[Epoch, ...]
    bytes_sent: int  # by rank 0, for gradients, in the whole run; 0 when serial
    checksum: str  # SHA-256 of the parameters of rank 0
    identical: bool  # whether all ranks ended with the same parameters, bit for bit
    load: Load  # of other programs
    trials: tuple[Trial, ...] = ()  # of the autotuner, if there was one
    tuned: tuple[str, ...] = ()  # the settings that it changed, as "HOROVOD_CYCLE_TIME=2"

    @property
    def training_seconds(self) -> float:
        return sum(self.step_seconds)

    @property
    def accuracy(self) -> float:
        return self.epochs[-1].accuracy
