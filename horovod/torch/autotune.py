"""The tuning of this rank's job: what horovod.tune has to know of it, and the end of each step.

A DistributedOptimizer and a model under ``ddp.compress`` say when a step has ended. The first of a job that
does is what steps are counted by; others, as the second optimizer of a GAN, change nothing. All of it is
off without HOROVOD_AUTOTUNE=1.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import platform
import statistics
import sys
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from horovod import _native as native
from horovod.common import interfaces, jobs, software, waiting
from horovod.common.basics import basics
from horovod.common.exceptions import HorovodInternalError
from horovod.common.membership import Membership
from horovod.common.options import BY_VARIABLE, CORE, OPTIONS
from horovod.common.process_sets import global_process_set
from horovod.common.variable_names import COMPRESSION
from horovod.torch.compression import NoneCompressor, Rules, compressor_name
from horovod.tune.cache import Cache, Key
from horovod.tune.decision import Decision
from horovod.tune.knobs import Configuration, Knob, Space
from horovod.tune.predicted import ALGORITHM, Gradients, predictor
from horovod.tune.report import as_data, table
from horovod.tune.scores import shares_of
from horovod.tune.tuner import Agreement, Director, Plan, Tuner

__all__ = ["Tuning", "Workload", "step_ended", "tuning"]

AS_ASKED, NONE = "as asked", "none"  # of the knob of compression
CONNECTIONS, CARRIERS = "HOROVOD_TCP_CONNECTIONS", "HOROVOD_CARRIERS"
BETWEEN_HOSTS = (CARRIERS, "HOROVOD_MESSAGE_KB", "HOROVOD_STEPS_UNDER_WAY")
_OPERATION = "horovod.tune"
LAUNCH_STEPS = "HOROVOD_TUNE_LAUNCH_STEPS"
_ANSWER = 1e-4  # seconds until ranks have agreed, for the model


class Workload(NamedTuple):
    """What is trained, for the model and for the key of what is found."""

    face: str  # "optimizer" or "ddp"
    name: str
    parameters: Sequence[torch.Tensor]
    compression: str
    knobs: Sequence[OwnKnob] = ()


class OwnKnob(NamedTuple):
    """A setting that is changed in Python, and what changes it: on all ranks between the same two steps."""

    knob: Knob
    apply: Callable[[str], None]


def own_knob(variable: str, apply: Callable[[str], None]) -> OwnKnob:
    """Of a row of the table of options."""
    option = BY_VARIABLE[variable]
    return OwnKnob(Knob(variable, option.tries, option.default, option.help), apply)


def compression_knob(rules: Rules, apply: Callable[[str], None], is_allowed: bool = False) -> list[OwnKnob]:
    """Compression on or off, where the user has allowed the latter, and there is one."""
    is_allowed = is_allowed or bool(_read("HOROVOD_AUTOTUNE_COMPRESSION"))
    named = [
        compressor_name(compressor) for compressor in rules.compressors if compressor is not NoneCompressor
    ]
    if not is_allowed or not named:
        return []
    knob = Knob(COMPRESSION, (AS_ASKED, NONE), AS_ASKED, "compression of gradients")
    return [OwnKnob(knob, apply)]


def weakly(method: Callable[[str], None]) -> Callable[[str], None]:
    """Calls it for as long as its object is there: who tunes keeps no model alive."""
    reference = weakref.WeakMethod(method)

    def call(text: str) -> None:
        if (found := reference()) is not None:
            found(text)

    return call


def is_on() -> bool:
    """As ranks of this job have found alike when they met."""
    return basics.member().tuning["HOROVOD_AUTOTUNE"] == "1"


class _CoreAgreement:
    def __init__(self, engine: native.Engine, handle: int) -> None:
        self._engine, self._handle = engine, handle

    def text(self) -> str:
        return np.from_dlpack(waiting.wait(self._engine, self._handle).buffer()).tobytes().decode()


class _NoAgreement:
    def __init__(self, error: HorovodInternalError) -> None:
        self._error = error

    def text(self) -> str:
        raise self._error


class _CoreAgreements:
    """By an operation of the core, which takes its own settings in the order of all operations."""

    def __init__(self, engine: native.Engine) -> None:
        self._engine = engine

    def start(self, text: str) -> Agreement:
        """Others may have made their last step, and left: only who makes another one needs to hear of it."""
        try:
            return _CoreAgreement(self._engine, self._engine.tune(_OPERATION, text))
        except HorovodInternalError as error:
            return _NoAgreement(error)

    def latest(self) -> str:
        return self._engine.tuned


class _Probe:
    """For ``horovodrun --tune-launch``, which ends the job when it has read what a step takes."""

    _WARMUP = 10

    def __init__(self, wanted: int) -> None:
        self._wanted = wanted + self._WARMUP
        self._times: list[float] = []

    def step_ended(self) -> None:
        self._times.append(time.perf_counter())
        if len(self._times) == self._wanted + 1 and basics.rank() == 0:
            steps = [end - begin for begin, end in itertools.pairwise(self._times[self._WARMUP :])]
            print(
                f"horovod: a step takes {statistics.median(steps):.6f} s, the median of {len(steps)}",
                file=sys.__stdout__,  # where horovodrun reads, whatever the script prints to
                flush=True,
            )


class _Leader:
    """Whose steps count: the first that makes one, then whoever makes TAKES_OVER in a row without it.

    Ranks make the same calls in one order, so all have one leader. When objects go does not matter, as that
    is the garbage collector's business, on each rank at another time.
    """

    TAKES_OVER = 10

    def __init__(self) -> None:
        self._numbers: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._made = itertools.count(1)
        self._leader = self._other = self._in_a_row = 0

    def takes_over(self, caller: object) -> bool:
        """Whether with this call another one leads, or the first."""
        number = self._number(caller)
        if number == self._leader:
            self._in_a_row = 0
            return False
        self._in_a_row = self._in_a_row + 1 if number == self._other else 1
        self._other = number
        if self._leader and self._in_a_row < self.TAKES_OVER:
            return False
        self._leader, self._in_a_row = number, 0
        return True

    def is_it(self, caller: object) -> bool:
        return self._number(caller) == self._leader

    def _number(self, caller: object) -> int:
        if caller not in self._numbers:
            self._numbers[caller] = next(self._made)
        return self._numbers[caller]


class Tuning:
    """Of one job on this rank (``Job.own``)."""

    def __init__(self) -> None:
        wanted = os.environ.get(LAUNCH_STEPS, "")
        self._probe = _Probe(int(wanted)) if wanted else None
        self._is_on = is_on() and basics.member().world.size > 1
        self._leader = _Leader()
        self._tuner: Tuner | None = None
        self._director: Director | None = None
        self._own: dict[str, Callable[[str], None]] = {}
        self._joins = 0
        self._told: Any = None
        self._searching_since: tuple[float, dict[str, int]] | None = None

    def step_ended(self, leader: object, workload: Callable[[], Workload]) -> None:
        """Ranks have made a step together, ``leader``'s; of all that call this one is heard."""
        if self._probe is not None:
            return self._probe.step_ended()
        if not self._is_on:
            return
        if self._leader.takes_over(leader):
            self._follow(workload())
        if not self._leader.is_it(leader):
            return
        assert self._tuner is not None
        if self._joins != (joins := basics.member().joins):
            self._joins = joins
            self._tuner.begin_afresh()
        self._tuner.step_ended()
        if self._director is not None:
            self._report()

    def fix(self, settings: Mapping[str, str]) -> None:
        """Stop tuning, and take these settings. All ranks call it between the same two steps; rank 0's
        count.
        """
        member = basics.member()
        if self._tuner is not None:
            self._tuner.stop()
        self._is_on = False
        text = Decision("off", 1, settings).to_text() if member.world.rank == 0 else ""
        self._apply(Decision.from_text(_CoreAgreements(member.engine).start(text).text()).settings)

    def data(self) -> dict[str, Any]:
        """See ``hvd.tuning``."""
        if self._tuner is None:
            return nothing()
        known = {"phase": self._tuner.decision.phase, "settings": dict(self._tuner.decision.settings)}
        if self._director is None:
            return known
        director = self._director
        return as_data(director.space, director.settings(), director.figures()) | known

    def _follow(self, workload: Workload) -> None:
        """Count another's steps, which gets the settings of now."""
        self._own = {knob.name: apply for knob, apply in workload.knobs}
        if self._tuner is None:
            self._begin(basics.member(), workload)
        else:
            self._apply(self._tuner.decision.settings)

    def _begin(self, member: Membership, workload: Workload) -> None:
        self._joins = member.joins
        if member.world.rank == 0:
            self._director = _director(member, workload, self._say)
        self._tuner = Tuner(_CoreAgreements(member.engine), self._director, self._apply)

    def _apply(self, settings: Mapping[str, str]) -> None:
        for name in self._own.keys() & settings.keys():
            self._own[name](settings[name])

    def _say(self, line: str) -> None:
        print(f"horovod: {line}", file=sys.stderr, flush=True)

    def _report(self) -> None:
        """The table and the log, once for each search that has ended."""
        director = self._director
        assert director is not None
        if director.phase == "searching" and self._searching_since is None:
            self._searching_since = (time.perf_counter(), dict(basics.metrics(global_process_set)))
        if director.result is None or director.result is self._told:
            return
        self._told = director.result
        self._say("tuned\n" + table(director.space, director.result, director.figures()["steps"]))
        if director.plan.mode == "profile" and self._searching_since is not None:
            self._say(_shares(*self._searching_since))
        self._searching_since = None
        if path := os.environ.get("HOROVOD_AUTOTUNE_LOG", ""):
            trials = [
                {
                    "last_step": trial.last_step,
                    "settings": dict(trial.settings),
                    "steps": trial.steps,
                    "is_incumbent": trial.is_incumbent,
                }
                for trial in director.trials
            ]
            try:
                # The settings are those from the next step on.
                found = {**self.data(), "settings": director.settings(), "trials": trials}
                Path(path).write_text(json.dumps(found, indent=1) + "\n")
            except OSError as error:
                self._say(f"HOROVOD_AUTOTUNE_LOG={path}: {error}")


def nothing() -> dict[str, Any]:
    """What ``tuning`` says where nothing is tuned."""
    return {"phase": "off", "settings": {}}


def step_ended(leader: object, workload: Callable[[], Workload]) -> None:
    """Of the job that the caller is in; see Tuning."""
    jobs.current().own(Tuning).step_ended(leader, workload)


def tuning() -> dict[str, Any]:
    """What tuning does and has found; see docs/tuning.md. Every rank may ask at any time.

    Returns:
        phase ("off", "warming up", "searching", "watching") and settings (by variable, the text that counts
        now). On rank 0 also began_with, defaults, gain (ratio and the ends of its interval, or None), steps
        (that trials took), why_it_ended and duels.

    ValueError before init().
    """
    basics.running()
    return jobs.current().own(Tuning).data()


def _director(member: Membership, workload: Workload, say: Callable[[str], None]) -> Director:
    core = _knobs(member.world)
    knobs = [*core, *(own.knob for own in workload.knobs)]
    space = Space(knobs, _start(member.settings, core) | _own_start(workload))
    steps = _read("HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE")
    plan = Plan(
        warmup_steps=_read("HOROVOD_AUTOTUNE_WARMUP_SAMPLES") * (steps + 1),
        steps_per_block=steps,
        most_steps=_read("HOROVOD_AUTOTUNE_MAX_STEPS"),
        mode=_read("HOROVOD_AUTOTUNE_MODE"),
        reuse=_read("HOROVOD_AUTOTUNE_REUSE"),
    )
    predicted, key = _predictor(member.world, workload), _key(member.world, workload)
    return Director(space, predicted, plan, say, _cache(say), key)


def _cache(say: Callable[[str], None]) -> Cache | None:
    try:
        return Cache(Cache.usual_folder(os.environ), say)
    except RuntimeError as error:  # a user without a home
        say(f"what is tuned is not kept for the next job, as HOROVOD_AUTOTUNE_CACHE names no folder: {error}")
        return None


def _read(variable: str) -> Any:
    return BY_VARIABLE[variable].read(os.environ)


def _knobs(world: native.World) -> list[Knob]:
    """The settings of the core that can change while it runs, and make a difference in this job."""
    knobs = []
    is_one_host = world.cross_size == 1
    for option in OPTIONS:
        tries = option.tries if option.part == CORE else ()
        if is_one_host and option.variable in BETWEEN_HOSTS:
            continue
        if option.variable == CARRIERS and world.cross_size == world.size:
            continue
        if option.variable == CONNECTIONS and "tcp" not in world.transport:
            continue
        if option.variable == ALGORITHM:
            tries = tuple(text for text in tries if _is_possible(text, world))
        if len(tries) > 1:
            knobs.append(Knob(option.variable, tries, option.default, option.help))
    return knobs


def _is_possible(algorithm: str, world: native.World) -> bool:
    """Whether there is such a route here: a hierarchy takes hosts with several ranks."""
    several_hosts, several_on_a_host = world.cross_size > 1, world.cross_size < world.size
    if "hierarchical" in algorithm or "ring" in algorithm:
        return several_hosts and several_on_a_host
    return world.size > 1


def _start(settings: native.Settings, knobs: Sequence[Knob]) -> dict[str, str]:
    """What the core was given, by variable."""
    values = {knob.name: getattr(settings, BY_VARIABLE[knob.name].member) for knob in knobs}
    return {name: _as_text(value) for name, value in values.items()}


def _as_text(value: Any) -> str:
    """As people write a setting: 1 and 2.5, not 1.0."""
    return str(int(value)) if isinstance(value, float) and value == int(value) else str(value)


def _own_start(workload: Workload) -> dict[str, str]:
    """What Python was given; compression is as asked for."""
    given = {}
    for knob, _ in workload.knobs:
        option = BY_VARIABLE[knob.name]
        given[knob.name] = _as_text(option.read(os.environ)) if option.type == "float" else knob.default
    return given


def _predictor(world: native.World, workload: Workload) -> Callable[[Configuration], float]:
    sizes = [parameter.nbytes for parameter in reversed(list(workload.parameters)) if parameter.requires_grad]

    def of_bucket(size: int, algorithm: str) -> float:
        facts = native.PlanFacts()
        facts.ranks, facts.hosts = world.size, world.cross_size
        facts.most_on_a_host = facts.carriers = max(1, world.local_size)
        facts.shares_memory = world.cross_size == 1
        facts.has_host_windows = world.local_size > 1
        facts.bytes = facts.wire_bytes = size
        facts.sums_can_travel = workload.compression == "none"
        plan = native.plan_allreduce(facts, algorithm, False, world.links)
        return min((seconds for route, seconds in plan.estimates if route == plan.route), default=0.0)

    wire = sum(of_bucket(size, "auto") for size in sizes)
    return predictor(Gradients(sizes, max(0.01, wire)), of_bucket, _ANSWER)


def _key(world: native.World, workload: Workload) -> Key:
    shapes = [f"{parameter.dtype!s}{list(parameter.shape)}" for parameter in workload.parameters]
    speeds = sorted({f"{speed} Mbit/s" for _, _, speed in interfaces.addresses() if speed})
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


def _shares(since: float, before: Mapping[str, int]) -> str:
    """Of all that ranks did since then."""
    now = basics.metrics(global_process_set)
    counted = {name: now[name] - count for name, count in before.items()}
    return str(shares_of(time.perf_counter() - since, counted))
