"""A model of the membership machine: a second implementation of its rules, for a driver and its workers."""

# private: _slots, _lost, _blacklist: otherwise they show only in the workers that the machine starts

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import TypeVar

from horovod.common import time_limits
from horovod.common.agent_messages import Place
from horovod.common.time_limits import FAILURE_WINDOW, SLOT_COOLDOWN
from horovod.runner.agents.decisions import Action, EndJob, Leave, Notify, Publish, Say, Start, Stop
from horovod.runner.agents.outcome import End
from horovod.runner.elastic.membership import MembershipMachine
from horovod.runner.elastic.reasons import FAILED, RESETS
from horovod.runner.elastic.settings import SLOT, Limits

Key = TypeVar("Key", str, tuple[str, int])
HOSTS = "abcd"
MOST_SLOTS = 3
TICK = 0.25
HEARD = 3  # consecutive generations with an accusation after which a worker is out


class Model:
    """The simulated time, the running workers, and the state of each. Events are methods; each checks the
    machine's actions, and that no other action is due.
    """

    def __init__(self, limits: Limits, hosts: dict[str, int], failed: list[str]) -> None:
        self.now = 0.0
        self.limits = limits
        self.slots = dict(hosts)  # of discovery, the oldest host first
        self.machine = MembershipMachine(limits, hosts, lambda: self.now, failed)
        self.failed_at = dict.fromkeys(failed, 0.0)
        self.slot_failed_at: dict[tuple[str, int], float] = {}
        self.away = set(failed)  # hosts on the blacklist
        self.barred: set[tuple[str, int]] = set()  # slots on it
        self.deaths: defaultdict[str, list[float]] = defaultdict(list)  # of a host's workers
        self.host: dict[int, str] = {}  # running processes
        self.slot: dict[int, int] = {}
        self.asks: dict[int, float] = {}  # since when
        self.place: dict[int, Place] = {}
        self.members: list[int] = []  # of the last generation, by rank
        self.generation = self.resets = 0
        self.out: dict[int, float] = {}  # since when; includes workers that do not know it
        self.told: dict[int, float] = {}  # when first
        self.stopped: set[int] = set()
        self.accused: dict[int, float] = {}
        self.in_a_row: Counter[int] = Counter()  # generations that ended by an accusation
        self.notified: list[tuple[float, int]] = []  # in this generation
        self.frozen: set[int] = set()
        self.ever: set[int] = set()
        self.is_certain = False  # a member of this generation has ended
        self.broken: float | None = None  # since when it lacks a member that has failed
        self.losses = 0
        self.successes = 0  # of members
        self.draining = False  # no worker is started any more, and slots do not change
        self.raised = False
        self.end: EndJob | None = None
        self.take(self.machine.tick())

    # Actions of the machine.

    def take(self, actions: list[Action], fails: tuple[str, int | None] | None = None) -> None:
        """`fails`: the slot that must fail by this event; if the slot is None, the host."""
        self.note_failures([*([fails] if fails else []), *self.not_heard(actions)])
        self.dismiss_newcomers()
        for action in actions:
            assert self.end is None, f"{action} after {self.end}"
            match action:
                case Start():
                    self.check_start(action)
                case Publish():
                    self.check_publication(action)
                case Leave(worker, reason):
                    assert reason and self.asks.pop(worker) is not None
                    self.put_out(worker)
                    self.told.setdefault(worker, self.now)
                case Stop(worker, why):
                    assert why
                    self.check_stop(worker)
                case Notify(workers, timestamp, update):
                    assert timestamp == self.now
                    self.check_notification(workers, update)
                case EndJob():
                    self.check_end(action)
                case Say(text):
                    assert text
        assert (self.machine.generation, self.machine.resets) == (self.generation, self.resets)
        assert self.machine.is_over == (self.end is not None)
        self.dismiss_newcomers()
        if self.end is None:
            self.check_nothing_is_due()

    def not_heard(self, actions: list[Action]) -> list[tuple[str, int | None]]:
        """Slots of workers that are stopped or left out because others do not reach them."""
        found: list[tuple[str, int | None]] = []
        for action in actions:
            is_told = isinstance(action, Stop) or (isinstance(action, Leave) and "not heard" in action.reason)
            if is_told and action.worker in self.accused and action.worker not in self.out:
                found.append((self.host[action.worker], self.slot[action.worker]))
        return found

    def note_failures(self, failing: list[tuple[str, int | None]]) -> None:
        """Bar the slots of failures, or hosts if the slot is None. Only the machine knows for how long."""
        slots: set[tuple[str, int]] = set()
        hosts: set[str] = set()
        for host, slot in failing:
            if slot is not None and self.limits.blacklist == SLOT and host not in hosts:
                slots.add((host, slot))
                if not self.is_one_death_too_many(host, slot):
                    continue
            hosts.add(host)
            self.deaths[host] = []
            for worker in self.workers_on(host):
                self.put_out(worker)
        self.check_blacklist(hosts, slots)

    def workers_on(self, host: str) -> list[int]:
        return [worker for worker, where in self.host.items() if where == host]

    def is_one_death_too_many(self, host: str, slot: int) -> bool:
        for worker in self.workers_on(host):
            if worker in self.accused and self.slot[worker] == slot:
                self.put_out(worker)
        self.deaths[host] = [at for at in self.deaths[host] if self.now - at < FAILURE_WINDOW]
        self.deaths[host].append(self.now)
        return len(self.deaths[host]) >= self.limits.max_worker_failures

    def check_blacklist(self, hosts: set[str], slots: set[tuple[str, int]]) -> None:
        """Record failures at the current time."""
        away = {host for host in HOSTS if host in self.machine._slots._lost}
        barred = {(host, slot) for host in HOSTS for slot in range(MOST_SLOTS)}
        barred = {each for each in barred if each in self.machine._slots._blacklist}
        shortest = self.limits.cooldown_range[0] if self.limits.cooldown_range else None
        self.note_cooldowns(self.away, away, hosts, self.failed_at, shortest or math.inf)
        self.note_cooldowns(self.barred, barred, slots, self.slot_failed_at, shortest or SLOT_COOLDOWN[0])
        self.away, self.barred = away, barred

    def note_cooldowns(
        self, before: set[Key], after: set[Key], failed: set[Key], at: dict[Key, float], shortest: float
    ) -> None:
        assert failed <= after and after - before <= failed, "what has failed is away, and nothing else"
        for key in before - after:
            assert self.now >= at[key] + shortest, "it has come back"
        at.update(dict.fromkeys(after - before, self.now))

    def dismiss_newcomers(self) -> None:
        """Workers without a slot end at once; members leave with the next generation."""
        eligible = self.eligible()
        for worker in self.kept() if self.generation else ():
            if worker not in self.place and worker not in eligible:
                self.put_out(worker)

    def check_start(self, action: Start) -> None:
        assert action.worker not in self.ever, "numbers are never used again"
        assert not self.draining, "nobody is started after the first success"
        assert self.ever or len(self.free()) >= self.limits.np, "the start needs slots"
        self.ever.add(action.worker)
        there = self.workers_on(action.host)
        assert len(there) < self.usable()[action.host]
        taken = {(action.host, self.slot[worker]) for worker in there}
        assert action.slot == min(slot for host, slot in self.free() - taken if host == action.host)
        self.host[action.worker], self.slot[action.worker] = action.host, action.slot
        place = action.place
        assert place.rank < place.size and place.hosts[place.rank] == action.host
        assert place.generation == self.generation + 1

    def check_publication(self, action: Publish) -> None:
        assert action.generation == self.generation + 1 and action.why
        places, eligible = action.places, self.eligible()
        assert set(places) <= set(self.asks) - set(self.out), "who asks, and is in"
        assert set(action.out) <= set(self.asks) - set(places) and all(action.out.values())
        assert self.is_complete() or self.waited() >= self.limits.elastic_timeout, "others are waited for"
        order = sorted(places, key=lambda worker: places[worker].rank)
        assert [places[worker].rank for worker in order] == list(range(len(places)))
        assert order == [worker for worker in eligible if worker in self.asks]
        assert self.needed() <= len(order)
        assert order[0] in self.place or self.generation == 0, "rank 0 holds the state"
        self.check_places(places, order)
        self.note_publication(action, order, eligible)

    def note_publication(self, action: Publish, order: list[int], eligible: list[int]) -> None:
        places = action.places
        for worker in [worker for worker in self.host if worker not in places]:
            if worker in self.place or worker not in eligible:
                self.put_out(worker)
        self.told.update({worker: self.now for worker in action.out if worker not in self.told})
        for worker in [*places, *action.out]:
            del self.asks[worker]
        self.in_a_row = Counter({w: self.in_a_row[w] + 1 for w in places if w in self.accused})
        self.resets += self.generation > 0
        self.generation, self.members = action.generation, order
        self.slot.update({w: places[w].local_rank for w in places if w not in self.place})
        self.place.update(places)
        self.notified, self.accused = [], {}
        self.is_certain, self.broken = False, None

    def check_places(self, places: Mapping[int, Place], order: list[int]) -> None:
        hosts = tuple(self.host[worker] for worker in order)
        for host in set(hosts):
            self.check_local_ranks({w: places[w].local_rank for w in order if self.host[w] == host})
        for place in places.values():
            host = hosts[place.rank]
            across = [name for name in dict.fromkeys(hosts) if hosts.count(name) > place.local_rank]
            assert (place.generation, place.size, place.hosts) == (self.generation + 1, len(order), hosts)
            assert (place.local_size, place.cross_size) == (hosts.count(host), len(across))
            assert place.cross_rank == across.index(host)

    def check_local_ranks(self, local: dict[int, int]) -> None:
        """Check a host's workers. Each has the GPU of its first local rank for itself."""
        assert sorted(local.values()) == list(range(len(local)))
        gpus = {worker: self.slot[worker] for worker in local if worker in self.place}
        assert len(set(gpus.values())) == len(gpus), "members' GPUs are their own"
        for worker, rank in local.items():
            if worker in self.place:
                assert rank == gpus[worker] or gpus[worker] >= len(local), "it keeps its local rank"
            else:
                assert rank not in gpus.values(), "a member has that GPU"
                is_free = self.slot[worker] < len(local) and self.slot[worker] not in gpus.values()
                assert rank == self.slot[worker] or not is_free

    def check_stop(self, worker: int) -> None:
        assert worker in self.host and worker not in self.stopped
        self.stopped.add(worker)
        if worker in self.accused and self.out.get(worker, self.now) == self.now:
            assert worker not in self.asks and self.now >= self.accused[worker] + self.grace()
            self.lose(worker)
            return
        since = self.told.get(worker, self.out[worker])
        assert self.now >= since + time_limits.LEAVE_GRACE, "it has its grace"

    def check_notification(self, workers: tuple[int, ...], update: int) -> None:
        assert workers and sorted(workers) == sorted(set(self.members) & set(self.host))
        assert not self.asking() and update == self.update() > 0
        at, of = self.notified[-1] if self.notified else (-math.inf, 0)
        assert update | of != of or self.now - at >= time_limits.NOTIFY_AGAIN, "not again so soon"
        self.notified.append((self.now, update))

    def check_end(self, action: EndJob) -> None:
        self.end = action
        assert 0 <= action.code <= 255 and (action.code == 0) == (action.message == "")
        if action.message.startswith(RESETS):
            assert self.resets == self.limits.reset_limit and self.asking() and action.code == 1
        elif not self.raised:
            self.check_why_it_ends(action)

    def check_why_it_ends(self, action: EndJob) -> None:
        holders = [worker for worker in self.kept() if worker in self.place or not self.generation]
        if action.code == 0:
            assert not holders and self.draining
            return
        has_waited = self.waited() >= self.limits.elastic_timeout
        assert not holders or self.is_short() or has_waited, "more may come, or there are enough"
        assert holders or self.losses or self.is_hopeless() or self.now >= self.limits.elastic_timeout
        says_so = action.message.startswith(FAILED)
        assert says_so == bool(self.losses) or (says_so and not holders), "only where something has failed"

    def check_nothing_is_due(self) -> None:
        """Check that no action is due: only events can change the state."""
        limits = self.limits
        assert self.waited() < limits.elastic_timeout and not self.is_complete(), "a membership is due"
        assert not self.is_short(), "the end is due: there are too few, and no others will come"
        may_reset = limits.reset_limit is None or self.resets < limits.reset_limit
        assert may_reset or self.draining or not (self.generation and self.asking()), "it had all its resets"
        self.check_slots_are_filled()
        is_at_work = self.generation and not self.draining and not self.asking()
        if is_at_work and (update := self.update()):
            at, of = self.notified[-1] if self.notified else (-math.inf, 0)
            assert update | of == of and self.now - at < time_limits.NOTIFY_AGAIN, "members are to be told"

    def check_slots_are_filled(self) -> None:
        limits = self.limits
        if not (self.draining or self.ever):
            assert len(self.free()) < limits.np, "the start is due"
        elif not self.draining:
            most = limits.np if not self.generation and self.asking() else limits.max_np or math.inf
            running = Counter(self.host.values())
            taken = {(host, self.slot[worker]) for worker, host in self.host.items()}
            is_free = any(running[host] < self.slots[host] for host, _ in self.free() - taken)
            assert len(self.eligible()) >= most or not is_free, "a slot is free"

    # Consequences of the rules.

    def usable(self) -> dict[str, int]:
        """Slots of usable hosts, the oldest first; before the first membership, without failed slots."""
        barred = self.away if self.generation else set(self.failed_at)
        return {host: slots for host, slots in self.slots.items() if host not in barred}

    def free(self) -> set[tuple[str, int]]:
        """Slots without a recent failure; before the first membership, without any failure."""
        barred = self.barred if self.generation else set(self.slot_failed_at)
        return {(host, slot) for host, slots in self.usable().items() for slot in range(slots)} - barred

    def kept(self) -> list[int]:
        """Members by rank, then newcomers."""
        running = [worker for worker in self.host if worker not in self.out]
        return sorted(running, key=lambda w: (0, self.place[w].rank) if w in self.place else (1, w))

    def eligible(self) -> list[int]:
        """Workers that may be in the next membership, in rank order."""
        kept = self.kept()
        if self.draining and self.generation:
            return [worker for worker in kept if worker in self.place]
        left = self.usable()
        if self.draining:
            left = dict.fromkeys([*left, *(self.host[worker] for worker in kept)], len(kept))
        ages, found = list(left), []
        for worker in kept:
            if left.get(self.host[worker], 0):
                left[self.host[worker]] -= 1
                found.append(worker)
        new = [w for w in found if w not in self.place]
        new.sort(key=lambda w: (ages.index(self.host[w]), self.slot[w]))
        return [*(w for w in found if w in self.place), *new][: self.limits.max_np]

    def is_complete(self) -> bool:
        """Whether the asking workers form a membership: all survivors, and newcomers if these are too few."""
        eligible = self.eligible()
        ready = [worker for worker in eligible if worker in self.asks]
        survivors = [worker for worker in eligible if worker in self.place or not self.generation]
        are_all = bool(survivors) and set(survivors) <= set(ready) and len(ready) >= self.needed()
        return are_all and (len(survivors) >= self.needed() or self.have_newcomers_come())

    def have_newcomers_come(self) -> bool:
        new = [worker for worker in self.eligible() if worker not in self.place]
        asking = [self.asks[worker] for worker in new if worker in self.asks]
        is_long = bool(asking) and self.now - min(asking) >= time_limits.NEWCOMER_WINDOW
        return bool(asking) and (len(asking) == len(new) or is_long)

    def update(self) -> int:
        """The update for members, a sum: 1, newcomers come; 2, some members must leave."""
        gone = set(self.members) & set(self.host) - set(self.eligible())
        update = self.have_newcomers_come() + 2 * bool(gone)
        if self.broken is None:
            return update
        return update | 2 if self.now - self.broken >= time_limits.NOTIFY_AGAIN else 0

    def is_short(self) -> bool:
        """Whether some workers ask although there will never be enough."""
        has_waited = self.draining and self.waited() >= time_limits.LEAVE_GRACE
        is_short = bool(self.asking()) and len(self.eligible()) < self.needed()
        return is_short and (has_waited or self.is_hopeless())

    def is_hopeless(self) -> bool:
        """Whether there will never be enough slots."""
        limits = self.limits
        needed = self.needed() if self.ever else limits.np
        possible = sum(self.usable().values()) if self.generation else len(self.free())
        if self.generation and limits.cooldown_range is not None:
            possible = sum(self.slots.values())
        is_final = not limits.hosts_may_come and possible < needed
        return is_final or bool(self.slots and not possible)

    def needed(self) -> int:
        return 1 if self.successes else self.limits.min_np

    def asking(self) -> list[int]:
        """Workers whose requests require a new membership."""
        return [w for w in self.kept() if w in self.asks and (w in self.place or not self.generation)]

    def waited(self) -> float:
        return self.now - min((self.asks[worker] for worker in self.asking()), default=self.now)

    def grace(self) -> float:
        return self.limits.doubtful_grace if self.is_certain else self.limits.accusation_grace

    def put_out(self, worker: int) -> None:
        self.out.setdefault(worker, self.now)

    def lose(self, worker: int) -> None:
        self.losses += 1
        if worker in self.place and self.broken is None:
            self.broken = self.now

    # Events of the world.

    def advance(self, seconds: float) -> None:
        until, step = self.now + seconds, max(TICK, seconds / 50)
        while self.now < until and self.end is None:
            self.now = min(until, self.now + step)
            self.take(self.machine.tick())
            if self.end is None:
                self.check_patience()

    def check_patience(self) -> None:
        """A worker that must leave and does not is stopped after its time limit."""
        limits = self.limits
        for worker in set(self.host) - self.stopped:
            if worker in self.out:
                patience = 0.0 if worker in self.told else limits.elastic_timeout
                since = self.told.get(worker, self.out[worker])
                assert self.now - since < patience + time_limits.LEAVE_GRACE
            elif worker in self.accused and worker not in self.asks:
                assert self.now - self.accused[worker] < self.grace()

    def ask(self, worker: int) -> None:
        is_again = worker in self.asks
        self.asks.setdefault(worker, self.now)
        after = self.place[worker].generation if worker in self.place else 0
        actions = self.machine.worker_asks(worker, after)
        assert not is_again or [type(action) for action in actions] == [Say]
        self.take(actions)

    def finish(self, worker: int, end: End) -> None:
        is_new = worker not in self.place
        knows = worker in self.told or worker in self.stopped or worker not in self.members
        is_out = worker in self.out and (knows or is_new or not end.is_success())
        host = self.host.pop(worker)
        self.asks.pop(worker, None)
        self.frozen.discard(worker)
        fails: tuple[str, int | None] | None = None
        if not is_out and end.is_success():
            self.draining = True
            self.successes += not is_new
            self.is_certain |= not is_new
        elif not is_out and end.raised and not (is_new and self.generation):
            self.raised = True
        elif not is_out:
            fails = (host, self.slot[worker])
            self.is_certain |= not is_new
            self.lose(worker)
        self.take(self.machine.worker_ended(worker, end), fails)
        assert (self.end is not None and self.end.code == end.exit_code()) or not self.raised

    def accuse(self, by: int, worker: int) -> None:
        counts = by != worker and {by, worker} <= set(self.members) & set(self.host)
        if counts and worker not in self.out:
            self.accused.setdefault(worker, self.now)
        actions = self.machine.accuse(by, worker, "silent for 3 s")
        assert counts or not actions
        self.take(actions)

    def find(self, hosts: dict[str, int]) -> None:
        order = [*(host for host in self.slots if host in hosts), *hosts]
        self.slots = {host: hosts[host] for host in order}
        self.take(self.machine.hosts_found(hosts))

    def lose_host(self, host: str) -> None:
        for worker in [worker for worker, where in self.host.items() if where == host]:
            if worker not in self.out:
                self.is_certain |= worker in self.place
                self.lose(worker)
            del self.host[worker]
            self.asks.pop(worker, None)
            self.frozen.discard(worker)
        self.take(self.machine.host_lost(host, "ssh ended"), (host, None))
