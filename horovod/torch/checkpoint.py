"""The part of a checkpoint that compressed training adds to model and optimizer.

It is state_dict()["horovod"] of a DistributedOptimizer, and state_dict() of a CompressionState:

    form           the version of this form, FORM; 1 if absent
    rank, size     the position of the rank that saved it among its peers, and their number
    residuals      position -> Residuals.state_dict(): this rank's, or, after ``consolidate``, every rank's
    compressors    parameter -> the memory of its compressor; the same on every rank

Every rank has its own residuals. They are gathered first, through Peers, if rank 0 alone writes the
checkpoint.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

import torch

from horovod.common.sentences import facts_of
from horovod.torch import errors
from horovod.torch.compression.memory import Memory
from horovod.torch.residuals import STAGES, Residuals

FORM = 1  # raised when older versions could not read the form; older forms stay readable


class Peers(NamedTuple):
    """The ranks that share a checkpoint. Each has a position among them: 0, 1, ..."""

    owner: str  # the object that the script calls, for warnings: "optimizer"
    ranks: Callable[[], list[int] | None]  # of the job, in the order of positions; None while unknown
    position: Callable[[], int | None]  # this rank's; None if it has none, or the job is over
    size: Callable[[], int | None]  # the number of peers; None if the job is over
    gathered: Callable[[Any, int], list[Any] | None]  # collective: all peers' objects, at one position only


class Checkpoint:
    """Saves and restores the state of a reduction between steps.

    While ``peers`` are unknown it keeps a loaded checkpoint unchanged, as residuals belong to ranks.
    """

    def __init__(self, residuals: Residuals, memory: Memory, peers: Peers | None) -> None:
        self._residuals, self._memory, self._known_peers = residuals, memory, peers
        # loaded before the peers were known
        self._loaded: Mapping[str, Any] | None = None
        self._rank, self._size = 0, 1  # among the peers; kept when the job is over
        # Every rank's residuals as gathered or loaded, valid until the next reduction.
        self._everybodys: dict[int, Any] | None = None

    @property
    def _peers(self) -> Peers:
        assert self._known_peers is not None
        return self._known_peers

    def meet(self, peers: Peers, names: Collection[str] | None = None) -> None:
        """Set the peers. Raises and warns as ``load_state_dict``, of a checkpoint loaded before."""
        self._known_peers = peers
        if self._loaded is not None:
            self.load_state_dict(self._loaded, names)
            self._loaded = None

    def _look_around(self) -> None:
        if (peers := self._known_peers) is not None:
            self._rank, self._size = peers.position() or 0, peers.size() or 1

    def on_reduction(self) -> None:
        """Forget the residuals of other ranks, which the reduction changes."""
        self._look_around()
        self._everybodys = None

    def state_dict(self) -> dict[str, Any]:
        """Return the checkpoint; empty if there is nothing to save."""
        if self._known_peers is None:
            return dict(self._loaded or {})
        residuals = dict(self._everybodys or {})
        if self._residuals:
            residuals[self._rank] = self._residuals.state_dict()
        compressors = self._memory.state_dict()
        if not residuals and not compressors:
            return {}
        whose = {"form": FORM, "rank": self._rank, "size": self._size}
        return {**whose, "residuals": residuals, "compressors": compressors}

    def load_state_dict(self, saved: Mapping[str, Any] | None, names: Collection[str] | None = None) -> None:
        """Continue from what ``state_dict()`` returned, or start from nothing.

        Residuals that are missing for this rank start again from zero, and residuals of parameters not in
        ``names`` are dropped, both with a warning. ValueError, without any change, if ``saved`` has another
        form.
        """
        if self._known_peers is None:
            self._loaded = saved
            return
        if saved:
            try:
                _check_form(saved)
            except ValueError as error:
                raise errors.damaged_checkpoint(owner=self._peers.owner, **facts_of(error)) from None
            self._look_around()
        saved = saved or {"size": self._size, "residuals": {}, "compressors": {}}
        self._memory.load_state_dict(saved["compressors"])
        residuals = saved["residuals"]
        own = residuals.get(self._rank) if saved["size"] == self._size else None
        is_complete = own is not None and len(residuals) == self._size
        self._everybodys = dict(residuals) if is_complete else None
        strangers = self._residuals.load_state_dict(own, names)
        if strangers:
            warnings.warn(
                f"The checkpoint has error feedback of {', '.join(strangers)}, which is no parameter of this "
                f"{self._peers.owner}: it is left out.",
                stacklevel=2,
            )
        if residuals and own is None and self._size > 1 and self._residuals.is_kept:
            of = ", ".join(map(str, residuals))
            warnings.warn(
                f"Error feedback begins anew on rank {self._rank} of {self._size}: the checkpoint has that "
                f"of rank {of} of {saved['size']}. Call {self._peers.owner}.consolidate_residuals() on all "
                "ranks before state_dict() to save everybody's; it fits the same number of ranks only.",
                stacklevel=2,
            )

    def forget_residuals(self) -> bool:
        """Start error feedback again, as other ranks share the work now. Return whether there was any.

        Residuals are losses of sums with ranks that have left, or of sums that other ranks encode now.
        """
        had_any = bool(self._residuals)
        self._residuals.load_state_dict(None)
        self._everybodys = None
        return had_any

    def consolidate(self, to: int) -> None:
        """Gather every rank's residuals on rank ``to`` of the job. Collective for all peers.

        ``to`` has them in its state_dict() until the next reduction. Ranks that are not peers do nothing.
        """
        ranks = self._peers.ranks()
        if ranks is None or self._peers.position() is None:
            return
        if to not in ranks:
            raise errors.not_a_peer(to=to, owner=self._peers.owner, members=list(ranks))
        self._look_around()
        received = self._peers.gathered(self._residuals.state_dict(), ranks.index(to))
        if received is not None:
            self._everybodys = dict(enumerate(received))

    def parts(self) -> dict[int, Any]:
        """Return, by rank of the job, the state with which that rank continues from this one.

        It has residuals only if a checkpoint with every rank's residuals was loaded here.
        """
        saved = self.state_dict()
        if not saved:
            return {}
        everybodys, ranks = self._everybodys or {}, self._peers.ranks() or []
        return {
            rank: {**saved, "residuals": {position: everybodys[position]} if position in everybodys else None}
            for position, rank in enumerate(ranks)
        }

    def take(self, part: Mapping[str, Any] | None) -> None:
        """Continue from another rank's ``parts()`` for this rank, and forget everything else."""
        own = part["residuals"] if part is not None else None
        if own is None and self._residuals:
            warnings.warn(
                f"Error feedback begins anew on rank {self._rank} of {self._size}: the rank whose state is "
                "broadcast has none of this rank. Load a checkpoint there that was made after "
                f"{self._peers.owner}.consolidate_residuals().",
                stacklevel=3,
            )
        self.load_state_dict({**part, "residuals": own or {}} if part is not None else None)


def _check_form(saved: Any) -> None:
    """Raise ValueError, with the reason, unless ``saved`` has the form of ``Checkpoint.state_dict()``.

    So a damaged or foreign file fails at loading, not steps later.
    """
    if not isinstance(saved, Mapping) or type(saved.get("size")) is not int:
        raise errors.no_size()
    form = saved.get("form", 1)  # 0.29.0 writes none
    if type(form) is not int or not 1 <= form <= FORM:
        raise errors.unknown_form(form=f"{form!r:.80}", newest=FORM)
    residuals, compressors = saved.get("residuals"), saved.get("compressors")
    if not isinstance(residuals, Mapping) or not all(type(rank) is int for rank in residuals):
        raise errors.no_feedback_by_rank()
    for state in residuals.values():
        _check_residuals(state)
    _check_compressors(compressors)


def _check_compressors(compressors: Any) -> None:
    """Check the form of ``Memory.state_dict()``."""
    if not isinstance(compressors, Mapping) or not all(
        isinstance(state, Mapping) for state in compressors.values()
    ):
        raise errors.no_compressors()
    if not all(isinstance(key, str) for state in compressors.values() for key in (*compressors, *state)):
        raise errors.no_names()
    for name, state in compressors.items():
        for value in state.values():
            if isinstance(value, torch.Tensor) and (wrong := _wrong_with(value)):
                raise errors.wrong_memory(name=name, wrong=wrong)


def _check_residuals(state: Any) -> None:
    """Check the form of one rank's ``Residuals.state_dict()``."""
    if not isinstance(state, Mapping) or not isinstance(state.get("parameters"), Mapping):
        raise errors.no_feedback_by_parameter()
    scale = state.get("loss_scale", "missing")
    if scale is not None and not (_is_size(scale) and scale > 0):
        raise errors.wrong_saved_scale(got=f"{scale!r:.80}")
    for name, saved in state["parameters"].items():
        if not isinstance(name, str) or not isinstance(saved, Mapping):
            raise errors.no_feedback_of(name=name)
        _check_parameter(name, saved)


def _wrong_with(values: torch.Tensor) -> str:
    """Return why these numbers cannot be used; "" if they can, with any strides."""
    if values.device.type == "meta":
        return "without data (on the device meta)"
    if values.layout != torch.strided or values.is_quantized or values.is_complex():
        return f"of layout {values.layout} and dtype {values.dtype}, and no plain numbers"
    return ""


def _check_parameter(name: str, saved: Mapping[str, Any]) -> None:
    counts = [saved.get("count"), saved.get("uses")]
    for stage in STAGES:
        match saved.get(stage):
            case [begin, torch.Tensor() as values]:
                counts.append(begin)
                if wrong := _wrong_with(values):
                    raise errors.wrong_feedback(name=name, wrong=wrong)
                if values.dim() != 1:
                    raise errors.wrong_dimensions(name=name, dimensions=values.dim())
            case _:
                raise errors.no_stage(name=name, stage=stage)
    if not all(type(count) is int and 0 <= count < 2**63 for count in counts):
        raise errors.wrong_counts(name=name, got=f"{counts!r:.200}")
    usual = saved.get("usual", ())
    if not isinstance(usual, tuple | list) or not all(_is_size(size) for size in usual):
        raise errors.wrong_usual(name=name, got=f"{usual!r:.200}")


def _is_size(value: Any) -> bool:
    """Return whether ``value`` is a finite number of at least 0."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and 0 <= value <= sys.float_info.max
