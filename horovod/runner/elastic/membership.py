"""The members of each generation of a job: a state machine without processes, clocks or connections.

Its caller reports events, and carries out the returned actions in order. A *worker* is a process with a
number that is never used again; a *generation* is a published membership: 1, 2, ...

The workers of a generation:
    * Running members of the previous generation that may stay (survivors) come first, in their old order;
      then newcomers, those on the oldest hosts first. So rank 0 is a survivor, if there is one.
    * A new generation is made when a member asks for one: after an error, or after a notification that hosts
      have changed. It is published when all survivors have asked, or at the elastic timeout, which puts out
      the others. Survivors wait for newcomers only if they are fewer than min_np. Newcomers alone form no
      generation: if all members' hosts are gone, one must return.
    * Newcomers start as soon as there are slots; members are notified when newcomers ask.

The end of a worker:
    * Code 0 is success. After it no worker starts, and the others finish their work, in new generations if
      necessary, however few they are. Then the job succeeds.
    * An uncaught exception of the user's code (`End.raised`) ends the job with its code, because another
      worker would raise it again. Exceptions caused by other ranks do not count (the reporter of the end
      decides). In a newcomer to a running job it is a failure: a defect of a new host must not end the
      others' work.
    * Any other end is a failure: it costs its slot, or its host with all workers there (`slots`). The others
      continue. The job fails if no member is left, as only members have the state of training. Before the
      first membership others start instead, in slots that have not failed, so that a start that always fails
      ends.
    * An accused worker that does not ask is a failure too. A lost host is lost as a whole. The end of a
      worker that is out has no effect.

`agents.decisions.FixedJob` decides about jobs with fixed ranks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping

from horovod.common import time_limits
from horovod.common.agent_messages import Place
from horovod.runner.agents.decisions import (
    Action,
    Decisions,
    EndJob,
    Leave,
    Notify,
    Publish,
    Say,
    Start,
    Stop,
)
from horovod.runner.agents.outcome import End
from horovod.runner.elastic import workers
from horovod.runner.elastic.reasons import FAILED, Losses, Notices, Wait, membership, named, too_few
from horovod.runner.elastic.settings import SLOT, Limits
from horovod.runner.elastic.slots import Slots
from horovod.runner.elastic.workers import MOST_ACCUSED, Worker, Workers, memberships


class MembershipMachine(Decisions):
    """Events in, actions out. Not thread-safe; call `tick` several times a second.

    `hosts`: name -> slots, the first of which has rank 0; `hosts_found` replaces them. `clock`: returns
    seconds, which never decrease. `failed`: hosts that are on the blacklist from the beginning. After EndJob
    all events return no actions.
    """

    def __init__(
        self, limits: Limits, hosts: Mapping[str, int], clock: Callable[[], float], failed: Collection[str]
    ) -> None:
        self._limits = limits
        self._clock = clock
        self._slots = Slots(limits, hosts, clock, failed)
        self._workers = Workers()
        self._ranks: tuple[int, ...] = ()  # workers of the generation, by rank
        self._losses = Losses()
        self.generation = 0  # of the last published membership
        self.resets = 0  # memberships that replaced another
        self._has_begun = False  # np slots have been there
        self._short_since = clock()  # since when no worker can run
        self._notices = Notices()
        self._successes: list[str] = []  # members that ended with code 0
        self._is_draining = False  # no more workers start
        self.is_over = False
        self._notified: tuple[float, int] | None = None  # time and kind of the last notification

    def worker(self, generation: int, rank: int) -> int | None:
        """Return the worker with this rank, if that generation is the present one."""
        is_known = generation == self.generation and 0 <= rank < len(self._ranks)
        return self._ranks[rank] if is_known else None

    def is_kept(self, number: int) -> bool:
        """Whether it may be in a later membership."""
        worker = self._workers.get(number)
        return worker is not None and not worker.out

    def worker_restarts(self, number: int) -> Place | None:
        """Let another process ask in the worker's name; return its place if all workers join, or None."""
        if (restarting := self._workers.get(number)) is not None:
            restarting.asks_since = None
        return memberships(self.generation + 1, self._eligible()).get(number)

    def _running(self, number: int) -> Worker | None:
        return None if self.is_over else self._workers.get(number)

    # Events.

    def tick(self) -> list[Action]:
        return self._settled([])

    def hosts_found(self, hosts: Mapping[str, int]) -> list[Action]:
        """Take the present hosts: name -> slots, new ones in the order in which they get ranks."""
        if self.is_over:
            return []
        self._slots.find(hosts)
        return self._settled([])

    def worker_started(self, number: int) -> list[Action]:
        if (worker := self._running(number)) is None:
            return []
        worker.has_started = True
        return self._settled([])

    def worker_asks(self, number: int, after: int) -> list[Action]:
        """The worker waits for a generation above `after`, the last one that it knows.

        It gets one answer, Publish or Leave. It never gets a generation that it was in again, whatever
        `after` is: the world of that generation cannot be joined a second time.
        """
        if (worker := self._running(number)) is None:
            return []
        worker.has_started = True
        if worker.asks():
            return [Say(f"{worker} asks for a membership again while it waits for one; it waits on")]
        if worker.out:
            return self._settled(self._told(worker))
        worker.asks_since = self._clock()
        said: list[Action] = []
        if after != worker.generation:
            said = [Say(f"{worker} asks for what follows generation {after}, but had {worker.generation}")]
        return self._settled(said)

    def worker_ended(self, number: int, end: End) -> list[Action]:
        """The worker's process is gone. No effect for unknown workers and workers lost before."""
        if (worker := self._running(number)) is None:
            return []
        self._workers.remove(worker)
        is_told = worker.is_told or worker.is_stopped or worker.generation != self.generation
        if worker.out and (is_told or not worker.generation or not end.is_success()):
            return self._settled([Say(f"{worker}, which was out, {end.passed_on()}")])
        if end.is_success():  # a worker that is out and does not know has done its work too
            self._succeed(worker)
            return self._settled([])
        text = f"{worker} {end.passed_on()}"
        is_the_scripts = end.raised and bool(worker.generation or not self.generation)
        if is_the_scripts:
            return [self._end_job(end.exit_code(), f"{FAILED}: {text}")]
        self._losses.is_certain |= bool(worker.generation)
        cost, left = self._failed(worker, text, end.exit_code())
        return self._settled([Say(f"{text}; {cost}"), *left])

    def worker_accused(self, by: int, generation: int, rank: int, reason: str) -> list[Action]:
        """A rank of the present generation is accused; reports about earlier generations are too late."""
        accused = self.worker(generation, rank)
        return [] if accused is None else self.accuse(by, accused, reason)

    def accuse(self, by: int, number: int, reason: str) -> list[Action]:
        """A member of the present generation gets no answers from another one any more.

        Accusations of or by workers outside this generation have no effect.
        """
        accuser, worker = self._running(by), self._running(number)
        if accuser is None or worker is None or by == number:
            return []
        if not accuser.generation == worker.generation == self.generation > 0:
            return []
        if worker.out:
            soon = self._clock() + time_limits.LEAVE_GRACE
            worker.leave_by = soon if worker.leave_by is None else min(worker.leave_by, soon)
            return []
        if worker.accused_since is None:
            worker.accused_since = self._clock()
            worker.accusation = f"{accuser} says: {reason}"
        worker.accusers.add(by)
        return self._settled([Say(f"{worker} is not heard any more: {accuser} says: {reason}")])

    def host_lost(self, host: str, reason: str) -> list[Action]:
        """The host is unreachable: its workers are gone, or will end by themselves."""
        if self.is_over:
            return []
        gone = self._workers.on_host(host)
        for worker in gone:
            self._workers.remove(worker)
        kept = [worker for worker in gone if not worker.out]
        with_it = f", and with it {named(kept)}" if kept else ""
        for worker in kept:
            self._losses.is_certain |= bool(worker.generation)
            self._losses.add(worker, f"{worker} was lost with its host: {reason}", 1, self._clock())
        return self._settled([Say(f"host {host} was lost{with_it}: {reason}; {self._slots.lose(host)}")])

    def worker_left(self, number: int) -> list[Action]:
        """The worker's process is gone, and is not restarted, as it has no place. This is no failure."""
        if (worker := self._running(number)) is None:
            return []
        self._workers.remove(worker)
        return self._settled([])

    # Consequences. Each step reads the whole state, so that no event needs to be repeated.

    def _settled(self, actions: list[Action]) -> list[Action]:
        first = (self._stop_overdue, self._conclude, self._start)
        said = (self._notify, self._tell_wait, self._tell_finish)
        for step in (*first, self._form, self._conclude, self._start, *said):
            if not self.is_over:
                actions += step(self._clock())
        return actions

    def _end_job(self, code: int, message: str) -> EndJob:
        self.is_over = True
        return EndJob(code, message)

    def _succeed(self, worker: Worker) -> None:
        self._losses.untaken = None  # a member's success shows that no work of the lost ones is left
        if worker.generation:
            self._losses.is_certain = True
            self._successes.append(str(worker))
            self._notices.note_finish(str(worker), self._clock())
        self._is_draining = True

    def _failed(self, worker: Worker, text: str, code: int) -> tuple[str, list[Action]]:
        """A worker that is not out has ended or is stopped: put it out. Return the cost in words, and the
        actions for the other workers of its host.
        """
        is_host, cost = self._slots.fail(worker.host, worker.slot)
        is_one_of_many = is_host and self._limits.blacklist == SLOT
        told = f"{text} ({cost})" if is_one_of_many else text
        self._losses.add(worker, told, code, self._clock())
        worker.out = text
        actions: list[Action] = []
        for other in self._workers.on_host(worker.host) if is_host else ():
            if not other.out:
                actions += self._put_out(other, f"its host {other.host} is not used any more, because {text}")
        return cost, actions

    def _put_out(self, worker: Worker, reason: str) -> list[Action]:
        """Put a worker out. It gets the answer now if it asks, else when it does. A member that does not ask
        may be
        busy: it has as long as others would wait for it.
        """
        worker.out = reason
        if worker.asks():
            worker.asks_since = None
            return self._told(worker)
        is_busy = worker.generation and worker.accused_since is None
        patience = max(0.0, self._limits.elastic_timeout - self._waited()) if is_busy else 0.0
        worker.leave_by = self._clock() + patience + time_limits.LEAVE_GRACE
        return []

    def _told(self, worker: Worker) -> list[Action]:
        """Answer a worker that is out. The first answer starts its grace period."""
        if not worker.is_told:
            worker.leave_by = self._clock() + time_limits.LEAVE_GRACE
        worker.is_told = True
        return [Leave(worker.number, worker.out)]

    def _eligible(self) -> list[Worker]:
        """Return the candidates for the next membership, by their new ranks."""
        slots = self._slots.hosts()
        if self._is_draining:  # slots do not matter any more
            kept = self._workers.kept()
            if self.generation:
                return self._workers.members()
            slots = {host: len(kept) for host in {**slots, **{worker.host: 0 for worker in kept}}}
        return self._workers.eligible(slots, self._limits.max_np)

    def _needed(self) -> int:
        return 1 if self._successes else self._limits.min_np

    def _asking(self) -> list[Worker]:
        """Return the workers whose asking requires a new membership."""
        kept = self._workers.members() if self.generation else self._workers.kept()
        return [worker for worker in kept if worker.asks()]

    def _waited(self) -> float:
        """Return the seconds since the first of them asked; 0 if none has."""
        return workers.waited(self._asking(), self._clock())

    def _stop_overdue(self, now: float) -> list[Action]:
        actions: list[Action] = []
        limits = self._limits
        grace = limits.doubtful_grace if self._losses.is_certain else limits.accusation_grace
        for worker in [worker for worker in self._workers if worker.is_silent(now, grace)]:
            text = f"{worker} is believed to be lost, and is stopped ({worker.accusation})"
            worker.is_stopped = True
            if worker.out:  # because of another worker of its host
                actions.append(Stop(worker.number, text))
                continue
            cost, left = self._failed(worker, text, 1)
            actions += [Stop(worker.number, f"{text}; {cost}"), *left]
        for worker in self._workers:
            if worker.leave_by is not None and now >= worker.leave_by and not worker.is_stopped:
                worker.is_stopped = True
                actions.append(Stop(worker.number, f"{worker}, which is out, has not ended, and is stopped"))
        return actions

    def _conclude(self, now: float) -> list[Action]:
        """End the job if it cannot continue."""
        kept, asking = self._workers.kept(), self._asking()
        if not (self._workers.members() if self.generation else kept):
            return self._conclude_without_workers(now)
        self._short_since = now
        left = len(self._eligible())
        is_short, short = left < self._needed(), too_few(self._needed(), left)
        if asking and is_short and self._is_draining and self._waited() >= time_limits.LEAVE_GRACE:
            why = "another ended with code 0 before hvd.init(), or before calling it again"
            return [self._end_job(1, self._losses.failure(f"{short}: {why}"))]
        limit, may_reset = self._limits.reset_limit, self._is_draining or not self.generation
        if asking and not may_reset and limit is not None and self.resets >= limit:
            return [self._end_job(1, self._losses.out_of_resets(limit, bool(self._update(now))))]
        if asking and is_short and self._is_hopeless():
            return [self._end_job(1, self._losses.failure(f"{short}; there is no slot for another"))]
        return []

    def _conclude_without_workers(self, now: float) -> list[Action]:
        if self._is_draining and self._losses.untaken is None:
            return [self._end_job(0, "")]
        code = self._losses.untaken[0] if self._losses.untaken else 1
        if self.generation or self._is_draining:
            why = "nobody is left who holds the state of training"
            return [self._end_job(code, f"{FAILED}, and {why}{self._losses.text()}")]
        if self._is_hopeless():
            return [self._end_job(code, f"{FAILED}, and no slot is left{self._losses.text()}")]
        if now - self._short_since >= self._limits.elastic_timeout:
            return [self._end_job(1, self._losses.failure(self._wait().end()))]
        return []

    def _is_hopeless(self) -> bool:
        needed = self._needed() if self._has_begun else self._limits.np
        are_too_few = not self._limits.hosts_may_come and self._slots.possible() < needed
        return are_too_few or self._slots.are_all_lost()

    def _wait(self) -> Wait:
        """Return the workers, or for the start the slots, at hand for a membership."""
        slots, eligible = self._slots.count(), self._eligible()
        if not self._has_begun:
            return Wait(self._limits.elastic_timeout, self._limits.np, slots, slots)
        return Wait(
            self._limits.elastic_timeout,
            self._needed(),
            here=sum(worker.asks() for worker in eligible),
            slots=slots,
            has_begun=True,
            late=[worker for worker in eligible if not worker.asks()],
            without=[worker for worker in self._workers.kept() if worker not in eligible],
            is_first=not self.generation,
            lacks_state=workers.lacks_state(eligible, self.generation),
        )

    def _tell_wait(self, now: float) -> list[Action]:
        """Report once what the job waits for, and again when more is missing."""
        if self._has_begun and not self._asking():
            self._notices.forget()
            return []
        is_long = self._waited() >= self._limits.naming_after
        return [Say(text) for text in self._notices.due(self._wait(), is_long, self._is_draining)]

    def _tell_finish(self, now: float) -> list[Action]:
        """Report once that others still work, some time after the first has finished."""
        if not self._workers.members():
            return []
        return [Say(text) for text in self._notices.after_finish(now - self._limits.naming_after)]

    def _form(self, now: float) -> list[Action]:
        """Publish a membership if it is due."""
        if not self._asking():
            return []
        eligible = self._eligible()
        ready = [worker for worker in eligible if worker.asks()]
        is_late = self._waited() >= self._limits.elastic_timeout
        needed = self._needed()
        if not workers.is_complete(eligible, self.generation, needed, is_late, now):
            return [self._end_job(1, self._losses.failure(self._wait().end()))] if is_late else []
        unheard = workers.never_heard(ready)
        if unheard is None:
            return [self._publish(ready, now)]
        times = f"in {MOST_ACCUSED} generations in a row"
        text = f"{unheard} was not heard by others {times}, and is out ({unheard.accusation})"
        told = self._put_out(unheard, text)
        cost, left = self._failed(unheard, text, 1)
        return [Say(f"{text}; {cost}"), *told, *left, *self._form(now)]

    def _publish(self, ready: list[Worker], now: float) -> Publish:
        self.resets += self.generation > 0
        self.generation += 1
        self._slots.begin()
        places = memberships(self.generation, ready)
        removed: list[tuple[Worker, str]] = []
        out: dict[int, str] = {}
        eligible = self._eligible()
        for worker in self._workers:
            if worker in ready:
                continue
            if not worker.out and (worker.generation or worker not in eligible):
                reason = self._reason_to_leave(worker, worker in eligible)
                removed.append((worker, reason))
                if self._put_out(worker, reason):
                    out[worker.number] = reason
        why = membership(self._losses.names, removed, ready, self.generation)
        for worker in ready:
            worker.enter(places[worker.number])
        self._ranks = tuple(worker.number for worker in ready)
        self._losses.take_publication()
        self._notified = None
        return Publish(self.generation, places, why, out)

    def _reason_to_leave(self, worker: Worker, is_eligible: bool) -> str:
        if is_eligible:
            return f"it did not ask within {self._waited():.0f} s (--elastic-timeout), as others did"
        if self._is_draining:
            return "the job ends"
        if worker.host not in self._slots.hosts():
            return "its host is not there any more"
        return "there is no slot for it any more"

    def _start(self, now: float) -> list[Action]:
        """Fill free slots, on the oldest hosts first."""
        slots, limits = self._slots.hosts(), self._limits
        if self._is_draining:
            return self._dismissed_newcomers()
        if not self._has_begun and self._slots.count() < limits.np:
            return []
        self._has_begun = True
        actions = self._dismissed_newcomers()
        most = math.inf if limits.max_np is None else limits.max_np
        if not self.generation and self._asking():
            most = limits.np  # the asking workers do not wait for further ones
        room = most - len(self._eligible())
        started: list[Worker] = []
        for host, count in slots.items():
            usable = self._slots.usable(host, count)
            while len(started) < room and (slot := self._workers.free_slot(host, count, usable)) is not None:
                started.append(self._workers.add(host, slot))
        places = memberships(self.generation + 1, self._eligible())
        return [*actions, *(Start(w.number, w.host, places[w.number], w.slot) for w in started)]

    def _dismissed_newcomers(self) -> list[Action]:
        """Put out newcomers whose host or slot is gone. Members leave with the next generation."""
        if not self.generation:
            return []
        eligible = self._eligible()
        gone = [w for w in self._workers.kept() if not w.generation and w not in eligible]
        return [a for w in gone for a in self._put_out(w, self._reason_to_leave(w, False))]

    def _notify(self, now: float) -> list[Action]:
        """Notify members that another membership would be better, until they ask for it."""
        if not self.generation or self._is_draining or self._asking():
            return []
        update = self._update(now)
        broken = self._losses.broken_since
        if broken is not None:  # the others notice by themselves, unless they exchange nothing
            update = update | 2 if now - broken >= time_limits.NOTIFY_AGAIN else 0
        if not update:
            return []
        if self._notified is not None:
            at, of = self._notified
            if update | of == of and now - at < time_limits.NOTIFY_AGAIN:
                return []
        self._notified = (now, update)
        return [Notify(tuple(worker.number for worker in self._present()), now, update)]

    def _update(self, now: float) -> int:
        """Return how hosts have changed since the last membership, as in Notify; 0: not at all."""
        eligible = self._eligible()
        have_come = workers.have_newcomers_come(eligible, now)
        return have_come + 2 * any(worker not in eligible for worker in self._present())

    def _present(self) -> list[Worker]:
        return [worker for worker in self._workers if worker.generation == self.generation]
