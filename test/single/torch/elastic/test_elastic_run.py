"""run_fn, State and ObjectState, with substitutes for a job's objects."""

# private: _commits: numbers of commits are sent to ranks only

from __future__ import annotations

import copy
import pickle
import threading
from typing import Any
from unittest import mock

import pytest
from refusals import refused

import horovod.torch as hvd
from horovod.common import elastic
from horovod.common import errors as of_common
from horovod.common.agent_messages import VARIABLE as AGENT
from horovod.common.elastic import ADDED, REMOVED, ObjectState, State, notification_manager, run_fn
from horovod.common.exceptions import HorovodInternalError, HostsUpdatedInterrupt


def same(value: Any) -> Any:
    return value


def of_objects(**attributes: Any) -> ObjectState:
    return ObjectState(bcast_object=same, get_rank=lambda: 0, **attributes)


# ---- run_fn ----


def test_a_function_that_succeeds_is_called_once() -> None:
    state, func, reset = mock.Mock(), mock.Mock(return_value=7, __name__="func"), mock.Mock()
    assert run_fn(func, reset)(state, 1, x=2) == 7
    func.assert_called_once_with(state, 1, x=2)
    assert state.sync.call_count == 1 and reset.call_count == state.restore.call_count == 0


def test_a_lost_rank_brings_the_state_back() -> None:
    state, reset, leave = mock.Mock(), mock.Mock(), mock.Mock()
    order = mock.Mock()
    for name, each in (("sync", state.sync), ("restore", state.restore), ("on_reset", state.on_reset)):
        order.attach_mock(each, name)
    order.attach_mock(reset, "reset")
    order.attach_mock(leave, "leave")
    losses = [HorovodInternalError("lost"), HorovodInternalError("lost")]
    func = mock.Mock(side_effect=[*losses, 3], __name__="f")
    assert run_fn(func, reset, leave)(state) == 3
    once = ["leave", "restore", "reset", "on_reset", "sync"]
    assert [call[0] for call in order.mock_calls] == ["sync", *once, *once]


@pytest.mark.parametrize("skip", [True, False])
def test_an_update_keeps_the_state(skip: bool) -> None:
    state, reset = mock.Mock(), mock.Mock()
    func = mock.Mock(side_effect=[HostsUpdatedInterrupt(skip), 3], __name__="f")
    assert run_fn(func, reset)(state) == 3
    assert state.restore.call_count == 0 and reset.call_count == state.on_reset.call_count == 1
    assert state.sync.call_count == (1 if skip else 2)


def test_skipping_is_for_the_next_world_only() -> None:
    state = mock.Mock()
    func = mock.Mock(side_effect=[HostsUpdatedInterrupt(True), HorovodInternalError("x"), 3], __name__="f")
    assert run_fn(func, mock.Mock())(state) == 3
    assert state.sync.call_count == 2


@pytest.mark.parametrize("where", ["reset", "on_reset", "sync"])
def test_a_death_before_the_function_is_called_again_is_one_more_reset(where: str) -> None:
    state, reset = mock.Mock(), mock.Mock()
    func = mock.Mock(side_effect=[HostsUpdatedInterrupt(False), 3], __name__="f")
    dies = {"reset": reset, "on_reset": state.on_reset, "sync": state.sync}[where]
    dies.side_effect = [*([None] if where == "sync" else []), HorovodInternalError("lost again"), None]
    assert run_fn(func, reset)(state) == 3
    assert reset.call_count == 2 and state.restore.call_count == 1 and func.call_count == 2


def test_a_death_in_the_first_synchronisation() -> None:
    state, reset = mock.Mock(), mock.Mock()
    state.sync.side_effect = [HorovodInternalError("lost"), None]
    assert run_fn(mock.Mock(return_value=3, __name__="f"), reset)(state) == 3
    assert reset.call_count == state.restore.call_count == 1


@pytest.mark.parametrize("error", [ValueError("of the script"), KeyboardInterrupt(), RuntimeError("x")])
def test_a_scripts_exception_ends_it(error: BaseException) -> None:
    reset = mock.Mock()
    with pytest.raises(type(error)):
        run_fn(mock.Mock(side_effect=error, __name__="f"), reset)(mock.Mock())
    assert reset.call_count == 0 and not notification_manager._listeners


def test_another_librarys_error_behind_which_is_a_loss() -> None:
    state, reset = mock.Mock(), mock.Mock()
    theirs, own = RuntimeError("Connection closed by peer"), RuntimeError("the data is damaged")
    losses = {theirs: HorovodInternalError("rank 0 lost rank 1"), own: None}
    func = mock.Mock(side_effect=[theirs, 3], __name__="f")
    assert run_fn(func, reset, mock.Mock(), losses.get)(state) == 3  # type: ignore[arg-type]
    assert reset.call_count == state.restore.call_count == 1
    func = mock.Mock(side_effect=[own, 3], __name__="f")
    with pytest.raises(RuntimeError, match="the data is damaged"):
        run_fn(func, reset, mock.Mock(), losses.get)(state)  # type: ignore[arg-type]
    assert func.call_count == reset.call_count == 1


def test_a_reset_that_fails_otherwise_ends_it() -> None:
    func = mock.Mock(side_effect=HorovodInternalError("lost"), __name__="f")
    with pytest.raises(ValueError, match="no world"):
        run_fn(func, mock.Mock(side_effect=ValueError("no world")))(mock.Mock())


def test_the_state_may_be_given_by_name() -> None:
    assert run_fn(lambda state: state.epoch, mock.Mock())(state=of_objects(epoch=4)) == 4


# ---- notifications ----


def test_states_are_told_while_they_train() -> None:
    state = of_objects()

    def train(state: ObjectState) -> int:
        notification_manager.handle_hosts_updated(1.5, ADDED)
        assert state._host_messages.qsize() == 1
        return 1

    assert run_fn(train, mock.Mock())(state) == 1
    notification_manager.handle_hosts_updated(2.5, ADDED)
    assert state._host_messages.qsize() == 1


def test_a_launchers_channel_is_listened_to(monkeypatch: pytest.MonkeyPatch) -> None:
    channel = mock.Mock()
    monkeypatch.setattr(elastic, "agent_channel", lambda environment: channel)
    monkeypatch.setenv(AGENT, "7:1:2")
    manager = elastic.WorkerNotificationManager()
    state = of_objects()
    manager.register_listener(state)
    for _ in range(2):
        manager.init()
    assert manager.is_listening and channel.listen.call_count == 1
    threading.Thread(target=channel.listen.call_args[0][0], args=(3.0, REMOVED)).start()
    assert state._host_messages.get(timeout=5) == (3.0, REMOVED)


@pytest.mark.parametrize(
    ("updates", "skip"),
    [
        ([(1, ADDED)], False), ([(1, REMOVED)], True), ([(1, REMOVED), (2, REMOVED)], True),
        ([(1, REMOVED), (2, ADDED)], False), ([(1, ADDED | REMOVED)], False),
    ],
)  # fmt: skip
def test_an_update_interrupts(updates: list[tuple[float, int]], skip: bool) -> None:
    state = of_objects(epoch=1)
    state.check_host_updates()
    for each in updates:
        state.on_hosts_updated(*each)
    state.epoch = 2
    with pytest.raises(HostsUpdatedInterrupt) as raised:
        state.commit()
    assert raised.value.skip_sync is skip and state._saved_state == {"epoch": 2}
    assert state._last_updated_timestamp == updates[-1][0]
    state.check_host_updates()  # once each
    state.on_hosts_updated(updates[-1][0], ADDED)  # as old as the state that all know
    state.check_host_updates()


def test_what_rank_0_knows_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOROVOD_ELASTIC", "1")
    news = [(0, 0, 0)]
    state = ObjectState(bcast_object=lambda mine: news[0], get_rank=lambda: 1)
    state.on_hosts_updated(5, ADDED)
    state.check_host_updates()  # rank 0 has no report of it so far
    news[0] = (0, 5, ADDED)
    with pytest.raises(HostsUpdatedInterrupt):
        state.check_host_updates()


def test_a_job_that_is_not_elastic_pays_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = mock.Mock(side_effect=same)
    state = ObjectState(bcast_object=asked, get_rank=lambda: 0, epoch=0)
    for value in ("", "0"):
        monkeypatch.setenv("HOROVOD_ELASTIC", value)
        state.commit()
    assert asked.call_count == 0
    monkeypatch.setenv("HOROVOD_ELASTIC", "1")
    state.commit()
    assert asked.call_count == 1


def test_a_reset_forgets_what_was_said_and_calls_back() -> None:
    state, called = of_objects(), []
    state.register_reset_callbacks([lambda: called.append(1), lambda: called.append(2)])
    state.register_reset_callbacks([lambda: called.append(3)])
    state.on_hosts_updated(1, ADDED)
    state.on_reset()
    assert called == [1, 2, 3] and state._host_messages.empty()


# ---- ObjectState ----


def test_attributes_come_back() -> None:
    state = of_objects(epoch=1, words=["a"])
    state.epoch, state.more = 2, 3
    state.words.append("b")
    state.restore()
    assert (state.epoch, state.words, state.more) == (1, ["a"], 3)
    state.words.append("c")  # not in the saved state
    state.restore()
    assert state.words == ["a"]
    state.epoch = 5
    state.commit()
    state.epoch = 6
    state.restore()
    assert state.epoch == 5 and state._saved_state == {"epoch": 5, "words": ["a"]}


def test_ranks_take_over_rank_0s() -> None:
    theirs = {"epoch": 7, "words": ["x"]}
    state = ObjectState(bcast_object=lambda mine: theirs, get_rank=lambda: 1, epoch=1, words=[])
    state.sync()
    assert (state.epoch, state.words) == (7, ["x"])
    state.epoch = 9
    state.restore()
    assert state.epoch == 7


def test_a_state_without_hvd_init() -> None:
    assert not hvd.is_initialized()
    state = of_objects(epoch=0)
    state.on_reset()
    state.sync()
    assert state.epoch == 0


def test_what_cannot_be_copied_is_named() -> None:
    with refused(of_common.unusable_attribute, attribute="lock", done="copied"):
        of_objects(lock=threading.Lock())


class Held:
    """An object that can be copied, but not pickled."""

    def __deepcopy__(self, memo: object) -> Held:
        return self

    def __reduce__(self) -> str:
        raise RuntimeError("held\nfast")


def test_what_cannot_be_pickled_is_named(alone: None) -> None:
    state = hvd.elastic.TorchState(step=0, thing=Held())
    with refused(
        of_common.unusable_attribute, attribute="thing", done="pickled", why="held fast", type="Held"
    ):
        state.sync()


def test_missing_attributes_are_missing() -> None:
    state = of_objects(epoch=0)
    with pytest.raises(AttributeError):
        _ = state.no_such
    assert not hasattr(state, "no_such") and hasattr(state, "epoch")
    with pytest.raises(AttributeError):
        _ = object.__new__(ObjectState).epoch
    assert copy.copy(state).epoch == 0
    with pytest.raises((TypeError, pickle.PicklingError, AttributeError)):
        pickle.dumps(state)  # a queue cannot be copied; the copy ends with an error


def test_an_abstract_state_says_what_is_missing() -> None:
    state = State(same, lambda: 0)
    saved, restored, synchronized = of_common.how_saved, of_common.how_restored, of_common.how_synchronized
    pairs = (
        (state.save, saved),
        (state.restore, restored),
        (state.sync, synchronized),
        (state.commit, saved),
    )
    for method, row in pairs:
        with refused(row, type="State"):
            method()
    state.on_reset()


def test_the_commits_are_numbered() -> None:
    state = of_objects(epoch=0)
    assert state._commits.numbers == [0]
    state.sync()
    state.save()
    assert state._commits.numbers == [1, 2]


def test_a_world_that_has_failed_makes_no_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU's results after an aborted communicator must not become a commit."""
    state = of_objects(value=1)
    state.sync()
    job, member = mock.Mock(), mock.Mock()
    job.member, member.engine.has_failed = member, True
    member.allgathered.side_effect = HorovodInternalError("rank 0 lost rank 1")
    monkeypatch.setattr(elastic.jobs, "current", lambda: job)
    state.value = 2
    with pytest.raises(HorovodInternalError, match="lost rank 1"):
        state.save()
    state.restore()
    assert state.value == 1
