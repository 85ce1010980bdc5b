"""Which workers the membership machine waits for, how long, and messages: direct calls, simulated clock."""

from __future__ import annotations

import pytest
from elastic_jobs import KILLED, Job, two_hosts

from horovod.runner.agents.decisions import EndJob, Leave, Publish, Say, Stop
from horovod.runner.agents.outcome import End
from horovod.runner.elastic.reasons import FAILED
from horovod.runner.elastic.settings import HOST


def test_the_time_is_over_and_enough_have_asked() -> None:
    job = two_hosts(least=1, elastic_timeout=20, naming_after=30, blacklist=HOST)
    job.end(0, KILLED)
    job.ask(2)
    assert job.wait(19.5) == []
    (published,) = job.wait(1)
    assert isinstance(published, Publish) and published.places.keys() == {2}
    left = "out: rank 3 on host b (it did not ask within 20 s (--elastic-timeout), as others did)"
    size = "the job goes on with 1 worker on 1 host"
    assert published.why == f"{size}; lost: rank 0 on host a; {left}"
    (answer,) = job.ask(3)
    assert isinstance(answer, Leave) and "it did not ask within 20 s" in answer.reason


def test_a_survivor_that_is_busy_is_waited_for_and_named_once() -> None:
    """It may be writing a checkpoint: no member accuses it, and its process is alive."""
    job = two_hosts(elastic_timeout=100, blacklist=HOST)
    job.end(3, KILLED)
    job.ask(1)
    assert job.wait(4.5) == []
    said = job.wait(95)
    assert said == [
        Say(
            "waits for rank 0 on host a to use Horovod again, up to 100 s (--elastic-timeout): its process "
            "runs, and no other rank has called it silent"
        )
    ]
    job.ask(0)
    assert job.order() == [0, 1] and not job.all(Stop)


def test_survivors_that_are_accused_are_not_named() -> None:
    job = two_hosts(doubtful_grace=10, blacklist=HOST)
    job.end(3, KILLED)
    job.accuse(1, 0)
    job.ask(1)
    assert job.wait(9) == []


def test_who_is_busy_on_a_host_that_has_failed_has_as_long() -> None:
    """It is excluded without knowing it: its output must be complete."""
    job = two_hosts(elastic_timeout=60, blacklist=HOST)
    job.end(0, KILLED)
    job.ask(2, 3)
    assert job.wait(59) == []
    (answer,) = job.ask(1)
    assert isinstance(answer, Leave)
    assert [type(action) for action in job.wait(11)] == [Stop]


def test_who_is_accused_on_a_host_that_has_failed_has_not() -> None:
    job = two_hosts(blacklist=HOST)
    job.end(0, KILLED)
    assert job.accuse(2, 1) == []
    job.ask(2, 3)
    assert [type(action) for action in job.wait(11)] == [Stop]


def test_too_few_survivors_give_up() -> None:
    job = Job({"a": 1, "b": 1, "c": 1}, np=3, least=2, elastic_timeout=60)
    job.ask(0, 1, 2)
    job.find({"b": 1})
    job.ask(0, 1, 2)
    outside = "rank 0 on host a, rank 2 on host c have no slot any more"
    waits = [say.text for say in job.all(Say) if say.text.startswith("waits")]
    needed = "as at least 2 are needed, up to 60 s (--elastic-timeout)"
    assert waits == [f"waits for 1 more worker, {needed}; {outside}"]
    job.wait(59)
    assert not job.machine.is_over
    job.wait(2)
    waited = "waited 60 s (--elastic-timeout): 1 of 2 workers ready, and hosts that can be used have 1 slot"
    assert job.over().message == f"{waited}; {outside}", "nobody was lost"
    assert len([say for say in job.all(Say) if say.text.startswith("waits")]) == 1, "it is said once"


def test_a_wait_for_workers_that_start_is_said_too() -> None:
    job = Job({"a": 1, "b": 1, "c": 1}, np=3, least=3, elastic_timeout=60, blacklist=HOST)
    job.ask(0, 1)
    assert not [say for say in job.all(Say) if say.text.startswith("waits")], "the start is no such wait"
    job.ask(2)
    job.find({"a": 1, "b": 1, "c": 1, "d": 1})
    job.end(0, KILLED)
    job.ask(1)
    needed = "as at least 3 are needed, up to 60 s (--elastic-timeout)"
    assert job.last(Say).text == f"waits for 1 more worker, {needed}; 1 worker is starting"
    job.ask(2)
    job.end(3, KILLED)
    job.wait(30)
    waits = [say.text for say in job.all(Say) if say.text.startswith("waits")]
    assert len(waits) == 1, "as many as before are missing"
    job.find({"d": 1, "e": 1})
    assert job.last(Say).text.startswith("waits for one of the hosts b, c to be listed again, ")
    job.wait(31)
    assert job.over().message.startswith(
        f"{FAILED}: waited 60 s (--elastic-timeout) for one of the hosts b, c to be listed again: all "
        "workers that hold the state of training are there, and new ones have none; hosts that can be used "
        "have 1 slot: "
    )


def test_who_did_not_come_is_named_at_the_end() -> None:
    job = Job({"a": 1, "b": 1, "c": 1}, np=3, least=3, elastic_timeout=60)
    job.ask(0, 1, 2)
    job.find({"a": 1, "e": 1, "f": 1})
    job.ask(0, 1, 2)
    job.wait(61)
    outside = "rank 1 on host b, rank 2 on host c have no slot any more"
    late = "worker 3 on host e (not started yet), worker 4 on host f (not started yet)"
    assert job.over().message == (
        "waited 60 s (--elastic-timeout): 1 of 3 workers ready, and hosts that can be used have 3 slots; "
        f"these did not come: {late}; {outside}"
    )


@pytest.mark.parametrize("are_newcomers_first", [False, True])
def test_where_all_hosts_are_replaced_nobody_holds_the_state(are_newcomers_first: bool) -> None:
    job = Job({"a": 2}, np=2, least=1, elastic_timeout=60)
    job.ask(0, 1)
    job.find({"b": 2})
    for workers in ((2, 3), (0, 1)) if are_newcomers_first else ((0, 1), (2, 3)):
        job.ask(*workers)
    job.wait(59)
    listed = "host a to be listed again"
    why = "all workers that hold the state of training are there, and new ones have none"
    waits = f"waits for {listed}, up to 60 s (--elastic-timeout): {why}"
    assert [say.text for say in job.all(Say)] == [waits]
    job.wait(2)
    waited = f"waited 60 s (--elastic-timeout) for {listed}: {why}"
    assert job.over() == EndJob(1, f"{waited}; hosts that can be used have 2 slots")


def test_members_that_ask_and_lack_nobody() -> None:
    job = two_hosts()
    job.ask(0, 1, 2, 3)
    same = "the job goes on with the same 4 workers on 2 hosts: they have asked for it, and none was lost"
    assert job.last(Publish).why == same


# Messages about memberships.


def test_a_membership_names_eight_of_a_kind() -> None:
    hosts = {f"h{number:02}": 1 for number in range(24)}
    job = Job(hosts, np=24)
    job.ask(*range(24))
    job.find({**{f"h{number:02}": 1 for number in range(12)}, **{f"n{number}": 1 for number in range(10)}})
    for worker in range(9):
        job.end(worker, KILLED)
    job.ask(*range(33, 8, -1))
    lost = ", ".join(f"rank {number} on host h{number:02}" for number in range(8))
    out = ", ".join(f"rank {number} on host h{number}" for number in range(12, 20))
    new = ", ".join(f"1 on host n{number}" for number in range(8))
    assert job.last(Publish).why == (
        f"the job goes on with 13 workers on 13 hosts; lost: {lost} and 1 more; out: {out} and 4 more "
        f"(its host is not there any more); new: {new} and 2 more"
    )


def test_no_line_is_said_twice() -> None:
    """For a host that fails with all its workers, and for a host that remains."""
    job = Job({"a": 3, "b": 1, "c": 1}, np=5, elastic_timeout=60, blacklist=HOST)
    job.ask(*range(5))
    job.end(0, KILLED)
    job.find({"a": 3, "b": 1})
    job.ask(1, 2, 3, 4)
    for worker in (1, 2, 4):
        job.end(worker, End())
    job.wait(60)
    said = [action.text for action in job.actions if isinstance(action, Say)]
    said += [action.why for action in job.actions if isinstance(action, Publish | Stop)]
    assert len(said) == len(set(said)) == 6
