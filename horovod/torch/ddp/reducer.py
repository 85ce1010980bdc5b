"""Gradients averaged in place over a torch process group, compressed, without an engine.

What a bucket's gradients become on the wire is the engine's on the routes `exchange gather` and `exchange
scatter`: the same slices, bytes, residuals, random numbers, and sums in rank order. So all ranks get the same
bits, and those of hvd.allreduce() of the same names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from horovod import _native as native
from horovod.common import software
from horovod.torch import devices
from horovod.torch.compression import NoneCompressor, codec_for, compressor_name
from horovod.torch.compression.first_step import NoteSent, nobody_asks
from horovod.torch.compression.memory import Memory
from horovod.torch.ddp.agreement import (
    DIGEST_BYTES,
    check_agreement,
    digest_of,
    terms_as_bytes,
    terms_from_bytes,
)
from horovod.torch.ddp.carried import Addend, CarriedTensors, add_in_torch, is_summed_by_core
from horovod.torch.ddp.courier import HostCourier
from horovod.torch.ddp.exchange import Operation
from horovod.torch.ddp.groups import OwnGroups
from horovod.torch.ddp.python_compressors import (
    InRounds,
    PythonMember,
    gather_codes,
    start_summed,
    to_everybody,
)
from horovod.torch.ddp.stream_courier import StreamCourier
from horovod.torch.reduce_ops import OP_NAMES, Average, Sum
from horovod.torch.residuals import Residuals
from horovod.torch.tensors import check_served, is_addressable

__all__ = ["Gradient", "GroupReducer"]


MOST_AGREED = 4096  # kinds of buckets that are remembered: a script may sum ever new shapes


class Gradient(NamedTuple):
    """A tensor to reduce in place: contiguous, of any shape and dtype; ``compressor`` is resolved.

    With ``source``, of the same shape, strides and dtype, that is what is reduced, and the result goes to
    ``tensor``. ``note_sent`` hears how small a compressor of Python makes it.
    """

    name: str
    tensor: torch.Tensor
    compressor: Any
    source: torch.Tensor | None = None
    note_sent: NoteSent = nobody_asks

    def fill(self) -> None:
        """Have in ``tensor`` what is to be reduced."""
        if self.source is not None:
            self.tensor.copy_(self.source)


class GroupReducer:
    """Reduces gradients in place over the ranks of a process group.

    It works over groups of its own, of the same ranks, backends and timeout, so that its collectives never
    mix with others: all ranks make one together. Ranks agree about gradients and their compression when they
    first reduce them. ValueError for an unknown algorithm.

    Args:
        process_group: None is the default one.
        algorithm: "gather" or "scatter"; "auto" chooses by the number of ranks, and None is what
            HOROVOD_ALLREDUCE_ALGORITHM says.
        error_feedback: whether what compressors lose is kept for the next gradient of that name, where they
            want it.

    Attributes:
        rank, size: of this process in the group.
        residuals, memory: what compressors have lost of gradients, and what they remember, by name.
    """

    def __init__(
        self,
        process_group: dist.ProcessGroup | None = None,
        *,
        algorithm: str | None = None,
        error_feedback: bool = False,
    ) -> None:
        group = process_group if process_group is not None else dist.group.WORLD
        if group is None:
            raise ValueError("there is no process group: call torch.distributed.init_process_group() first.")
        self.rank, self.size = group.rank(), group.size()
        self._algorithm = algorithm or native.Settings.from_environment().allreduce_algorithm
        self._is_scattered(True)  # an unknown algorithm is refused here, before there are connections
        self._groups = OwnGroups(group) if self.size > 1 else None
        self.residuals = Residuals(error_feedback)
        self.memory = Memory()
        self._keys = native.DrawKeys()
        self._agreed: dict[tuple[Any, ...], list[Any]] = {}
        self._couriers: dict[int, HostCourier | StreamCourier] = {}
        self._is_closed = False

    def agree(self, terms: Mapping[str, str]) -> None:
        """Have all ranks compare their terms; all ranks call it, and wait for each other.

        ValueError on every rank, which says what each of them has, unless all have the same in one order.
        """
        self._check_open()
        if self._groups is not None:
            device = self._groups.common_device
            index = devices.CPU if device.type == "cpu" else torch.cuda.current_device()
            terms = {"horovod": software.build_name(), **terms}
            self._courier(index).start(self._agree(terms, device)).wait()

    def start(self, gradients: Sequence[Gradient], op: int = Average) -> torch.futures.Future[None]:
        """Begin to average (or, with Sum, add) gradients over all ranks, in place.

        All ranks start the same reductions in the same order. The tensors belong to the reducer until the
        future is done; on a GPU that is when the work is on its stream, behind which whoever waits goes on.
        The future has the error of what fails: ValueError on all ranks where they disagree, torch's error of
        a rank that is gone or late. After an error that is not all ranks' every later call raises it.

        Raises:
            ValueError: a tensor cannot be reduced, or the op is neither Average nor Sum.
            RuntimeError: the reducer was closed.
        """
        self._check_open()
        device = _checked(gradients, op)
        if self._groups is None or not gradients:
            for gradient in gradients:
                gradient.fill()
            return devices.done_future(device)
        self._groups.check_device(gradients[0].tensor.device)
        courier = self._courier(device)
        if courier.is_idle:
            self.residuals.rescale()
        # What was made in inference mode may be written to in that mode only, in the courier's thread too.
        is_inference = any(gradient.tensor.is_inference() for gradient in gradients)
        mode = torch.inference_mode() if is_inference else torch.no_grad()
        return courier.start(mode(self._reduce)(list(gradients), op))

    def close(self) -> None:
        """Finish what was started, then let go of the groups and the thread."""
        self._is_closed = True
        for courier in self._couriers.values():
            courier.close()
        self._couriers.clear()
        if self._groups is not None:
            self._groups.close()

    def _check_open(self) -> None:
        if self._is_closed:
            raise RuntimeError("This reducer was closed: nothing can be reduced with it any more.")

    def _courier(self, device: int) -> HostCourier | StreamCourier:
        assert self._groups is not None
        if device not in self._couriers:
            make = HostCourier(self._groups) if device == devices.CPU else StreamCourier(self._groups, device)
            self._couriers[device] = make
        return self._couriers[device]

    def _is_scattered(self, is_encoded: bool) -> bool:
        """The route, as the engine chooses it between ranks that exchange messages: by their number alone."""
        facts = native.PlanFacts()
        facts.ranks = facts.hosts = self.size
        facts.is_encoded = is_encoded
        return native.plan_allreduce(facts, self._algorithm, deterministic=True).pattern == "scatter"

    def _reduce(self, gradients: list[Gradient], op: int) -> Operation:
        yield from self._agree_once(gradients, op)
        addends, finishes, in_rounds, gathered = self._sorted(gradients, op)
        rounds = InRounds(in_rounds, self.size)
        while addends or in_rounds:
            sums = rounds.next_sums()
            addends += [Addend(*sum_, op=Sum) for sum_ in sums]
            if not addends:
                break
            yield from self._sum(addends, is_last=not sums and not gathered)
            addends = []
        for finish in finishes:
            finish()
        rounds.finish(op)
        if gathered:
            yield from gather_codes(gathered, op, self.size)

    def _sum(self, addends: Sequence[Addend], is_last: bool) -> Operation:
        in_torch = [addend for addend in addends if not is_summed_by_core(addend)]
        if in_torch:
            yield from add_in_torch(in_torch, self.size)
        carried = [addend for addend in addends if is_summed_by_core(addend)]
        if carried:
            is_encoded = any(addend.codec is not None for addend in carried)
            is_scattered = self._is_scattered(is_encoded)
            yield CarriedTensors(carried, self.rank, self.size, is_scattered, is_last, self._keys)

    def _sorted(self, gradients: Sequence[Gradient], op: int) -> _Sorted:
        """Which way each gradient goes, by its dtype and compressor; so all ranks choose the same."""
        ways = _Sorted([], [], [], [])
        for gradient in gradients:
            name, tensor, compressor, source, note_sent = gradient
            own = tensor if source is None else source
            codec = codec_for(compressor, tensor)
            combine = getattr(compressor, "combine", "sum")
            feedback: Any = self.residuals.of(name, tensor, compressor) if self.residuals.is_kept else None
            if compressor is NoneCompressor or (combine != "sum" and not tensor.is_floating_point()):
                ways.addends.append(Addend(name, own, tensor, op))
            elif codec is not None:
                ways.addends.append(Addend(name, own, tensor, op, codec, feedback))
            else:
                gradient.fill()
                state = self.memory.of(name, compressor, tensor.device) if combine == "rounds" else {}
                member = PythonMember(name, tensor, compressor, feedback, state, note_sent)
                if combine == "sum":
                    small, finish = start_summed(member)
                    ways.addends.append(Addend(name, small, small, op))
                    ways.finishes.append(finish)
                else:
                    (ways.in_rounds if combine == "rounds" else ways.gathered).append(member)
        return ways

    def _agree_once(self, gradients: list[Gradient], op: int) -> Operation:
        """Before ranks first reduce these gradients together: whether all mean the same."""
        key = (op, *((name, tensor.shape, tensor.dtype, id(how)) for name, tensor, how, *_ in gradients))
        if key in self._agreed:
            return
        terms = {"op": OP_NAMES[op]}
        for name, tensor, compressor, *_ in gradients:
            codec = getattr(compressor, "codec", None)
            how = compressor_name(compressor) if codec is None else codec.name
            terms[name] = f"{list(tensor.shape)} {str(tensor.dtype).removeprefix('torch.')} {how}"
        yield from self._agree(terms, gradients[0].tensor.device)
        if len(self._agreed) >= MOST_AGREED:
            self._agreed.clear()  # on all ranks at the same one: they have seen the same
        self._agreed[key] = [gradient.compressor for gradient in gradients]  # they live, and keep their ids

    def _agree(self, terms: dict[str, str], device: torch.device) -> Operation:
        """Digests first: only where they differ do ranks send what they have."""

        def tensor_of(run: bytes) -> torch.Tensor:
            return torch.frombuffer(bytearray(run), dtype=torch.uint8).to(device)

        digests = yield from to_everybody(tensor_of(digest_of(terms)), DIGEST_BYTES)
        if all(torch.equal(digest, digests[0]) for digest in digests[1:]):
            return
        text = terms_as_bytes(terms)
        length = tensor_of(len(text).to_bytes(8, "little"))
        rows = yield from to_everybody(length, 8)
        lengths = [int.from_bytes(row[:8].cpu().numpy().tobytes(), "little") for row in rows]
        rows = yield from to_everybody(tensor_of(text), max(lengths))
        texts = [row[:n].cpu().numpy().tobytes() for row, n in zip(rows, lengths, strict=True)]
        check_agreement([terms_from_bytes(text) for text in texts])


class _Sorted(NamedTuple):
    """Gradients of a bucket by the way they go, and what is left to do after the first."""

    addends: list[Addend]
    finishes: list[Callable[[], None]]
    in_rounds: list[PythonMember]
    gathered: list[PythonMember]


def _checked(gradients: Sequence[Gradient], op: int) -> int:
    """The device of all gradients. ValueError unless they can be reduced together."""
    if op not in (Average, Sum):
        raise ValueError(f"op={op!r}: gradients can be averaged (Average) or added (Sum) only.")
    names = [gradient.name for gradient in gradients]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"two gradients of one reduction are called {twice!r}: give each a name of its own.")
    for name, tensor, *_ in gradients:
        check_served(tensor, name)
        if not is_addressable(tensor):
            raise ValueError(f"{name}: the gradient is not contiguous: reduce tensor.contiguous().")
    return devices.common_device([gradient.tensor for gradient in gradients], ", ".join(names[:3]))
