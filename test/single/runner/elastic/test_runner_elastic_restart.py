"""Which processes RestartJob ends and starts again, by direct calls and a simulated clock."""

from __future__ import annotations

import random
from typing import Any

import pytest
from elastic_jobs import KILLED, Decided

from horovod.common.time_limits import ACCUSATION_GRACE, LEAVE_AFTER_CHANGE, LEAVE_AFTER_ERROR
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
from horovod.runner.agents.restart_job import RestartJob
from horovod.runner.elastic.settings import HOST, SLOT, Limits

TERMINATED, LEFT = End(signal_number=15), End(75)
THREE = {"a": 1, "b": 1, "c": 1}


class Job(Decided):
    """RestartJob, and the processes that its decisions start."""

    def __init__(self, hosts: dict[str, int], np: int, least: int = 1, **more: Any) -> None:
        super().__init__(Limits(np=np, min_np=least, max_np=None, **more))
        self.decisions: Decisions = RestartJob(self.limits, hosts, lambda: self.now)
        self.running: dict[int, str] = {}
        self.ranks: dict[int, tuple[int, int, int]] = {}  # process -> generation, rank, size
        self.take(self.decisions.begin())

    def tick(self) -> list[Action]:
        return self.decisions.tick()

    def take(self, actions: list[Action]) -> list[Action]:
        for action in super().take(actions):
            if isinstance(action, Start):
                assert action.worker not in self.running, "a number is never used again"
                self.running[action.worker] = action.host
            elif isinstance(action, Publish):
                for number, place in action.places.items():
                    assert number in self.running
                    self.ranks[number] = (place.generation, place.rank, place.size)
            elif isinstance(action, Stop | Leave):
                assert action.worker in self.running
        return actions

    def ask(self, *processes: int) -> None:
        for process in processes:
            self.take(self.decisions.worker_started(process))
            self.take(self.decisions.worker_asks(process, 0))

    def end(self, process: int, end: End) -> list[Action]:
        del self.running[process]
        return self.take(self.decisions.worker_ended(process, end))

    def terminated(self, *processes: int) -> list[Action]:
        """The processes end as requested."""
        return [action for process in processes for action in self.end(process, TERMINATED)]

    def says_it_leaves(self, process: int, commits: int = 1, is_lost: bool = True) -> None:
        self.take(self.decisions.worker_leaves(process, "lost rank 1", commits, is_lost))

    def leave(self, *processes: int, **how: Any) -> None:
        """Processes report that they leave, and end."""
        for process in processes:
            self.says_it_leaves(process, **how)
            self.end(process, LEFT)

    def find(self, hosts: dict[str, int]) -> None:
        self.take(self.decisions.hosts_found(hosts))

    def stopped(self) -> set[int]:
        return {stop.worker for stop in self.all(Stop)}


def formed(hosts: dict[str, int] | None = None, **more: Any) -> Job:
    job = Job(hosts or dict(THREE), 3, **more)
    job.ask(0, 1, 2)
    assert job.ranks == {0: (1, 0, 3), 1: (1, 1, 3), 2: (1, 2, 3)}
    return job


def test_a_death_starts_all_others_again() -> None:
    job = formed()
    job.end(1, KILLED)
    assert job.stopped() == {0, 2}, "they are ended at once"
    assert [say.text for say in job.all(Say)][1:] == [
        "ends 2 workers on a, c: those that stay in the job are started again"
    ]
    assert not any(stop.why for stop in job.all(Stop)), "which says it of all"
    started = job.terminated(0)
    assert [(s.worker, s.host, s.place.rank, s.place.size) for s in started if isinstance(s, Start)] == [
        (3, "a", 0, 2)
    ]
    job.end(2, End(0))  # its handler of the signal ends it in order
    job.ask(3, 4)
    assert job.running == {3: "a", 4: "c"}
    assert (job.ranks[3], job.ranks[4]) == ((2, 0, 2), (2, 1, 2))
    assert not job.all(EndJob)


def test_who_has_gone_by_itself_is_not_told() -> None:
    job = formed()
    job.leave(0)
    job.end(1, KILLED)
    assert job.stopped() == {2}
    job.end(2, TERMINATED)
    job.ask(3, 4)
    assert job.ranks[3] == (2, 0, 2) and job.running == {3: "a", 4: "c"}, "and its host is used"


def test_an_end_that_no_one_has_announced_is_a_failure() -> None:
    job = formed()
    job.end(1, LEFT)
    assert job.stopped() == {0, 2}, "whatever the code is"


def test_the_slot_of_the_one_that_failed_is_used_again_after_its_cooldown() -> None:
    job = Job({"a": 3}, 3, 2, hosts_may_come=False)
    job.ask(0, 1, 2)
    job.end(1, KILLED)
    assert job.stopped() == {0, 2}
    job.terminated(0, 2)
    job.ask(3, 4)
    assert (job.ranks[3], job.ranks[4]) == ((2, 0, 2), (2, 1, 2))
    job.wait(6)
    assert [(start.host, start.slot) for start in job.all(Start)][5:] == [("a", 1)]
    job.ask(5)
    job.leave(3, 4, is_lost=False)
    job.ask(6, 7)
    assert sorted(job.ranks[number] for number in (5, 6, 7)) == [(3, 0, 3), (3, 1, 3), (3, 2, 3)]


def test_by_horovods_rule_the_host_of_the_one_that_failed_goes_whole() -> None:
    job = Job({"a": 2, "b": 2}, 4, 2, blacklist=HOST)
    job.ask(0, 1, 2, 3)
    job.end(3, KILLED)
    assert job.stopped() == {0, 1, 2}
    job.terminated(0, 1, 2)
    assert job.running == {4: "a", 5: "a"}
    job.ask(4, 5)
    assert job.ranks[5] == (2, 1, 2)


def test_newcomers_are_not_ended_and_come_in() -> None:
    job = formed(hosts_may_come=True)
    job.find({**THREE, "d": 1})
    job.ask(3)
    (notify,) = job.all(Notify)
    assert set(notify.workers) == {0, 1, 2}
    job.leave(0, 1, 2, is_lost=False)
    assert job.running == {3: "d", 4: "a", 5: "b", 6: "c"} and not job.stopped()
    job.wait(7)
    assert len(job.all(Notify)) == 1, "processes without a place are not told"
    job.ask(4, 5, 6)
    assert [job.ranks[number] for number in (4, 5, 6, 3)] == [(2, rank, 4) for rank in range(4)]


def test_a_host_that_goes_is_left_without_a_failure() -> None:
    job = formed(hosts_may_come=True)
    job.find({"a": 1, "c": 1})
    job.leave(0, 1, 2, is_lost=False)
    assert job.running == {3: "a", 4: "c"}
    job.ask(3, 4)
    assert job.ranks[4] == (2, 1, 2)
    job.find({"a": 1, "b": 1, "c": 1})
    assert job.running[5] == "b", "it is on no blacklist"


@pytest.mark.parametrize(("is_lost", "grace"), [(True, LEAVE_AFTER_ERROR), (False, LEAVE_AFTER_CHANGE)])
def test_who_does_not_leave_with_the_others_is_ended(is_lost: bool, grace: float) -> None:
    job = formed()
    job.leave(0, is_lost=is_lost)
    job.wait(grace - 0.5)
    assert not job.stopped()
    job.wait(1)
    assert job.stopped() == {1, 2}
    job.end(1, TERMINATED)
    assert job.running[4] == "b", "it has not failed"


def test_who_says_that_it_leaves_and_does_not_is_ended() -> None:
    job = Job(dict(THREE), 3)
    job.says_it_leaves(1)
    job.wait(LEAVE_AFTER_CHANGE + 0.5)
    assert job.stopped() == {1}
    job.end(1, TERMINATED)
    assert job.running[3] == "b"


def test_an_accused_process_that_does_not_leave_has_failed() -> None:
    job = formed()
    job.take(job.decisions.worker_accused(0, 1, 1, "silent"))
    job.says_it_leaves(0)
    job.wait(ACCUSATION_GRACE + 0.3)
    assert job.stopped() == {1, 2}
    job.terminated(0, 1, 2)
    assert job.running == {3: "a", 4: "c"}


def test_an_accused_process_that_leaves_has_not() -> None:
    job = formed()
    job.take(job.decisions.worker_accused(0, 1, 1, "silent"))
    job.take(job.decisions.worker_accused(1, 1, 0, "silent"))
    job.leave(0, 1, 2)
    job.wait(20)  # the new ones load torch
    assert job.running == {3: "a", 4: "b", 5: "c"} and not job.stopped()


def test_a_lost_host() -> None:
    job = formed()
    del job.running[1]
    job.take(job.decisions.host_lost("b", "no answer"))
    assert job.stopped() == {0, 2}


@pytest.mark.parametrize("commits", [0, 1])
def test_a_script_that_fails_again_and_again(commits: int) -> None:
    job = formed()
    for _ in range(3):
        for process in list(job.running):
            job.says_it_leaves(process, commits)
            job.end(process, LEFT) if not job.all(EndJob) else None
        job.ask(*job.running) if not job.all(EndJob) else None
    assert bool(job.all(EndJob)) == (commits == 0)


def test_success_after_a_restart() -> None:
    job = formed()
    job.end(1, KILLED)
    job.terminated(0, 2)
    job.ask(3, 4)
    job.end(3, End(0))
    job.end(4, End(0))
    (end,) = job.all(EndJob)
    assert end.code == 0


def something(job: Job, hosts: dict[str, int], draw: random.Random) -> None:
    """A random event of a job."""
    one = draw.choice(list(job.running))
    what = draw.random()
    if what < 0.5:
        job.ask(one)
    elif what < 0.6:
        job.says_it_leaves(one, is_lost=draw.random() < 0.5)
    elif what < 0.63:
        job.end(one, draw.choice([KILLED, LEFT]))
    elif what < 0.66:
        job.find({h: n for h, n in hosts.items() if draw.random() < 0.7})
    elif what < 0.69:
        job.take(job.decisions.worker_accused(one, job.ranks.get(one, (0, 0, 0))[0], 0, "silent"))
    else:
        job.wait(0.5)
    for told in job.stopped() & set(job.running):
        job.end(told, TERMINATED)


def end_well(job: Job) -> None:
    """End all processes as the job requires."""
    for process in list(job.running):
        is_out = process in {leave.worker for leave in job.all(Leave)}
        if job.all(EndJob):
            return
        if process in job.stopped():
            job.end(process, TERMINATED)
        elif is_out or job.ranks.get(process):
            job.end(process, End(0))
        else:
            job.ask(process)
    job.wait(1)


@pytest.mark.parametrize("seed", range(200))
def test_random_jobs_come_to_an_end(seed: int) -> None:
    """After any events, processes end on request, process numbers are never reused, and the job ends."""
    draw = random.Random(seed)
    hosts = {name: draw.randint(1, 2) for name in "abcd"}
    more: dict[str, Any] = {"hosts_may_come": True, "elastic_timeout": 60.0}
    job = Job(dict(hosts), 3, draw.randint(1, 2), blacklist=draw.choice([SLOT, HOST]), **more)
    for _ in range(120):
        if not job.all(EndJob) and job.running:
            something(job, hosts, draw)
    for _ in range(400):
        if not job.all(EndJob):
            end_well(job)
    assert len(job.all(EndJob)) == 1


def test_an_exception_of_one_ends_the_job_though_others_leave_first() -> None:
    """The others detect its shutdown and leave; its own end may take longer than the wait for them."""
    job = formed()
    job.take(job.decisions.worker_raised(1))
    job.leave(0, 2)
    job.wait(LEAVE_AFTER_ERROR + 1)
    assert 1 not in job.stopped()
    job.end(1, End(1, raised=True))
    assert [each.code for each in job.all(EndJob)] == [1]


def test_who_raises_and_never_ends_is_ended() -> None:
    job = formed()
    job.take(job.decisions.worker_raised(1))
    job.wait(LEAVE_AFTER_CHANGE + 1)
    assert 1 in job.stopped()
    job.end(1, End(signal_number=9, raised=True))
    assert job.all(EndJob)


def test_what_is_raised_after_a_loss_may_come_of_it() -> None:
    job = formed()
    job.end(2, KILLED)
    job.take(job.decisions.worker_raised(1))
    job.wait(1)
    assert {0, 1} <= job.stopped() and not job.all(EndJob)
