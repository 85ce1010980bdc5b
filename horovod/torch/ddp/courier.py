"""Carries the messages of reductions between the ranks of a process group, beside the training's own work.

Operations, and so their exchanges and steps, are in one order on all ranks, that of `start`. While steps are
on their way, the next ones are packed and sent; after those of an exchange the next operation's, unless the
one before has yet to say what it sends last.
"""

from __future__ import annotations

import atexit
import queue
import threading
import weakref
from collections import deque

import torch

from horovod.torch.ddp.agreement import RanksDisagree
from horovod.torch.ddp.buffers import Buffers
from horovod.torch.ddp.exchange import Operation
from horovod.torch.ddp.groups import OwnGroups
from horovod.torch.ddp.journey import Journey, Leg, Step, in_rank_order
from horovod.torch.ddp.scheduling import behind_training

__all__ = ["HostCourier"]

AHEAD = 4  # steps whose contributions are on their way at a time, and steps whose results are

_NOTHING = torch.empty(0, dtype=torch.uint8)


class _Desk:
    """What those who start operations share with the thread that carries them out. Thread-safe."""

    def __init__(self) -> None:
        self.events: queue.SimpleQueue[Journey | str] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._under_way: set[Journey] = set()  # guarded by _lock, as the next
        self._failure: BaseException | None = None

    def submit(self, journey: Journey) -> None:
        with self._lock:
            if self._failure is not None:
                raise self._failure
            self._under_way.add(journey)
            self.events.put(journey)

    def settle(self, journey: Journey, error: BaseException | None = None) -> None:
        with self._lock:
            self._under_way.discard(journey)
        if error is None:
            journey.future.set_result(None)
        else:
            journey.future.set_exception(error)  # type: ignore[arg-type]

    def fail(self, error: BaseException) -> None:
        """End all that is under way, and whatever is started later, with this error."""
        with self._lock:
            self._failure = self._failure or error
            failed = list(self._under_way)
        for journey in failed:
            journey.operation.close()
            self.settle(journey, error)

    @property
    def has_failed(self) -> bool:
        with self._lock:
            return self._failure is not None

    @property
    def is_idle(self) -> bool:
        with self._lock:
            return not self._under_way


# Events besides operations.
_ARRIVED = "messages have arrived"
_CLOSE = "end when nothing is under way"
_EXIT = "end at once"

_EXIT_SECONDS = 10.0  # torch's threads may be waiting for a rank that is late

_desks: dict[_Desk, threading.Thread] = {}  # of threads that have not ended


@atexit.register
def _end_threads() -> None:
    """A thread that still closed connections while the interpreter ends would abort the process."""
    running = dict(_desks)
    for desk in running:
        desk.events.put(_EXIT)
    for thread in running.values():
        thread.join(_EXIT_SECONDS)


class HostCourier:
    """For tensors in host memory: a thread packs, reduces and unpacks, while torch's own carry.

    It has the groups for itself, and closes them. What goes to everybody is sent to each other rank by
    itself: gloo's allgather allocates and copies so much that it takes three times as long as its alltoall.
    """

    def __init__(self, groups: OwnGroups) -> None:
        self._desk = _Desk()
        worker = _Worker(self._desk, groups)
        self._thread = threading.Thread(target=worker.run, name="horovod-ddp-courier", daemon=True)
        _desks[self._desk] = self._thread
        with behind_training():
            self._thread.start()
        self._end = weakref.finalize(self, self._desk.events.put, _CLOSE)

    def start(self, operation: Operation) -> torch.futures.Future[None]:
        """Carry out the operation after those started before; the future has its error, if it fails.

        Raises what the transport has failed with before.
        """
        journey = Journey(operation)
        self._desk.submit(journey)
        return journey.future

    @property
    def is_idle(self) -> bool:
        """Whether nothing is under way."""
        return self._desk.is_idle

    def close(self) -> None:
        """Carry out what is under way, then end the thread and the groups."""
        self._end()
        self._thread.join()
        self._desk.fail(RuntimeError("This reducer was closed: nothing can be reduced with it any more."))


class _Worker:
    """What the courier's thread does. Nothing here is touched by another thread but `_desk`."""

    def __init__(self, desk: _Desk, groups: OwnGroups) -> None:
        self._desk = desk
        self._groups = groups
        self._rank, self._size = groups.rank, groups.size
        self._buffers = Buffers()
        self._waiting: deque[Journey] = deque()
        self._unsaid: Journey | None = None  # begun, and it may send more: nothing else is sent before that
        self._unpacked: deque[Step] = deque()  # what is sent next, of the exchange begun last
        self._outward: deque[Leg] = deque()  # contributions, in the order in which they were sent
        self._homeward: deque[Leg] = deque()  # results, likewise

    def run(self) -> None:
        is_closing = False
        while not (is_closing and self._desk.is_idle) and (event := self._desk.events.get()) is not _EXIT:
            is_closing |= event is _CLOSE
            if self._desk.has_failed:
                continue
            if isinstance(event, Journey):
                self._waiting.append(event)
            try:
                self._work_until_news()
            except Exception as error:
                self._fail(error)
        if not self._desk.is_idle or not is_closing:
            self._desk.fail(RuntimeError("The process is ending: nothing can be reduced any more."))
        self._let_go()
        _desks.pop(self._desk, None)

    def _work_until_news(self) -> None:
        while self._step():
            if not self._desk.events.empty():
                return

    def _step(self) -> bool:
        """Do one thing if there is one to do; keeping messages on their way comes first."""
        has_room = len(self._outward) < AHEAD and len(self._homeward) < AHEAD
        if has_room and self._unpacked:
            self._pack(self._unpacked.popleft())
        elif has_room and self._waiting and self._unsaid is None:
            self._proceed(self._waiting.popleft())
        elif self._outward and self._outward[0].has_arrived:
            self._reduce(self._outward.popleft())
        elif self._homeward and self._homeward[0].has_arrived:
            self._unpack(self._homeward.popleft())
        else:
            return False
        return True

    def _proceed(self, journey: Journey) -> None:
        """Go on to the operation's next exchange, or to its end."""
        if self._unsaid is journey:
            self._unsaid = None
        try:
            exchange = next(journey.operation)
        except StopIteration:
            self._desk.settle(journey)
            return
        except RanksDisagree as error:  # on every rank: the next operation may be another matter
            self._desk.settle(journey, error)
            return
        if not exchange.is_last:
            self._unsaid = journey
        self._unpacked.extend(Step(journey, exchange, number) for number in range(exchange.steps))

    def _pack(self, step: Step) -> None:
        leg = self._leg(step, step.exchange.message_bytes)
        if step.exchange.is_scattered:
            leg.lent = self._buffers.take(leg.others.numel())
            step.exchange.pack(in_rank_order(leg.lent, leg.own, self._rank, self._size), step.number)
            self._send(self._outward, leg, leg.lent)
        else:
            step.exchange.pack([leg.own], step.number)
            self._send_own(self._outward, leg)

    def _reduce(self, leg: Leg) -> None:
        self._receive(leg)
        exchange, number = leg.step.exchange, leg.step.number
        if not exchange.result_bytes:
            exchange.reduce(leg.by_rank, _NOTHING, number)
            self._end(leg)
            return
        results = self._leg(leg.step, exchange.result_bytes)
        exchange.reduce(leg.by_rank, results.own, number)
        self._buffers.give_back(leg.buffer)
        self._send_own(self._homeward, results)

    def _unpack(self, leg: Leg) -> None:
        self._receive(leg)
        leg.step.exchange.unpack(leg.by_rank, leg.step.number)
        self._end(leg)

    def _end(self, leg: Leg) -> None:
        if leg.step.is_last:
            self._proceed(leg.step.journey)
        self._buffers.give_back(leg.buffer)

    def _leg(self, step: Step, nbytes: int) -> Leg:
        return Leg(step, self._buffers.take(self._size * nbytes), nbytes, self._rank, self._size)

    def _send_own(self, legs: deque[Leg], leg: Leg) -> None:
        """Give all others the message that this rank has."""
        if self._size == 2:
            self._send(legs, leg, leg.own)
            return
        leg.lent = self._buffers.take(leg.others.numel())
        leg.lent.view(self._size - 1, leg.own.numel())[:] = leg.own
        self._send(legs, leg, leg.lent)

    def _send(self, legs: deque[Leg], leg: Leg, messages: torch.Tensor) -> None:
        """Begin to give each other rank its message."""
        legs.append(leg)
        if not leg.others.numel():
            leg.has_arrived = True
            return
        leg.work = self._groups.give_others(leg.others, messages, are_results=legs is self._homeward)
        events = self._desk.events

        def arrive(_: object) -> None:
            leg.has_arrived = True
            events.put(_ARRIVED)

        leg.work.get_future().add_done_callback(arrive)

    def _receive(self, leg: Leg) -> None:
        if leg.work is not None:
            try:
                leg.work.wait()  # it is done: this raises what it has failed with
            except RuntimeError as error:  # which names an address at best
                raise type(error)(f"{self._who_is_lost()}: {error}") from error
        leg.work = None
        if leg.lent is not None:
            self._buffers.give_back(leg.lent)

    def _who_is_lost(self) -> str:
        other = f"rank {1 - self._rank}" if self._size == 2 else f"one of the {self._size - 1} other ranks"
        return f"rank {self._rank} of {self._size} has heard nothing more of {other}: see what that said last"

    def _fail(self, error: BaseException) -> None:
        """End everything with an error. The others hear of it: closed connections end what they wait for."""
        self._desk.fail(error)
        self._let_go()

    def _let_go(self) -> None:
        """Of everything that keeps connections open."""
        self._waiting.clear()
        self._unpacked.clear()
        self._outward.clear()
        self._homeward.clear()
        self._unsaid = None
        self._buffers = Buffers()
        self._groups.close()
