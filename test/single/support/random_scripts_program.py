"""Random training scripts as data, drawn from a seed; they resemble scripts that users write.

A program defines for every step and rank which parts of a small model each backward pass uses, the calls
between ``backward()`` and ``step()``, and how the optimizers are wrapped. random_scripts_rank.py runs it as
one rank, random_scripts_twin.py as one process that has all ranks' data.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from typing import Any

__all__ = ["ALL", "Freeze", "Pass", "Program", "Step", "drawn", "shown"]

ALL = -1  # in place of a rank, or of an optimizer


@dataclass(frozen=True)
class Pass:
    """One backward pass of one rank.

    Attributes:
        heads: the heads whose outputs are in the loss; if empty, the loss uses the trunk's output.
        through: the loss reaches the trunk too, not only the heads.
        overflows: the loss is infinite.
    """

    heads: tuple[int, ...]
    through: bool = True
    overflows: bool = False


@dataclass(frozen=True)
class Freeze:
    """Freezes or unfreezes a head from this step on, on one rank or on all."""

    head: int
    rank: int
    frozen: bool


@dataclass(frozen=True)
class Step:
    """One step of all ranks.

    Attributes:
        passes: by rank, its backward passes; empty for a rank that has joined.
        turn: the optimizer that steps, or ALL.
        skipped: no optimizer steps, and the next step begins with zero_grad().
        resumes: before this step, all ranks rebuild everything and load a checkpoint.
        freezes: changes before this step.
    """

    passes: tuple[tuple[Pass, ...], ...]
    turn: int = ALL
    skipped: bool = False
    resumes: bool = False
    freezes: tuple[Freeze, ...] = ()

    def used(self, rank: int) -> set[int | str]:
        """The parts for which a rank computes gradients unless they are frozen: heads, and "trunk"."""
        used: set[int | str] = set()
        for each in self.passes[rank]:
            used.update(each.heads)
            used.update(["trunk"] if each.through else [])
        return used

    def used_by_any(self) -> set[int | str]:
        return set().union(*(self.used(rank) for rank in range(len(self.passes))))


@dataclass(frozen=True)
class Program:
    """A random training script.

    Attributes:
        trunk: "linear", or "conv", whose weights are channels_last.
        heads: their number; if ``tied``, the first two share their weight.
        spare: the model has a part that no loss uses.
        optimizers: "one"; one for the trunk and one for the heads ("disjoint"; "unnamed": without
            named_parameters; "equal": both count names from 0); or for all and for the trunk ("overlap").
        named: a single optimizer gets named_parameters.
        kind: the optimizer's algorithm.
        closure: step(closure) computes the gradients.
        amp: "" for none, "step" for scaler.step() alone, "unscale" for scaler.unscale_() before.
        change: the calls before the step: "", "look", "clip", "noise", or "sync clip", in which the script
            calls synchronize() itself.
        passes_per_step: the optimizer's option. In some steps all ranks make fewer.
        wait: wait_in_backward.
        groups: 0, a number, or lists of parts.
        frozen_first: a head that is frozen before wrapping, or None.
        autotune: with HOROVOD_AUTOTUNE=1, if ranks are processes.
    """

    seed: int
    ranks: int
    trunk: str = "linear"
    heads: int = 3
    tied: bool = False
    spare: bool = False
    optimizers: str = "one"
    named: bool = True
    kind: str = "sgd"
    closure: bool = False
    amp: str = ""
    change: str = ""
    passes_per_step: int = 1
    op: str = "Average"
    compression: str = "none"
    wait: bool = True
    groups: int | tuple[tuple[int | str, ...], ...] = 0
    unused: str = "zeros"
    frozen_first: int | None = None
    autotune: bool = False
    steps: tuple[Step, ...] = ()

    def joined(self) -> bool:
        """Whether a rank ends before the others, by hvd.join()."""
        return any(not passes for step in self.steps for passes in step.passes)

    def complete(self, step: Step) -> bool:
        """Whether every rank makes all passes of the step, so that the last one reduces gradients."""
        if self.passes_per_step == 1:
            return len({len(passes) for passes in step.passes if passes}) == 1
        return all(len(passes) == self.passes_per_step for passes in step.passes if passes)

    def seen(self, step: Step) -> bool:
        """Whether the script reads reduced gradients between backward() and step()."""
        looks = bool(self.amp) or self.change in ("look", "clip", "noise")
        return looks and self.wait and self.complete(step) and not self.closure

    def mirrored(self) -> bool:
        """Whether one process can compute the same."""
        if self.compression != "none":
            return False
        for step in self.steps:
            if not self.complete(step) and (self.change in ("clip", "noise") or self.amp == "unscale"):
                return False  # applies to each rank's own gradients, before they are reduced
        return not self._is_frozen_on_some_and_used_by_none()

    def frozen(self, until: int, rank: int) -> set[int]:
        """The heads that are frozen on a rank in step `until`."""
        frozen = set() if self.frozen_first is None else {self.frozen_first}
        for step in self.steps[: until + 1]:
            for each in step.freezes:
                if each.rank in (ALL, rank):
                    (frozen.add if each.frozen else frozen.discard)(each.head)
        return frozen

    def _is_frozen_on_some_and_used_by_none(self) -> bool:
        """Such a part leaves undefined whether weight decay applies."""
        for number, step in enumerate(self.steps):
            frozen = [self.frozen(number, rank) for rank in range(self.ranks)]
            having = [step.used(rank) - frozen[rank] for rank in range(self.ranks)]
            some = set().union(*frozen) - set.intersection(*frozen)
            if some - set().union(*having):
                return True
        return False

    def branches(self) -> bool:
        """Whether in some step a rank lacks a gradient that another rank has."""
        return any(
            len(
                {
                    frozenset(step.used(r) - self.frozen(number, r))
                    for r in range(self.ranks)
                    if step.passes[r]
                }
            )
            > 1
            for number, step in enumerate(self.steps)
        )

    def branches_by_pass(self) -> bool:
        """Whether in some backward pass a rank lacks a gradient that another has."""
        return self.branches() or any(
            len(
                {
                    tuple((p.heads, p.through) for p in of_rank[index : index + 1])
                    for of_rank in step.passes
                    if of_rank
                }
            )
            > 1
            for step in self.steps
            for index in range(max(map(len, step.passes)))
        )

    def takes_turns(self) -> bool:
        return any(step.turn != ALL for step in self.steps)

    def overflows(self) -> bool:
        return any(each.overflows for step in self.steps for passes in step.passes for each in passes)

    def uneven_accumulation(self) -> bool:
        """Whether some of several passes that are reduced together lack parts that others use."""
        return self.passes_per_step > 1 and any(
            len({each.heads for each in passes}) > 1 for step in self.steps for passes in step.passes
        )

    def unused_parts(self) -> bool:
        """Whether in some step no rank uses a part of the model."""
        parts = {*range(self.heads), "trunk"}
        return self.spare or any(parts - step.used_by_any() for step in self.steps)

    def traits(self) -> list[str]:
        """Names of the program's properties that have caused faults before."""
        found = {**self._traits_of_looking(), **self._traits_of_missing()}
        found["shared by optimizers"] = self.optimizers == "overlap"
        found["equal names"] = self.optimizers in ("equal", "unnamed")
        return [name for name, holds in found.items() if holds]

    def _traits_of_looking(self) -> dict[str, bool]:
        changes, amp = self.change in ("look", "clip", "noise"), bool(self.amp)
        looks, branches = changes or amp, self.branches()
        return {
            "amp with branches": amp and branches,
            "amp without waiting": amp and not self.wait and self.change != "sync clip",
            "looks with branches": changes and branches,
            "looks with losses in other orders": looks and self.branches_by_pass() and not branches,
            "uneven accumulation": looks and self.uneven_accumulation(),
            "thawed and looked at": looks and self.frozen_first is not None,
        }

    def _traits_of_missing(self) -> dict[str, bool]:
        turns, skips = self.takes_turns(), any(step.skipped for step in self.steps)
        freezes = [each for step in self.steps for each in step.freezes]
        missing = self.branches() or self.unused_parts() or bool(freezes)
        looks = self.change in ("look", "clip", "noise") or bool(self.amp)
        return {
            "overflow with missing gradients": missing and self.overflows(),
            "incomplete groups": bool(self.groups) and missing and (looks or skips or turns),
            "skipped with branches": skips and self.branches_by_pass(),
            "another's turn with branches": turns and self.branches_by_pass(),
            "frozen on some ranks": any(each.rank != ALL for each in freezes),
        }


def shown(value: Any) -> str:
    """The value as Python code, without default values; each step is a line."""
    if isinstance(value, tuple):
        return f"({', '.join(map(shown, value))}{',' * (len(value) == 1)})"
    if not is_dataclass(value):
        return repr(value)
    given = [(each.name, getattr(value, each.name)) for each in fields(value)]
    usual = {each.name: each.default for each in fields(value) if each.default is not MISSING}
    words = [f"{name}={shown(each)}" for name, each in given if name not in usual or each != usual[name]]
    text = f"{type(value).__name__}({', '.join(words)})"
    return f"\n    {text}" if isinstance(value, Step) else text


def drawn(seed: int, ranks: int) -> Program:
    """Draw the program of a seed: first how the script is built, then its steps."""
    rng = random.Random(seed * 10 + ranks)
    program = _recipe(rng, _wrapping(rng, _model(rng, Program(seed, ranks))))
    program = replace(program, steps=tuple(_steps(rng, program)))
    return _with_groups(rng, _with_freezing(rng, _with_overflow(rng, _with_join(rng, program))))


def _model(rng: random.Random, program: Program) -> Program:
    return replace(
        program,
        trunk=rng.choice(["linear", "linear", "conv"]),
        heads=rng.randint(2, 4),
        tied=rng.random() < 0.2,
        spare=rng.random() < 0.25,
        kind=rng.choice(["sgd", "momentum", "decay", "adamw"]),
    )


def _wrapping(rng: random.Random, program: Program) -> Program:
    several = rng.choice(["disjoint", "disjoint", "unnamed", "equal", "overlap"])
    lossy = rng.choice(["fp16", "bit8", "int4"])
    if lossy != "fp16":  # fp16 has no options
        lossy += rng.choice(["", ":min_elements=0", ":min_elements=0,error_feedback=1"])
    return replace(
        program,
        optimizers=(optimizers := several if rng.random() < 0.35 else "one"),
        named=optimizers != "one" or rng.random() < 0.8,
        op="Sum" if rng.random() < 0.15 else "Average",
        compression="none" if rng.random() < 0.65 else lossy,
        unused="none" if rng.random() < 0.2 else "zeros",
        autotune=rng.random() < 0.15,
        passes_per_step=rng.choice([1, 1, 1, 1, 2, 3]),
    )


def _recipe(rng: random.Random, program: Program) -> Program:
    """Draw the calls between backward() and step()."""
    one = program.optimizers == "one"
    if one and rng.random() < 0.1:
        kind = rng.choice(["lbfgs", program.kind])
        # LBFGS needs every loss on all ranks, and gradients that are consistent with these losses.
        program = replace(program, closure=True, kind=kind, passes_per_step=1 if kind == "lbfgs" else 2)
        return replace(program, trunk="linear") if kind == "lbfgs" else program  # it needs flat views
    change = rng.choice(["", "", "look", "clip", "clip", "noise", "sync clip"])
    if change == "sync clip" and not one:
        change = "clip"
    amp = rng.choice(["", "", "step", "unscale"])
    if amp == "step" and change != "look":
        change = ""  # no script uses gradients that are still scaled
    # With two optimizers, gradients of one may be in flight while only the other steps.
    may_be_late = one and (change == "sync clip" or (change == "" and amp != "unscale"))
    return replace(program, change=change, amp=amp, wait=not may_be_late or rng.random() < 0.7)


@dataclass(frozen=True)
class _Plan:
    """Properties that the steps of a script share.

    Attributes:
        branches: the heads that a rank uses: "none": all; "rank": one, by rank and step; or "random" ones.
        losses: backward passes of a step: "one", or "split" by heads, also in random "order" or "number".
        without: a head that no rank uses, or None.
    """

    branches: str
    losses: str
    without: int | None
    in_turns: bool
    skips: bool
    detaches: bool


def _steps(rng: random.Random, program: Program) -> Iterator[Step]:
    count = rng.randint(3, 8)
    plan = _planned(rng, program)
    resumes = rng.randrange(1, count) if rng.random() < 0.2 else None
    # An optimizer without a step would restart within an accumulation, which is refused.
    incomplete = rng.random() < 0.3 and not program.closure and not plan.in_turns
    for number in range(count):
        passes = program.passes_per_step
        short = incomplete and passes > 1 and rng.random() < 0.4
        if short:
            passes = rng.randrange(1, passes)
        by_rank = tuple(_passes(rng, program, plan, (number, rank), passes) for rank in range(program.ranks))
        yield Step(
            _reaching_trunk(by_rank),
            turn=number % 2 if plan.in_turns else ALL,
            # Not the last one: other ranks would continue without a rank that has ended.
            skipped=plan.skips and not short and rng.random() < 0.4 and number < count - 1,
            resumes=number == resumes,
        )


def _planned(rng: random.Random, program: Program) -> _Plan:
    losses = rng.choice(["one", "one", "split", "order", "number"])
    if program.change or program.amp:
        losses = "order" if losses == "number" else losses  # or one would look before another has computed
    return _Plan(
        branches=rng.choice(["none", "none", "rank", "random"]),
        losses=losses,
        without=rng.randrange(program.heads) if rng.random() < 0.2 and program.heads > 2 else None,
        in_turns=program.optimizers != "one" and (rng.random() < 0.5 or bool(program.amp)),
        skips=rng.random() < 0.2 and program.wait and not program.closure,
        detaches=rng.random() < 0.25,
    )


def _heads(rng: random.Random, program: Program, plan: _Plan, moment: tuple[int, int]) -> tuple[int, ...]:
    """The heads that a rank uses in a step."""
    all_heads = [head for head in range(program.heads) if head != plan.without]
    if plan.branches == "rank":
        return (all_heads[sum(moment) % len(all_heads)],)
    if plan.branches == "random":
        return tuple(sorted(rng.sample(all_heads, rng.randint(1, len(all_heads)))))
    return tuple(all_heads)


def _passes(
    rng: random.Random, program: Program, plan: _Plan, moment: tuple[int, int], count: int
) -> tuple[Pass, ...]:
    """A rank's backward passes in a step, which use a parameter at most ``passes_per_step`` times."""
    heads, losses = _heads(rng, program, plan, moment), plan.losses
    if program.passes_per_step == 1 and losses == "one":
        return (Pass(heads, through=not plan.detaches or rng.random() < 0.6),)
    if program.passes_per_step > 1:
        fewer = heads[:1] if losses == "order" else heads  # a branch within the accumulation
        return tuple(Pass(fewer if index % 2 else heads) for index in range(count))
    if program.closure or (losses == "number" and rng.random() < 0.5):
        return (Pass(heads),)
    parts = _split(heads, program.tied)
    return parts if losses == "split" or rng.random() < 0.5 else parts[::-1]


def _split(heads: tuple[int, ...], tied: bool) -> tuple[Pass, Pass]:
    """Two losses without a common parameter, which would otherwise get one pass too many."""
    first = heads[:2] if tied else heads[:1]
    rest = tuple(head for head in heads if head not in first)
    if rest:
        return Pass(first), Pass(rest, through=False)
    return Pass(()), Pass(first, through=False)


def _reaching_trunk(by_rank: tuple[tuple[Pass, ...], ...]) -> tuple[tuple[Pass, ...], ...]:
    """Make one pass reach the trunk: GradScaler refuses to step an optimizer without any gradient."""
    if any(each.through for passes in by_rank for each in passes):
        return by_rank
    return ((replace(by_rank[0][0], through=True), *by_rank[0][1:]), *by_rank[1:])


def _with_join(rng: random.Random, program: Program) -> Program:
    """Uneven data: some ranks end earlier. Programs with lockstep operations are unchanged."""
    lockstep = program.closure or any(step.resumes for step in program.steps)
    if lockstep or rng.random() > 0.12:
        return program
    lasting = [rng.randint(2, len(program.steps)) for _ in range(program.ranks)]
    lasting[rng.randrange(program.ranks)] = len(program.steps)
    steps = tuple(
        replace(
            step,
            passes=tuple(passes if number < lasting[rank] else () for rank, passes in enumerate(step.passes)),
        )
        for number, step in enumerate(program.steps)
    )
    return replace(program, steps=steps)


def _with_overflow(rng: random.Random, program: Program) -> Program:
    """Make the loss of one rank infinite in one step, which is not within an accumulation: each rank would
    look at its own gradients there.
    """
    choices = [
        (number, rank)
        for number, step in enumerate(program.steps)
        if program.complete(step) and not step.skipped
        for rank in range(program.ranks)
        if step.passes[rank]
    ]
    if not program.amp or not choices or rng.random() < 0.4:
        return program
    chosen, rank = rng.choice(choices)
    step = program.steps[chosen]
    which = rng.randrange(len(step.passes[rank]))
    infinite = tuple(replace(each, overflows=index == which) for index, each in enumerate(step.passes[rank]))
    by_rank = tuple(infinite if each == rank else passes for each, passes in enumerate(step.passes))
    return _with_step(program, chosen, replace(step, passes=by_rank))


def _with_freezing(rng: random.Random, program: Program) -> Program:
    """Freeze a head for some steps. A loss never depends on that head alone."""
    detached = any(not each.through for step in program.steps for passes in step.passes for each in passes)
    if detached or program.closure or rng.random() > 0.25:
        return program
    head = program.heads - 1  # not a tied one if there are more than two
    if program.tied and program.heads == 2:
        return program
    begin = rng.randrange(len(program.steps) - 1)
    end = rng.randrange(begin + 1, len(program.steps))
    if begin == 0 and rng.random() < 0.5:
        program = replace(program, frozen_first=head)
        return _frozen_from(program, end, Freeze(head, ALL, False))
    rank = rng.choice([ALL, rng.randrange(program.ranks)])
    program = _frozen_from(program, begin, Freeze(head, rank, True))
    return _frozen_from(program, end, Freeze(head, rank, False))


def _frozen_from(program: Program, number: int, freeze: Freeze) -> Program:
    step = program.steps[number]
    return _with_step(program, number, replace(step, freezes=(*step.freezes, freeze)))


def _with_groups(rng: random.Random, program: Program) -> Program:
    """Add groups unless ranks freeze different parameters: numbered groups consist of trainable parameters,
    and an unused member of a listed group would have zeros on some ranks only.
    """
    uneven = any(f.rank != ALL for step in program.steps for f in step.freezes)
    if rng.random() > 0.3 or uneven:
        return program
    if rng.random() < 0.5:
        parts: list[int | str] = ["trunk", *range(program.heads)]
        rng.shuffle(parts)
        cut = rng.randrange(1, len(parts))
        return replace(program, groups=(tuple(parts[:cut]),))
    return replace(program, groups=rng.randint(1, 3))


def _with_step(program: Program, number: int, step: Step) -> Program:
    return replace(program, steps=(*program.steps[:number], step, *program.steps[number + 1 :]))
