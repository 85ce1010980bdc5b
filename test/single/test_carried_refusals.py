"""What a reduction whose messages the caller carries refuses, and in which words."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from carried_ranks import Block, addresses_in
from ranks import ADASUM, MAX, tensor

from horovod import _native

X, H = np.ones(8, np.float32), np.ones(8, np.float16)


def allreduce(
    parts: Any = None, rank: int = 0, size: int = 2, is_scattered: bool = True, **place: int
) -> _native.CarriedAllreduce:
    given = [(_native.Reduction(), ["x"], [tensor(X)])] if parts is None else parts
    return _native.CarriedAllreduce(given, rank, size, is_scattered, _native.DrawKeys(), **place)


def reducescatter(
    source: Any = X, rank: int = 0, size: int = 2, feedback: Any = None, **how: Any
) -> _native.CarriedReduceScatter:
    view = tensor(source, np.empty(8, source.dtype), feedback)
    reduction = _native.Reduction(**how)
    return _native.CarriedReduceScatter(reduction, "x", view, rank, size, _native.DrawKeys())


@pytest.mark.parametrize("make", [allreduce, reducescatter])
def test_ranks_that_are_none(make: Any) -> None:
    for rank in (-1, 2):
        with pytest.raises(ValueError, match=f"rank {rank} is none of 2 ranks: pass 0 to 1"):
            make(rank=rank)
    with pytest.raises(ValueError, match="of 1 rank or more, not of 0"):
        make(size=0)


def test_parts_that_are_not_alike() -> None:
    exact = _native.Reduction()
    with pytest.raises(ValueError, match="nothing to reduce"):
        allreduce([])
    for names, tensors in ((["x", "y"], [tensor(X)]), (["x"], [tensor(X)] * 2), ([], [])):
        words = f"part 1 has {len(names)} names and {len(tensors)} tensors; pass one or more"
        with pytest.raises(ValueError, match=words):
            allreduce([(exact, ["w"], [tensor(X)]), (exact, names, tensors)])
    words = "'y': the tensor is float16, and the part's first, 'x', float32; make a part for each dtype"
    with pytest.raises(ValueError, match=words):
        allreduce([(exact, ["x", "y"], [tensor(X), tensor(H)])])
    with pytest.raises(ValueError, match="'x': two tensors have that name"):
        allreduce([(exact, ["x"], [tensor(X)]), (exact, ["x"], [tensor(H)])])


def test_codecs_and_ops_that_do_not_go_together() -> None:
    codec = _native.get_codec("bit8")
    with pytest.raises(ValueError, match="'x': codec bit8/128 serves Sum and Average, not Max"):
        allreduce([(_native.Reduction(op=MAX, codec=codec), ["x"], [tensor(X)])])
    with pytest.raises(ValueError, match="'x': codec bit8/128 serves Sum and Average, not Max"):
        reducescatter(op=MAX, codec=codec)
    whole_numbers = np.ones(8, np.int32)
    with pytest.raises(ValueError, match="'x': a codec compresses floating-point tensors, not int32"):
        allreduce([(_native.Reduction(codec=codec), ["x"], [tensor(whole_numbers)])])
    with pytest.raises(ValueError, match="'x': Adasum needs more than one exchange"):
        allreduce([(_native.Reduction(op=ADASUM), ["x"], [tensor(X)])])
    with pytest.raises(ValueError, match="reduce-scatter does not serve Adasum"):
        reducescatter(op=ADASUM)
    with pytest.raises(ValueError, match="'x': prescale_factor and postscale_factor must be finite"):
        allreduce([(_native.Reduction(prescale=float("nan")), ["x"], [tensor(X)])])


def test_feedback_that_does_not_fit() -> None:
    coded, exact = _native.Reduction(codec=_native.get_codec("bit8")), _native.Reduction()
    own = _native.Feedback(8)
    with pytest.raises(ValueError, match=r"'x': the feedback is of 7 elements, the tensor's shape is \(8,\)"):
        allreduce([(coded, ["x"], [tensor(X, feedback=_native.Feedback(7))])])
    with pytest.raises(ValueError, match="'x': error feedback is for an allreduce"):
        allreduce([(exact, ["x"], [tensor(X, feedback=own)])])
    with pytest.raises(ValueError, match="'y': two tensors have one feedback; give each its own"):
        allreduce([(coded, ["x"], [tensor(X, feedback=own)]), (coded, ["y"], [tensor(H, feedback=own)])])
    with pytest.raises(ValueError, match="'x': error feedback is for an allreduce"):
        reducescatter(feedback=own, codec=_native.get_codec("bit8"))


def test_a_refusal_counts_no_use() -> None:
    """So ranks still draw alike when one of them has caught its error and calls again."""
    codec = _native.get_codec("int8", 32, rounding="stochastic")
    feedback = _native.Feedback(8)
    part = (_native.Reduction(codec=codec), ["x"], [tensor(X, feedback=feedback)])
    with pytest.raises(ValueError, match="two tensors have that name"):
        allreduce([part, part])
    assert feedback.uses == 0
    allreduce([part])
    assert feedback.uses == 1


def test_chunks_that_are_not_equal() -> None:
    with pytest.raises(ValueError, match="'x': 8 elements cannot be cut into equal chunks for 3 ranks"):
        reducescatter(size=3)
    with pytest.raises(ValueError, match="'x': a tensor without dimensions cannot be scattered"):
        reducescatter(np.ones((), np.float32), size=1)


def test_memory_that_is_elsewhere() -> None:
    words = "'x': the tensor is in CPU memory, and messages are in the memory of GPU 0"
    with pytest.raises(ValueError, match=words):
        allreduce(device=0)
    with pytest.raises(ValueError, match="device is a GPU's number, or -1, not -2"):
        allreduce(device=-2)
    on_gpu = _native.Tensor(X.ctypes.data, X.ctypes.data, [8], 6, device=1)
    words = "'x': the tensor is in the memory of GPU 1, and messages are in CPU memory"
    with pytest.raises(ValueError, match=words):
        allreduce([(_native.Reduction(), ["x"], [on_gpu])])


def test_messages_at_places_that_do_not_do() -> None:
    reduction = allreduce(is_scattered=True)
    block = Block(np.zeros(2 * reduction.message_bytes, np.uint8))
    places = addresses_in(block, 2, reduction.message_bytes)
    for address in (0, block.address + 8):
        words = f"messages at address {address}: pass memory that begins at a multiple of 16 bytes"
        with pytest.raises(ValueError, match=words):
            reduction.pack([places[0], address])
    for wrong in (places[:1], [*places, places[0]]):
        with pytest.raises(ValueError, match=f"{len(wrong)} addresses of messages: pass 2"):
            reduction.pack(wrong)
    reduction.pack(places)
    with pytest.raises(ValueError, match="a result at address 0: pass memory"):
        reduction.reduce(places)
    result = Block(np.zeros(reduction.result_bytes, np.uint8))
    with pytest.raises(ValueError, match="1 addresses of messages: pass 2"):
        reduction.reduce(places[:1], result.address)
    reduction.reduce(places, result.address)
    with pytest.raises(ValueError, match="results at address 0: pass memory"):
        reduction.unpack([0, 0])
    with pytest.raises(ValueError, match="0 addresses of results: pass 2"):
        reduction.unpack([])
    reduction.unpack(places)


@pytest.mark.parametrize("is_scattered", [False, True])
@pytest.mark.parametrize("size", [1, 2])
def test_calls_in_another_order(size: int, is_scattered: bool) -> None:
    reduction = allreduce(size=size, is_scattered=is_scattered)
    block = Block(np.zeros(size * reduction.message_bytes, np.uint8))
    result = Block(np.zeros(reduction.result_bytes, np.uint8))
    at = addresses_in(block, size, reduction.message_bytes)
    to = at if is_scattered else at[:1]
    calls: list[Any] = [lambda: reduction.pack(to), lambda: reduction.reduce(at, result.address)]
    if is_scattered:
        calls.append(lambda: reduction.unpack(at))
    words = "pack, reduce and, where results are sent, unpack are called in this order, once each"
    for turn in range(len(calls) + 1):
        for number, call in enumerate(calls):
            if number != turn:
                with pytest.raises(ValueError, match=words):
                    call()
        if turn < len(calls):
            calls[turn]()
    if not is_scattered:
        with pytest.raises(ValueError, match=words):
            reduction.unpack(at)


def test_steps_that_there_are_not() -> None:
    with pytest.raises(ValueError, match="step_elements is how many elements are in a step, or 0, not -1"):
        allreduce(step_elements=-1)
    parts = [(_native.Reduction(), ["x"], [tensor(np.ones(10_000, np.float32))])]
    reduction = allreduce(parts, is_scattered=False, step_elements=4096)
    block = Block(np.zeros(2 * reduction.message_bytes, np.uint8))
    assert reduction.steps == 3
    with pytest.raises(ValueError, match="there is no step 3: pass 0 to 2"):
        reduction.pack([block.address], 3)
    words = "pack, reduce and, where results are sent, unpack are called in this order, once each"
    at = addresses_in(block, 2, reduction.message_bytes)
    reduction.pack(at[:1], 1)
    for call in (lambda: reduction.pack(at[:1], 1), lambda: reduction.reduce(at, step=0)):
        with pytest.raises(ValueError, match=words):
            call()
    reduction.reduce(at, step=1)


def test_only_a_scattered_allreduce_has_results() -> None:
    """Eight elements fill half of what is the least to cut at: one slice has them all."""
    assert allreduce(is_scattered=True).result_bytes == allreduce(is_scattered=True).message_bytes == 32
    assert allreduce(is_scattered=False).result_bytes == 0
    assert allreduce(is_scattered=False).message_bytes == 32
