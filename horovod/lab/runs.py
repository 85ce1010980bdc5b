"""A run: its options, and the results in its log."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from horovod.lab.load import Load

SERIAL = "serial"  # the algorithm of a run without Horovod; all others are named by their compression
THIS_HOST = "memory"  # the place of ranks of one host, which exchange through its memory


@dataclass(frozen=True)
class Plan:
    """One run to do. Two plans are the same run exactly when they are equal."""

    script: str  # path, as given
    ranks: int
    compression: str  # as HOROVOD_COMPRESSION takes it: "none", "bit8", "int4:error_feedback=1"
    seed: int
    epochs: int
    place: str = THIS_HOST  # THIS_HOST, hosts as "node1:2,node2:2", or made hosts as "2 hosts at 1gbit"
    arguments: tuple[str, ...] = ()  # further ones of the script
    threads: int = 1  # that each rank computes with
    digest: str = ""  # of the script and all else that decides a run: horovod/lab/digest.py

    @property
    def algorithm(self) -> str:
        """A row's name in the results: "serial", or the compression."""
        return SERIAL if self.ranks == 1 else self.compression


@dataclass(frozen=True)
class Epoch:
    """The state after an epoch."""

    number: int  # from 1
    seconds: float  # of training from the beginning to here, tests of the model left out
    train_loss: float  # mean over the epoch's steps of rank 0
    test_loss: float
    accuracy: float  # on the test data, 0 to 1


@dataclass(frozen=True)
class Trial:
    """Steps in a row that the autotuner measured with the same settings."""

    first_step: int  # of the run, from 1
    last_step: int
    seconds: float  # of one of them, on average
    is_incumbent: bool  # with what the run went on with, beside which others were tried


@dataclass(frozen=True)
class Run:
    """A finished run, as its log has it. Times are rank 0's, in seconds."""

    plan: Plan
    folder: Path  # with the log, and everything the ranks printed
    dataset: str
    step_seconds: tuple[float, ...]  # of all steps of all epochs, in order
    step_waits: tuple[float, ...]  # of these: how long the training thread waited for the other ranks
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
