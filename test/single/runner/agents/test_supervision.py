"""When a job is ended, by which rule, and its messages: reports and a simulated clock, without a process."""

from __future__ import annotations

import signal
from errno import ENOSPC, EPIPE

import pytest

from horovod.common.time_limits import (
    AFTER_FAILURE,
    BEFORE_BLAMING,
    LONGEST_ROUND,
    STOPPED_WAIT,
    VAIN_WAIT,
)
from horovod.runner import streams
from horovod.runner.agents import supervision
from horovod.runner.agents.supervision import Ending, Supervision

STEP = 0.1  # seconds between two checks


class Watched:
    """A supervised job with a simulated clock. `said`: all messages since the beginning."""

    def __init__(
        self,
        ranks: int = 2,
        start_timeout: float = 30.0,
        exit_timeout: float = 0.0,
        is_elastic: bool = False,
        verbose: bool = False,
    ) -> None:
        self.now = 1000.0
        self.job = Supervision(
            ranks, start_timeout, exit_timeout, is_elastic, verbose, clock=lambda: self.now
        )
        self.said: list[str] = []

    def hear(self, *reports: tuple[int, str]) -> Watched:
        for rank, report in reports:
            self.job.take(rank, report)
        return self

    def started(self, ranks: int = 2) -> Watched:
        return self.hear(*((rank, f"started h{rank} 100") for rank in range(ranks)))

    def wait(self, seconds: float) -> int | None:
        """Let time pass; return the signal that must end the job, or None."""
        for _ in range(round(seconds / STEP)):
            self.now += STEP
            self.said += self.job.tick(self.now)
            if (number := self.job.ends_by(self.now)) is not None:
                return number
        return None


def test_a_job_that_succeeds() -> None:
    one = Watched().started().hear((0, "ended 0 0"), (1, "ended 0 0"))
    assert one.wait(5) is None and one.said == []
    assert one.job.ending(0) == Ending(0)
    assert one.job.ending(0).ends == {0: 0, 1: 0}


def test_values_of_ranks_are_put_together() -> None:
    one = Watched().started()
    for rank, part in ((1, b"one"), (0, b"zero"), (1, b" more")):
        one.job.take_value(rank, part)
    values = one.hear((0, "ended 0 0"), (1, "ended 0 0")).job.ending(0).values
    assert [(rank, bytes(value)) for rank, value in values.items()] == [(1, b"one more"), (0, b"zero")]


def test_verbose_says_each_end() -> None:
    one = Watched(verbose=True).started().hear((1, "killed 9 0"), (0, "ended 0 0"))
    one.wait(STEP)
    assert one.said == [
        "rank 1 on host h1 was killed by signal 9 (SIGKILL)",
        "rank 0 on host h0 exited with code 0",
    ]


def test_without_reports_the_jobs_own_code_counts() -> None:
    assert Watched().job.ending(7) == Ending(7, "no rank started; the reason is above")
    ending = Watched().started().job.ending(1)
    assert ending.message.startswith("ranks 0, 1 on h0, h1 did not report how it ended")


def test_reports_that_make_no_sense_are_left_aside() -> None:
    nonsense = [(2, "ended 3 0"), (0, "dances"), (1, "took many"), (1, "ended 999 0"), (0, "alive")]
    one = Watched().started().hear(*nonsense, (0, "ended 0 0"), (1, "ended 0 0"))
    assert one.wait(5) is None and one.job.ending(0) == Ending(0)
    assert len(one.said) == 5
    assert all(line.startswith("warning: a report makes no sense") for line in one.said)
    assert "rank 2 reported 'ended 3 0'" in one.said[0]


@pytest.mark.parametrize(("seconds", "is_given_up"), [(29.0, False), (31.0, True)])
def test_ranks_that_do_not_start_in_time(seconds: float, is_given_up: bool) -> None:
    one = Watched(ranks=3).started(1)
    assert one.wait(seconds) == (signal.SIGTERM if is_given_up else None)
    if is_given_up:
        ending = one.job.ending(1)
        assert (ending.code, ending.culprit) == (1, None)
        assert ending.message.startswith("ranks 1, 2 did not start within 30 s. Likely causes: ")
    else:
        assert one.hear((1, "started h1 1"), (2, "started h2 1")).wait(1000) is None, "they take their time"


def test_workers_of_an_elastic_job_are_waited_for_by_others() -> None:
    assert Watched(is_elastic=True).started(1).wait(100) is None


def test_of_many_ranks_it_is_said_how_many_have_started(monkeypatch: pytest.MonkeyPatch) -> None:
    for many in (3, 2):
        monkeypatch.setattr(supervision, "MANY_RANKS", many)
        one = Watched().started(1)
        assert one.wait(29) is None
        assert one.said == (["1 of 2 ranks have started"] * 5 if many == 2 else [])


FOLLOWS = ((1, "note joining"), (1, "note follows 0 gone"), (1, "ended 1 0"))


@pytest.mark.parametrize(
    ("said", "seconds"), [(((1, "ended 3 0"),), AFTER_FAILURE), (FOLLOWS, BEFORE_BLAMING)]
)
def test_the_job_is_ended_soonest_when_it_is_known_who_failed(
    said: tuple[tuple[int, str], ...], seconds: float
) -> None:
    one = Watched().started().hear(*said)
    assert one.wait(seconds - STEP) is None
    assert one.wait(2 * STEP) == signal.SIGTERM
    assert one.wait(10) is None, "it is told once"


def test_who_failed_by_itself_is_blamed_and_not_those_that_were_told() -> None:
    one = Watched().started().hear((1, "ended 3 0"))
    one.wait(1)
    ending = one.hear((0, "killed 15 1")).job.ending(3)
    assert (ending.code, ending.culprit) == (3, 1)
    assert ending.message == "rank 1 on host h1 exited with code 3; the other ranks were ended"
    assert ending.ends == {1: 3, 0: 143}


def test_ranks_that_wait_for_one_that_has_left_are_ended() -> None:
    one = Watched().started().hear((0, "note joining"), (1, "ended 0 0"))
    assert one.wait(VAIN_WAIT - STEP) is None
    assert one.wait(3 * STEP) == signal.SIGTERM
    ending = one.hear((0, "killed 15 1")).job.ending(143)
    assert (ending.code, ending.culprit) == (1, 1)
    assert "ended with code 0 before hvd.init(), and rank 0 cannot begin without it" in ending.message


def test_who_goes_on_after_a_stop_has_all_its_time_again() -> None:
    one = Watched().started().hear((0, "note joining"), (1, "stopped 19"))
    assert one.wait(STOPPED_WAIT - 1) is None
    assert one.hear((1, "continued")).wait(5) is None
    assert one.hear((1, "stopped 19")).wait(STOPPED_WAIT - 1) is None
    assert one.wait(2) == signal.SIGTERM
    assert one.job.ending(1).culprit == 1


ALONE = ((1, "note outside 1"), (0, "ended 0 0"))


@pytest.mark.parametrize("works", ["", "busy", "output", "another"])
def test_who_does_nothing_while_all_others_have_ended_is_ended(works: str) -> None:
    """Each action of the rank restarts its time limit."""
    one = Watched(exit_timeout=1.0).started().hear(*ALONE)
    for _ in range(10):
        assert one.wait(0.5) is None or works in ("", "another")
        if works == "busy":
            one.hear((1, "busy"))
        elif works == "output":
            one.job.take_work(1)
        elif works == "another":
            one.job.take_work(0)
    number = one.wait(1.5)
    assert (number == signal.SIGTERM) == (works in ("busy", "output"))
    ending = one.hear((1, "ended 1 1")).job.ending(1)
    assert (ending.code, ending.culprit) == (1, None)
    assert ending.message.startswith("rank 1 on host h1 did not end") and "--exit-timeout" in ending.message


def test_without_an_exit_timeout_nobody_is_ended() -> None:
    assert Watched().started().hear(*ALONE).wait(300) is None


def test_where_we_were_stopped_ourselves_nobody_lingers() -> None:
    one = Watched(exit_timeout=10.0).started().hear(*ALONE)
    assert one.wait(8) is None
    one.now += LONGEST_ROUND + 60
    assert one.wait(8) is None and one.wait(4) == signal.SIGTERM


def test_a_host_that_is_lost_and_a_wrapper_that_was_killed() -> None:
    lost = Watched().started().hear((1, "lost h1"), (0, "killed 15 1")).job.ending(1)
    assert (lost.code, lost.culprit) == (1, 1)
    assert lost.message.startswith("rank 1 on host h1 was lost: that host, or the network to it")
    killed = Watched().started().hear((1, "unreported 9"), (0, "killed 15 1")).job.ending(137)
    assert (killed.code, killed.culprit) == (1, 1)
    assert "horovodrun's process above it was killed by signal 9 (SIGKILL)" in killed.message


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_horovodrun_ends_the_job_by_the_same(number: signal.Signals) -> None:
    one = Watched().started()
    one.job.signalled(number)
    assert one.job.ends_by(one.now) == number and one.job.interrupt == number
    one.job.signalled(signal.SIGTERM)
    assert one.job.ends_by(one.now + 1) is None, "more are not heeded"
    ending = one.hear((0, "ended 3 1"), (1, f"killed {number.value} 1")).job.ending(1)
    assert ending == Ending(128 + number, f"stopped by {number.name}, all ranks were ended")


def test_a_signal_while_ranks_start_and_after_a_failure() -> None:
    early = Watched()
    early.job.signalled(signal.SIGINT)
    assert early.wait(STEP) == signal.SIGINT and early.wait(100) is None
    late = Watched().started().hear((1, "ended 3 0"))
    late.job.signalled(signal.SIGINT)
    assert late.job.ends_by(late.now) == signal.SIGINT
    assert late.job.ending(3).code == 130


@pytest.mark.parametrize(
    ("number", "code", "said"),
    [
        (EPIPE, 141, ""),
        (ENOSPC, 1, "x cannot be written: No space left on device (ENOSPC); all ranks were ended"),
    ],
)
def test_output_that_cannot_be_written_ends_the_job(number: int, code: int, said: str) -> None:
    one = Watched().started()
    one.job.lose_output(streams.cannot_write("x", OSError(number, "")))
    assert one.wait(STEP) == signal.SIGTERM
    assert one.hear((0, "killed 15 1"), (1, "killed 15 1")).job.ending(143) == Ending(code, said)


def test_the_machine_of_an_elastic_job_has_the_last_word() -> None:
    one = Watched(ranks=9, is_elastic=True).started().hear((0, "ended 3 0"))
    assert one.wait(10) is None, "others go on"
    one.job.end_elastic("nobody is left")
    assert one.job.ending(1) == Ending(1, "nobody is left")
    stopped = Watched(ranks=9, is_elastic=True).started()
    stopped.job.signalled(signal.SIGTERM)
    stopped.job.end_elastic("")
    assert stopped.job.ending(0).message == "stopped by SIGTERM, all ranks were ended"
