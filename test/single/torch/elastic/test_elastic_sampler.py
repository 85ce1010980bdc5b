"""ElasticSampler: an epoch has each sample once, except for padding, however the number of ranks changes."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import pytest
import torch.utils.data
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refused

import horovod.torch as hvd
from horovod.torch import errors
from horovod.torch.elastic import ElasticSampler, sampler


@dataclass
class Place:
    """Replaces ``basics``, from which a sampler reads its world."""

    at: int = 0
    of: int = 1

    def rank(self) -> int:
        return self.at

    def size(self) -> int:
        return self.of


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Place:
    made = Place()
    monkeypatch.setattr(sampler, "basics", made)
    return made


def of_rank(place: Place, rank: int, size: int, count: int, **options: object) -> ElasticSampler:
    place.at, place.of = rank, size
    return ElasticSampler(range(count), **options)  # type: ignore[arg-type]


class World:
    """Samplers of all ranks, which continue from a state."""

    def __init__(self, place: Place, size: int, count: int, state: dict[str, int]) -> None:
        self.samplers = [of_rank(place, rank, size, count, seed=3) for rank in range(size)]
        for rank, each in enumerate(self.samplers):
            place.at, place.of = rank, size
            each.load_state_dict(state)

    def train(self, batches: int, batch_size: int) -> list[int]:
        """Train on a number of batches, as loaders give them; return their samples."""
        done: list[int] = []
        for each in self.samplers:
            mine = list(each)
            assert len(mine) == len(each) == each.num_samples
            for number in range(batches):
                batch = mine[number * batch_size : (number + 1) * batch_size]
                if batch:
                    done += batch
                    each.record_batch(number, batch_size)
        return done

    def state(self) -> dict[str, int]:
        states = [each.state_dict() for each in self.samplers]
        assert all(state == states[0] for state in states)
        return states[0]


@settings(max_examples=200, deadline=None)
@given(
    count=st.integers(0, 60),
    sizes=st.lists(st.tuples(st.integers(1, 9), st.integers(0, 4), st.integers(1, 7)), max_size=6),
    last=st.integers(1, 9),
    loses=st.lists(st.booleans(), min_size=6, max_size=6),
)
def test_no_sample_is_lost_or_done_twice(
    count: int, sizes: list[tuple[int, int, int]], last: int, loses: list[bool]
) -> None:
    """Worlds of random sizes; some end by a failure, which undoes their work."""
    with pytest.MonkeyPatch.context() as patch:
        place = Place()
        patch.setattr(sampler, "basics", place)
        state = {"epoch": 2, "processed_num": 0}
        done: Counter[int] = Counter()
        padding = 0
        for (size, batches, batch_size), is_lost in zip(sizes, loses, strict=False):
            world = World(place, size, count, state)
            trained = world.train(batches, batch_size)
            if is_lost:
                continue
            before, state = state["processed_num"], world.state()
            padding += len(trained) - (state["processed_num"] - before)
            done.update(trained)
            assert len(trained) - (state["processed_num"] - before) < size
        world = World(place, last, count, state)
        trained = world.train(count + 1, 3)
        done.update(trained)
        padding += len(trained) - (count - state["processed_num"])
        assert set(done) == set(range(count))
        assert done.total() == count + padding
        assert world.state()["processed_num"] == count


def test_a_few_samples_for_many_ranks(place: Place) -> None:
    """Horovod's sampler fails here with an assertion."""
    given_out = []
    for rank in range(8):
        one = of_rank(place, rank, 8, 100, shuffle=False)
        one.load_state_dict({"epoch": 0, "processed_num": 98})
        given_out += list(one)
        assert (one.num_samples, one.total_size) == (1, 8)
    assert given_out == [98, 99] * 4


def test_nothing_left(place: Place) -> None:
    one = of_rank(place, 1, 2, 10)
    one.load_state_dict({"epoch": 0, "processed_num": 10})
    assert list(one) == [] and len(one) == 0


def test_what_a_script_sees(place: Place) -> None:
    one = of_rank(place, 1, 2, 10, shuffle=False)
    assert (one.epoch, one.num_replicas, one.rank, one.num_samples, one.total_size) == (0, 2, 1, 5, 10)
    assert one.indices == one.remaining_indices == list(range(10)) and list(one) == [1, 3, 5, 7, 9]
    one.record_batch(0, 2)
    assert one.processed_num == 4 and one.processed_indices == [0, 1, 2, 3]
    assert one.remaining_indices == list(range(10)), "what is left is divided anew by reset() only"
    assert one.state_dict() == {"epoch": 0, "processed_num": 4}
    one.reset()
    assert one.remaining_indices == list(range(4, 10)) and list(one) == [5, 7, 9]
    place.at, place.of = 0, 1
    one.reset()
    assert list(one) == list(range(4, 10)) and (one.rank, one.num_replicas) == (0, 1)
    one.set_epoch(1)
    assert one.epoch == 1 and one.processed_num == 0 and list(one) == list(range(10))


def test_the_last_batch_may_be_smaller_than_it_is_said_to_be(place: Place) -> None:
    one = of_rank(place, 0, 2, 10)
    for number in range(2):
        one.record_batch(number, 4)
    assert one.processed_num == 10


def test_orders_differ_by_epoch_and_seed_and_not_by_rank(place: Place) -> None:
    orders = []
    for seed in (0, 1):
        one = of_rank(place, 0, 2, 50, seed=seed)
        assert one.indices == of_rank(place, 1, 2, 50, seed=seed).indices
        for epoch in (0, 1):
            one.set_epoch(epoch)
            orders.append(tuple(one.indices))
            assert sorted(one.indices) == list(range(50))
    assert len(set(orders)) == 3  # random.Random(seed + epoch), as in Horovod: (0, 1) is (1, 0)


def test_another_dataset_is_noticed(place: Place) -> None:
    one = of_rank(place, 0, 1, 10)
    with refused(errors.other_dataset, done=11, epoch=0, samples=10):
        one.load_state_dict({"epoch": 0, "processed_num": 11})


def test_with_a_data_loader(place: Place) -> None:
    one = of_rank(place, 1, 2, 10, shuffle=False)
    loader = torch.utils.data.DataLoader(torch.arange(10), batch_size=2, sampler=one)
    assert [batch.tolist() for batch in loader] == [[1, 3], [5, 7], [9]]


def test_a_state_goes_back_between_two_worlds(alone: None) -> None:
    """As if the next world was not formed: the ranks of a later world divide the remaining samples."""
    state = hvd.elastic.TorchState(sampler=ElasticSampler(range(20)), step=0)
    state.sampler.record_batch(0, 8)
    state.commit()
    state.sampler.set_epoch(1)
    state.sampler.record_batch(0, 3)
    hvd.shutdown()
    state.restore()
    assert state.sampler.state_dict() == {"epoch": 0, "processed_num": 8}
    hvd.init()
    state.on_reset()
    assert state.sampler.indices[8:] == state.sampler.remaining_indices == list(state.sampler)
