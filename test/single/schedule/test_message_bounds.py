"""Limits of messages: a message is read and written again to the byte, or refused with its sender's name.

The tests make the bytes by hand, as another build would.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from native_testing import testing
from refusals import refused

from horovod.common.exceptions import HorovodInternalError

ALLREDUCE, ALLGATHER, BROADCAST, ALLTOALL, REDUCESCATTER, BARRIER, JOIN, ADD_SET, REMOVE_SET = range(9)
TUNE, MISSING = 9, 10
NAMES = "ALLREDUCE ALLGATHER BROADCAST ALLTOALL REDUCESCATTER BARRIER JOIN ADD_PROCESS_SET REMOVE_PROCESS_SET"
NAMES += " TUNE MISSING_GRADIENTS"
RUN, REFUSE, DECIDED, ASK_IN_FULL, FORGET, RELEASE, ASK_OF_PASS, SHUTDOWN = range(8)
UINT8, FLOAT32, FLOAT64, LAST_DTYPE = 0, 6, 7, 9
LAST_REDUCE_OP = 5
LAST_KIND = 9  # of errors
SENTENCES = next(
    path for folder in Path(__file__).parents if (path := folder / "horovod/native/base/sentences.h").exists()
)
Shape = tuple[int, ...]


def text(of: str) -> bytes:
    return struct.pack("<I", len(of)) + of.encode()


def numbers(kind: str, *each: int) -> bytes:
    return struct.pack(f"<I{len(each)}{kind}", len(each), *each)


def request(
    operation: int = ALLREDUCE,
    shapes: tuple[Shape, ...] = ((2,),),
    dtypes: tuple[int, ...] | None = None,
    op: int = 1,
    flags: bytes = b"\1\0",
) -> bytes:
    """`flags`: whether it follows another, and whether it is on a GPU."""
    dtypes = (FLOAT32,) * len(shapes) if dtypes is None else dtypes
    head = struct.pack("<BBddi", operation, op, 0.25, -3.0, 7) + flags + text("grad") + text("bit8/128")
    laid_out = struct.pack("<I", len(shapes)) + b"".join(numbers("q", *shape) for shape in shapes)
    return head + numbers("B", *dtypes) + laid_out + numbers("q", 5, 2) + text("HOROVOD_CYCLE_TIME=2")


def announcement(
    *requests: bytes,
    ids: tuple[int, ...] = (),
    places: tuple[int, ...] = (),
    ends: tuple[int, ...] = (),
    begun: bool | None = None,
) -> bytes:
    is_begun = bool(ends) if begun is None else begun
    head = struct.pack("<II?I", 1, 3, True, len(requests)) + numbers("I", *ids)
    order = numbers("I", *places) + struct.pack("<?", is_begun) + numbers("I", *ends)
    blocked, passes = text("who waits") + b"\1", struct.pack("<I", 7) + text("who is in no pass")
    return head + struct.pack("<I", len(requests)) + b"".join(requests) + order + blocked + passes


def item(rows: Shape = (), stand_in: bytes = b"") -> bytes:
    head = struct.pack("<I", 4) + text("grad") + struct.pack("<I", 6)
    return head + numbers("q", *rows) + b"\0" + struct.pack("<?", bool(stand_in)) + stand_in


def fact(name: str, value: str, is_number: int = 0) -> bytes:
    return text(name) + text(value) + bytes([is_number])


def failure(
    *facts: bytes, values: tuple[str, ...] = ("1", "2"), said: int = 1, kind: int = 4, ends: int = 1
) -> bytes:
    """An error of ranks 3 and -1 about "grad": `said` and `kind` by their numbers."""
    listed = struct.pack("<I", len(values)) + b"".join(map(text, values))
    others = struct.pack("<I", len(facts)) + b"".join(facts)
    return struct.pack("<HBB", said, kind, ends) + text("grad") + numbers("i", 3, -1) + listed + others


FAILURE = failure(fact("why", "{ranks}"), fact("count", "-9223372036854775808", 1))


def response(*items: bytes, kind: int = RUN) -> bytes:
    return struct.pack("<IIBI", 1, 2, kind, len(items)) + b"".join(items) + numbers("I", 8, 9) + FAILURE


def is_read(message: bytes) -> None:
    assert testing.rewritten_announcements(message) == message


def is_refused(message: bytes, said: str, read: Callable[[bytes], bytes] | None = None) -> None:
    """`said`: the beginning of the error."""
    with refused(HorovodInternalError, "broken_message", ranks=(1,), what=re.compile(f"^{said}")):
        (read or testing.rewritten_announcements)(message)


WHOLE = {
    "announcement": announcement(
        request(), request(BROADCAST, ((3, 0, 2),)), ids=(1, 2**32 - 1), places=(0, 3)
    ),
    "begun": announcement(ids=(4, 5, 6), ends=(1, 3)),
    "response": response(item((0, 3, 2**62)), item(stand_in=request(ALLREDUCE, ((2,), (3,))))),
}
READERS = {
    "announcement": testing.rewritten_announcements,
    "begun": testing.rewritten_announcements,
    "response": testing.rewritten_responses,
}


@pytest.mark.parametrize("name", WHOLE)
def test_every_field_is_read_and_every_part_of_a_message_is_refused(name: str) -> None:
    """A truncated or extended message is not parsed as another one."""
    whole, read = WHOLE[name], READERS[name]
    assert read(whole) == whole
    for length in range(len(whole)):
        is_refused(whole[:length], "is cut short", read)
    for more in (1, 9):
        is_refused(whole + bytes(more), f"has {more} bytes more", read)


@pytest.mark.parametrize("operation", range(MISSING + 1), ids=NAMES.split())
@pytest.mark.parametrize("count", range(3))
def test_as_many_tensors_as_the_operation_has(operation: int, count: int) -> None:
    """The executor indexes the first tensor, or all of a group, without a check."""
    if operation in (ALLREDUCE, ALLGATHER, REDUCESCATTER):
        is_right = count > 0
    else:
        is_right = count == (operation in (BROADCAST, ALLTOALL))
    message = announcement(request(operation, ((2,),) * count))
    if is_right:
        is_read(message)
    else:
        is_refused(message, f"asks for {NAMES.split()[operation]} of 'grad' with {count} tensors")


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [
        ((2**63 - 1,), UINT8),
        ((2**61 - 1,), FLOAT32),
        ((2**60 - 1,), FLOAT64),
        ((2**31, 2**29, 0), FLOAT32),
        ((0, 2**60), FLOAT32),
        ((), FLOAT64),
    ],
)
def test_the_largest_tensors_that_have_a_number_of_bytes(shape: Shape, dtype: int) -> None:
    is_read(announcement(request(shapes=(shape,), dtypes=(dtype,))))


@pytest.mark.parametrize(
    ("shape", "dtype", "said"),
    [
        ((2**61,), FLOAT32, r"\(2305843009213693952,\)"),
        ((2**60,), FLOAT64, r"\(1152921504606846976,\)"),
        ((2**31, 2**30, 0), FLOAT32, r"\(2147483648, 1073741824, 0\)"),
        ((0, 2**61), FLOAT32, r"\(0, 2305843009213693952\)"),
        ((4, -1), FLOAT32, r"\(4, -1\)"),
        ((-1, 0), FLOAT32, r"\(-1, 0\)"),
    ],
)
def test_shapes_whose_bytes_have_no_number(shape: Shape, dtype: int, said: str) -> None:
    """An empty dimension does not make others valid: sizes are also computed without it."""
    is_refused(announcement(request(shapes=(shape,), dtypes=(dtype,))), f".* of 'grad' with the shape {said}")


def test_a_group_has_a_number_of_bytes_too() -> None:
    half = (2**62 - 1,)
    is_read(announcement(request(shapes=(half, half, (1,)), dtypes=(UINT8,) * 3)))
    is_refused(announcement(request(shapes=(half, half, (2,)), dtypes=(UINT8,) * 3)), r".* the shape \(2,\)")


def test_each_tensor_has_a_dtype() -> None:
    for dtypes in ((FLOAT32,), (FLOAT32,) * 3):
        is_refused(
            announcement(request(shapes=((2,), (2,)), dtypes=dtypes)), f".* {len(dtypes)} dtypes of 2 tensors"
        )


@pytest.mark.parametrize("last", [True, False])
def test_the_last_number_that_stands_for_something(last: bool) -> None:
    beyond = "has the number {},"
    for message, number in (
        (announcement(request(op=LAST_REDUCE_OP + (not last))), LAST_REDUCE_OP + 1),
        (announcement(request(dtypes=(LAST_DTYPE + (not last),))), LAST_DTYPE + 1),
        (announcement(request(MISSING + (not last), ())), MISSING + 1),
        (announcement(request(flags=b"\1\1" if last else b"\1\2")), 2),
    ):
        if last:
            is_read(message)
        else:
            is_refused(message, beyond.format(number) if number != 2 else "has 2 for a truth value")
    answer = response(item(), kind=SHUTDOWN + (not last))
    if last:
        assert testing.rewritten_responses(answer) == answer
    else:
        is_refused(answer, beyond.format(SHUTDOWN + 1), testing.rewritten_responses)


@pytest.mark.parametrize("ends", [(3,), (1, 3), (2, 3), (1, 2, 3)])
def test_what_is_begun_is_cut_into_batches(ends: tuple[int, ...]) -> None:
    is_read(announcement(ids=(7, 8, 9), ends=ends))


CANNOT_BE = {
    "ends early": announcement(ids=(7, 8, 9), ends=(2,)),
    "ends late": announcement(ids=(7, 8, 9), ends=(4,)),
    "empty": announcement(ids=(7, 8, 9), ends=(0, 3)),
    "empty again": announcement(ids=(7, 8, 9), ends=(1, 1, 3)),
    "backwards": announcement(ids=(7, 8, 9), ends=(2, 1, 3)),
    "not begun": announcement(ids=(7, 8, 9), ends=(3,), begun=False),
    "in no batch": announcement(ids=(7, 8, 9), begun=True),
    "unknown": announcement(request(), ids=(7,), places=(0,), ends=(1,)),
}


@pytest.mark.parametrize("how", CANNOT_BE)
def test_batches_that_cannot_be(how: str) -> None:
    """Rank 0 and the rank itself use them as indices."""
    is_refused(CANNOT_BE[how], "begins operations that cannot be")


@pytest.mark.parametrize("kind", range(SHUTDOWN + 1))
def test_who_responds_to_nothing(kind: int) -> None:
    """Kinds that run an operation, or release a rank from it, must name one; other kinds need none."""
    message = response(kind=kind)
    if kind in (RUN, RELEASE, ASK_OF_PASS):
        is_refused(message, "responds to nothing", testing.rewritten_responses)
    else:
        assert testing.rewritten_responses(message) == message


@pytest.mark.parametrize("rows", [(-1,), (0, -1), (3, -(2**63), 2)])
def test_no_rank_has_fewer_rows_than_none(rows: Shape) -> None:
    is_refused(response(item(rows)), f"says that 'grad' has {min(rows)} rows", testing.rewritten_responses)


@pytest.mark.parametrize("operation", [ALLGATHER, REDUCESCATTER, JOIN])
def test_ranks_that_have_joined_take_part_in_sums_alone(operation: int) -> None:
    shapes = () if operation == JOIN else ((2,),)
    said = f".* take part in {NAMES.split()[operation]}"
    is_refused(response(item(stand_in=request(operation, shapes))), said, testing.rewritten_responses)


LAST_SENTENCE = SENTENCES.read_text().count("\nHVD_SAYS(")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (failure(said=LAST_SENTENCE), ""),
        (failure(said=LAST_SENTENCE + 1), f"has the number {LAST_SENTENCE + 1},"),
        (failure(kind=LAST_KIND), ""),
        (failure(kind=LAST_KIND + 1), f"has the number {LAST_KIND + 1},"),
        (failure(ends=2), "has 2 for a truth value"),
        (failure(values=()), ""),
        (failure(values=("1", "2", "3")), "has more values than ranks"),
        (failure(fact("count", "18446744073709551615", 1)), ""),
        (failure(fact("count", "", 1)), "has a fact that"),
        (failure(fact("count", "-", 1)), "has a fact that"),
        (failure(fact("count", "1e3", 1)), "has a fact that"),
        (failure(fact("count", "1" * 21, 1)), "has a fact that"),
        (failure(fact("", "x")), "has a fact that"),
        (failure(fact("{count}", "x")), "has a fact that"),
    ],
)
def test_errors_whose_facts_python_can_have(error: bytes, said: str) -> None:
    whole = response(kind=SHUTDOWN)
    message = whole.replace(FAILURE, error)
    if said:
        is_refused(message, said, testing.rewritten_responses)
    else:
        assert testing.rewritten_responses(message) == message != whole
