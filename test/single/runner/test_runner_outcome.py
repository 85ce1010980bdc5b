"""The cause of a job's end, from reports of ranks, notes of their scripts, and silent hosts."""

import os

import pytest

from horovod.common import notes
from horovod.common.exceptions import Disagreement, LostRank, ShutDown, Stalled
from horovod.common.time_limits import STOPPED_WAIT
from horovod.runner.agents.outcome import ElasticOutcome, End, Outcome

SHUT_DOWN = "note follows - Horovod has been shut down: this rank or another called hvd.shutdown()"


def outcome(*reports: tuple[int, str], ranks: int = 3, without: tuple[int, ...] = ()) -> Outcome:
    """The outcome of ranks that have called hvd.init(), except those in `without`; each on its own host."""
    result = Outcome(ranks)
    for rank in range(ranks):
        result.take(rank, f"started host{rank} 100")
        if rank not in without:
            result.take(rank, "note joining")
            result.take(rank, "note joined")
    for rank, report in reports:
        result.take(rank, report)
    return result


def blamed(*reports: tuple[int, str], without: tuple[int, ...] = ()) -> tuple[int, str]:
    code, message = outcome(*reports, without=without).conclusion(0)
    begin, _, end = message.partition("; ")
    assert end == "the other ranks were ended"
    return code, begin


DONE_FIRST = "ended with code 0 before the others were done; ranks 0, 2 ended when told to. Likely causes"


@pytest.mark.parametrize(
    ("reports", "job", "code", "said"),
    [
        ([(0, "ended 0 0"), (2, "ended 0 0")], 0, 1, "rank 1 on host1 did not report how it ended; ranks 0"),
        ([(1, "ended 0 0"), (0, "killed 15 1"), (2, "killed 15 1")], 1, 1, f"rank 1 {DONE_FIRST}"),
        (
            [(1, "ended 3 0"), (0, "ended 1 0"), (2, "killed 15 1")],
            0,
            3,
            "rank 1 on host host1 exited with code 3; ",
        ),
        (
            [(0, "ended 14 0"), (2, "killed 9 0")],
            14,
            137,
            "rank 2 on host host2 was killed by signal 9 (SIGKILL); ",
        ),
        ([(0, "refused 127 no command x")], 1, 127, "rank 0 on host host0 could not run: no command x; "),
    ],
)
def test_ranks_that_write_no_notes(reports: list[tuple[int, str]], job: int, code: int, said: str) -> None:
    found, message = outcome(*reports, without=(0, 1, 2)).conclusion(job)
    assert found == code and message.startswith(said)


def test_success_is_the_word_of_every_rank() -> None:
    assert outcome((0, "ended 0 0"), (1, "ended 0 0"), (2, "ended 0 0")).conclusion(1) == (0, "")


def test_no_rank_has_begun() -> None:
    assert Outcome(2).conclusion(213) == (213, "no rank started; the reason is above")


def test_followers_come_first_and_are_not_blamed() -> None:
    followers = [(0, SHUT_DOWN), (0, "note leaving"), (0, "ended 1 0"), (2, SHUT_DOWN), (2, "ended 1 0")]
    assert blamed(*followers, (1, "ended 3 0")) == (3, "rank 1 on host host1 exited with code 3")
    assert not outcome(*followers).has_settled()
    assert outcome(*followers, (1, "ended 3 0")).has_settled()


def test_of_several_faults_the_first_is_blamed() -> None:
    assert blamed((2, "ended 7 0"), (1, "killed 9 0"), (0, SHUT_DOWN), (0, "ended 1 0"))[0] == 7
    # A rank without notes may have failed as a consequence, without evidence.
    assert outcome((2, "ended 7 0"), (1, "killed 9 0"), without=(0, 1, 2)).conclusion(0)[0] == 137


def test_what_sigbus_is_a_sign_of() -> None:
    """SIGBUS means a page too many for a file system in memory; this package's pages exist after init()."""
    code, message = blamed((1, "killed 7 0"), (0, "ended 1 0"))
    assert code == 135 and message.endswith("by signal 7 (SIGBUS, as happens when /dev/shm is full)")


def test_a_rank_that_ended_while_others_waited() -> None:
    early = "rank 1 on host host1 ended with code 0 before the others were done with it"
    followers = [(0, SHUT_DOWN), (0, "ended 1 0"), (2, SHUT_DOWN), (2, "ended 1 0")]
    assert blamed(*followers, (1, "note leaving"), (1, "killed 15 1")) == (1, early)
    assert blamed((1, "note leaving"), *followers, (1, "ended 0 0")) == (1, early)
    assert blamed((1, "ended 0 0"), (0, "killed 15 1"), (2, "killed 15 1")) == (1, early)
    told = blamed((1, "note leaving"), *followers, (1, "ended 14 1"))
    assert told == (1, early.replace(" with code 0", "")), "it had left before it was told to end"


def test_ranks_that_have_not_started_are_known() -> None:
    seen = Outcome(3)
    for rank in (2, 0):
        assert not seen.have_all_started()
        seen.take(rank, f"started host{rank} 100")
    assert not seen.have_all_started() and "1" in seen.missing_start()
    seen.take(1, "started host1 100")
    assert seen.have_all_started()


def test_a_rank_that_ended_without_init() -> None:
    job = outcome((0, "note joining"), (2, "note joining"), without=(0, 1, 2))
    assert not job.waits_in_vain()
    job.take(1, "ended 0 0")
    assert job.waits_in_vain()
    said = "ended with code 0 before hvd.init(), and ranks 0, 2 cannot begin without it"
    assert job.conclusion(0) == (1, f"rank 1 on host host1 {said}; the other ranks were ended")
    job.take(0, "stopped 19")  # while they wait, and before they get any error
    assert job.culprit() == 1
    job.lost = {"host2"}  # its agent ended before the job
    assert job.culprit() == 1
    job.lost = set()
    job.take(0, "note joined")
    job.take(2, "note joined")
    assert not job.waits_in_vain()
    job = outcome((0, "note joining"), (1, "note joining"), without=(0, 1, 2))
    job.take(1, "stopped 19")
    assert job.waits_in_vain() == STOPPED_WAIT
    job.take(1, "continued")
    assert not job.waits_in_vain()
    job.take(1, "stopped 19")
    job.is_over = True
    job.take(1, "continued")
    assert "rank 1 on host host1 was stopped by signal 19 (SIGSTOP)" in job.conclusion(0)[1]


def test_a_rank_that_left_while_another_is_in_init() -> None:
    """It had joined, so no rank waits for it in hvd.init()."""
    job = outcome((0, "note joining"), (1, "note joining"), (1, "note joined"), without=(0, 1, 2))
    job.take(1, "ended 0 0")
    said = "rank 1 on host host1 ended with code 0 before the others were done with it"
    assert not job.waits_in_vain()
    assert job.conclusion(0) == (1, f"{said}; the other ranks were ended")


def test_a_rank_that_was_stopped() -> None:
    followers = [(0, "note follows 1 Missing ranks: 1!: [x]"), (0, "ended 1 0")]
    followers += [(2, SHUT_DOWN), (2, "ended 1 0")]
    said = "rank 1 on host host1 was stopped by signal 19 (SIGSTOP), and others waited for it"
    assert blamed((1, "stopped 19"), *followers) == (1, said)
    assert blamed((1, "stopped 19"), *followers, (1, "continued"), (1, "killed 15 1")) == (1, said)
    accused = "rank 1 on host host1 did not go on (rank 0 says: Missing ranks: 1!: [x])"
    assert blamed((1, "stopped 19"), (1, "continued"), *followers) == (1, accused)
    assert blamed((0, "ended 4 0"), (1, "stopped 19"))[0] == 4
    assert blamed((1, "stopped 19"), (1, "continued"), (0, "ended 4 0"))[0] == 4


DONE = [(0, "note leaving"), (0, "note done")]  # its process may wait in MPI_Finalize()


@pytest.mark.parametrize("others", [[(0, "ended 0 0"), (2, "ended 0 0")], [*DONE, (2, "ended 0 0")]])
@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("stopped 19", "was stopped by signal 19 (SIGSTOP)"),
        ("note outside 1", "did not end after it had left the job"),
        ("note leaving", "did not end after it had left the job"),
    ],
)
def test_who_alone_keeps_the_job_from_its_end(others: list[tuple[int, str]], said: str, why: str) -> None:
    assert outcome(*others).lingering() == [], "it works"
    assert outcome((1, said), *others[:1]).lingering() == [], "another works"
    job = outcome((1, said), *others)
    assert job.lingering() == [1]
    told = job.overdue([1], 60)
    assert told.startswith(f"rank 1 on host host1 {why}") and "60 s" in told and "--exit-timeout" in told
    assert outcome((1, said), (0, "ended 1 0"), (2, "ended 0 0")).lingering() == [], "a failure ends the job"
    if said == "stopped 19":
        job.take(1, "continued")
    elif said == "note outside 1":
        job.take(1, "note inside 1")
    else:
        job.take(1, "ended 0 0")
    assert job.lingering() == ([0] if said == "note leaving" and others[0] in DONE else [])


def test_nobody_lingers_before_one_has_ended() -> None:
    assert outcome(*[(rank, "note outside 1") for rank in range(3)]).lingering() == []
    stopped = [(rank, "stopped 19") for rank in range(3)]
    assert outcome(*stopped).lingering() == []
    done = [(rank, f"note {word}") for rank in range(3) for word in ("leaving", "done")]
    assert outcome(*done).lingering() == []
    assert outcome(*done, (0, "ended 0 0")).lingering() == [1, 2], "they may wait for each other"


def test_a_worker_that_leaves_a_world_does_not_linger() -> None:
    """Only at the end of its script."""
    job = ElasticOutcome(10)
    for worker in (4, 5):
        job.take(worker, "started h 100")
        job.take(worker, "note joined")
        job.take(worker, "note outside 1")
    assert job.lingering() == []
    job.take(4, "ended 0 0")
    assert job.lingering() == []
    job.take(5, "note leaving")
    assert job.lingering() == [5] and job.overdue([5], 1).startswith("worker 5 on host h did not end")


def test_a_rank_whose_wrapper_was_killed() -> None:
    job = outcome((0, "killed 11 0"), (2, "killed 15 1"))
    assert job.conclusion(0)[0] == 139
    job.take(1, "unreported 9")
    why = "horovodrun's process above it was killed by signal 9 (SIGKILL)"
    said = f"rank 1 on host host1 did not report how it ended: {why}; the other ranks were ended"
    assert job.conclusion(0) == (1, said)


def test_a_host_that_was_lost() -> None:
    job = Outcome(3)
    for rank, host in enumerate(("near", "far", "far")):
        job.take(rank, f"started {host} 100")
    job.take(0, "killed 15 1")
    job.lost = {"far"}
    said = "ranks 1, 2 on host far were lost: that host, or the network to it, has failed"
    assert job.conclusion(0) == (1, f"{said}; the other ranks were ended")
    job.take(0, "ended 6 0")  # the first to end
    assert job.conclusion(0)[0] == 6


@pytest.mark.parametrize("report", ["", "nonsense", "ended x 0", "killed", "stopped", "took"])
def test_reports_that_no_rank_writes(report: str) -> None:
    with pytest.raises(ValueError, match=r"invalid literal|reported"):
        outcome().take(0, report)


def test_notes_go_to_the_pipe_that_was_named_and_nowhere_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notes, "_told", set())
    source, target = os.pipe()
    status = os.fstat(target)
    monkeypatch.setenv(notes.VARIABLE, f"{target}:{status.st_dev}:{status.st_ino + 1}")
    notes.tell("joining")
    monkeypatch.setenv(notes.VARIABLE, f"{target}:{status.st_dev}:{status.st_ino}")
    notes.tell("leaving")
    notes.tell("leaving")
    Disagreement("ranks disagree on the shape of 'x'", code="x", facts={"ranks": [2]})
    LostRank("rank 0 lost a rank; the job\ncannot go on", code="x", facts={"ranks": [3]})
    Stalled("some wait", code="x", facts={"ranks": [12, 1]})
    ShutDown("some rank has left", code="x")
    os.close(target)
    with open(source, encoding="utf-8") as file:
        assert file.read().splitlines() == [
            "leaving",
            "follows 3 rank 0 lost a rank; the job cannot go on",
            "follows 1,12 some wait",
            "follows - some rank has left",
        ]


def test_what_is_said_in_a_ranks_name() -> None:
    """The job writes it, as the rank cannot."""
    outcome = Outcome(3)
    for rank, host in enumerate("abb"):
        outcome.take(rank, f"started {host} {rank}")
    outcome.take(1, "lost b")
    assert outcome.conclusion(1)[1].startswith("ranks 1, 2 on host b were lost")
    killed = Outcome(2)
    for rank in (0, 1):
        killed.take(rank, f"started a {rank}")
    killed.take(1, "unreported 9")
    assert "rank 1 on host a did not report how it ended: " in killed.conclusion(1)[1]
    early = Outcome(2)
    early.take(1, "lost c")
    assert early.conclusion(1) == (1, "host c was lost before its ranks began; all ranks were ended")
    for wrong in ("lost", "lost ", "unreported", "unreported x", "unreported 900"):
        with pytest.raises(ValueError):
            killed.take(0, wrong)


def test_a_wrappers_code_stands_for_the_signal_that_ended_its_script() -> None:
    assert End(code=137).passed_on() == "was killed by signal 9 (SIGKILL)"
    for own in (End(code=1), End(code=128), End(code=255), End(signal_number=11)):
        assert own.passed_on() == str(own)
