"""hvd.elastic with workers as threads: facts on which ranks must agree, and ranks that do not agree."""

# private: _member_of_what_is_formed, _saves: a meeting that fails, and commits without a state

from __future__ import annotations

import threading
from collections import Counter
from typing import Any
from unittest import mock

import busy
import pytest
import torch
from elastic_threads import PATIENCE, Launcher, Lost, together
from refusals import expect, refused

import horovod.torch as hvd
from horovod.common import agent_channel, basics, elastic, jobs
from horovod.common.agent_messages import VARIABLE as AGENT
from horovod.common.basics import MOST_ATTEMPTS
from horovod.common.elastic import ADDED, REMOVED
from horovod.common.exceptions import (
    CannotStart,
    Disagreement,
    HorovodInternalError,
    LostRank,
    ShutDown,
    Stalled,
)
from horovod.common.rejoining import MOST_REFUSALS, Patience, is_scripts_own


@pytest.fixture(autouse=True)
def elastic_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOROVOD_ELASTIC", "1")


class OfScript(hvd.elastic.State):
    """A State that knows only its own commits."""

    def __init__(self, step: int = 0) -> None:
        super().__init__(hvd.broadcast_object, hvd.rank)
        self.step = self.saved = step

    def save(self) -> None:
        self.saved = self.step

    def restore(self) -> None:
        self.step = self.saved

    def sync(self) -> None:
        self.step = self._bcast_object(self.step)
        self.save()


KINDS = pytest.mark.parametrize("kind", [hvd.elastic.TorchState, OfScript], ids=["TorchState", "of a script"])


# ---- before the function ----


@KINDS
def test_a_death_between_init_and_the_function_is_a_reset(kind: Any) -> None:
    launcher = Launcher("tcp")
    have_begun = threading.Barrier(3, timeout=PATIENCE)

    def work(name: str) -> Any:
        have_begun.wait()
        if name == "a":
            jobs.current().running().world.abandon()
            raise Lost
        busy.until(lambda: jobs.current().running().engine.has_failed, PATIENCE)
        model = torch.nn.Linear(hvd.size(), 1)
        hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), 0.1), model.named_parameters())
        hvd.elastic.ElasticSampler(range(7))
        state = kind(step=0)
        state.step = 3
        state.save()

        def train(state: Any) -> Any:
            return hvd.size(), state.step, float(hvd.allreduce(torch.ones(1), op=hvd.Sum))

        return hvd.elastic.run(train)(state)

    launcher.start(["a", "b", "c"], work)
    assert launcher.wait() == {"b": (2, 3, 2.0), "c": (2, 3, 2.0)}
    assert launcher.worlds == [["a", "b", "c"], ["b", "c"]]


@pytest.mark.parametrize("is_restarting", [False, True], ids=["in process", "started again"])
@pytest.mark.parametrize("cause", ["LostRank", "HorovodInternalError"])
def test_worlds_are_formed_as_long_as_ranks_are_lost(
    cause: str, is_restarting: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker reports the lost rank to horovodrun, which must not form worlds with it for ever."""
    job, channel, member = jobs.Job(), mock.Mock(generation=4), mock.Mock()
    facts = {"cause_class": cause, "ranks": [0]}
    deaths = [CannotStart("hvd.init() failed", code="silent", facts=facts) for _ in range(2 * MOST_ATTEMPTS)]
    monkeypatch.setenv(AGENT, "7:1:2")
    monkeypatch.setattr(agent_channel, "agent_channel", lambda environment: channel)
    monkeypatch.setattr(basics.restarting, "is_on", lambda: is_restarting)
    begin = mock.Mock(side_effect=[*deaths, member])
    monkeypatch.setattr(basics.Membership, "begin", begin)
    if cause == "LostRank" and not is_restarting:
        assert basics._member_of_what_is_formed(job, mock.Mock(), None, mock.Mock()) is member
        assert channel.lost.call_args_list == [mock.call(4, 0, str(death)) for death in deaths]
    else:
        with refused(CannotStart, "silent"):
            basics._member_of_what_is_formed(job, mock.Mock(), None, mock.Mock())
        assert begin.call_count == MOST_ATTEMPTS and channel.lost.call_count == 0


# ---- who synchronises ----


@KINDS
@pytest.mark.parametrize("comes", [True, False], ids=["another comes meanwhile", "nobody comes"])
def test_ranks_leave_out_the_synchronisation_together(kind: Any, comes: bool) -> None:
    """Removed hosts do not require synchronisation. The new world knows whether a newcomer has come."""
    launcher = Launcher()
    synchronised: Counter[str] = Counter()

    class State(kind):  # type: ignore[misc]
        def sync(self) -> None:
            synchronised[self.name] += 1
            super().sync()

    def work(name: str) -> Any:
        state = State(step=0)
        state.name = name

        def train(state: Any) -> Any:
            while state.step < 6:
                hvd.allreduce(torch.ones(1))
                state.step += 1
                if name == "a" and state.step == 3:
                    if comes:
                        launcher.start(["new"], work)
                    state.on_hosts_updated(1.0, REMOVED)
                state.commit()
            return hvd.size(), state.step

        return hvd.elastic.run(train)(state)

    launcher.start(["a", "b"], work)
    results = launcher.wait()
    assert set(results.values()) == {(3 if comes else 2, 6)}
    assert synchronised == ({"a": 2, "b": 2, "new": 1} if comes else {"a": 1, "b": 1})


@KINDS
def test_optimizers_follow_process_sets_whatever_the_state_is(
    kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a is lost, c comes into the first set, b leaves the second, and d comes into it."""
    monkeypatch.setenv("HOROVOD_DYNAMIC_PROCESS_SETS", "1")

    def work(name: str) -> Any:
        sets = [hvd.add_process_set([0, 1]), hvd.add_process_set([1, 2])]
        weights = [torch.nn.Parameter(torch.zeros(1)) for _ in sets]
        optimizers = [
            hvd.DistributedOptimizer(torch.optim.SGD([weight], 1.0), process_set=its_set)
            for weight, its_set in zip(weights, sets, strict=True)
        ]

        def train(state: Any) -> list[float]:
            hvd.barrier()
            if name == "a":
                raise Lost
            hvd.barrier()
            for weight, optimizer in zip(weights, optimizers, strict=True):
                (weight * (hvd.rank() + 1)).sum().backward()
                optimizer.step()
            hvd.barrier()  # the first to end leaves the others
            return [-weight.item() for weight in weights]

        return hvd.elastic.run(train)(kind(step=0))

    assert together("abcd", work) == {"b": [1.5, 1.0], "c": [1.5, 2.5], "d": [3.0, 2.5]}


def test_a_newcomer_does_not_join_another_function() -> None:
    """It runs the script from its beginning; the others are further on, and continue without it."""
    launcher = Launcher()
    said: list[str] = []

    def pretrain(state: Any) -> None:
        hvd.allreduce(torch.ones(1), name="pretrain")

    def work(name: str) -> Any:
        def train(state: Any) -> Any:
            while state.step < 6:
                hvd.allreduce(torch.ones(1), name="train")
                state.step += 1
                if name == "a" and state.step == 3:
                    launcher.start(["new"], work)
                    state.on_hosts_updated(1.0, ADDED)
                state.commit()
            return hvd.size(), state.step

        try:
            hvd.elastic.run(pretrain)(hvd.elastic.TorchState(step=0))
        except HorovodInternalError as error:
            said.append(str(error))
            raise Lost from None
        return hvd.elastic.run(train)(hvd.elastic.TorchState(step=0))

    launcher.start(["a", "b"], work)
    assert launcher.wait() == {"a": (2, 6), "b": (2, 6)}
    assert len(said) == 1 and "pretrain of hvd.elastic.run, and rank 0 in" in said[0]
    assert launcher.worlds == [["a", "b"], ["a", "b", "new"], ["a", "b"]]


# ---- repeated refusals ----


def committing_again(state: Any, refused: Any) -> None:
    """The usual loop: it begins with the batch whose commit it went back to, and commits that again."""
    for step in range(state.step, 8):
        state.step = step
        if state.step == 5:
            refused()
        if state.step % 3 == 0:
            state.commit()


def without_commits(state: Any, refused: Any) -> None:
    refused()


@KINDS
@pytest.mark.parametrize("way", [committing_again, without_commits])
@pytest.mark.parametrize("shape", ["fixed", "random"])
def test_what_ranks_disagree_about_is_raised_the_third_time(kind: Any, way: Any, shape: str) -> None:
    calls: Counter[str] = Counter()
    raised: list[HorovodInternalError] = []

    def work(name: str) -> None:
        def disagree() -> None:
            elements = 3 + (name == "a") + (2 * calls[name] if shape == "random" else 0)
            hvd.allreduce(torch.ones(elements), name="x")

        def train(state: Any) -> None:
            calls[name] += 1
            assert calls[name] <= MOST_REFUSALS + 1, "it goes on for ever"
            way(state, disagree)

        try:
            hvd.elastic.run(train)(kind(step=0))
        except HorovodInternalError as error:
            raised.append(error)

    together("ab", work)
    assert raised
    for error in raised:
        expect(error, Disagreement, "disagree", tensor="allreduce.x", property="shape")
    assert min(calls.values()) == MOST_REFUSALS


REFUSED, ANOTHERS = Disagreement("ranks disagree"), ShutDown("this rank or another called hvd.shutdown()")
LOST, STALLED = (kind(kind.__name__, facts={"ranks": [1]}) for kind in (LostRank, Stalled))


@pytest.mark.parametrize(
    ("attempts", "ends"),
    [
        ([(REFUSED, 0)] * 3, True),
        ([(REFUSED, 9), (REFUSED, 1), (REFUSED, 0)], True),
        ([(REFUSED, 7), (REFUSED, 6), (REFUSED, 7)], True),  # the clock decides when to commit
        ([(REFUSED, 9), (REFUSED, 3), (REFUSED, 3)], False),
        ([(REFUSED, 9), (REFUSED, 3), (REFUSED, 3), (REFUSED, 3)], True),
        ([(REFUSED, 5), (REFUSED, 30), (REFUSED, 12), (REFUSED, 50)] * 5, False),
        ([(REFUSED, 0), (REFUSED, 0), (LOST, 0), (REFUSED, 0), (REFUSED, 0)], False),
        ([(REFUSED, 0), (ANOTHERS, 0), (REFUSED, 0)], False),
        ([(REFUSED, 0), (ANOTHERS, 0), (REFUSED, 0), (REFUSED, 0)], True),
        ([(LOST, 0)] * 9, False),
        ([(STALLED, 0)] * 3, True),
    ],
)
def test_replays_are_told_from_progress(attempts: list[tuple[HorovodInternalError, int]], ends: bool) -> None:
    patience, state = Patience(), mock.Mock(_saves=4, _saves_before=0)
    over = []
    for error, commits in attempts:
        patience.begin(state)
        state._saves += commits
        over.append(patience.is_over(error, state))
    assert over == [*[False] * (len(attempts) - 1), ends]


def test_an_error_of_ours_that_a_script_passes_on_is_not_its_own() -> None:
    def caught(*codes: tuple[str, str]) -> BaseException:
        scope: dict[str, Any] = {"E": HorovodInternalError}
        for text, file in codes:
            exec(compile(text, file, "exec"), scope)
        try:
            scope["f"]()
        except HorovodInternalError as error:
            return error
        raise AssertionError("it raises")

    ours = ("def g(): raise E('a rank was lost')", elastic.__file__)
    again = "def f():\n try: g()\n except E as e: raise"
    assert not is_scripts_own(caught(ours, (again, "train.py")))
    assert not is_scripts_own(caught(ours, (again + " E('lost')", "train.py")))
    assert not is_scripts_own(caught(ours, (again + " E('lost') from e", "train.py")))
    assert is_scripts_own(caught(("def f(): raise E('mine')", "train.py")))
    mine = ("def g(): raise E('mine')", "other.py")
    assert is_scripts_own(caught(mine, (again + " E('mine too')", "train.py")))


@pytest.mark.parametrize(
    ("error", "has_ended", "refusals", "raised_by", "told"),
    [
        (REFUSED, False, 2, elastic.__file__, 1),
        (STALLED, True, 0, elastic.__file__, 1),
        (HorovodInternalError("out of memory"), True, 0, elastic.__file__, 0),
        (HorovodInternalError("it is no number"), False, 0, elastic.__file__, 0),
        (HorovodInternalError("of the function"), False, 0, "train.py", 1),
        (HorovodInternalError("of the function"), True, 0, "train.py", 1),
    ],
)
def test_the_launcher_is_told_that_it_would_come_again(
    error: HorovodInternalError,
    has_ended: bool,
    refusals: int,
    raised_by: str,
    told: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An error on one rank alone may be its host's fault: then the others continue without it."""
    channel, job = mock.Mock(generation=1), mock.Mock()
    engine = job.member.engine
    engine.has_ended = has_ended
    engine.process_sets.return_value = {0: [0, 1], 3: [1]}
    engine.counters.side_effect = lambda number: {"refusals": refusals if number == 3 else 0}
    monkeypatch.setattr(elastic, "agent_channel", lambda environment: channel)
    monkeypatch.setattr(elastic, "_joined", lambda *arguments: False)
    monkeypatch.setattr(elastic, "Recoveries", mock.Mock())
    scope: dict[str, Any] = {"error": error}
    exec(compile("def raises(state): raise error", raised_by, "exec"), scope)
    func = mock.Mock(side_effect=scope["raises"], __name__="f")
    monkeypatch.setattr(elastic.jobs, "current", lambda: job)
    with pytest.raises(HorovodInternalError) as caught:
        elastic.run_fn(func, mock.Mock())(mock.Mock())
    assert caught.value is error
    assert func.call_count == MOST_REFUSALS
    assert channel.raised.call_count == told
