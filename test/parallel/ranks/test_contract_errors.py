"""Errors when ranks disagree: every rank's error names the tensor, the difference and the ranks.

A mistake of one rank alone is refused before anything is sent. In both cases the job continues.
"""

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import pytest
import torch
from compressors import OF_PYTHON, Halves, Rounding, name_of
from contract import (
    ALLREDUCES,
    ALLTOALLS,
    BROADCASTS,
    COMPRESSED,
    FORMS,
    GATHERS,
    REDUCTIONS,
    SCATTERS,
    assert_usable,
)
from places import Place
from refusals import expect, refused

import horovod.torch as hvd
from horovod.common.exceptions import Disagreement
from horovod.common.sentences import Sentence
from horovod.torch import errors
from horovod.torch.compression import errors as of_compressors
from horovod.torch.reduce_ops import OP_NAMES

C = hvd.Compression
GROUPED = [form for form in FORMS if form.startswith("grouped")]
Given = tuple[torch.Tensor, dict[str, Any]]


def ones(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.ones(shape, dtype=dtype)


def by_rank(name: str, first: Any, others: Any) -> Callable[[int], Given]:
    return lambda rank: (ones(40, 40), {name: others if rank else first})


def typed(first: torch.dtype, others: torch.dtype, **how: Any) -> Callable[[int], Given]:
    return lambda rank: (ones(8, dtype=others if rank else first), how)


def shaped(first: tuple[int, ...], others: tuple[int, ...]) -> Callable[[int], Given]:
    return lambda rank: (ones(*(others if rank else first)), {})


def compressed(first: Any, others: Any) -> Callable[[int], Given]:
    return by_rank("compression", first, others)


# A rank's argument; the forms that must agree on it; parts of each rank's message besides the name.
DIFFERENCES: dict[str, tuple[Callable[[int], Given], list[str], list[str]]] = {
    "shape": (shaped((8, 3), (9, 3)), [*ALLREDUCES, *BROADCASTS, *SCATTERS], ["(8, 3)", "(9, 3)"]),
    "shape of each rank": (
        lambda r: (ones(3 + r), {}),
        ["allreduce", "grouped_allreduce", "broadcast"],
        ["(3,)"],
    ),
    "shape of as many": (shaped((23, 17), (17, 23)), ALLREDUCES, []),
    "row": (shaped((8, 3), (8, 4)), [*GATHERS, *ALLTOALLS], ["(3,)", "(4,)"]),
    "row to add": (shaped((8, 3), (8, 4)), SCATTERS, ["(8, 3)", "(8, 4)"]),
    "number of dimensions": (shaped((16,), (8, 2)), FORMS, []),
    "dtype": (typed(torch.float32, torch.int32), FORMS, ["int32", "float32"]),
    "width": (typed(torch.float32, torch.float64), FORMS, ["float64", "float32"]),
    "width of integers": (typed(torch.int32, torch.int64, op=hvd.Average), REDUCTIONS, ["int64", "int32"]),
    "op": (by_rank("op", hvd.Sum, hvd.Max), ALLREDUCES, ["Sum", "Max"]),
    "Sum or Average": (by_rank("op", hvd.Sum, hvd.Average), REDUCTIONS, ["Sum", "Average"]),
    "Adasum or Sum": (by_rank("op", hvd.Adasum, hvd.Sum), ALLREDUCES, ["Adasum", "Sum"]),
    "prescale": (lambda r: (ones(8), {"prescale_factor": 1.0 + r}), REDUCTIONS, []),
    "postscale": (lambda r: (ones(8), {"postscale_factor": 1.0 + r}), REDUCTIONS, []),
    "root": (lambda r: (ones(8), {"root_rank": r}), BROADCASTS, ["0", "1"]),
    "bit8 or bit16": (compressed(C.bit16, C.bit8), ["allreduce"], ["bit8/128", "bit16"]),
    "bit8 or none": (compressed(C.none, C.bit8), ["allreduce_"], ["none", "bit8/128"]),
    "fp16 or none": (compressed(C.none, C.fp16), ["allreduce"], []),
    "block size": (
        compressed(C.bit8(block_size=64), C.bit8(block_size=32)),
        ["allreduce"],
        ["bit8/32", "bit8/64"],
    ),
    "topk": (lambda r: (ones(40), {"compression": C.topk(k=1 + r)}), [], []),  # gathered: see below
    "gathered or none": (compressed(C.none, Rounding), ["allreduce"], []),
    "rounds or none": (compressed(C.none, Halves), ["allreduce"], []),
    "rounds or powersgd": (compressed(Halves, C.powersgd(rank=1)), ["allreduce"], []),
    "powersgd or topk": (compressed(C.powersgd(rank=1), C.topk), ["allreduce"], []),
    "topk or rounds": (compressed(C.topk, Halves), ["allreduce"], []),
}
for text, others in {
    "int8": "int8:block_size=64",
    "int4": "int4:rotation=hadamard",
    "bit8": "bit8:format=e5m2",
    "int4:rotation=hadamard,seed=1": "int4:rotation=hadamard,seed=2",
}.items():
    pair = compressed(C.from_text(text), C.from_text(others))
    DIFFERENCES[f"{text} or {others}"] = (
        pair,
        ["allreduce"],
        [],
    )
DIFFERS_EVERYWHERE = ("shape of each rank", "prescale", "postscale", "root")


@pytest.fixture(autouse=True)
def has_others(size: int) -> None:
    if size == 1:
        pytest.skip("one rank agrees with itself")


def start(form: str, given: torch.Tensor, place: Place, name: str, how: dict[str, Any]) -> Any:
    """Start the operation; a group has another member, which all ranks give alike."""
    tensor = place.put(given)
    how = {"root_rank": 0} | how if form in BROADCASTS else how
    result = getattr(hvd, form)([place.put(ones(8)), tensor] if form in GROUPED else tensor, name=name, **how)
    return result if "async" in form else None


def finish(handle: Any) -> None:
    if handle is not None:
        hvd.synchronize(handle)


@pytest.mark.parametrize("known", [False, True], ids=["new", "known"])
@pytest.mark.parametrize(
    ("form", "what"), [(form, what) for what, (_, forms, _) in DIFFERENCES.items() for form in forms]
)
def test_ranks_that_disagree(form: str, what: str, known: bool, place: Place, rank: int, size: int) -> None:
    differs, _, words = DIFFERENCES[what]
    (agreed, how), (mine, my_how) = differs(0), differs(rank)
    for _ in range(2 * known):  # the response cache knows the name
        finish(start(form, agreed, place, "apple", how))
    with refused(Disagreement, "disagree", ranks=tuple(range(size))) as raised:
        handle = start(form, mine, place, "apple", my_how)
        other = hvd.allreduce_async(place.put(ones(3)), name="unharmed")
        assert torch.equal(hvd.synchronize(other).cpu(), ones(3))
        finish(handle)
    if "async" in form:
        assert hvd.synchronize(handle) is None, "a handle is used up, also by an error"
    assert raised.value.tensor.endswith(".apple")
    first, *others = raised.value.values.values()
    assert first not in others and len(set(others)) == (size - 1 if what in DIFFERS_EVERYWHERE else 1)
    for word in words:
        assert word in f"{first} {others[0]}", raised.value
    finish(start(form, agreed, place, "apple", how))


@pytest.mark.parametrize("what", ["shape", "Sum or Average", "prescale", "width", "topk"])
def test_disagreement_in_the_gathered_route(what: str, place: Place, rank: int) -> None:
    differs, _, _ = DIFFERENCES[what]
    given, how = differs(rank)
    word = {"Sum or Average": "op", "width": "dtype", "topk": "compressor"}.get(what, what)
    with refused(errors.terms_differ, tensor="allreduce.plum", term=word) as caught:
        hvd.allreduce(place.put(given), name="plum", **({"compression": Rounding} | how))
    assert caught.value.values[0] != caught.value.values[1]
    assert_usable()


@pytest.mark.parametrize("form", ["allgather", "grouped_allgather", "alltoall"])
def test_no_dimension_is_found_out_when_ranks_agree(form: str, place: Place, size: int) -> None:
    for _ in range(2):
        with refused(Disagreement, "no_dimension"):
            start(form, torch.tensor(1.0), place, "flat", {})
        finish(start(form, ones(8), place, "flat", {}))


@pytest.mark.parametrize("form", [form for form in GROUPED if "async" not in form])
def test_a_group_is_one_operation(form: str, place: Place, rank: int, size: int) -> None:
    """An operation is refused or done as a whole: nothing stays in flight, and its name is free again."""
    big = place.put(torch.ones(100_000, dtype=torch.int32))
    few, wide = place.put(ones(3)), place.put(ones(3, 1 + rank))
    operation = getattr(hvd, form)
    for _ in range(3):
        for members in (
            [wide, big],
            [few, big if rank else few],
            [few] + [big] * rank,
            [few] * (2 + rank % 2),
        ):
            with pytest.raises(hvd.HorovodInternalError):
                operation([member.clone() for member in members], name="mixed")
    given = [place.put(x) for x in (ones(5), big.cpu(), ones(7, dtype=torch.float64))]
    results = operation(given, name="mixed")
    assert [result.dtype for result in results] == [torch.float32, torch.int32, torch.float64]
    assert len(operation([place.put(ones(4))], name="one")) == 1 and len(operation([], name="none")) == 0


# ---- refused on the calling rank ----

FLOAT8 = [torch.float8_e4m3fn, torch.float8_e5m2]
SPLITS: dict[str, Callable[[int], tuple[torch.Tensor, Any]]] = {
    "two-dimensional": lambda size: (ones(size), torch.ones(size, 1, dtype=torch.int32)),
    "scalar": lambda size: (ones(size), torch.tensor(1, dtype=torch.int32)),
    "int64": lambda size: (ones(size), torch.ones(size, dtype=torch.int64)),
    "float": lambda size: (ones(size), ones(size)),
    "too few": lambda size: (ones(size), torch.ones(size - 1, dtype=torch.int32)),
    "too many": lambda size: (ones(size + 1), torch.ones(size + 1, dtype=torch.int32)),
    "more than there is": lambda size: (ones(size), torch.full((size,), 2, dtype=torch.int32)),
    "negative": lambda size: (ones(size), torch.tensor([-1] + [1] * (size - 1), dtype=torch.int32)),
    "not divisible": lambda size: (ones(size + 1), None),
    "less than ranks": lambda size: (ones(1), None),
}
Refusal = tuple[list[str], Callable[[int], Given], type[Exception], str | Sentence]


def refusals() -> Iterator[tuple[str, Refusal]]:
    """Yield the mistakes: the forms, their arguments for a number of ranks, and the error."""

    def wrong(
        what: str, forms: list[str], tensor: torch.Tensor, words: str | Sentence = ".", **how: Any
    ) -> tuple[str, Refusal]:
        return what, (forms, lambda size: (tensor, how), ValueError, words)

    for dtype in FLOAT8:
        yield wrong(str(dtype), FORMS, ones(8).to(dtype), errors.wrong_dtype)
    truth, numbers = torch.ones(8, dtype=torch.bool), torch.ones(3, dtype=torch.complex64)
    yield wrong("the average of bool", REDUCTIONS, truth, errors.average_of_bool, op=hvd.Average)
    for op in (7, -1, "sum"):
        yield wrong(f"op {op}", ["allreduce", "grouped_allreduce"], ones(8), op=op)
    for dtype in (torch.int32, torch.int64, torch.bool, torch.bfloat16):
        yield wrong(f"Adasum of {dtype}", ALLREDUCES, ones(8, dtype=dtype), "Adasum", op=hvd.Adasum)
    for name in ("Min", "Max", "Product", "Adasum"):
        op = getattr(hvd, name)
        yield wrong(f"{name} of complex numbers", ALLREDUCES, numbers, errors.complex_op, op=op)
        # Horovod users expect a RuntimeError here, but a ValueError for other arguments.
        given = ones(8, 2), {"op": op}
        yield (
            f"{name} of rows",
            (SCATTERS, lambda size, given=given: given, hvd.HorovodInternalError, errors.scattered_op),
        )
    yield wrong("no rows to scatter", SCATTERS, torch.tensor(1.0), errors.no_rows)
    forms = ["allgather", "alltoall", "reducescatter", "reducescatter_async"]
    yield wrong("a complex scalar", forms, torch.tensor(1 + 2j), errors.no_rows)
    for what, splits in SPLITS.items():

        def given_splits(size: int, splits: Any = splits) -> Given:
            tensor, wrong = splits(size)
            return tensor, {"splits": wrong}

        yield f"splits: {what}", (ALLTOALLS, given_splits, ValueError, ".")
    for root in (-1, 10, 1 << 20):
        yield wrong(f"root {root}", BROADCASTS, ones(3), "root", root_rank=root)
    yield "root just beyond", (BROADCASTS, lambda size: (ones(3), {"root_rank": size}), ValueError, "root")
    for c, name in product(
        (C.bit16, C.bit8, C.int8, C.int4, C.topk, C.powersgd, Halves), ("Min", "Max", "Product")
    ):
        how = {"op": getattr(hvd, name), "compression": c}
        yield wrong(
            f"{name} with {name_of(c)}",
            ["allreduce", "grouped_allreduce_"],
            ones(300),
            errors.compressed_op,
            **how,
        )
    for what, c in OF_PYTHON.items():
        if what != "Halving":  # its output may be added
            yield wrong(
                f"rows with {what}", COMPRESSED[-2:], ones(8), errors.scattered_by_python, compression=c
            )
    words = of_compressors.feedback_of_one_call
    forms = ["allreduce", "allreduce_", "allreduce_async", "reducescatter"]
    yield wrong("error feedback", forms, ones(8), words, compression=C.bit8(error_feedback=True))


REFUSALS = dict(refusals())
OF_A_TENSOR = [
    errors.wrong_dtype,
    errors.average_of_bool,
    errors.complex_op,
    errors.no_rows,
    errors.compressed_op,
]


@pytest.mark.parametrize(
    ("what", "form"), [(what, form) for what, (forms, *_) in REFUSALS.items() for form in forms]
)
def test_what_is_refused(what: str, form: str, place: Place, size: int) -> None:
    _, given, error, words = REFUSALS[what]
    tensor, how = given(size)
    with pytest.raises(error, match=words if isinstance(words, str) else ".") as raised:
        finish(start(form, tensor, place, "refused", how))
    if isinstance(words, Sentence):
        expect(raised.value, words)
        assert "refused" in raised.value.tensor or words not in OF_A_TENSOR
        assert raised.value.facts.get("op", "") in ("", OP_NAMES[how["op"]] if "op" in how else "")
    assert error is ValueError or not isinstance(raised.value, ValueError)
    assert_usable()
    finish(start(form, ones(8), place, "refused", {}))


def test_a_bad_first_member_of_a_group(place: Place) -> None:
    for form in GROUPED:
        with pytest.raises(ValueError):
            getattr(hvd, form)([place.put(ones(2)).to(FLOAT8[0]), place.put(ones(2))], name="bad")
    assert_usable()


def test_wrong_splits_on_one_rank_leave_the_others_waiting_for_a_right_call(rank: int, size: int) -> None:
    if rank == 1:
        with pytest.raises(ValueError):
            hvd.alltoall(ones(size), torch.full((size,), 9, dtype=torch.int32), name="corrected")
    splits = torch.ones(size, dtype=torch.int32)
    result, _ = hvd.alltoall(torch.full((size,), rank), splits, name="corrected")
    assert result.tolist() == list(range(size))


def test_some_on_gpus_and_some_not(place: Place, rank: int, size: int) -> None:
    """Every rank gets a named error with the ranks' states, and the job continues."""
    if not place.is_gpu:
        pytest.skip("on GPUs only")
    with pytest.raises(hvd.HorovodInternalError, match=r"GPU"):
        if rank == 0:
            with place.on_cpu():
                hvd.allreduce(ones(5), name="torn")
        else:
            hvd.allreduce(place.put(ones(5)), name="torn")
    assert torch.equal(hvd.allreduce(place.put(ones(5)), name="torn").cpu(), ones(5))
