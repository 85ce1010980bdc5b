"""Every call of every operation gives the twin's result, wherever tensors are: see contract.py."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from compressors import EXACT_OF_POWERS, OF_PYTHON, Halving
from contract import (
    ALL,
    ALLREDUCES,
    ALLTOALLS,
    BROADCASTS,
    COMPLEX,
    COMPRESSED,
    FEW,
    FLOATS,
    FORMS,
    GATHERS,
    INTEGERS,
    LAYOUTS,
    REDUCTIONS,
    ROWS,
    SHAPES,
    SPLITS,
    USUAL,
    Case,
    Run,
    call,
    filled,
    gradient_twin,
    ops_of,
    same,
    served,
    tensor_of,
    twin,
)
from places import Place
from rank_fixtures import process_sets

import horovod.torch as hvd

FACTORS = [(0.5, 1.0), (1.0, 0.5), (0.7, 1.0), (1.0, 0.7), (0.25, 3.0)]
TRAILING = ((1,), (1, 3), (1, 3, 2))
LARGE = ((1, 1_000_003), (3, 333_334), (2001, 499))  # one row, fewer than four ranks have, and many
MATRICES = ((6, 4), (4, 3, 2, 2))


# One form of each operation, and of each in groups.
TELLING = ["allreduce", "allgather", "broadcast_", "alltoall", "reducescatter_async", "grouped_allreduce_",
           "grouped_allgather_async", "grouped_reducescatter"]  # fmt: skip


def is_told(form: str, dtype: str) -> bool:
    """Return whether to test: every form with one dtype and every dtype with one form, if that suffices."""
    return form in TELLING or dtype == "float32"


# Each axis against forms and dtypes. Random programs test the axes against each other (programs.py).


def plain() -> Iterator[Case]:
    yield from (Case(form, shapes=SHAPES) for form in FORMS)
    for form, dtype in product(FORMS, [*ALL, *COMPLEX]):
        roots = (0, 1, -1) if form in BROADCASTS else (0,)
        yield from (Case(form, dtype, op, root=root) for op, root in product(ops_of(form, dtype), roots))
    for form, dtype in product(ALLREDUCES, ["float16", "float32", "float64"]):
        yield Case(form, dtype, "Adasum")
    for form in FORMS:
        if form.startswith("grouped"):
            yield Case(form, "float32+int64+float16+bool+float64", "Sum" * (form in REDUCTIONS))
    for form in TELLING[:5]:
        is_sent = form == "alltoall"
        sizes = ((1, 300_001),) if is_sent else LARGE
        yield Case(form, "float32", "Sum" * (form in REDUCTIONS), splits="uneven" * is_sent, shapes=sizes)


def with_factors() -> Iterator[Case]:
    for form, dtype in product(REDUCTIONS, FLOATS):
        yield Case(form, dtype, "Average", (0.5, 4.0))
    for form, dtype, factors in product(REDUCTIONS, [*ALL, *COMPLEX], FACTORS):
        if dtype != "bool" and is_told(form, dtype):
            yield Case(form, dtype, "Sum", factors, shapes=FEW)


def of_other_values() -> Iterator[Case]:
    for form, dtype in product(REDUCTIONS, INTEGERS):
        yield Case(form, dtype, "Average", values="extremes", shapes=((16,),))
    for form, dtype, op in product(FORMS, FLOATS, ["Average", "Sum", "Product"]):
        if is_told(form, dtype) and (op == "Sum" or op in ops_of(form, dtype)):
            for values, shapes in (("special", ((17,),)), ("fractions", USUAL)):
                yield Case(form, dtype, op * (form in REDUCTIONS), values=values, shapes=shapes)


def laid_out() -> Iterator[Case]:
    for form, layout in product(FORMS, LAYOUTS):
        dtype = "complex64" if "conjugated" in layout else "float32"
        shapes = {"channels last": MATRICES[1:], "anywhere": ((1031,),)}.get(layout, MATRICES)
        yield Case(form, dtype, "Sum" * (form in REDUCTIONS), layout=layout, shapes=shapes)


def over_sets() -> Iterator[Case]:
    for form, dtype in product(FORMS, [*ALL, *COMPLEX]):
        if is_told(form, dtype):
            ops = [op for op in ops_of(form, dtype) if form in TELLING or op in ("", "Sum")]
            yield from (Case(form, dtype, op, over="parity", root=-1) for op in ops)
    yield from (Case(form, splits="uneven", over="parity", shapes=TRAILING) for form in ALLTOALLS)


def of_rows() -> Iterator[Case]:
    for form, splits, dtype in product(ALLTOALLS, SPLITS, ALL):
        if splits == "uneven" or dtype == "float32":
            yield Case(form, dtype, splits=splits, shapes=TRAILING)
    for form, rows, dtype in product(GATHERS, ROWS, ALL):
        if rows and (rows in ("uneven", "none of rank 1") or dtype == "int64"):
            yield Case(form, dtype, rows=rows, shapes=TRAILING)


def compressed() -> Iterator[Case]:
    for form, dtype in product(COMPRESSED, ["float32", "float64", "int64"]):
        yield Case(form, dtype, "Sum", compression=hvd.Compression.fp16)
    for compression in EXACT_OF_POWERS.values():
        how: dict[str, Any] = {"values": "powers", "shapes": ((8, 300),), "compression": compression}
        is_added = isinstance(compression, Halving) or compression not in OF_PYTHON.values()
        forms = COMPRESSED if is_added else ALLREDUCES  # others are refused
        yield from (Case(form, "float32", "Sum", **how) for form in forms)
        for form, dtype in product(("allreduce", "grouped_allreduce_async_"), FLOATS):
            yield Case(form, dtype, "Average", (0.5, 4.0), **how)
        yield Case("allreduce", "float32", "Sum", values="powers", shapes=SHAPES, compression=compression)
        yield Case("allreduce_", "float32", "Sum", layout="transposed", **how)
        for form in ("allreduce", "allreduce_", "grouped_allreduce"):
            yield Case(form, "complex64", "Sum", **how)
        yield Case("allreduce", "float32", "Sum", over="parity", **how)
        if not isinstance(compression, Halving):  # it halves any input
            yield Case("grouped_allreduce", "float32+int64+float64", "Sum", **how)
            yield Case("allreduce", "int64", "Sum", compression=compression)


TABLES = [plain, with_factors, of_other_values, laid_out, over_sets, of_rows, compressed]
CASES = {str(case): case for table in TABLES for case in table() if served(case)}
GRADIENTS = {
    str(case): case
    for case in CASES.values()
    if not case.form.endswith("_") and "async" not in case.form
    and case.dtype in ("float32", "float64", "complex64")
    and case.op in ("", "Average", "Sum")
    and case.values in ("whole", "powers")
    and case.shapes[0][-1] < 10_000
}  # fmt: skip


def sets_for(case: Case, size: int) -> AbstractContextManager[list[Any] | None]:
    """Return None, or the even and the odd ranks."""
    if case.over == "all" or size == 1:
        return nullcontext()
    return process_sets(range(0, size, 2), range(1, size, 2))


@pytest.mark.parametrize("name", CASES)
def test_results_are_the_twins(name: str, place: Place, size: int) -> None:
    """Unnamed, negotiated for the first time, and from the response cache."""
    case = CASES[name]
    names = (None, "new", "new") if case == Case(case.form, case.dtype, case.op) else (None, "new")
    with sets_for(case, size) as sets:
        run = Run(case, place, sets)
        for called in names:
            own = run.own()
            before = [tensor.clone() for tensor in own]
            results = call(case, own, called, **run.how)
            run.check(results, called)
            if not case.is_in_place:
                assert all(map(torch.equal, own, before)) or case.values == "special", "inputs are left alone"
                assert all(result is not tensor for result, tensor in zip(results, own, strict=True))
            elif case.layout == "with gaps":
                assert all((tensor._base[..., 1] == 1).all() for tensor in own), (
                    "what lies between is left alone"
                )


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_are_the_twins(name: str, place: Place, size: int) -> None:
    case = GRADIENTS[name]
    with sets_for(case, size) as sets:
        run = Run(case, place, sets)
        own = [tensor.detach().requires_grad_() for tensor in run.own()]
        results = [run.output(each) if case.operation == "alltoall" else each
                   for each in call(case, own, None, **run.how)]  # fmt: skip
        assert all(result.requires_grad for result in results)
        # The incoming gradients differ on every rank.
        aboves = [
            [filled(case, rank + 10, i, twin(case, parts, me).shape) for me, rank in enumerate(run.members)]
            for i, parts in enumerate(run.parts)
        ]
        mine = [place.put(tensor_of(above[run.me])) for above in aboves]
        torch.autograd.backward(results, [each.clone() for each in mine])
        for x, parts, above in zip(own, run.parts, aboves, strict=True):
            want = gradient_twin(case, parts, above, run.me)
            scale = float(np.max(np.abs(want), initial=1.0))
            same(x.grad, want, scale * 4e-7, place, case)


def test_received_splits_are_where_splits_are(place: Place, rank: int, size: int) -> None:
    splits = place.put(torch.ones(size, dtype=torch.int32))
    output, received = hvd.alltoall(place.put(torch.full((size,), rank)), splits)
    assert output.device == received.device == place.device
    assert output.tolist() == list(range(size)) and received.tolist() == [1] * size
