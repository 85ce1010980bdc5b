"""Random events at the membership machine: what holds of every action, and that no job hangs."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Mapping

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from horovod.runner.elastic.actions import (
    Action,
    EndJob,
    Leave,
    Notify,
    Place,
    Publish,
    Say,
    Start,
    Stop,
)
from horovod.runner.elastic.limits import Limits
from horovod.runner.elastic.membership import MembershipMachine
from horovod.runner.outcome import End

HOSTS = "abcd"
NEVER = math.inf
# Longer than a whole chain of waits of the machine: the made time within which it must come to rest.
REST = 4000


class Model:
    """A driver and its workers, as the machine's actions make them. `obeys`: asks when it is told to."""

    def __init__(self, limits: Limits, hosts: dict[str, int]) -> None:
        self.now = 0.0
        self.limits = limits
        self.slots = dict(hosts)  # of discovery
        self.machine = MembershipMachine(limits, hosts, lambda: self.now)
        self.host: dict[int, str] = {}  # running processes
        self.local_rank: dict[int, int] = {}
        self.asks: set[int] = set()
        self.place: dict[int, Place] = {}
        self.members: list[int] = []  # of the last generation, by rank
        self.generation = 0
        self.out: set[int] = set()
        self.stopped: set[int] = set()
        self.notified: set[int] = set()
        self.frozen: set[int] = set()
        self.failed_at: dict[str, float] = {}  # hosts on the blacklist
        self.ever: set[int] = set()
        self.succeeded = False  # a member did
        self.draining = False  # nobody is started any more, and slots are not given or taken
        self.is_wrong = False
        self.end: EndJob | None = None

    def take(self, actions: list[Action]) -> None:
        self.is_wrong = True  # until all has been looked at
        for action in actions:
            assert self.end is None, f"{action} after {self.end}"
            match action:
                case Start():
                    self.check_start(action)
                case Publish():
                    self.check_publication(action)
                case Leave(worker, reason):
                    assert reason and worker in self.asks
                    self.asks.remove(worker)
                    self.out.add(worker)
                case Stop(worker, why):
                    assert why and worker in self.host and worker not in self.stopped
                    self.stopped.add(worker)
                case Notify(workers, timestamp, update):
                    assert workers and timestamp == self.now and update in (1, 2, 3)
                    assert set(workers) <= set(self.members) & set(self.host)
                    self.notified |= set(workers)
                case EndJob(code, message):
                    assert 0 <= code <= 255 and (code == 0) == (message == "")
                    self.end = action
                case Say(text):
                    assert text
                    self.draining |= "has ended with code 0" in text
        self.is_wrong = False

    def check_start(self, action: Start) -> None:
        assert action.worker not in self.ever, "numbers are never used again"
        assert not self.draining, "nobody is started after the first success"
        self.ever.add(action.worker)
        on_host = [worker for worker, host in self.host.items() if host == action.host]
        assert len(on_host) < self.slots[action.host]
        assert not self.is_barred(action.host)
        assert action.slot not in {self.local_rank[worker] for worker in on_host}
        assert 0 <= action.slot < self.slots[action.host]
        expected = action.place
        assert expected.rank == action.place.rank < expected.size
        assert expected.hosts[action.place.rank] == action.host
        assert expected.generation == self.generation + 1
        self.host[action.worker] = action.host
        self.local_rank[action.worker] = action.slot

    def is_barred(self, host: str) -> bool:
        if host not in self.failed_at:
            return False
        shortest = self.limits.cooldown_range[0] if self.limits.cooldown_range else NEVER
        return self.now < self.failed_at[host] + shortest

    def check_publication(self, action: Publish) -> None:
        assert action.generation == self.generation + 1 and action.why
        places = action.places
        assert set(places) <= self.asks and not set(places) & (self.out | self.stopped), "who asks, and is in"
        assert set(action.out) <= self.asks - set(places) and all(action.out.values())
        order = sorted(places, key=lambda worker: places[worker].rank)
        assert [places[worker].rank for worker in order] == list(range(len(places)))
        most = self.limits.max_np or NEVER
        least = 1 if self.succeeded else self.limits.min_np
        assert least <= len(places) <= most
        survivors = [worker for worker in self.members if worker in places]
        assert order[: len(survivors)] == survivors, "survivors first, in their order"
        assert survivors or self.generation == 0, "rank 0 holds the state"
        self.check_places(places, order)
        self.asks -= set(places) | set(action.out)
        self.out |= set(action.out)
        self.generation, self.members = action.generation, order
        self.place.update(places)
        self.notified.clear()

    def check_places(self, places: Mapping[int, Place], order: list[int]) -> None:
        hosts = tuple(self.host[worker] for worker in order)
        for host, count in Counter(hosts).items():
            assert not self.is_barred(host)
            assert self.draining or count <= self.slots[host]
            local = [worker for worker in order if self.host[worker] == host]
            assert sorted(places[worker].local_rank for worker in local) == list(range(count))
            by_start = sorted(local, key=lambda worker: self.local_rank[worker])
            assert by_start == sorted(local, key=lambda worker: places[worker].local_rank)
        for place in places.values():
            assert (place.generation, place.size, place.hosts) == (self.generation + 1, len(order), hosts)
            across = [p for p in places.values() if p.local_rank == place.local_rank]
            assert place.cross_size == len(across) and place.local_size == hosts.count(hosts[place.rank])
            assert sorted(p.cross_rank for p in across) == list(range(len(across)))

    def sound_members(self) -> set[int]:
        """Members that run, are not out, and whose host has not failed."""
        running = {worker for worker in self.members if worker in self.host}
        failed = {worker for worker in running if self.host[worker] in self.failed_at}
        return running - self.out - self.stopped - failed

    # What the world does.

    def advance(self, seconds: float) -> None:
        until, step = self.now + seconds, max(0.25, seconds / 50)
        while self.now < until and self.end is None:
            self.now = min(until, self.now + step)
            self.take(self.machine.tick())

    def ask(self, worker: int) -> None:
        self.asks.add(worker)
        after = self.place[worker].generation if worker in self.place else 0
        self.take(self.machine.worker_asks(worker, after))

    def finish(self, worker: int, end: End) -> None:
        host = self.host.pop(worker)
        self.asks.discard(worker)
        self.frozen.discard(worker)
        if worker in set(self.members) - self.out - self.stopped and end.is_success():
            self.succeeded = True
        was_away = self.is_away(host)
        actions = self.machine.worker_ended(worker, end)
        self.note_failed_hosts(host, actions, was_away)
        self.take(actions)

    def is_away(self, host: str) -> bool:
        return self.machine._hosts.is_blacklisted(host)

    def note_failed_hosts(self, host: str, actions: list[Action], was_away: bool) -> None:
        """A host that fails while it is away comes back at the time that was said first."""
        text = f"host {host} is on the blacklist"
        said = [action.text for action in actions if isinstance(action, Say)]
        said += [action.why for action in actions if isinstance(action, Stop)]
        if not was_away and any(text in sentence for sentence in said):
            self.failed_at[host] = self.now


HOST_SETS = st.dictionaries(st.sampled_from(HOSTS), st.integers(1, 3), max_size=4)


class RandomEvents(RuleBasedStateMachine):
    """Anything may happen at any time; then all settles, and the job has to run or to end."""

    @initialize(
        hosts=HOST_SETS,
        np=st.integers(1, 4),
        less=st.integers(0, 3),
        more=st.one_of(st.none(), st.integers(0, 3)),
        reset_limit=st.one_of(st.none(), st.integers(0, 4)),
        cooldown=st.sampled_from([None, (1, 10), (30, 3600)]),
        may_come=st.booleans(),
    )
    def begin(self, hosts, np, less, more, reset_limit, cooldown, may_come) -> None:  # type: ignore[no-untyped-def]
        limits = Limits(
            np=np,
            min_np=max(1, np - less),
            max_np=None if more is None else np + more,
            reset_limit=reset_limit,
            cooldown_range=cooldown,
            hosts_may_come=may_come,
        )
        self.model = Model(limits, hosts)
        self.model.take(self.model.machine.tick())

    def pick(self, data: st.DataObject, workers: set[int]) -> int | None:
        return data.draw(st.sampled_from(sorted(workers))) if workers else None

    def runs(self) -> bool:
        return self.model.end is None

    @precondition(runs)
    @rule(seconds=st.sampled_from([0.25, 1, 3, 12, 40, 700]))
    def time_passes(self, seconds: float) -> None:
        self.model.advance(seconds)

    @precondition(runs)
    @rule(data=st.data())
    def starts(self, data: st.DataObject) -> None:
        worker = self.pick(data, set(self.model.host))
        if worker is not None:
            self.model.take(self.model.machine.worker_started(worker))

    @precondition(runs)
    @rule(data=st.data(), all_of_them=st.booleans())
    def asks(self, data: st.DataObject, all_of_them: bool) -> None:
        model = self.model
        free = set(model.host) - model.asks - model.frozen
        worker = self.pick(data, free)
        for one in sorted(free) if all_of_them else [worker]:
            if one is not None and model.end is None and one in model.host and one not in model.asks:
                model.ask(one)

    @precondition(runs)
    @rule(
        data=st.data(),
        end=st.sampled_from([End(), End(1), End(signal_number=9), End(127, reason="no such file")]),
    )
    def ends(self, data: st.DataObject, end: End) -> None:
        worker = self.pick(data, set(self.model.host))
        if worker is not None and not (worker in self.model.asks and end.is_success()):
            self.model.finish(worker, end)

    @precondition(runs)
    @rule(data=st.data())
    def raises(self, data: st.DataObject) -> None:
        worker = self.pick(data, set(self.model.host))
        if worker is not None and data.draw(st.integers(0, 9)) == 0:
            # Of a member that has not been told that it is out, and whose host has not failed.
            is_member = worker in self.model.sound_members()
            self.model.finish(worker, End(3, raised=True))
            if is_member:
                assert self.model.end is not None and self.model.end.code == 3

    @precondition(runs)
    @rule(data=st.data())
    def freezes(self, data: st.DataObject) -> None:
        worker = self.pick(data, set(self.model.host))
        if worker is not None:
            self.model.frozen.add(worker)

    @precondition(runs)
    @rule(data=st.data())
    def accuses(self, data: st.DataObject) -> None:
        members = [worker for worker in self.model.members if worker in self.model.host]
        if len(members) > 1:
            by, whom = data.draw(st.permutations(members))[:2]
            self.model.take(self.model.machine.worker_accused(by, whom, "silent for 3 s"))

    @precondition(runs)
    @rule(hosts=HOST_SETS)
    def hosts_change(self, hosts: dict[str, int]) -> None:
        self.model.slots = {**{host: 0 for host in HOSTS}, **hosts}
        self.model.take(self.model.machine.hosts_found(hosts))

    @precondition(runs)
    @rule(host=st.sampled_from(HOSTS))
    def host_is_lost(self, host: str) -> None:
        model = self.model
        for worker in [worker for worker, where in model.host.items() if where == host]:
            del model.host[worker]
            model.asks.discard(worker)
            model.frozen.discard(worker)
        was_away = model.is_away(host)
        actions = model.machine.host_lost(host, "ssh ended")
        model.note_failed_hosts(host, actions, was_away)
        model.take(actions)

    @precondition(lambda self: not self.runs())
    @rule(host=st.sampled_from(HOSTS))
    def nothing_follows(self, host: str) -> None:
        machine = self.model.machine
        late = [machine.tick(), machine.hosts_found({host: 1}), machine.host_lost(host, "late")]
        for worker in self.model.host:
            late += [machine.worker_asks(worker, 0), machine.worker_ended(worker, End(1))]
            late += [machine.worker_started(worker), machine.worker_accused(worker, worker + 1, "late")]
        assert not any(late)

    @invariant()
    def generations_agree(self) -> None:
        if hasattr(self, "model"):
            assert self.model.machine.generation == self.model.generation
            assert self.model.machine.is_over == (self.model.end is not None)

    def settle(self) -> None:
        """Everybody does what is right from now on: the job runs, with nobody waiting in vain, or ends."""
        model = self.model
        until = model.now + REST
        while model.now < until and model.end is None and not self.is_at_rest():
            self.behave()
            model.advance(1 if model.now < until - REST + 60 else 10)
        if model.end is not None:
            return
        kept = self.kept_members()
        assert kept, "nobody runs, and the job does not end"
        assert not model.asks & set(kept), "members wait for ever"
        assert not model.stopped & set(model.host), "who was stopped has ended"
        assert not model.notified & set(kept), "and nobody is to ask any more"

    def kept_members(self) -> list[int]:
        model = self.model
        return [w for w in model.members if w in model.host and w not in model.out | model.stopped]

    def is_at_rest(self) -> bool:
        """All that run are members, hear each other, and have nothing to do but to train."""
        model, kept = self.model, self.kept_members()
        # Before hvd.init(); one that was stopped is no longer to be, which takes a moment.
        hung = {worker for worker in model.frozen if worker not in model.place} - model.stopped
        is_whole = set(kept) == set(model.members) == set(model.host) - hung
        return bool(kept) and is_whole and not (model.asks or model.notified or model.frozen - hung)

    def behave(self) -> None:
        """A second in which newcomers ask, members of a broken world too, and who is out ends."""
        for worker in sorted(self.model.host):
            if self.model.end is None and worker in self.model.host:
                self.behave_as(worker)

    def behave_as(self, worker: int) -> None:
        model = self.model
        if worker in model.stopped:
            model.finish(worker, End(signal_number=9))
        elif worker in model.frozen:
            self.miss(worker)
        elif worker in model.out:
            model.finish(worker, End())
        elif worker not in model.asks:
            missing = set(model.members) - set(model.host) | model.frozen | model.asks
            is_broken = not missing.isdisjoint(model.members)
            if worker not in model.place or is_broken or worker in model.notified:
                model.ask(worker)

    def miss(self, worker: int) -> None:
        """Somebody misses one that hangs; where nobody is there who could, it goes on."""
        model = self.model
        by = next((w for w in model.members if w in model.host and w not in model.frozen), None)
        if by is None:
            model.frozen.remove(worker)
        elif worker in model.members:
            model.take(model.machine.worker_accused(by, worker, "silent"))

    def teardown(self) -> None:
        if hasattr(self, "model") and not self.model.is_wrong:
            self.settle()


RandomEvents.TestCase.settings = settings(
    max_examples=int(os.environ.get("HOROVOD_TEST_CASES", "60")),
    phases=[Phase.generate],
    report_multiple_bugs=False,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestRandomEvents = RandomEvents.TestCase
