"""The autotuner's view of a training: its knobs, a model of its steps, and the key of the results."""

from __future__ import annotations

import hashlib
import os
import platform
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from horovod import _native as native
from horovod.common import networks, software
from horovod.common.compressors import COMPRESSION
from horovod.common.options import BETWEEN_HOSTS, BY_VARIABLE, CORE, OPTIONS, OVER_TCP, SHARED_HOSTS
from horovod.torch.compression import Rules
from horovod.tune.cache import Key
from horovod.tune.knobs import Configuration, Knob, Space
from horovod.tune.search import ALGORITHM, Gradients, predictor
from horovod.tune.tuner import Trained

AS_ASKED, NONE = "as asked", "none"  # values of the knob of compression
_ANSWER = 1e-4  # seconds until ranks have agreed, for the model


class Workload(NamedTuple):
    """The training, for the model of its steps and for the key of its results."""

    face: str  # "optimizer" or "ddp"
    name: str
    parameters: Sequence[torch.Tensor]
    compression: str
    knobs: Sequence[OwnKnob] = ()


class OwnKnob(NamedTuple):
    """A setting that is changed in Python: the knob, its value before tuning, and a setter.

    The setter is called on all ranks between the same two steps.
    """

    knob: Knob
    start: str
    apply: Callable[[str], None]


def own_knob(variable: str, apply: Callable[[str], None]) -> OwnKnob:
    """Return the knob of a row of the table of options."""
    option = BY_VARIABLE[variable]
    knob = Knob(variable, option.tries, option.default, option.help)
    return OwnKnob(knob, _as_text(option.read(os.environ)), apply)


def compression_knob(rules: Rules, apply: Callable[[str], None], is_allowed: bool = False) -> list[OwnKnob]:
    """Return the knob that turns compression off, if the user allows it and there is compression."""
    is_allowed = is_allowed or bool(BY_VARIABLE["HOROVOD_AUTOTUNE_COMPRESSION"].read(os.environ))
    if not is_allowed or not rules.compresses:
        return []
    knob = Knob(COMPRESSION, (AS_ASKED, NONE), AS_ASKED, "compression of gradients")
    return [OwnKnob(knob, AS_ASKED, apply)]


def weakly(method: Callable[[str], None]) -> Callable[[str], None]:
    """Return a function that calls ``method`` while its object lives, without keeping it alive."""
    reference = weakref.WeakMethod(method)

    def call(text: str) -> None:
        if (found := reference()) is not None:
            found(text)

    return call


class Watched:
    """Finds which parameters are trained, on rank 0, when it makes a decision and not in every step.

    A parameter counts as trained if it requires a gradient, even if a step does not use it.
    """

    _MOST = 16  # remembered sets, for scripts that freeze and unfreeze in turns

    def __init__(self, world: native.World) -> None:
        self._world = world
        self._known: dict[tuple[int, ...], Trained] = {}

    def now(self, workload: Workload) -> Trained:
        marks = tuple(id(parameter) for parameter in workload.parameters if parameter.requires_grad)
        if marks not in self._known:
            if len(self._known) == self._MOST:
                self._known.clear()
            self._known[marks] = _trained(self._world, workload)
        return self._known[marks]


def space_of(world: native.World, settings: native.Settings, workload: Workload) -> Space:
    """Return the knobs of a job, with the values that it was started with."""
    core = _knobs(world, workload)
    start = _start(settings, core) | {own.knob.name: own.start for own in workload.knobs}
    return Space([*core, *(own.knob for own in workload.knobs)], start)


def _trained(world: native.World, workload: Workload) -> Trained:
    sizes = tuple(parameter.numel() for parameter in workload.parameters if parameter.requires_grad)
    return Trained(_predictor(world, workload), _key(world, workload), sizes)


def _knobs(world: native.World, workload: Workload) -> list[Knob]:
    """Return the core's settings that can change while it runs, and matter in this job."""
    knobs = []
    facts = native.PlanFacts.of_world(world)
    facts.sums_can_travel = True  # as compression may be turned off
    facts.on_gpu = facts.has_nccl = facts.is_encoded = any(each.is_cuda for each in workload.parameters)
    matters = {
        "": True,
        BETWEEN_HOSTS: world.cross_size > 1,
        SHARED_HOSTS: 1 < world.cross_size < world.size,
        OVER_TCP: world.has_connections,
    }
    for option in OPTIONS:
        tries = option.tries if option.part == CORE and matters[option.tried] else ()
        if option.variable == ALGORITHM:
            tries = tuple(filter(facts.has_routes, tries))
        if len(tries) > 1:
            knobs.append(Knob(option.variable, tries, option.default, option.help))
    return knobs


def _start(settings: native.Settings, knobs: Sequence[Knob]) -> dict[str, str]:
    """Return the core's settings, by variable."""
    values = {knob.name: getattr(settings, BY_VARIABLE[knob.name].member) for knob in knobs}
    return {name: _as_text(value) for name, value in values.items()}


def _as_text(value: Any) -> str:
    """Return a setting as people write it: 1 and 2.5, not 1.0."""
    return str(int(value)) if isinstance(value, float) and value == int(value) else str(value)


def _predictor(world: native.World, workload: Workload) -> Callable[[Configuration], float]:
    sizes = [parameter.nbytes for parameter in reversed(list(workload.parameters)) if parameter.requires_grad]
    facts = native.PlanFacts.of_world(world)  # the model outlives the workload, and must not keep it alive
    facts.sums_can_travel = workload.compression == "none"

    def of_bucket(size: int, algorithm: str) -> float:
        facts.bytes = facts.wire_bytes = size
        plan = native.plan_allreduce(facts, algorithm, False, world.links)
        return min((seconds for route, seconds in plan.estimates if route == plan.route), default=0.0)

    wire = sum(of_bucket(size, "auto") for size in sizes)
    return predictor(Gradients(sizes, max(0.01, wire)), of_bucket, _ANSWER)


def _key(world: native.World, workload: Workload) -> Key:
    shapes = [
        f"{parameter.dtype!s}{list(parameter.shape)}{'' if parameter.requires_grad else ' frozen'}"
        for parameter in workload.parameters
    ]
    speeds = sorted({f"{speed} Mbit/s" for _, _, speed in networks.addresses() if speed})
    spread = "" if world.homogeneous else "unevenly "
    parts = [platform.machine(), _processor(), *_gpus(workload.parameters), *speeds]
    return Key(
        machine=", ".join(parts),
        model=hashlib.sha256("\n".join(shapes).encode()).hexdigest()[:16],
        model_name=workload.name,
        world=f"{world.size} on {world.cross_size} {spread}over {world.transport}",
        versions=f"{software.build_name()}, torch {torch.__version__}",
        face=f"{workload.face}, {workload.compression}",
    )


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{len(names)} x {names[0]}" if names else platform.processor()


def _gpus(parameters: Sequence[torch.Tensor]) -> list[str]:
    devices = {parameter.device for parameter in parameters if parameter.device.type == "cuda"}
    return sorted({torch.cuda.get_device_name(device) for device in devices})
