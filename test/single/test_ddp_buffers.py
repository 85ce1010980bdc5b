"""Memory for messages: what is given back is used again, for shorter messages too; not too much is kept."""

import pytest
import torch

from horovod.torch.ddp.buffers import Buffers


@pytest.fixture
def buffers() -> Buffers:
    return Buffers()


def test_of_what_fits_the_shortest_is_used_again(buffers: Buffers) -> None:
    long, short = buffers.take(1000), buffers.take(500)
    at_long, at_short = long.data_ptr(), short.data_ptr()
    buffers.give_back(short)
    buffers.give_back(long)
    first, second = buffers.take(400), buffers.take(300)
    assert (first.data_ptr(), second.data_ptr()) == (at_short, at_long)
    assert (first.numel(), second.numel()) == (400, 300)


def test_a_long_buffer_stays_long(buffers: Buffers) -> None:
    long = buffers.take(1000)
    address = long.data_ptr()
    buffers.give_back(long)
    buffers.give_back(buffers.take(10))
    assert buffers.take(1000).data_ptr() == address


def test_what_is_in_use_is_nobody_elses(buffers: Buffers) -> None:
    taken = [buffers.take(nbytes) for nbytes in (64, 0, 64, 32, 128, 0)]
    for number, buffer in enumerate(taken):
        buffer.fill_(number)
    assert [buffer.unique().tolist() for buffer in taken] == [[0], [], [2], [3], [4], []]
    for buffer in taken:
        buffers.give_back(buffer)


def test_lengths_that_change_in_every_step_allocate_nothing(
    buffers: Buffers, monkeypatch: pytest.MonkeyPatch
) -> None:
    def step() -> None:
        under_way: list[torch.Tensor] = []
        for nbytes in [8_400_000] * 9 + [4_900_000] * 3 + [1_200_000] * 2:
            if len(under_way) == 4:
                buffers.give_back(under_way.pop(0))
            under_way.append(buffers.take(nbytes))
        for buffer in under_way:
            buffers.give_back(buffer)

    step()
    monkeypatch.setattr(torch, "empty", None)
    for _ in range(3):
        step()


def test_no_more_is_kept_than_was_in_use_at_a_time(buffers: Buffers) -> None:
    for nbytes in range(1000, 100_000, 1000):
        buffers.give_back(buffers.take(nbytes))
    assert sum(buffer.numel() for buffer in buffers._free) == 99_000
