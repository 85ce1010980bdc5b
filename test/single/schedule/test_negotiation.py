"""Messages between ranks, without engines: the transport is real, and the clock is an argument."""

from __future__ import annotations

from typing import Any

import pytest
from native_testing import testing
from refusals import refused

from horovod import _native
from horovod.common.exceptions import HorovodInternalError

STALLS = {"stall_check_time_seconds": 1.0, "stall_shutdown_time_seconds": 3.0}


class Ranks:
    """Negotiations of ranks that execute nothing; `taken` replaces the execution."""

    def __init__(self, size: int, **settings: Any) -> None:
        given = _native.Settings()
        for name, value in settings.items():
            setattr(given, name, value)
        self.worlds = _native.local_worlds(size)
        self.ranks = [testing.Rank(world, given) for world in self.worlds]
        self.parts = [testing.Negotiation(rank) for rank in self.ranks]
        self._handles = 0

    def ask(self, rank: int, *submissions: Any, process_set: int = 0) -> list[int]:
        """Announce submissions together; return their handles."""
        for submission in submissions:
            self._handles += 1
            submission.handle = self._handles
        self.parts[rank].announce(0.0, [(process_set, submission) for submission in submissions])
        return [submission.handle for submission in submissions]

    def heard(self) -> list[list[Any]]:
        """The responses by rank, after rank 0 has read all announcements and responded."""
        self.parts[0].receive(0.0)
        self.parts[0].coordinate()
        for part in self.parts[1:]:
            part.receive(0.0)
        return [part.take_responses() for part in self.parts]

    def taken(self) -> list[list[list[str]]]:
        """By rank, the names that each response runs; asserts that all responses run operations."""
        heard = self.heard()
        assert {response.kind for responses in heard for response in responses} <= {"run"}
        return [
            [rank.take(response) for response in responses]
            for rank, responses in zip(self.ranks, heard, strict=True)
        ]

    def agree(self, *names: str) -> None:
        """All ranks request each name alone, and take it."""
        for name in names:
            for rank in range(len(self.parts)):
                self.ask(rank, allreduce(name))
            assert self.taken() == [[[name]]] * len(self.parts)


def allreduce(name: str, size: int = 3) -> Any:
    """An allreduce of `size` bytes, which are never read."""
    return testing.Submission.allreduce(name, [_native.Tensor(0, 0, [size], 0)], _native.Reduction())


def kinds(responses: list[Any]) -> list[str]:
    return [response.kind for response in responses]


class TestAgreement:
    def test_a_response_comes_when_the_last_rank_has_asked(self) -> None:
        ranks = Ranks(3)
        for rank in (2, 0):
            ranks.ask(rank, allreduce("a"))
            assert ranks.heard() == [[], [], []]
        ranks.ask(1, allreduce("a"))
        assert ranks.taken() == [[["a"]]] * 3
        assert ranks.heard() == [[], [], []]

    def test_all_hear_one_order_whatever_theirs_was(self) -> None:
        ranks = Ranks(2, fusion_threshold=0)
        ranks.ask(0, *map(allreduce, "abc"))
        ranks.ask(1, *map(allreduce, "cab"))
        first, second = ranks.taken()
        assert first == second and sorted(first) == [["a"], ["b"], ["c"]]

    def test_what_is_alike_is_one_response_up_to_the_threshold(self) -> None:
        ranks = Ranks(2, fusion_threshold=8)
        for rank in range(2):
            ranks.ask(rank, *map(allreduce, "abc"), allreduce("large", 9))
        assert ranks.taken() == [[["a", "b"], ["c"], ["large"]]] * 2

    def test_rows_of_a_gather_are_of_all_ranks(self) -> None:
        ranks = Ranks(2)
        for rank, rows in enumerate((4, 7)):
            gather = testing.Submission.allgather("g", [_native.Tensor(0, 0, [rows, 2], 0)])
            ranks.ask(rank, gather)
        assert [[response.rows for response in of_one] for of_one in ranks.heard()] == [[[4, 7]]] * 2

    def test_disagreement_is_a_response_and_the_name_is_free_again(self) -> None:
        ranks = Ranks(2)
        for rank in range(2):
            ranks.ask(rank, allreduce("a", 3 + rank), allreduce("b"))
        for responses in ranks.heard():
            said = {response.kind: (response.names, response.error) for response in responses}
            assert said == {"refuse": (["a"], "disagree"), "run": (["b"], "")}


class TestIds:
    def test_what_was_agreed_is_said_by_id(self) -> None:
        ranks = Ranks(2)
        ranks.agree("a")
        for rank in range(2):
            ranks.ask(rank, allreduce("a"))
        for responses in ranks.heard():
            assert [(response.names, response.ids) for response in responses] == [([""], [1])]

    def test_an_id_that_rank_0_has_forgotten_is_asked_for_in_full(self) -> None:
        """Rank 1 does not know yet that "b" took the only place, and announces "a" by its id."""
        ranks = Ranks(2, cache_capacity=1)
        ranks.agree("a")
        for rank in range(2):
            ranks.ask(rank, allreduce("b"))
        ranks.parts[0].receive(0.0)
        ranks.parts[0].coordinate()
        ranks.ask(1, allreduce("a"))
        heard = ranks.heard()
        assert sorted(kinds(heard[1])) == ["ask in full", "forget", "run"]
        for rank, responses in enumerate(heard):
            for response in responses:
                if not ranks.parts[rank].follow(response):
                    assert ranks.ranks[rank].take(response) == ["b"]
        ranks.ask(0, allreduce("a"))
        after = ranks.heard()
        runs = [[response for response in responses if response.kind == "run"] for responses in after]
        assert [[response.names for response in of_one] for of_one in runs] == [[["a"]]] * 2


class TestProcessSets:
    def test_an_announcement_of_a_set_that_rank_0_has_not_added(self) -> None:
        ranks = Ranks(3)
        added = [ranks.ranks[rank].add_process_set([0, 2]) for rank in (1, 2)]
        assert added == [1, 1]
        ranks.ask(2, allreduce("early"), process_set=1)
        assert ranks.heard() == [[], [], []]
        ranks.ranks[0].add_process_set([0, 2])
        ranks.parts[0].receive_early(0.0)
        ranks.ask(0, allreduce("early"), process_set=1)
        of_0, of_1, of_2 = ranks.heard()
        assert of_1 == [], "it is not in the set"
        assert [response.set_serial for response in (*of_0, *of_2)] == [1, 1]

    def test_one_name_in_two_sets_is_two_operations(self) -> None:
        ranks = Ranks(2)
        for rank in ranks.ranks:
            rank.add_process_set([0, 1])
        ranks.ask(0, allreduce("a"))
        ranks.ask(1, allreduce("a"), process_set=1)
        assert ranks.heard() == [[], []]
        ranks.ask(0, allreduce("a"), process_set=1)
        assert [[response.set_serial for response in responses] for responses in ranks.heard()] == [[1], [1]]


class TestWaiting:
    @pytest.mark.parametrize("yields", [(True, False), (False, True)])
    def test_of_a_circle_one_who_may_yield_is_released(self, yields: tuple[bool, bool]) -> None:
        ranks = Ranks(2)
        for rank in range(2):
            (handle,) = ranks.ask(rank, allreduce(f"of {rank}"))
            ranks.parts[rank].report_blocked(0.0, {handle: yields[rank]})
        heard = ranks.heard()
        released = yields.index(True)
        assert [(response.kind, response.names) for response in heard[released]] == [
            ("release", [f"of {released}"])
        ]
        assert heard[1 - released] == []

    def test_who_waits_for_a_rank_that_goes_on_is_not(self) -> None:
        ranks = Ranks(2)
        (handle,) = ranks.ask(0, allreduce("a"))
        ranks.parts[0].report_blocked(0.0, {handle: True})
        ranks.ask(1, allreduce("b"))
        assert ranks.heard() == [[], []]

    def test_who_has_asked_for_something_new_does_not_wait_any_more(self) -> None:
        ranks = Ranks(2)
        for rank in range(2):
            (handle,) = ranks.ask(rank, allreduce(f"of {rank}"))
            ranks.parts[rank].report_blocked(0.0, {handle: True})
        ranks.ask(1, allreduce("more"))
        assert ranks.heard() == [[], []]

    def test_a_question_waits_for_a_rank_in_its_backward_pass(self) -> None:
        """Rank 1 may still start "g" in its current pass, in which it has requested the anchor."""
        ranks = Ranks(2)
        for rank in ranks.ranks:
            rank.note_pass(True)
        ranks.agree("anchor")
        question = testing.Submission.missing("q", ["g"], [False], anchor="anchor")
        (handle,) = ranks.ask(0, question)
        ranks.parts[0].report_blocked(0.0, {handle: True})
        _, (asked,) = ranks.heard()
        assert asked.kind == "ask of pass" and ranks.parts[1].follow(asked)
        assert not ranks.parts[1].answer_pass_queries(0.0), "it is in one"
        assert ranks.ranks[1].note_pass(False), "rank 0 waits for that"
        assert ranks.parts[1].answer_pass_queries(0.0) and not ranks.parts[1].answer_pass_queries(0.0)
        assert kinds(ranks.heard()[0]) == ["decided"]


class TestEnds:
    def test_what_ranks_do_not_ask_for_ends_the_job(self) -> None:
        ranks = Ranks(3, **STALLS)
        ranks.ask(1, allreduce("a"))
        assert ranks.heard() == [[], [], []]
        assert not ranks.parts[0].end_stalled(2999.0)
        assert ranks.parts[0].end_stalled(3500.0)
        for part in ranks.parts:
            part.receive(3500.0)
            assert part.reason_to_end == "stalled"
            assert [(one.kind, one.error) for one in part.take_responses()] == [("shutdown", "stalled")]

    def test_what_all_have_asked_for_is_not_stalled(self) -> None:
        ranks = Ranks(2, **STALLS)
        ranks.agree("a")
        assert not ranks.parts[0].end_stalled(100_000.0)
        assert all(part.reason_to_end == "" for part in ranks.parts)

    @pytest.mark.parametrize("leaver", [0, 1])
    def test_who_leaves_ends_it_for_all_without_a_reason(self, leaver: int) -> None:
        ranks = Ranks(2)
        ranks.parts[leaver].announce_leaving(0.0)
        for responses in ranks.heard():
            assert [(response.kind, response.error) for response in responses] == [("shutdown", "")]

    def test_the_last_announcement_comes_before_the_leave(self) -> None:
        ranks = Ranks(2)
        ranks.ask(0, allreduce("a"))
        ranks.parts[1].announce(0.0, [(0, allreduce("a"))], is_leaving=True)
        assert [kinds(responses) for responses in ranks.heard()] == [["run", "shutdown"]] * 2

    def test_only_rank_0_responds(self) -> None:
        ranks = Ranks(3)
        for rank in range(3):
            ranks.ask(rank, allreduce("a"))
        ranks.parts[0].receive(0.0)
        ranks.parts[0].coordinate()
        said = testing.receive(ranks.worlds[1])
        testing.post(ranks.worlds[2], 1, said)
        with refused(HorovodInternalError, "not_to_say", ranks=(2,)):
            ranks.parts[1].receive(0.0)
