"""horovod.torch.handles, over engines that tests control: objects that it keeps, waits for and releases."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from typing import Any, cast

import pytest
import torch

from horovod import _native as native
from horovod.common import jobs, waiting
from horovod.common.exceptions import HorovodInternalError
from horovod.torch import handles
from horovod.torch.handles import Operation


class Engine:
    """Requests by number: requests in `done` are done; a wait for one in `fails` raises its error."""

    def __init__(self) -> None:
        self.done: set[int] = set()
        self.fails: dict[int, BaseException] = {}
        self.waited: list[int] = []
        self.within: list[tuple[int, float]] = []
        self.yields: set[int] = set()
        self.held = 0

    def poll(self, wait: int) -> bool:
        return wait in self.done

    def wait(self, wait: int) -> str:
        self.waited.append(wait)
        if wait in self.fails:
            raise self.fails.pop(wait)
        return f"result {wait}"

    def has_result(self, wait: int) -> bool:
        return wait in self.done

    def must_yield(self, wait: int) -> bool:
        return wait in self.yields

    def wait_or_yield(self, wait: int) -> bool:
        return True

    def has_result_within(self, wait: int, seconds: float) -> bool:
        self.within.append((wait, seconds))
        return wait in self.done

    def hold(self) -> None:
        self.held += 1

    def let_go(self) -> None:
        self.held -= 1


class Stepper:
    """A stepper that ends after some more steps."""

    def __init__(self, steps: int) -> None:
        self.left = steps

    def advance(self) -> bool:
        self.left -= 1
        return self.left < 0

    def note_blocked(self, may_yield: bool) -> None:
        pass

    def must_yield(self) -> bool:
        return self.left < -1000


@pytest.fixture
def engine() -> Iterator[Engine]:
    with jobs.Job().entered():
        yield Engine()


def operation(engine: Engine, *waits: int, **more: Any) -> Operation:
    return Operation(cast(native.Engine, engine), list(waits), **more)


def listed(results: list[native.Result]) -> Any:
    return tuple(map(str, results))


@pytest.fixture(autouse=True)
def words_for_results(monkeypatch: pytest.MonkeyPatch) -> None:
    """Results are texts here: the host needs no stream order, and no output is a GPU tensor."""
    monkeypatch.setattr(handles.devices, "device_of", lambda _: handles.devices.CPU - 1)


def test_an_operation_is_done_when_all_its_parts_are(engine: Engine) -> None:
    steppers = [Stepper(2), Stepper(1)]
    handle = handles.register(operation(engine, 1, 2, steppers=steppers))
    assert not handles.poll(handle)  # parts advance until one is not done
    engine.done = {1}
    assert not handles.poll(handle)
    engine.done = {1, 2}
    assert [handles.poll(handle) for _ in range(3)] == [False, True, True]
    engine.done = {2}
    assert not handles.poll(handle)


def test_the_output_is_made_of_the_results_in_their_order(engine: Engine) -> None:
    finished = Stepper(2)
    handle = handles.register(operation(engine, 5, 3, 4, finish=listed, steppers=[finished]))
    assert handles.synchronize(handle) == ("result 5", "result 3", "result 4")
    assert engine.waited == [5, 3, 4] and finished.left < 0
    assert handles.synchronize(handle) is None and engine.waited == [5, 3, 4]
    assert handles.synchronize(handles.register(operation(engine, 9))) is None  # it has no output
    with pytest.raises(ValueError, match=f"handle {handle} is not in flight"):
        handles.poll(handle)


def test_what_others_of_a_failed_operation_read_is_kept_until_they_are_done(engine: Engine) -> None:
    tensor = torch.ones(2)
    seen = weakref.ref(tensor)
    engine.fails[1] = HorovodInternalError("lost")
    engine.fails[3] = HorovodInternalError("lost, too")
    handle = handles.register(operation(engine, 1, 2, 3, tensors=[tensor]))
    del tensor
    with pytest.raises(HorovodInternalError, match=r"^lost$"):
        handles.synchronize(handle)
    assert engine.waited == [1] and handles.synchronize(handle) is None
    for done, waited, is_kept in (({2}, [1], True), ({2, 3}, [1, 2, 3], False)):
        engine.done = done
        handles.abandon(operation(engine, 7))  # the check runs at that time
        gc.collect()
        assert engine.waited == waited and (seen() is not None) == is_kept


def test_nothing_is_kept_of_an_operation_whose_only_request_failed(engine: Engine) -> None:
    tensor = torch.ones(2)
    seen = weakref.ref(tensor)
    engine.fails[1] = HorovodInternalError("lost")
    handle = handles.register(operation(engine, 1, tensors=[tensor]))
    del tensor
    with pytest.raises(HorovodInternalError):
        handles.synchronize(handle)
    gc.collect()
    assert seen() is None


def test_after_ctrl_c_an_operation_can_be_waited_for_again(engine: Engine) -> None:
    engine.fails[2] = KeyboardInterrupt()
    handle = handles.register(operation(engine, 1, 2, finish=listed))
    with pytest.raises(KeyboardInterrupt):
        handles.synchronize(handle)
    assert handles.synchronize(handle) == ("result 1", "result 2")
    assert engine.waited == [1, 2, 2]


def test_all_are_waited_for_also_after_a_failure(engine: Engine) -> None:
    engine.fails = {2: HorovodInternalError("second"), 3: HorovodInternalError("third")}
    several = [handles.register(operation(engine, number, finish=listed)) for number in (1, 2, 3, 4)]
    with pytest.raises(HorovodInternalError, match=r"^second$"):
        handles.complete_all(several)
    assert engine.waited == [1, 2, 3, 4]
    again = [handles.register(operation(engine, number, finish=listed)) for number in (6, 5)]
    assert handles.complete_all(again) == [("result 6",), ("result 5",)]
    assert handles.complete_all([]) == []


def test_requests_that_were_made_before_one_failed_keep_their_tensors(engine: Engine) -> None:
    for waits in ((), (1,)):
        tensor = torch.ones(2)
        seen = weakref.ref(tensor)
        half = operation(engine, *waits, tensors=[tensor])
        handles.abandon(half)
        del tensor, half
        gc.collect()
        assert (seen() is not None) == bool(waits)
    assert engine.waited == []


def test_what_is_requested_together_is_let_go_of_in_any_case(engine: Engine) -> None:
    with handles.together(cast(native.Engine, engine)):
        assert engine.held == 1
    assert engine.held == 0
    with pytest.raises(RuntimeError), handles.together(cast(native.Engine, engine)):
        raise RuntimeError
    assert engine.held == 0


def test_waiting_may_have_to_yield(engine: Engine) -> None:
    engine.done = {1, 2}
    two = operation(engine, 1, 2, steppers=[Stepper(1)])
    assert two.complete_or_yield()
    engine.done, engine.yields = {1}, {2}
    assert not two.complete_or_yield()
    engine.yields = set()
    endless = Stepper(-999)
    endless.advance = lambda: setattr(endless, "left", endless.left - 1)  # type: ignore[assignment, method-assign]
    assert not operation(engine, 1, steppers=[endless]).complete_or_yield()
    assert engine.waited == []


def test_all_parts_have_one_limit_of_time_together(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [50.0]
    monkeypatch.setattr(handles.time, "monotonic", lambda: now[0])
    asked: list[tuple[object, float]] = []

    def asked_within(_: Any, what: Any, seconds: float) -> bool:
        asked.append((what, seconds))
        now[0] += 0.25
        return True

    monkeypatch.setattr(waiting, "has_result_within", asked_within)
    monkeypatch.setattr(waiting, "is_over_within", lambda *what: asked_within(None, *what))
    stepper = Stepper(0)
    handle = handles.register(operation(engine, 1, 2, steppers=[stepper]))
    assert handles.is_done_within(handle, 1.0)
    assert asked == [(1, 1.0), (2, 0.75), (stepper, 0.5)]
    assert handles.is_done_within(handle + 1000, 1.0)
    for name in ("has_result_within", "is_over_within"):
        with monkeypatch.context() as patch:
            patch.setattr(waiting, name, lambda *_: False)
            assert not handles.is_done_within(handle, 1.0)


def test_handles_of_one_job_are_none_of_another(engine: Engine) -> None:
    handle = handles.register(operation(engine, 1))
    with jobs.Job().entered():
        other = handles.register(operation(engine, 2))
        assert other > handle and handles.synchronize(handle) is None
    assert engine.waited == [] and handles.synchronize(other) is None
    handles.synchronize(handle)
    assert engine.waited == [1]
