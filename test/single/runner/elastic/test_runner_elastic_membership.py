"""Messages and rare rules of the membership machine: direct calls and a simulated clock.

The rules are in `membership_model`; `test_runner_elastic_random` tests them.
"""

from __future__ import annotations

import pytest
from elastic_jobs import KILLED, Job, two_hosts

from horovod.common.agent_messages import Place
from horovod.runner.agents.decisions import EndJob, Leave, Notify, Publish, Say, Start, Stop
from horovod.runner.agents.outcome import End
from horovod.runner.elastic.reasons import FAILED, RESETS
from horovod.runner.elastic.settings import HOST, SLOT

# The start.


def test_the_start_waits_for_np_slots() -> None:
    job = Job({"a": 2}, np=3)
    assert job.last(Say).text == "waits for 1 more slot, of 3 for the start, up to 600 s (--elastic-timeout)"
    assert job.wait(5) == []
    job.find({"a": 2, "b": 2})
    assert job.started() == [(0, "a", 0, 0), (1, "a", 1, 1), (2, "b", 0, 2), (3, "b", 1, 3)]
    assert job.last(Start).place == Place(1, 3, 4, 1, 2, 1, 2, ("a", "a", "b", "b"))


def test_the_start_gives_up_after_the_elastic_timeout() -> None:
    job = Job({"a": 2}, np=3, elastic_timeout=60)
    job.wait(59)
    assert not job.machine.is_over
    job.wait(2)
    assert job.over().code == 1
    waited = "waited 60 s (--elastic-timeout) for 3 slots, which the start needs"
    assert job.over().message == f"{waited}: hosts that can be used have 2 slots"


def test_a_death_before_the_first_membership_is_named_and_replaced() -> None:
    job = Job({"a": 1, "b": 1, "c": 1}, np=2, most=2)
    job.ask(1)
    job.end(0, KILLED)
    assert "worker 0 on host a (not started yet) was killed by signal 9 (SIGKILL)" in job.last(Say).text
    assert job.started()[-1] == (2, "c", 0, 1)
    job.ask(2)
    lost = "lost: worker 0 on host a (not started yet)"
    assert (
        job.order() == [1, 2] and job.last(Publish).why == f"the job begins with 2 workers on 2 hosts; {lost}"
    )


def test_a_death_before_the_first_membership_ends_the_job_where_there_is_no_other_slot() -> None:
    job = Job({"a": 1, "b": 1}, np=2, least=2, hosts_may_come=False)
    job.ask(1)
    job.end(0, End(7))
    assert job.over().message.startswith(
        f"{FAILED}: at least 2 workers are needed, and 1 is left; there is no slot for another: "
    )
    assert "exited with code 7" in job.over().message


def test_a_start_that_always_fails_ends() -> None:
    job = Job({"a": 1, "b": 1}, np=1, most=1, cooldown_range=(1, 1))
    job.end(0, End(5))
    job.wait(2)
    assert job.started()[-1] == (1, "b", 0, 0)
    job.end(1, End(6))
    assert job.over().code == 5 and job.over().message.startswith(FAILED)


def test_one_that_ends_before_init_while_others_wait() -> None:
    job = Job({"a": 2}, np=2, least=2)
    job.ask(0)
    job.end(1, End())
    job.wait(20)
    assert job.over() == EndJob(
        1,
        "at least 2 workers are needed, and 1 is left: another ended with code 0 before hvd.init(), or "
        "before calling it again",
    )


# Deaths.


def test_a_death_costs_its_slot_for_a_while() -> None:
    job = two_hosts(hosts_may_come=False)
    job.end(0, KILLED)
    killed = "rank 0 on host a was killed by signal 9 (SIGKILL)"
    assert job.last(Say).text == f"{killed}; slot 0 there is used again after 5 s"
    job.ask(1, 2, 3)
    assert job.order() == [1, 2, 3], "the other worker of its host stays"
    assert job.last(Publish).why == "the job goes on with 3 workers on 2 hosts; lost: rank 0 on host a"
    assert job.wait(4.9) == []
    job.wait(1)
    assert job.started()[4:] == [(4, "a", 0, 3)]
    job.ask(4)
    assert job.last(Notify).workers == (1, 2, 3)
    job.ask(1, 2, 3)
    assert job.order() == [1, 2, 3, 4]
    job.end(4, KILLED)
    assert job.last(Say).text.split("; ")[1] in [f"slot 0 there is used again after {n} s" for n in (10, 11)]


def test_a_fixed_host_waits_for_a_slot_that_it_needs_and_no_longer_than_it_may() -> None:
    job = Job({"a": 3}, np=3, least=3, hosts_may_come=False, elastic_timeout=60, cooldown_range=(30, 100))
    job.ask(0, 1, 2)
    job.end(1, KILLED)
    job.ask(0, 2)
    assert job.last(Say).text.startswith("waits for 1 more worker, as at least 3 are needed, up to 60 s")
    job.wait(34)
    assert job.started()[-1][1:3] == ("a", 1)
    job.end(3, KILLED)
    job.wait(30)
    assert "waited 60 s (--elastic-timeout): 2 of 3 workers ready" in job.over().message


def test_a_fixed_host_that_is_lost_ends_the_job_at_once_where_too_few_are_left() -> None:
    job = Job({"a": 2, "b": 1}, np=3, least=2, hosts_may_come=False)
    job.ask(0, 1, 2)
    job.take(job.machine.host_lost("a", "its agent is gone"))
    job.ask(2)
    assert "at least 2 workers are needed, and 1 is left; there is no slot for another" in job.over().message


def test_a_host_whose_workers_fail_again_and_again_is_given_up() -> None:
    job = two_hosts(max_worker_failures=2)
    job.end(0, KILLED)
    job.ask(1, 2, 3)
    job.end(1, KILLED)
    failed = "2 workers failed there within 10 minutes (--max-worker-failures)"
    assert job.last(Say).text == (
        f"rank 0 on host a was killed by signal 9 (SIGKILL); host a is on the blacklist: {failed}"
    )
    job.ask(2, 3)
    assert job.order() == [2, 3] and job.wait(700) == []


def test_failures_of_more_than_ten_minutes_ago_do_not_count() -> None:
    job = Job({"a": 3}, np=3, least=1, hosts_may_come=False, max_worker_failures=2)
    job.ask(0, 1, 2)
    job.end(0, KILLED)
    job.ask(1, 2)
    job.wait(601)
    job.end(1, KILLED)
    assert "slot 1 there is used again after" in [say.text for say in job.all(Say)][-1]


def test_a_single_host_that_is_given_up_ends_the_job_and_says_why() -> None:
    job = Job({"a": 3}, np=3, least=1, hosts_may_come=False, max_worker_failures=2)
    job.ask(0, 1, 2)
    job.end(0, KILLED)
    job.ask(1, 2)
    job.end(1, KILLED)
    why = "2 workers failed there within 10 minutes (--max-worker-failures)"
    assert job.over().code == 137 and f"(host a is on the blacklist: {why})" in job.over().message


def test_a_worker_of_another_slot_never_gets_the_gpu_of_one_that_lives() -> None:
    """Local rank 0 is free, and then slot 0 returns: the newcomer on it must find the rank free."""
    job = Job({"a": 4}, np=4, least=1, hosts_may_come=False, cooldown_range=(30, 30))
    job.ask(0, 1, 2, 3)
    for worker, seconds in ((2, 10), (1, 10), (0, 0)):
        job.end(worker, KILLED)
        job.wait(seconds)
    job.ask(3)
    assert job.last(Publish).places[3].local_rank == 0, "it is alone, and has GPU 3"
    job.wait(11)
    assert job.started()[-1] == (4, "a", 2, 1)
    job.ask(4, 3)
    places = job.last(Publish).places
    assert (places[3].local_rank, places[4].local_rank) == (1, 0), "of two workers no one can have number 2"
    job.wait(30)
    assert [start[2] for start in job.started()[5:]] == [2, 1], "slot 0 is taken by the one with GPU 0"


def test_survivors_go_on_in_their_order_and_by_horovods_rule_the_whole_host_is_out() -> None:
    job = two_hosts(blacklist=HOST)
    job.end(0, KILLED)
    assert "host a is on the blacklist" in job.last(Say).text
    assert job.ask(3) == []
    published = job.ask(2)
    assert published == [job.last(Publish)] and job.order() == [2, 3]
    assert job.last(Publish).places[2] == Place(2, 0, 2, 0, 2, 0, 1, ("b", "b"))
    why = "the job goes on with 2 workers on 1 host; lost: rank 0 on host a"
    assert job.last(Publish).why == why, "how it was lost was said before"
    (answer,) = job.ask(1)
    assert isinstance(answer, Leave) and "its host a is not used any more" in answer.reason
    assert job.wait(9.8) == []
    (stop,) = job.wait(1)
    assert stop == Stop(1, "rank 1 on host a, which is out, has not ended, and is stopped")
    assert job.wait(700) == [], "it is stopped once, and host a never comes back"


def test_without_survivors_the_state_is_lost() -> None:
    job = two_hosts(blacklist=HOST)
    job.find({"a": 2, "b": 2, "c": 2})
    job.ask(4, 5)
    job.end(1, End(1))
    job.end(3, End(9))
    assert job.over().code == 1
    assert job.over().message == (
        f"{FAILED}, and nobody is left who holds the state of training: rank 1 on host a exited with code 1; "
        "rank 3 on host b exited with code 9"
    )


def test_a_lost_host_takes_its_workers() -> None:
    job = two_hosts()
    job.ask(2)
    job.take(job.machine.host_lost("a", "ssh ended with code 255"))
    job.ask(3)
    assert job.order() == [2, 3]
    (said,) = job.all(Say)
    assert said.text == (
        "host a was lost, and with it rank 0 on host a, rank 1 on host a: ssh ended with code 255; host a is "
        "on the blacklist"
    )
    assert job.last(Publish).why.endswith("; lost: rank 0 on host a, rank 1 on host a")
    assert job.end(0, KILLED) == [], "that comes late"


def test_a_host_comes_back_after_its_cooldown() -> None:
    job = two_hosts(cooldown_range=(30, 60), blacklist=HOST)
    job.end(1, KILLED)
    job.ask(2, 3)
    job.end(0, End())  # it has left
    assert "host a is on the blacklist for 3" in " ".join(say.text for say in job.all(Say))
    assert len(job.started()) == 4
    job.wait(34)
    assert job.started()[4:] == [(4, "a", 0, 2), (5, "a", 1, 3)]
    job.ask(4, 5)
    assert job.last(Notify).workers == (2, 3)
    job.ask(2, 3)
    assert job.order() == [2, 3, 4, 5]


# Exceptions.


def test_an_exception_of_the_user_ends_the_job() -> None:
    job = two_hosts()
    job.end(2, End(1, raised=True))
    assert job.over().code == 1
    assert (
        job.over().message
        == f"{FAILED}: rank 2 on host b exited with code 1 of an exception that nothing caught"
    )


def test_an_exception_of_a_newcomer_does_not_end_others_work() -> None:
    job = two_hosts()
    job.find({"a": 2, "b": 2, "c": 1})
    job.end(4, End(1, raised=True))
    assert not job.machine.is_over and "slot 0 there is used again" in job.last(Say).text
    assert job.wait(4.5) == []


# Hosts that come and go.


def test_a_host_that_has_gone_is_notified_and_left_out() -> None:
    job = two_hosts()
    assert job.find({"b": 2}) == [Notify((0, 1, 2, 3), job.now, 2)]
    job.ask(0, 1, 2)
    assert len(job.all(Publish)) == 1
    job.ask(3)
    published = job.last(Publish)
    assert job.order() == [2, 3] and published.out.keys() == {0, 1}
    assert published.out[0] == "its host is not there any more"
    out = "rank 0 on host a, rank 1 on host a (its host is not there any more)"
    assert published.why == f"the job goes on with 2 workers on 1 host; out: {out}"
    job.end(0, End())
    job.end(1, End(1))
    assert not job.machine.is_over, "how they end says nothing"
    assert job.wait(700) == []


# The reset limit.


def test_the_reset_limit() -> None:
    job = two_hosts(reset_limit=1)
    job.find({"b": 2})
    job.ask(0, 1, 2, 3)
    assert job.order() == [2, 3] and job.machine.resets == 1
    job.find({"b": 1})
    assert not job.machine.is_over
    job.ask(2)
    assert job.over() == EndJob(1, f"{RESETS} (--reset-limit 1): hosts have changed")


def test_the_reset_limit_names_those_that_were_lost_since_the_last_membership() -> None:
    job = Job({"a": 1, "b": 1, "c": 1}, np=3, reset_limit=1)
    job.ask(0, 1, 2)
    job.end(0, KILLED)
    job.ask(1, 2)
    job.end(1, End(7))
    job.ask(2)
    assert job.over() == EndJob(1, f"{RESETS} (--reset-limit 1): rank 0 on host b exited with code 7")


def test_the_reset_limit_where_nobody_was_lost() -> None:
    job = two_hosts(reset_limit=0)
    job.ask(0)
    asked = "its members asked for another membership"
    assert job.over() == EndJob(1, f"{RESETS} (--reset-limit 0): {asked}")


# Success.


def test_after_the_first_success_nobody_is_started_and_the_others_end_their_work() -> None:
    job = two_hosts(least=4)
    job.find({"a": 2, "b": 2, "c": 1})
    job.end(0, End())
    assert not job.all(Say)
    assert [a.worker for a in job.ask(4) if isinstance(a, Leave)] == [4]
    said = "rank 0 on host a has finished; the other ranks finish too, and no worker is started any more"
    assert job.wait(6) == [Say(said)], "the others work on for a while"
    job.find({"a": 2, "b": 2, "c": 1, "d": 4})
    assert len(job.started()) == 5
    job.ask(1, 2, 3)
    assert job.order() == [1, 2, 3], "min_np does not hold any more"
    for worker in (1, 2, 3):
        job.end(worker, End())
    assert job.over() == EndJob(0, "")


def test_work_that_nobody_took_up_is_a_failure() -> None:
    job = Job({"a": 1, "b": 1}, np=2)
    job.ask(0, 1)
    job.end(0, End())
    job.end(1, End(139))
    over = job.over()
    assert over.code == 139 and "rank 1 on host b was killed by signal 11 (SIGSEGV)" in over.message


def test_one_that_ends_its_work_on_a_host_that_has_failed_has_succeeded() -> None:
    job = two_hosts(blacklist=HOST)
    job.end(0, End(139))  # for example at its exit
    for worker in (1, 2, 3):
        job.end(worker, End())
    assert job.over() == EndJob(0, "")


# Accusations.


@pytest.mark.parametrize(
    ("blacklist", "cost", "order"),
    [
        (SLOT, "slot 1 there is used again after 5 s", [0, 2, 3]),
        (HOST, "host a is on the blacklist", [2, 3]),  # its other worker is out too
    ],
)
def test_an_accused_worker_that_does_not_ask_is_stopped(blacklist: str, cost: str, order: list[int]) -> None:
    job = two_hosts(accusation_grace=2, blacklist=blacklist)
    job.accuse(2, 1)
    job.ask(*order)
    assert job.wait(1.8) == []
    actions = job.wait(0.4)
    assert [type(a) for a in actions] == [Stop, Publish]
    assert job.all(Stop)[0] == Stop(
        1,
        "rank 1 on host a is believed to be lost, and is stopped (rank 2 on host b says: silent for 3 s); "
        f"{cost}",
    )
    assert job.order() == order


def test_who_is_never_heard_is_out_after_three_generations() -> None:
    job = Job({"a": 1, "b": 1, "c": 1}, np=3)
    job.ask(0, 1, 2)
    for generation in (2, 3):
        job.accuse(0, 2)
        job.accuse(1, 2)
        job.accuse(2, 0)
        job.ask(0, 1, 2)
        assert job.order() == [0, 1, 2] and job.machine.generation == generation
    job.accuse(0, 2)
    job.accuse(1, 2)
    job.accuse(2, 0)
    job.ask(0, 1, 2)
    assert job.order() == [0, 1] and "3 generations in a row" in job.last(Leave).reason


def test_the_worker_of_a_rank() -> None:
    job = two_hosts()
    job.find({"b": 2})
    job.ask(0, 1, 2, 3)
    assert job.machine.worker(2, 1) == 3
    assert (
        job.machine.worker(1, 1) is None
        and job.machine.worker(2, 2) is None
        and job.machine.worker(2, -1) is None
    )
