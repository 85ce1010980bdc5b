"""Threads that carry gradients are started so that they do not interrupt training (SCHED_BATCH)."""

import os
import sys
import threading

import pytest

from horovod.torch.ddp.scheduling import behind_training

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Linux only")


@pytest.fixture(autouse=True)
def _scheduled_as_usual() -> None:
    """The tests themselves may be run as a batch, or where no policy may be chosen."""
    try:
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    except OSError as error:
        pytest.skip(f"the system refuses: {error}")


def policy_of_a_new_thread() -> int:
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.append(os.sched_getscheduler(0)))
    thread.start()
    thread.join()
    return found[0]


def test_new_threads_are_batches_and_this_one_is_not() -> None:
    with behind_training():
        assert policy_of_a_new_thread() == os.SCHED_BATCH
    assert os.sched_getscheduler(0) == os.SCHED_OTHER
    assert policy_of_a_new_thread() == os.SCHED_OTHER


def test_this_thread_is_as_before_after_an_error() -> None:
    with pytest.raises(KeyError), behind_training():
        raise KeyError
    assert os.sched_getscheduler(0) == os.SCHED_OTHER


def test_another_policy_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[int] = []
    choose = os.sched_setscheduler

    def work() -> None:
        choose(0, os.SCHED_IDLE, os.sched_param(0))
        with behind_training():
            found.append(policy_of_a_new_thread())

    monkeypatch.setattr(os, "sched_setscheduler", lambda *_: found.append(-1))
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [os.SCHED_IDLE]


@pytest.mark.parametrize("call", ["sched_getparam", "sched_getscheduler", "sched_setscheduler"])
def test_where_the_system_refuses_nothing_changes(call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError

    tell, found = os.sched_getscheduler, []
    monkeypatch.setattr(os, call, refuse)
    with behind_training():
        thread = threading.Thread(target=lambda: found.append(tell(0)))
        thread.start()
        thread.join()
    assert [*found, tell(0)] == [os.SCHED_OTHER, os.SCHED_OTHER]
