"""One rank of a random training script: the interpreter of random_scripts_program.py.

    script = Script(drawn(seed, ranks), rank); script.run()      in a job, by the rank's own thread

``script.at`` is its current position, for reports of a hang. ``script.seen`` has the gradients that it saw
and its parameters at the end.
"""

from __future__ import annotations

import copy
import functools
import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from random_scripts_program import ALL, Pass, Program, Step
from torch import nn

import horovod.torch as hvd

__all__ = ["Model", "Outcome", "Script", "ended", "options_there_are"]

CLIP = 0.05
Seen = dict[str, dict[str, torch.Tensor | None]]


@dataclass
class Outcome:
    """The outcome of a rank.

    Attributes:
        seen: gradients or parameters by name, by moment ("step 2 after backward", "end").
        error: the exception's class, the tensors that it names, and its moment; or None.
        text: the full error.
    """

    seen: Seen = field(default_factory=dict)
    error: tuple[str, tuple[str, ...], str] | None = None
    text: str = ""


def options_there_are() -> set[str]:
    """Keywords of DistributedOptimizer: programs also run on older commits, which have fewer."""
    return set(inspect.signature(hvd.DistributedOptimizer).parameters)


class Model(nn.Module):
    """A trunk, heads, of which the first two may share their weight, and perhaps an unused part."""

    def __init__(self, program: Program) -> None:
        super().__init__()
        self.program = program
        self.trunk: nn.Module = nn.Linear(6, 12)
        if program.trunk == "conv":
            self.trunk = nn.Conv2d(2, 3, 3).to(memory_format=torch.channels_last)
        self.heads = nn.ModuleList(nn.Linear(12, 3) for _ in range(program.heads))
        if program.tied:
            self.heads[1].weight = self.heads[0].weight
        if program.spare:
            self.spare = nn.Linear(3, 2)
        generator = torch.Generator().manual_seed(program.seed)
        with torch.no_grad():  # ranks that are threads share torch's own generator
            for parameter in self.parameters():
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.3)
        if program.kind == "lbfgs":
            self.double()  # LBFGS compares losses

    def loss(self, which: Pass, *moment: int) -> torch.Tensor:
        """The loss on data determined by the program's seed and the moment: rank, step and pass."""
        seed = functools.reduce(lambda so_far, number: so_far * 31 + number, moment, self.program.seed)
        shape = (4, 2, 4, 4) if self.program.trunk == "conv" else (4, 6)
        x = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
        x = x.to(next(self.parameters()).dtype)
        hidden = torch.tanh(self.trunk(x)).flatten(1)
        features = hidden if which.through else hidden.detach()
        losses = [(self.heads[head](features) - 1).square().mean() for head in which.heads]
        loss = torch.stack(losses).sum() if losses else features.square().mean()
        return loss * float("inf") if which.overflows else loss

    def part(self, which: int | str) -> nn.Module:
        module = self.heads[which] if isinstance(which, int) else getattr(self, which)
        assert isinstance(module, nn.Module)
        return module

    def parameters_of(self, parts: set[int | str]) -> list[nn.Parameter]:
        wanted = {p for part in parts for p in self.part(part).parameters()}
        return [p for p in self.parameters() if p in wanted]


class Script:
    """A program as one rank runs it; random_scripts_twin.py overrides the communication."""

    def __init__(self, program: Program, rank: int) -> None:
        self.program, self.rank = program, rank
        self.at = "before its first step"
        self.outcome = Outcome()
        enabled = bool(program.amp)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**8, growth_interval=3, enabled=enabled)
        self.model, self.optimizers = self.built()

    def run(self) -> Outcome:
        """Run all steps; errors are in the outcome."""
        try:
            self.begin()
            for number, step in enumerate(self.program.steps):
                if not self.takes_part(step):
                    break
                self.make_step(number, step)
            self.at = "after the last step"
            for optimizer in self.optimizers:
                optimizer.zero_grad()  # the next step would reset all optimizers, too
            self.end()
            self.note("end", {name: p.detach() for name, p in self.model.named_parameters()})
        except Exception as error:
            found = re.findall(r"[\w.]+\.(?:weight|bias|\d+)", str(error))
            names = {name.removeprefix("allreduce.") for name in found}
            self.outcome.error = (type(error).__name__, tuple(sorted(names)), self.at)
            self.outcome.text = f"{type(error).__name__}: {error}"
        self.at = "at its end"
        return self.outcome

    # Construction.

    def built(self) -> tuple[Model, list[Any]]:
        model = Model(self.program)
        if self.program.frozen_first is not None:
            model.heads[self.program.frozen_first].requires_grad_(False)
        return model, [self.wrapped(model, self.plain(parts), parts) for parts in self.shares(model)]

    def shares(self, model: Model) -> Iterator[list[tuple[str, nn.Parameter]]]:
        """The named parameters of each optimizer."""
        named = list(model.named_parameters())
        trunk = [(name, p) for name, p in named if name.startswith("trunk.")]
        rest = [(name, p) for name, p in named if not name.startswith("trunk.")]
        if self.program.optimizers == "one":
            yield named
        elif self.program.optimizers == "overlap":
            yield [(f"all.{name}", p) for name, p in named]
            yield [(f"stage.{name}", p) for name, p in trunk]
        elif self.program.optimizers == "equal":
            for share in (trunk, rest):
                yield [(f"{number}.weight", p) for number, (_, p) in enumerate(share)]
        else:
            yield from (trunk, rest)

    def plain(self, named: list[tuple[str, nn.Parameter]]) -> torch.optim.Optimizer:
        parameters, kind = [p for _, p in named], self.program.kind
        if kind == "adamw":
            return torch.optim.AdamW(parameters, lr=0.01, eps=1e-3)  # eps: rounding stays small
        if kind == "lbfgs":
            return torch.optim.LBFGS(parameters, lr=0.1, max_iter=3)
        momentum, decay = 0.9 * (kind == "momentum"), 0.1 * (kind == "decay")
        return torch.optim.SGD(parameters, lr=0.05, momentum=momentum, weight_decay=decay)

    def wrapped(
        self, model: Model, optimizer: torch.optim.Optimizer, named: list[tuple[str, nn.Parameter]]
    ) -> Any:
        program = self.program
        groups: Any = program.groups
        if isinstance(groups, tuple):
            own = {p for _, p in named}
            groups = [[p for p in model.parameters_of(set(group)) if p in own] for group in groups]
        options = {
            "compression": hvd.Compression.from_text(program.compression),
            "backward_passes_per_step": program.passes_per_step,
            "op": getattr(hvd, program.op),
            "groups": groups,
            "wait_in_backward": program.wait,
            **({"unused": program.unused} if "unused" in options_there_are() else {}),
        }
        names = None if program.optimizers == "unnamed" or not program.named else named
        wrapped = hvd.DistributedOptimizer(optimizer, names, **options)
        if "error_feedback" in program.compression and program.amp:
            wrapped.set_loss_scale(self.scaler)
        return wrapped

    # Communication, which the twin overrides.

    def begin(self) -> None:
        hvd.broadcast_parameters(self.model.state_dict(), root_rank=0)

    def end(self) -> None:
        if self.program.joined():
            self.at = "in join()"
            last = hvd.join()
            self.at = "after join()"
            hvd.broadcast_parameters(self.model.state_dict(), root_rank=last)

    def takes_part(self, step: Step) -> bool:
        return bool(step.passes[self.rank])

    def backward(self, number: int, step: Step) -> float:
        total = 0.0
        for index, each in enumerate(step.passes[self.rank]):
            self.at = f"step {number}, backward pass {index}"
            loss = self.model.loss(each, self.rank, number, index)
            self.scaler.scale(loss).backward()
            total += float(loss.detach())
        return total

    def freeze(self, number: int) -> None:
        frozen = self.program.frozen(number, self.rank)
        for head, module in enumerate(self.model.heads):
            module.requires_grad_(head not in frozen)

    def synchronize(self, optimizer: Any) -> None:
        optimizer.synchronize()

    # A step, the same for ranks and their twin.

    def make_step(self, number: int, step: Step) -> None:
        self.at = f"step {number}, before backward()"
        if step.resumes:
            self.resume()
        if any(each.freezes for each in self.program.steps) or self.program.frozen_first is not None:
            self.freeze(number)
        stepping = self.optimizers if step.turn == ALL else [self.optimizers[step.turn]]
        if self.program.closure:
            self.optimizers[0].step(self.closure(number, step))
        else:
            for optimizer in self.optimizers:
                optimizer.zero_grad()
            self.backward(number, step)
            if self.program.seen(step):
                self.note_gradients(f"step {number} after backward", self.optimizers)
            if step.skipped:
                return
            self.change_and_step(stepping, number, step)
        self.note_gradients(f"step {number} after step", stepping)

    def closure(self, number: int, step: Step) -> Callable[[], float]:
        def compute() -> float:
            self.optimizers[0].zero_grad()
            return self.backward(number, step)

        return compute

    def change_and_step(self, stepping: list[Any], number: int, step: Step) -> None:
        """The calls between backward() and step(), and step()."""
        self.at = f"step {number}, between backward() and step()"
        change, synchronizes = self.program.change, self.program.change == "sync clip"
        if synchronizes:
            self.synchronize(stepping[0])
            self.note_gradients(f"step {number} after synchronize()", stepping)
        if self.program.amp == "unscale":
            for optimizer in stepping:
                self.scaler.unscale_(optimizer)
        if change.endswith("clip"):
            nn.utils.clip_grad_norm_({p: None for each in stepping for p in parameters_of(each)}, CLIP)
        if change == "noise":
            self.add_noise(number, step)
        self.at = f"step {number}, step()"
        for optimizer in stepping:
            if synchronizes:
                with self.without_synchronizing(optimizer):
                    self.scaler.step(optimizer)
            else:
                self.scaler.step(optimizer)
        self.scaler.update()

    def without_synchronizing(self, optimizer: Any) -> Any:
        return optimizer.skip_synchronize()

    def add_noise(self, number: int, step: Step) -> None:
        """Add the same noise on every rank to the gradients of parts that any rank has used."""
        for index, p in enumerate(self.model.parameters_of(step.used_by_any())):
            if p.grad is not None:
                generator = torch.Generator().manual_seed(number * 100 + index)
                p.grad.add_(torch.randn(p.shape, generator=generator), alpha=1e-2)

    def resume(self) -> None:
        """Rebuild everything from a checkpoint, as if the script had been started again."""
        saved = copy.deepcopy([self.model.state_dict(), *(each.state_dict() for each in self.optimizers)])
        self.optimizers.clear()
        self.model, self.optimizers = self.built()
        for each, state in zip([self.model, *self.optimizers], saved, strict=True):
            each.load_state_dict(state)

    def note_gradients(self, moment: str, optimizers: list[Any]) -> None:
        wanted = {p for optimizer in optimizers for p in parameters_of(optimizer)}
        named = [(name, p) for name, p in self.model.named_parameters() if p in wanted]
        self.note(moment, {name: p.grad for name, p in named})

    def note(self, moment: str, tensors: dict[str, torch.Tensor | None]) -> None:
        """Record tensors. Zeros count as no gradient, as a frozen parameter may have either."""
        self.outcome.seen[moment] = {
            name: None if tensor is None or not tensor.any() else tensor.clone()
            for name, tensor in tensors.items()
        }


def parameters_of(optimizer: torch.optim.Optimizer) -> list[nn.Parameter]:
    return [p for group in optimizer.param_groups for p in group["params"]]


def ended(error: BaseException, at: str) -> Outcome:
    """The outcome of a rank that ended without reporting one."""
    return Outcome(error=(type(error).__name__, (), at), text=f"{type(error).__name__}: {error}")
