"""Memory for messages: what is given back is used again, for shorter messages too; not too much is kept."""

import pytest
import torch

from horovod.torch.ddp.buffers import Buffers


@pytest.fixture
def buffers() -> Buffers:
    return Buffers()


def filled(buffers: Buffers, lengths: list[int]) -> list[torch.Tensor]:
    """Taken all together, each full of its number."""
    taken = [buffers.take(nbytes) for nbytes in lengths]
    for number, buffer in enumerate(taken):
        buffer.fill_(number)
    return taken


def kept_bytes(buffers: Buffers) -> int:
    return sum(buffer.numel() for buffer in buffers._free)


def test_of_what_fits_the_shortest_is_used_again(buffers: Buffers) -> None:
    long, short = buffers.take(1000), buffers.take(500)
    at_long, at_short = long.data_ptr(), short.data_ptr()
    buffers.give_back(short)
    buffers.give_back(long)
    first, second = buffers.take(400), buffers.take(300)
    assert (first.data_ptr(), second.data_ptr()) == (at_short, at_long)
    assert (first.numel(), second.numel()) == (400, 300)


def test_of_those_alike_the_one_used_last(buffers: Buffers) -> None:
    first, second = buffers.take(1000), buffers.take(1000)
    addresses = [first.data_ptr(), second.data_ptr()]
    buffers.give_back(second)
    buffers.give_back(first)
    assert [buffers.take(1000).data_ptr(), buffers.take(1000).data_ptr()] == addresses


def test_a_long_buffer_stays_long_and_is_not_for_what_is_tiny(buffers: Buffers) -> None:
    long = buffers.take(1000)
    address = long.data_ptr()
    buffers.give_back(long)
    tiny = buffers.take(249)
    assert tiny.data_ptr() != address
    assert buffers.take(250).data_ptr() == address


def test_what_is_in_use_is_nobody_elses(buffers: Buffers) -> None:
    for round in range(3):  # from the second on with what was given back
        taken = filled(buffers, [64, 0, 64, 32 << round, 128 >> round, 0, 100])
        assert [buffer.unique().tolist() for buffer in taken] == [[0], [], [2], [3], [4], [], [6]]
        for buffer in reversed(taken):
            buffers.give_back(buffer)


def test_lengths_that_change_in_every_step_allocate_nothing(
    buffers: Buffers, monkeypatch: pytest.MonkeyPatch
) -> None:
    def step() -> None:
        under_way: list[torch.Tensor] = []
        for nbytes in [8_400_000] * 9 + [4_900_000] * 3 + [2_400_000] * 2:
            if len(under_way) == 4:
                buffers.give_back(under_way.pop(0))
            under_way.append(buffers.take(nbytes))
        for buffer in under_way:
            buffers.give_back(buffer)

    step()
    monkeypatch.setattr(torch, "empty", None)
    for _ in range(3):
        step()


@pytest.mark.parametrize("tiny", [64, 300_000])
def test_no_more_is_kept_than_was_asked_for_at_a_time(tiny: int, buffers: Buffers) -> None:
    for count in [0, 1, 2, 3, 4, 5, 6, 7, 3, 7]:
        for buffer in filled(buffers, [tiny] * count + [1_000_000]):
            buffers.give_back(buffer)
        assert kept_bytes(buffers) <= 1_000_000 + 7 * tiny


def test_lengths_that_never_come_again_are_let_go(buffers: Buffers) -> None:
    for nbytes in range(1000, 100_000, 1000):
        buffers.give_back(buffers.take(nbytes))
    assert kept_bytes(buffers) <= 99_000
