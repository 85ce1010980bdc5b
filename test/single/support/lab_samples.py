"""Simulated finished runs of the lab, as input for tests of the report.

Curves resemble those of MNIST. Numbers depend on the plan only: every call gives the same runs.
"""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from horovod.lab.environment import Entry, Environment, hardware, torch_version
from horovod.lab.load import Load
from horovod.lab.runs import THIS_HOST, Epoch, Plan, Run
from horovod.topology.facts import Host, Nic, Socket
from horovod.topology.language import LANGUAGES

SCRIPT = "examples/pytorch_mnist_compress.py"
MADE_HOSTS = "2 hosts at 1gbit"
PARAMETERS = 1_199_882
IMAGES = 60_000
BITS = {"none": 32.0, "bit16": 16.0, "bit8": 8.0625, "int8": 8.25, "int4": 4.25}
MODELLED_STEPS = 470  # per epoch of one rank, with batches of 128


def plan(compression: str, ranks: int, seed: int = 1, place: str = THIS_HOST, epochs: int = 1) -> Plan:
    return Plan(SCRIPT, ranks, compression, seed, epochs, place)


def run_of(asked: Plan, folder: Path, steps: int = MODELLED_STEPS) -> Run:
    """The finished run of a plan. One rank takes `steps` steps per epoch, N ranks take `steps` / N."""
    draws = random.Random(repr(asked))
    of_epoch = max(1, steps // asked.ranks)
    name = asked.compression.split(":")[0]
    sent = 0 if asked.ranks == 1 else PARAMETERS * BITS[name] / 8 * 2 * (asked.ranks - 1) / asked.ranks
    link = 1e9 / 8 if asked.place != THIS_HOST else 4e9
    coding = 0.0 if name in ("none", "bit16") else 0.0012
    wait = 0.0 if asked.ranks == 1 else 0.0008 + sent / link + coding
    compute = 0.030 * max(1.0, asked.ranks / 2)
    waits = [wait * (1 + 0.1 * abs(draws.gauss(0, 1))) for _ in range(of_epoch * asked.epochs)]
    seconds = [compute * (1 + 0.05 * abs(draws.gauss(0, 1))) + waited for waited in waits]
    losses = [curve(step, asked.ranks) * (1 + 0.1 * draws.gauss(0, 1)) for step in range(len(seconds))]
    epochs = []
    for number in range(1, asked.epochs + 1):
        done = number * of_epoch
        last = losses[done - of_epoch : done]
        accuracy = 0.9855 - 0.11 * curve(done, asked.ranks) + 0.001 * draws.gauss(0, 1)
        epochs.append(
            Epoch(number, sum(seconds[:done]), sum(last) / of_epoch, curve(done, asked.ranks), accuracy)
        )
    checksum = hashlib.sha256(repr(asked).encode()).hexdigest()
    return Run(
        plan=asked,
        folder=folder / run_name(asked),
        dataset="mnist",
        step_seconds=tuple(seconds),
        step_waits=tuple(waits),
        step_losses=tuple(losses),
        epochs=tuple(epochs),
        bytes_sent=round(sent) * len(seconds),
        checksum=checksum,
        identical=True,
        load=Load(0.0, 0.01, 0.0),
    )


def curve(step: int, ranks: int) -> float:
    """A loss that falls from 2.3, slightly faster with more ranks, as they see more images per step."""
    return 0.06 + 2.24 * math.exp(-step * ranks**0.7 / 60)


def run_name(asked: Plan) -> str:
    kind = asked.algorithm if asked.ranks == 1 else f"np{asked.ranks}-{asked.compression}"
    place = [] if asked.place == THIS_HOST else [asked.place.replace(" ", "_")]
    return "-".join([kind, f"seed{asked.seed}", *place])


def sample_runs(
    folder: Path,
    compressions: Sequence[str] = ("none", "bit16", "bit8"),
    ranks: Sequence[int] = (1, 2, 4),
    seeds: int = 1,
    places: Sequence[str] = (THIS_HOST,),
    epochs: int = 1,
) -> list[Run]:
    """Each combination once, the serial one only on this host; their folders are below `folder`/runs."""
    plans = [plan("none", 1, seed, epochs=epochs) for seed in range(1, seeds + 1) if 1 in ranks]
    plans += [
        plan(compression, number, seed, place, epochs)
        for place in places
        for number in ranks
        if number > 1
        for compression in compressions
        for seed in range(1, seeds + 1)
    ]
    return [run_of(asked, folder / "runs") for asked in plans]


def with_plan(run: Run, **changes: object) -> Run:
    """The run with a different plan."""
    return replace(run, plan=replace(run.plan, **changes))  # type: ignore[arg-type]


def diverged(run: Run, share: float) -> Run:
    """The run with losses that become infinite, then NaN, after this share of its steps."""
    steps = len(run.step_losses)
    whole = round(share * steps)
    bad = [math.inf] + [math.nan] * (steps - whole - 1)
    epochs = tuple(
        replace(epoch, train_loss=math.nan, test_loss=math.inf)
        if epoch.number > share * run.plan.epochs
        else epoch
        for epoch in run.epochs
    )
    return replace(run, step_losses=(*run.step_losses[:whole], *bad), epochs=epochs)


def sample_host(name: str = "lab-pc", cores: int = 2) -> Host:
    return Host(
        name=name,
        sockets=(Socket(0, "AMD EPYC 7B13", cores, cores, 24 * 2**30),),
        memory_bytes=24 * 2**30,
        usable_cores=cores,
        nics=(Nic("eth0", "Virtio network device", "virtio_net", None, ("10.0.0.4/24",), 0),),
    )


def sample_environment(*hosts: Host, language: str = "en") -> Environment:
    cores = hardware((hosts or (sample_host(),))[0], LANGUAGES[language])["cores"]
    entries = (
        Entry("hardware", "servers", "1 (lab-pc)"),
        Entry("hardware", "cpu", "AMD EPYC 7B13"),
        Entry("hardware", "cores", cores),
        Entry("hardware", "memory", "24.0 GiB"),
        Entry("hardware", "nic", "eth0: Virtio network device"),
        Entry("hardware", "nic_speed", None),
        Entry("hardware", "gpu", None),
        Entry("hardware", "gpu_number", None),
        Entry("hardware", "gpu_connection", None),
        Entry("software", "os", "Debian GNU/Linux 12 (bookworm)"),
        Entry("software", "kernel", "Linux 6.1.0-18-cloud-amd64"),
        Entry("software", "nic_driver", "virtio_net"),
        Entry("software", "gpu_driver", None),
        Entry("software", "python", "3.11.7"),
        Entry("software", "pytorch", torch_version("2.13.0+cpu", "", LANGUAGES[language])),
        Entry("software", "numpy", "2.3.5"),
        Entry("software", "horovod", "0.5.0"),
        Entry("software", "cuda", None),
        Entry("software", "mpi", "Open MPI 5.0.8"),
        Entry("software", "nccl", None),
    )
    return Environment(hosts or (sample_host(),), entries)
