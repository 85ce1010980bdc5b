"""The operations of horovod.torch as a table of cases, and a slow twin in NumPy with the right results.

    Case(form, dtype, op, ...)       one way to call an operation: every choice of a caller is a field
    inputs(case)                     the input of each member, generated alike on every rank
    twin(case, parts, me)            a member's expected result; gradient_twin(): the gradient of its input
    call(case, tensors)              the operation itself; checks the promises of its form

The dtypes are the rows of Horovod's table (docs/compatibility.md), and those that only this package serves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import oracle
import torch
from compressors import name_of
from ml_dtypes import bfloat16, finfo
from numpy.typing import NDArray
from places import Place
from ranks import DTYPES

import horovod.torch as hvd

Array = NDArray[Any]

FLOATS = ["float16", "bfloat16", "float32", "float64"]
INTEGERS = ["uint8", "int8", "int16", "int32", "int64"]
COMPLEX = ["complex64", "complex128"]
ALL = list(DTYPES)
OPS = ["Average", "Sum", "Min", "Max", "Product"]
USUAL = ((17,), (5, 7), (3, 5, 2))
SHAPES = (*USUAL, (), (1,), (0,), (3, 0, 2), (1,) * 6)
FEW = ((5, 7), (3,))
ALLREDUCES = [
    grouped + name
    for grouped in ("", "grouped_")
    for name in ("allreduce", "allreduce_", "allreduce_async", "allreduce_async_")
]
GATHERS = ["allgather", "allgather_async", "grouped_allgather", "grouped_allgather_async"]
BROADCASTS = ["broadcast", "broadcast_", "broadcast_async", "broadcast_async_"]
ALLTOALLS = ["alltoall", "alltoall_async"]
SCATTERS = ["reducescatter", "reducescatter_async", "grouped_reducescatter", "grouped_reducescatter_async"]
REDUCTIONS = [*ALLREDUCES, *SCATTERS]
COMPRESSED = [*ALLREDUCES, "reducescatter", "grouped_reducescatter"]
FORMS = [*ALLREDUCES, *GATHERS, *BROADCASTS, *ALLTOALLS, *SCATTERS]
EXTREMES = {name: [int(np.iinfo(name).min), -3, int(np.iinfo(name).max) // 2 + 1, int(np.iinfo(name).max)]
            for name in INTEGERS}  # fmt: skip
EXTREMES["uint8"][1] = 1


@dataclass(frozen=True)
class Case:
    """A call. ``dtype``: of a group, "a+b" alternates between members. ``op``: "" is the default, Average.

    values: "whole" numbers, with exact sums in every dtype; "fractions", which round; "extremes" of integers;
    "special" floats; "powers" of two, which every codec represents.
    """

    form: str
    dtype: str = "float32"
    op: str = ""
    factors: tuple[float, float] = (1.0, 1.0)
    values: str = "whole"
    layout: str = "plain"
    over: str = "all"  # or "parity": even and odd ranks, each as one set
    splits: str = ""  # of alltoall, see SPLITS
    rows: str = ""  # rows of gathered tensors, see ROWS
    root: int = 0  # of a broadcast: a member's place
    compression: Any = None
    shapes: tuple[tuple[int, ...], ...] = USUAL

    def __str__(self) -> str:
        given = [self.form, self.dtype]
        for field, text in self.__dict__.items():
            if field not in ("form", "dtype", "shapes") and text != getattr(Case, field):
                given.append(name_of(text))
        if self.shapes != USUAL:
            given.append(str(self.shapes[0]) if self.shapes != SHAPES else "every shape")
        return "-".join(given)

    @property
    def operation(self) -> str:
        return self.form.removeprefix("grouped_").rstrip("_").removesuffix("_async")

    @property
    def is_grouped(self) -> bool:
        return self.form.startswith("grouped")

    @property
    def is_in_place(self) -> bool:
        return self.form.endswith("_")

    @property
    def reduces(self) -> bool:
        return self.operation in ("allreduce", "reducescatter")

    def members(self, rank: int, size: int) -> list[int]:
        return list(range(size)) if self.over == "all" else list(range(rank % 2, size, 2))

    def shapes_for(self, size: int) -> tuple[tuple[int, ...], ...]:
        """Return the operation's shapes: it gathers or scatters rows; alltoall sends equally many to each."""
        has_rows = self.operation not in ("allreduce", "broadcast")
        shapes = tuple(filter(None, self.shapes)) if has_rows else self.shapes
        if self.operation == "alltoall" and not self.splits:
            return tuple((shape[0] * size, *shape[1:]) for shape in shapes)
        return shapes

    def dtypes(self) -> list[str]:
        """Return the dtypes of the tensors, in turn."""
        names = self.dtype.split("+")
        return [names[i % len(names)] for i in range(len(self.shapes) * len(names))]


def ops_of(form: str, dtype: str) -> list[str]:
    if form not in REDUCTIONS:
        return [""]
    return OPS if form in ALLREDUCES and dtype not in COMPLEX else ["Average", "Sum"]


def served(case: Case) -> bool:
    """Return whether the case is served: the Average of booleans is refused."""
    return (case.op or "Average", case.dtype) != ("Average", "bool") or not case.reduces


# ---- values ----


ROWS: dict[str, Callable[[int], int]] = {
    "": lambda rank: 3,
    "uneven": lambda rank: (17, 32, 81, 12)[rank % 4],
    "none of rank 0": lambda rank: rank and rank + 2,
    "none of rank 1": lambda rank: 0 if rank == 1 else rank + 2,
    "none": lambda rank: 0,
}


def uneven(sender: int, receiver: int) -> int:
    return (sender + 2 * receiver) % 4


# The number of rows that each member sends to each other.
SPLITS: dict[str, Callable[[int, int, int], int]] = {
    "uneven": lambda sender, receiver, size: uneven(sender, receiver),
    "a list": lambda sender, receiver, size: 2,
    "some stay": lambda sender, receiver, size: 1,
    "all to one": lambda sender, receiver, size: 2 * (receiver == 0),
    "one to one": lambda sender, receiver, size: 5 * (sender == size - 1 and receiver == 0),
    "nothing": lambda sender, receiver, size: 0,
    "not of rank 0": lambda sender, receiver, size: 1 + (sender == 0),
}


def numpy_dtype(name: str) -> np.dtype[Any]:
    return np.dtype(DTYPES[name][1] if name in DTYPES else name)


def filled(case: Case, rank: int, number: int, shape: tuple[int, ...]) -> Array:
    """Return a rank's input as tensor ``number``."""
    dtype = numpy_dtype(case.dtypes()[number])
    generator = np.random.default_rng([rank, number, len(shape)])
    if case.values == "fractions":
        return np.asarray(generator.standard_normal(shape)).astype(dtype)
    if case.values == "extremes":
        numbers = np.resize(np.array(EXTREMES[dtype.name], dtype), shape)
        return numbers - (numbers > 0).astype(dtype) if rank == 0 else numbers
    if case.values == "special":
        return np.resize(np.array([np.nan, np.inf, -0.0, 2.0] if rank == 1 else [1.0], dtype), shape)
    if case.values == "powers":  # sums over four ranks are 6 times one, which e5m2 represents
        return np.full(shape, 2.0 ** (rank // 2 + number) * (1 + 1j if dtype.kind == "c" else 1), dtype)
    limit = 3 if case.op == "Product" or dtype.itemsize == 1 or case.op == "Adasum" else 100
    if dtype.kind == "b":
        return generator.integers(0, 2, shape).astype(dtype)
    least = 0 if dtype.kind == "u" else -limit
    whole = np.asarray(generator.integers(least, limit + 1, shape))
    if dtype.kind == "c":
        return (whole + 1j * generator.integers(-limit, limit + 1, shape)).astype(dtype)
    return whole.astype(dtype)


def inputs(case: Case, members: Sequence[int]) -> list[list[Array]]:
    """Return inputs by tensor, then by member."""
    size = len(members)

    def shaped(place: int, shape: tuple[int, ...]) -> tuple[int, ...]:
        if case.operation == "allgather":
            return (ROWS[case.rows](place), *shape[1:])
        if case.splits:
            sent = sum(SPLITS[case.splits](place, receiver, size) for receiver in range(size))
            return (sent + 5 * (case.splits == "some stay"), *shape[1:])
        return shape

    return [
        [filled(case, rank, i, shaped(place, shape)) for place, rank in enumerate(members)]
        for i, shape in enumerate(case.shapes_for(size))
    ]


# ---- the twin ----


def reduction(op: str, parts: list[Array], factors: tuple[float, float] = (1.0, 1.0)) -> Array:
    """Return the reduction of the parts; complex numbers count as pairs of reals. oracle.py computes it."""
    first = parts[0]
    if first.dtype.kind == "c":
        pairs = [np.ascontiguousarray(part).reshape(-1).view(part.real.dtype) for part in parts]
        return reduction(op, pairs, factors).view(first.dtype).reshape(first.shape)
    with np.errstate(all="ignore"):
        if op == "Adasum":
            return np.asarray(oracle.adasum(parts, *factors))
        whole = oracle.allreduce(
            [np.atleast_1d(part) for part in parts], getattr(hvd, op or "Average"), *factors
        )
        return whole.reshape(first.shape)


def adasum_of(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return the combination in float64."""
    whole = reduction("Adasum", [part.detach().double().numpy() for part in parts])
    return tensor_of(whole).to(parts[0].dtype)


def share(rows: int, place: int, size: int) -> slice:
    """Return the rows of dimension 0 that reducescatter gives to a member: the first members get one more."""
    least, more = divmod(rows, size)
    begin = place * least + min(place, more)
    return slice(begin, begin + least + (place < more))


def sent_rows(case: Case, sender: int, receiver: int, size: int, rows: int) -> slice:
    """Return the rows of a sender that go to a receiver."""
    if not case.splits:
        return slice(rows // size * receiver, rows // size * (receiver + 1))
    begin = sum(SPLITS[case.splits](sender, r, size) for r in range(receiver))
    return slice(begin, begin + SPLITS[case.splits](sender, receiver, size))


def twin(case: Case, parts: list[Array], me: int) -> Array:
    """Return the result of the member in place ``me``, from all inputs of one tensor."""
    size = len(parts)
    if case.operation == "allgather":
        return np.concatenate(parts)
    if case.operation == "broadcast":
        return parts[case.root % size]
    if case.operation == "alltoall":
        rows = [part[sent_rows(case, r, me, size, len(part))] for r, part in enumerate(parts)]
        return np.concatenate(rows)
    whole = reduction(case.op, parts, case.factors)
    return whole[share(len(whole), me, size)] if case.operation == "reducescatter" else whole


def gradient_twin(case: Case, parts: list[Array], above: list[Array], me: int) -> Array:
    """Return the gradient of a member's input; ``above``: gradients of all members' results.

    Horovod differs from the true adjoint in two points: it averages (allgather, broadcast) or has a factor
    (reducescatter).
    """
    size, own = len(parts), parts[me]
    if case.operation == "allreduce":
        return reduction(case.op, above, case.factors)
    if case.operation == "allgather":
        begin = sum(len(part) for part in parts[:me])
        return reduction("Average", above)[begin : begin + len(own)]
    if case.operation == "broadcast":
        return reduction("Average", above) if me == case.root % size else np.zeros_like(own)
    if case.operation == "reducescatter":
        factor = case.factors[0] * case.factors[1] * (size if case.op == "Sum" else 1)
        return np.concatenate(above) * own.dtype.type(factor)
    gradient = np.zeros_like(own)  # also of rows that stay
    for receiver, rows in enumerate(above):
        sent = [sent_rows(case, r, receiver, size, len(part)) for r, part in enumerate(parts)]
        begin = sum(each.stop - each.start for each in sent[:me])
        gradient[sent[me]] = rows[begin : begin + sent[me].stop - sent[me].start]
    return gradient


# ---- tensors ----


def tensor_of(x: Array) -> torch.Tensor:
    x = np.array(x)
    return (
        torch.from_numpy(x.view(np.int16)).view(torch.bfloat16)
        if x.dtype == bfloat16
        else torch.from_numpy(x)
    )


def array_of(x: torch.Tensor) -> Array:
    x = x.detach().cpu().resolve_conj().contiguous()
    return x.view(torch.int16).numpy().view(bfloat16) if x.dtype == torch.bfloat16 else x.numpy()


def with_gaps(x: torch.Tensor) -> torch.Tensor:
    return torch.stack([x, torch.full_like(x, 1)], -1)[..., 0]


def beginning_anywhere(x: torch.Tensor) -> torch.Tensor:
    """Return a tensor at an address that is no multiple of the 16 bytes that kernels read at a time."""
    return torch.cat([torch.ones(1, dtype=x.dtype, device=x.device), x.reshape(-1)])[1:].view(x.shape)


LAYOUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "plain": lambda x: x,
    "transposed": lambda x: x.mT.contiguous().mT,
    "with gaps": with_gaps,
    "anywhere": beginning_anywhere,
    "channels last": lambda x: x.contiguous(memory_format=torch.channels_last),
    "conjugated": lambda x: x.conj().resolve_conj().conj(),
    "conjugated and transposed": lambda x: x.mH.resolve_conj().contiguous().mH,
}


def laid_out(case: Case, x: Array, place: Place) -> torch.Tensor:
    tensor = LAYOUTS[case.layout](place.put(tensor_of(x)))
    assert case.layout in ("plain", "anywhere", "conjugated") or not tensor.is_contiguous() or x.size < 2
    return tensor


def same(result: torch.Tensor, want: Array, tolerance: float | None, place: Place, what: object) -> None:
    """Check a result's place, and its values within the tolerance; None: to the bit, with signs of zeros."""
    got = array_of(result)
    assert result.device == place.device, what
    assert (got.shape, got.dtype) == (want.shape, want.dtype), f"{what}: {got.shape} {got.dtype}"
    if tolerance is None:
        bits = (np.ascontiguousarray(x).reshape(-1).view(np.uint8) for x in (got, want))
        assert np.array_equal(*bits), f"{what}: {got}, not {want}"
        return
    if tolerance == 0:
        equal = (got == want) | ((got != got) & (want != want))
    else:
        wide = np.complex128 if got.dtype.kind == "c" else np.float64
        equal = np.abs(got.astype(wide) - want.astype(wide)) <= tolerance
    assert np.all(equal), (
        f"{what}: {np.sum(~equal)} elements differ: {got[~equal][:9]}, not {want[~equal][:9]}"
    )


def tolerance_of(case: Case, parts: list[Array]) -> float | None:
    """Return the error allowed in an element: none, or some roundings of inputs, but not of the result."""
    first = parts[0]
    if not case.reduces:
        return None
    is_inexact = case.factors != (1.0, 1.0) or case.values == "fractions" or case.op == "Adasum"
    if not is_inexact or first.dtype.kind not in "fcV":
        return 0.0
    wide = np.complex128 if first.dtype.kind == "c" else np.float64
    total = sum(np.abs(part.astype(wide)) for part in parts) * max(1.0, case.factors[0] * case.factors[1])
    epsilon = float(finfo(first.real.dtype if first.dtype.kind == "c" else first.dtype).eps)
    if case.op == "Adasum":  # because of its dot products
        return 10 * epsilon * float(np.max(total, initial=1.0))
    return 2 * epsilon * float(np.max(total, initial=0.0))


# ---- calls ----


def arguments(case: Case, members: list[int], me: int, process_set: Any) -> dict[str, Any]:
    how: dict[str, Any] = {}
    if process_set is not None:
        how["process_set"] = process_set
    if case.reduces:
        if case.op:
            how["op"] = getattr(hvd, case.op)
        if case.factors != (1.0, 1.0):
            how["prescale_factor"], how["postscale_factor"] = case.factors
        if case.compression is not None:
            how["compression"] = case.compression
    if case.operation == "broadcast":
        how["root_rank"] = members[case.root % len(members)]
    if case.splits and not (case.splits == "not of rank 0" and me == 0):
        splits = [SPLITS[case.splits](me, receiver, len(members)) for receiver in range(len(members))]
        how["splits"] = splits if case.splits == "a list" else torch.tensor(splits, dtype=torch.int32)
    return how


def begin(case: Case, tensors: list[torch.Tensor], name: str | None, **how: Any) -> list[Any]:
    """Start the operation; return one result or handle for a group, otherwise one for each tensor."""
    begun = []
    for i, given in enumerate([tensors] if case.is_grouped else tensors):
        begun.append(getattr(hvd, case.form)(given, name=name and f"{name}.{i}", **how))
        assert type(begun[-1]) is int or "async" not in case.form
    return begun


def finish(case: Case, tensors: list[torch.Tensor], begun: list[Any]) -> list[Any]:
    """Return results by tensor, of alltoall with splits (output, received); check the types returned."""
    results: list[Any] = []
    for given in begun:
        result = given
        if "async" in case.form:
            result = hvd.synchronize(given)
            assert hvd.synchronize(given) is None, "a handle is used up"
        if case.is_grouped:
            assert isinstance(result, list | tuple) and len(result) == len(tensors)
            assert isinstance(result, tuple) or case.form != "grouped_allreduce_"
        results += result if case.is_grouped else [result]
    assert case.operation == "alltoall" or all(isinstance(result, torch.Tensor) for result in results)
    if case.is_in_place:
        assert all(result is tensor for result, tensor in zip(results, tensors, strict=True))
    return results


def call(case: Case, tensors: list[torch.Tensor], name: str | None, **how: Any) -> list[Any]:
    return finish(case, tensors, begin(case, tensors, name, **how))


def assert_usable() -> None:
    """Check that the job continues after an error, and that a failed name can be used again."""
    total = hvd.allreduce(torch.ones(4), name="still usable", op=hvd.Sum)
    assert torch.equal(total, torch.full((4,), float(hvd.size())))


def assert_same_bits_everywhere(*tensors: torch.Tensor, process_set: Any = None) -> None:
    """Check that all ranks have the same bytes, gathered from their place."""
    how = {} if process_set is None else {"process_set": process_set}
    bits = np.frombuffer(b"".join(array_of(tensor).tobytes() for tensor in tensors), np.uint8)
    flat = torch.from_numpy(bits.copy()).to(tensors[0].device)
    everyone = hvd.allgather(flat.unsqueeze(0), **how)
    assert torch.equal(everyone, everyone[:1].expand_as(everyone))


class Run:
    """One rank's part in a case: its inputs, and its place among the members."""

    def __init__(self, case: Case, place: Place, sets: list[Any] | None = None) -> None:
        rank = hvd.rank()
        self.case, self.place = case, place
        self.members = case.members(rank, hvd.size())
        self.me = self.members.index(rank)
        self.set = sets[rank % 2] if sets else None
        self.parts = inputs(case, self.members)
        self.how = arguments(case, self.members, self.me, self.set)

    def own(self) -> list[torch.Tensor]:
        return [laid_out(self.case, parts[self.me], self.place) for parts in self.parts]

    def check(self, results: list[Any], name: str | None) -> None:
        case, inexact = self.case, []
        for i, (result, parts) in enumerate(zip(results, self.parts, strict=True)):
            if case.operation == "alltoall":
                result = self.output(result)
            tolerance = tolerance_of(case, parts)
            same(result, twin(case, parts, self.me), tolerance, self.place, f"{case}, {name}, tensor {i}")
            inexact += [result] if case.operation == "allreduce" and tolerance else []
        if inexact:
            assert_same_bits_everywhere(*inexact, process_set=self.set)

    def output(self, result: Any) -> torch.Tensor:
        """Return alltoall's output; with splits, or by a handle, it also returns the numbers of rows."""
        size = len(self.members)
        if "splits" not in self.how and "async" not in self.case.form:
            return result
        output, received = result
        if self.case.splits:
            wanted = [SPLITS[self.case.splits](sender, self.me, size) for sender in range(size)]
            assert received.tolist() == wanted
        assert received.dtype == torch.int32 and received.shape == (size,) and received.device.type == "cpu"
        assert not received.requires_grad
        return output
