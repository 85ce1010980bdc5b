"""The Work over a reducer's future: every caller gets one, and its callbacks run in one thread, in order."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch

from horovod.torch.ddp.future_work import CallbackThread, FutureWork


class SlowToSay(CallbackThread):
    """A thread whose comparison is so slow that a second thread can interleave."""

    @property
    def is_current(self) -> bool:
        time.sleep(0.05)
        return super().is_current


def works(count: int, callbacks: CallbackThread) -> list[tuple[Any, FutureWork]]:
    futures: list[Any] = [torch.futures.Future() for _ in range(count)]
    return [(future, FutureWork(future, [torch.ones(2)], "allreduce", callbacks)) for future in futures]


def test_threads_that_ask_at_once_get_one_future() -> None:
    callbacks = SlowToSay()
    ((future, work),) = works(1, callbacks)
    with ThreadPoolExecutor(4) as pool:
        given = [each.result(20) for each in [pool.submit(work.get_future) for _ in range(4)]]
    assert all(each is given[0] for each in given)
    seen: list[int] = []
    for number, each in enumerate(given):
        each.then(lambda _, number=number: seen.append(number))
    future.set_result(None)
    assert work.wait() and given[0].done()
    callbacks.close()
    assert seen == [0, 1, 2, 3]


def test_callbacks_run_in_one_thread_in_the_order_of_the_ends() -> None:
    callbacks = CallbackThread()
    pairs = works(20, callbacks)
    seen: list[tuple[int, str]] = []
    for number, (_, work) in enumerate(pairs):
        work.get_future().then(lambda _, n=number: seen.append((n, threading.current_thread().name)))
    ending = threading.Thread(
        target=lambda: [future.set_result(None) for future, _ in pairs]
    )  # as a reducer's
    ending.start()
    for _, work in pairs:
        work.wait()
    ending.join()
    callbacks.close()
    assert [number for number, _ in seen] == list(range(20))
    assert {name for _, name in seen} == {"horovod-ddp-callbacks"}


def test_what_went_wrong_is_in_the_future() -> None:
    callbacks = CallbackThread()
    ((future, work),) = works(1, callbacks)
    given = work.get_future()
    future.set_exception(ValueError("no luck"))
    with pytest.raises(ValueError, match="no luck"):
        work.wait()
    with pytest.raises(RuntimeError, match="no luck"):
        given.wait()
    callbacks.close()
