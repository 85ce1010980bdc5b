"""The state machine of a gradient, without tensors: by hand, and in random passes on several ranks.

In random tests rank 0's answers follow the definition; at the end of a step the machines of all ranks must
have reduced the same gradients equally often.
"""

from __future__ import annotations

import random
from collections import Counter

import pytest

from horovod.common.gradient_life import Decision, GradientLife, Life, TooManyPasses


def life_of(names: str, passes: int = 1) -> GradientLife[str]:
    life: GradientLife[str] = GradientLife(passes)
    for name in names:
        life.add(name)
    return life


def test_a_gradient_is_due_after_the_passes_of_a_step() -> None:
    life = life_of("a", passes=2)
    assert life.accumulated("a") == [] and not life.has_due() and life.has_part(["a"])
    assert life.accumulated("a") == ["a"] and life.has_due()
    life.started(["a"])
    assert life.of("a") is Life.STARTED and life.is_under_way() and not list(life.left_over())
    with pytest.raises(TooManyPasses):
        life.accumulated("a")
    life.reduced(["a"], is_completed=False)
    assert life.of("a") is Life.REDUCED and not life.takes_further("a") and life.open() == []
    life.end_step()
    assert life.of("a") is Life.WAITING and life.left == {"a": 2}


def test_a_group_is_due_as_one_and_has_a_part_before() -> None:
    life = life_of("abc")
    life.group(["a", "b"])
    assert life.accumulated("a") == [] and life.accumulated("c") == ["c"]
    life.started(["c"])
    assert list(life.left_over()) == [["a", "b"]] and life.has_part(["a", "b"])
    assert life.groups() == [["a", "b"]] and life.is_grouped("b") and not life.is_grouped("c")
    assert life.accumulated("b") == ["a", "b"]
    life.ungroup()
    assert life.unit("a") == ["a"]


def test_a_completed_gradient_takes_further_contributions() -> None:
    life = life_of("a")
    life.started(["a"])
    life.reduced(["a"], is_completed=True)
    assert life.open() == ["a"] and life.started_further("a") == 1 and life.open() == []
    assert life.is_under_way()
    life.reduced(["a"], is_completed=False)
    assert life.open() == ["a"] and life.started_further("a") == 2


def test_a_forgotten_gradient_waits_again() -> None:
    life = life_of("ab")
    life.started(["a", "b"])
    life.reduced(["a", "b"], is_completed=True)
    life.forget("a")
    assert life.of("a") is Life.WAITING and life.left["a"] == 1 and life.open() == ["b"]


class Ranks:
    """The machines of several ranks, and rank 0's view of them, all in one thread.

    ``reduced`` counts, by rank and parameter, the contributions in which the rank has taken part.
    """

    def __init__(self, ranks: int, names: str, groups: list[list[str]], passes: int) -> None:
        self.lives = [life_of(names, passes) for _ in range(ranks)]
        for life in self.lives:
            for members in groups:
                life.group(members)
        self.reduced: list[Counter[str]] = [Counter() for _ in range(ranks)]

    def end_of_pass(self) -> None:
        """All ranks end a pass: a rank that lacks a gradient, started or begun elsewhere, starts it."""
        due = self.started()
        if all(life.has_due() for life in self.lives):
            parts = [u for life in self.lives for u in life.left_over() if life.has_part(u)]
            due |= {member for unit in parts for member in unit}
        for life in self.lives:
            for members in list(life.left_over()):
                if due.intersection(members):
                    life.started(members)
        for life, count in zip(self.lives, self.reduced, strict=True):
            over = [member for member in life.left if life.of(member) is Life.STARTED]
            count.update(over)
            life.reduced(over, is_completed=True)

    def started(self) -> set[str]:
        return {m for life in self.lives for m in life.left if life.of(m) is Life.STARTED}


@pytest.mark.parametrize("seed", range(200))
def test_ranks_reduce_the_same_whatever_their_passes_reach(seed: int) -> None:
    rng = random.Random(seed)
    names = "abcdef"[: rng.randint(1, 6)]
    groups = [list(names[:2])] if len(names) > 2 and rng.random() < 0.5 else []
    ranks = Ranks(rng.randint(2, 4), names, groups, passes=1)
    for _ in range(rng.randint(1, 5)):
        for life in ranks.lives:
            for name in rng.sample(names, rng.randint(1, len(names))):
                life.started(life.accumulated(name))
        ranks.end_of_pass()
        assert all(count == ranks.reduced[0] for count in ranks.reduced)
        assert len({tuple(sorted(life.open())) for life in ranks.lives}) == 1
        for life in ranks.lives:
            for members in list(life.left_over()):
                life.started(members)
            life.end_step()
            assert set(life.left.values()) == {1} and not life.is_under_way()


def test_decisions_are_the_cores() -> None:
    assert [decision.name for decision in Decision] == ["NOT_YET", "START", "NOBODY_HAS_IT", "ASK_AGAIN"]
