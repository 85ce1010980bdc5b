"""Random training scripts as data: what a person might write, drawn from a seed.

A program says for every step and rank which parts of a small model each backward pass goes through, what
happens between ``backward()`` and ``step()``, and how the optimizers are wrapped. random_scripts_rank.py
runs one as one rank, random_scripts_twin.py as one process that has all ranks' data.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from typing import Any

__all__ = ["ALL", "Freeze", "Pass", "Program", "Step", "drawn", "shown"]

ALL = -1  # instead of a rank, or of an optimizer


@dataclass(frozen=True)
class Pass:
    """One backward pass of one rank.

    Attributes:
        heads: the heads whose outputs are in the loss; none: that of the trunk.
        through: the loss reaches the trunk too, and not only the heads.
        overflows: the loss is infinite.
    """

    heads: tuple[int, ...]
    through: bool = True
    overflows: bool = False


@dataclass(frozen=True)
class Freeze:
    """From this step on a head is frozen, or not, on one rank or on all."""

    head: int
    rank: int
    frozen: bool


@dataclass(frozen=True)
class Step:
    """One step of all ranks.

    Attributes:
        passes: by rank, its backward passes; of a rank that has joined none.
        turn: the optimizer that steps, or ALL.
        skipped: nobody steps, and the next step begins with zero_grad().
        resumes: before it, all ranks make everything anew and load a checkpoint.
        freezes: what is frozen or unfrozen before it.
    """

    passes: tuple[tuple[Pass, ...], ...]
    turn: int = ALL
    skipped: bool = False
    resumes: bool = False
    freezes: tuple[Freeze, ...] = ()

    def used(self, rank: int) -> set[int | str]:
        """The parts of which a rank computes gradients, unless they are frozen: heads, and "trunk"."""
        used: set[int | str] = set()
        for each in self.passes[rank]:
            used.update(each.heads)
            used.update(["trunk"] if each.through else [])
        return used

    def used_by_any(self) -> set[int | str]:
        return set().union(*(self.used(rank) for rank in range(len(self.passes))))


@dataclass(frozen=True)
class Program:
    """A script.

    Attributes:
        trunk: "linear", or "conv", whose weights are channels_last.
        heads: how many; with ``tied`` the first two share their weight.
        spare: there is a part that no loss uses.
        optimizers: "one"; of trunk and heads each one ("disjoint"; "unnamed": without named_parameters;
            "equal": both count names from 0); or of everything and of the trunk ("overlap").
        named: a sole optimizer is given named_parameters.
        kind: of optimizer.
        closure: step(closure) computes the gradients.
        amp: "" for none, "step" for scaler.step() alone, "unscale" for scaler.unscale_() before.
        change: what is done before the step: "", "look", "clip", "noise", or "sync clip", where the script
            calls synchronize() itself.
        passes_per_step: as the optimizer is told. In some steps all ranks make fewer.
        wait: wait_in_backward.
        groups: 0, a number, or lists of parts.
        frozen_first: a head that is frozen before wrapping, or None.
        autotune: with HOROVOD_AUTOTUNE=1, where ranks are processes.
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
        """Some rank ends before the others, by hvd.join()."""
        return any(not passes for step in self.steps for passes in step.passes)

    def complete(self, step: Step) -> bool:
        """Every rank makes as many passes as it is said to, so that gradients are reduced in the last."""
        if self.passes_per_step == 1:
            return len({len(passes) for passes in step.passes if passes}) == 1
        return all(len(passes) == self.passes_per_step for passes in step.passes if passes)

    def seen(self, step: Step) -> bool:
        """The script looks at gradients between backward() and step(), where they have been reduced."""
        looks = bool(self.amp) or self.change in ("look", "clip", "noise")
        return looks and self.wait and self.complete(step) and not self.closure

    def mirrored(self) -> bool:
        """One process can compute the same."""
        if self.compression != "none":
            return False
        for step in self.steps:
            if not self.complete(step) and (self.change in ("clip", "noise") or self.amp == "unscale"):
                return False  # of each rank's own gradients, which are reduced afterwards
        return not self._is_frozen_on_some_and_used_by_none()

    def frozen(self, until: int, rank: int) -> set[int]:
        """The heads that are frozen on a rank in a step."""
        frozen = set() if self.frozen_first is None else {self.frozen_first}
        for step in self.steps[: until + 1]:
            for each in step.freezes:
                if each.rank in (ALL, rank):
                    (frozen.add if each.frozen else frozen.discard)(each.head)
        return frozen

    def _is_frozen_on_some_and_used_by_none(self) -> bool:
        """Whether weight decay counts there nobody has said."""
        for number, step in enumerate(self.steps):
            frozen = [self.frozen(number, rank) for rank in range(self.ranks)]
            having = [step.used(rank) - frozen[rank] for rank in range(self.ranks)]
            some = set().union(*frozen) - set.intersection(*frozen)
            if some - set().union(*having):
                return True
        return False

    def branches(self) -> bool:
        """In some step a rank has no gradient of what another has one of."""
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
        """In some backward pass a rank has no gradient of what another has one of, whatever others bring."""
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
        """Of several passes that are reduced at once, some do without parts that others use."""
        return self.passes_per_step > 1 and any(
            len({each.heads for each in passes}) > 1 for step in self.steps for passes in step.passes
        )

    def unused_parts(self) -> bool:
        """Something takes part that no rank uses in some step."""
        parts = {*range(self.heads), "trunk"}
        return self.spare or any(parts - step.used_by_any() for step in self.steps)

    def traits(self) -> list[str]:
        """What of a program has been known to go wrong."""
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
    """As Python would write it, without what is as usual; a step is a line."""
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
    """The program of a seed: first how the script is built, then what its steps do."""
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
    if lossy != "fp16":  # which has no options
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
    """What stands between backward() and step()."""
    one = program.optimizers == "one"
    if one and rng.random() < 0.1:
        kind = rng.choice(["lbfgs", program.kind])
        # LBFGS asks all ranks for every loss, and for gradients that are no estimate of different sums.
        program = replace(program, closure=True, kind=kind, passes_per_step=1 if kind == "lbfgs" else 2)
        return replace(program, trunk="linear") if kind == "lbfgs" else program  # it wants views as vectors
    change = rng.choice(["", "", "look", "clip", "clip", "noise", "sync clip"])
    if change == "sync clip" and not one:
        change = "clip"
    amp = rng.choice(["", "", "step", "unscale"])
    if amp == "step" and change != "look":
        change = ""  # gradients that are still scaled are for nobody
    # Of two optimizers, one may find its gradients in flight when the other alone has made its step.
    may_be_late = one and (change == "sync clip" or (change == "" and amp != "unscale"))
    return replace(program, change=change, amp=amp, wait=not may_be_late or rng.random() < 0.7)


@dataclass(frozen=True)
class _Plan:
    """What the steps of a script have in common.

    Attributes:
        branches: which heads a rank uses: "none" for all, by "rank" and step one, or "random" ones.
        losses: backward passes of a step: "one", or "split" by heads, also in any "order" or "number".
        without: a head that nobody uses, or None.
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
    # Who does not step would begin anew with half an accumulation, which is refused.
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
            # Not the last one: other ranks' passes would go on without who has ended.
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
    """A rank's backward passes in a step, in which any parameter is used as often as is said, at most."""
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
    """Two losses that have no parameter in common: it would be one pass too many for that."""
    first = heads[:2] if tied else heads[:1]
    rest = tuple(head for head in heads if head not in first)
    if rest:
        return Pass(first), Pass(rest, through=False)
    return Pass(()), Pass(first, through=False)


def _reaching_trunk(by_rank: tuple[tuple[Pass, ...], ...]) -> tuple[tuple[Pass, ...], ...]:
    """A trunk whose own optimizer gets no gradient on any rank is one that GradScaler refuses to step."""
    if any(each.through for passes in by_rank for each in passes):
        return by_rank
    return ((replace(by_rank[0][0], through=True), *by_rank[0][1:]), *by_rank[1:])


def _with_join(rng: random.Random, program: Program) -> Program:
    """Uneven data: some ranks end earlier. What all ranks have to do at once is done before, or never."""
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
    """The loss of one rank is infinite in one step. Half an accumulation is no place for it: each rank would
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
    """A head is frozen for some steps. Never the only thing that a loss depends on."""
    detached = any(not each.through for step in program.steps for passes in step.passes for each in passes)
    if detached or program.closure or rng.random() > 0.25:
        return program
    head = program.heads - 1  # never a tied one, unless there are but two
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
    """Not where ranks freeze different parameters: numbered groups are of what is trainable, and a member of
    a listed group that nobody uses would have zeros on some ranks only.
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
