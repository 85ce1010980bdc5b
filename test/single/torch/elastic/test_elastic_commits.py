"""On which commit the ranks of a new world agree: a pure function of each rank's report."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused

from horovod.common import errors as of_common
from horovod.common.commits import KEPT, Agreement, Commits, Standing, agreed

NEW = Standing()


def went_back(*held: int) -> Standing:
    return Standing(list(held), is_kept=False)


def goes_on(*held: int) -> Standing:
    return Standing(list(held), is_kept=True)


@pytest.mark.parametrize(
    ("standings", "root", "number", "is_kept", "has_newcomers"),
    [
        ([NEW, NEW], 0, 0, True, True),
        ([went_back(4, 5), went_back(4, 5)], 0, 5, False, False),
        ([went_back(5, 6), went_back(4, 5)], 0, 5, False, False),  # rank 0 is a commit ahead
        ([went_back(4, 5), went_back(5, 6), NEW], 0, 5, False, True),
        ([NEW, went_back(1)], 1, 1, False, True),  # rank 0 lost its state before its first synchronisation
        ([goes_on(4, 5), goes_on(4, 5)], 0, 5, True, False),
        ([goes_on(4, 5), goes_on(4, 5), NEW], 0, 5, True, True),
        ([goes_on(4, 5), went_back(4, 5)], 0, 5, False, False),  # lost while others met
        ([goes_on(5, 6), went_back(4, 5), NEW], 0, 5, False, True),
    ],
)
def test_ranks_agree(
    standings: list[Standing], root: int, number: int, is_kept: bool, has_newcomers: bool
) -> None:
    assert agreed(standings) == Agreement(root, number, is_kept, has_newcomers, [])


@pytest.mark.parametrize("stale", [0, 1])
def test_without_a_common_commit_the_newest_counts(stale: int) -> None:
    standings = [Standing([7, 8])]
    standings.insert(stale, Standing([3, 4]))
    conclusion = agreed(standings)
    assert (conclusion.number, conclusion.root) == (8, 1 - stale)


@pytest.mark.parametrize("stale", [0, 1])
def test_numbers_that_were_given_again_are_no_common_commits(stale: int) -> None:
    """A host failed with 11 and 12. The others went on from 11 with another 12, and are at 13."""
    standings = [Standing([12, 13], generation=2), NEW]
    standings.insert(stale, Standing([11, 12], generation=1))
    conclusion = agreed(standings)
    assert (conclusion.number, conclusion.root, conclusion.generation) == (13, 1 - stale, 2)
    assert conclusion.has_newcomers


def test_commits_know_their_generation() -> None:
    commits = Commits()
    assert commits.newest_generation() == (0, [])
    commits.generation = 3
    for number in (11, 12):
        commits.put(number, "content")
    assert commits.newest_generation() == (3, [11, 12])
    commits.forget_after(11)
    commits.generation = 5
    commits.put(12, "another")
    assert commits.newest_generation() == (5, [12]) and commits.numbers == [11, 12]
    commits.put(13, "content")
    assert commits.newest_generation() == (5, [12, 13])


def test_process_sets_are_roots() -> None:
    said = [NEW, Standing([1], True, [[0, 1]]), Standing([1], True, [[0, 2]])]
    assert agreed(said).process_sets == [[0, 1]]


@given(
    st.lists(st.tuples(st.integers(0, 1), st.booleans()), min_size=1, max_size=6),
    st.integers(1, 50),
    st.integers(0, 3),
)
def test_survivors_at_most_one_apart_always_have_a_common_commit(
    ahead: list[tuple[int, bool]], newest: int, newcomers: int
) -> None:
    survivors = [Standing([newest + one - 1, newest + one], kept) for one, kept in ahead]
    conclusion = agreed([*survivors, *[NEW] * newcomers])
    assert conclusion.root == 0
    if not conclusion.is_kept:
        assert all(conclusion.number in one.held for one in survivors)
        assert conclusion.number == newest + min(one for one, _ in ahead)


def test_the_last_commits_are_kept() -> None:
    commits = Commits()
    assert commits.newest == -1 and commits.numbers == []
    for number in range(5):
        commits.put(number, f"content {number}")
    assert commits.numbers == [3, 4] and len(commits.numbers) == KEPT
    commits.forget_after(3)
    assert commits.numbers == [3] and commits.get(3) == "content 3"
    commits.put(4, "another")
    assert commits.get(4) == "another"
    with pytest.raises(KeyError):
        commits.get(2)


def test_a_standing_travels() -> None:
    own = Standing([3, 4], True, [[0, 2]], 7)
    assert Standing.of(1, own.to_bytes()) == own


@pytest.mark.parametrize(
    "said",
    [
        b"", b"\xff", b"[]", b"{}x", b'{"held": 3}', b'{"held": [-1]}', b'{"held": [true]}',
        b'{"is_kept": 1}', b'{"process_sets": [3]}', b'{"process_sets": [["a"]]}', b'{"more": 1}',
        b'{"generation": -1}', b'{"generation": true}', b'{"function": 1}',
        json.dumps({"held": [1.5]}).encode(),
    ],
)  # fmt: skip
def test_a_standing_of_another_form_is_refused(said: bytes) -> None:
    with refused(of_common.not_understood, ranks=(3,)):
        Standing.of(3, said)
