"""The fault programs' generator and judge: what is drawn; each way to be wrong is found, and only that."""

from __future__ import annotations

from dataclasses import replace

import fault_programs
import pytest
from fault_judge import blamed, blamed_hosts, complaints, first_faults, last_words
from fault_programs import KINDS, OF_A_RANK, STALL_SHUTDOWN, Fault, Program, program_of
from fault_runs import Observation
from run_faults import remembered, seeds_in

MANY = 600
ALONE = Program(0, (3,), (10,), "", 0, 0, 0, ())
TWO_HOSTS = replace(ALONE, hosts=(1, 2))


def test_a_seed_is_one_program() -> None:
    assert [program_of(seed) for seed in range(50)] == [program_of(seed) for seed in range(50)]


def test_each_block_of_seeds_has_every_kind() -> None:
    for block in range(MANY // len(KINDS)):
        seeds = range(block * len(KINDS), (block + 1) * len(KINDS))
        assert sorted(program_of(seed).faults[0].kind for seed in seeds) == sorted(KINDS)


def test_what_is_drawn_can_happen() -> None:
    programs = [program_of(seed) for seed in range(MANY)]
    assert {program.ranks for program in programs} == {2, 3, 4}
    assert {len(program.hosts) for program in programs} == {1, 2}
    assert {fault.moment.phase for p in programs for fault in p.faults} == {
        "starting",
        "training",
        "step",
        "inside",
    }
    assert any(len(program.faults) == 2 for program in programs)
    for program in programs:
        first, *second = program.faults
        assert first.rank in range(program.ranks) if first.kind in OF_A_RANK else first.code == 0
        assert len(program.hosts) == 2 or first.kind not in fault_programs.LOSES_A_HOST
        assert max(program.sizes) >= fault_programs.LARGE // 2
        if first.moment.phase == "inside":
            assert program.sizes[first.moment.step % len(program.sizes)] == max(program.sizes)
        for fault in second:
            lost = program.ranks_of_last_host() if first.kind in fault_programs.TO_A_HOST else (first.rank,)
            assert fault.rank in set(range(program.ranks)) - set(lost)
            assert fault.kind in fault_programs.AT_ANY_INSTANT and fault.gap >= fault_programs.SHORTEST_GAP


@pytest.mark.parametrize(
    ("sentence", "ranks", "hosts"),
    [
        ("rank 1 on host f2 exited with code 3; the other ranks were ended", {1}, {"f2"}),
        (
            "ranks 0, 1, 2 on f1, f2 did not report how it ended; mpirun exited with code 0",
            {0, 1, 2},
            {"f1", "f2"},
        ),
        (
            "rank 2 on f1 did not report how it ended; ranks 0, 1 ended when told to. Likely causes: a",
            {2},
            {"f1"},
        ),
        ("rank 0 ended with code 0 before the others were done; rank 1 on f2 was killed", {0, 1}, {"f2"}),
        ("ranks 1 and 2 on host f2 were lost with it; ranks 0 on f1 were ended", {1, 2}, {"f2"}),
        ("stopped by SIGTERM, all ranks were ended", set(), set()),
        ("rank 12 was stopped, which rank 0 noticed after 4 s.", {12}, set()),
        ("host f2 was lost", set(), {"f2"}),
    ],
)
def test_whom_a_sentence_blames(sentence: str, ranks: set[int], hosts: set[str]) -> None:
    assert (blamed(sentence), blamed_hosts(sentence)) == (ranks, hosts)


def test_the_last_words_are_horovodruns_own() -> None:
    err = "horovodrun: warning: x\n[1]<stderr>:horovodrun: fake\nhorovodrun: rank 1\nmpirun: y\n"
    err += "horovodrun: warning: z\n"
    assert last_words(err) == "rank 1"
    assert last_words("[0]<stderr>:oh\n") == ""


def seen_of(said: str, code: int | None, after: float = 1.0, **more: object) -> Observation:
    """The first fault struck at 100 s, and horovodrun ended `after` seconds later."""
    err = f"horovodrun: {said}\n" if said else ""
    return replace(
        Observation(code=code, err=err, struck={0: 100.0}, started=90.0, ended=100.0 + after), **more
    )


def told(program: Program, seen: Observation, *faults: Fault) -> list[str]:
    return complaints(replace(program, faults=faults), seen)


EXIT = Fault("sys_exit", 1, 3)
RIGHT = "rank 1 on host f1 exited with code 3; the other ranks were ended"


def test_what_is_right_is_right() -> None:
    assert told(ALONE, seen_of(RIGHT, 3), EXIT) == []
    assert told(ALONE, seen_of("rank 0 on host f1 was stopped by a signal", 1, 33), Fault("stopped", 0)) == []
    assert told(ALONE, seen_of("stopped by SIGTERM, all ranks were ended", 143), Fault("launcher_term")) == []
    assert told(ALONE, seen_of("", 141), Fault("reader_gone")) == []
    assert told(ALONE, seen_of("", -9), Fault("launcher_killed")) == []
    assert told(ALONE, seen_of("cannot write: No space left on device", 1), Fault("stdout_disk_full")) == []
    lost = "host f2 was lost with ranks 1, 2; rank 0 on f1 ended when told to"
    assert told(TWO_HOSTS, seen_of(lost, 1, 34), Fault("host_cut")) == []
    everybody = "ranks 0, 1, 2 on f1 did not report how it ended; mpirun was killed by signal 9"
    assert told(ALONE, seen_of(everybody, 1), Fault("mpirun_killed")) == []


@pytest.mark.parametrize(
    ("program", "fault", "said", "code", "wrong"),
    [
        (ALONE, EXIT, RIGHT, 1, "exit code is 1, not 3"),
        (ALONE, EXIT, RIGHT.replace("rank 1", "rank 2"), 3, "does not name rank 1"),
        (ALONE, EXIT, RIGHT.replace("rank 1", "ranks 1, 2"), 3, "does not name rank 1"),
        (ALONE, EXIT, "mpirun exited with code 3", 3, "does not name rank 1"),
        (ALONE, EXIT, "", 3, "does not say why"),
        (ALONE, Fault("killed", 1), RIGHT, 1, "exit code is 1, not 137"),
        (ALONE, Fault("os_exit_0", 1), RIGHT, 0, "exit code is 0"),
        (TWO_HOSTS, EXIT, RIGHT, 3, "was on host f2"),
        (ALONE, Fault("launcher_int"), "stopped by SIGTERM", 130, "does not say SIGINT"),
        (ALONE, Fault("launcher_term"), f"{RIGHT}. SIGTERM", 143, "blames ranks [1]"),
        (ALONE, Fault("reader_gone"), RIGHT, 141, "blames ranks [1]"),
        (ALONE, Fault("files_disk_full"), "mpirun exited", 1, "does not say No space left"),
        (ALONE, Fault("mpirun_killed"), RIGHT, 1, "does not name mpirun"),
        (
            TWO_HOSTS,
            Fault("host_killed"),
            "ranks 0, 1, 2 on f1, f2 did not report",
            1,
            "does not name host f2",
        ),
        (TWO_HOSTS, Fault("ssh_killed"), "rank 0 on host f1 exited with code 1", 1, "does not name host f2"),
        (TWO_HOSTS, Fault("host_cut"), "host f2 was lost. rank 0 failed", 1, "does not name host f2"),
    ],
)
def test_what_is_wrong_is_found(program: Program, fault: Fault, said: str, code: int, wrong: str) -> None:
    found = told(program, seen_of(said, code), fault)
    assert len(found) == 1 and wrong in found[0]


def test_it_has_thirty_seconds_from_the_limit_on() -> None:
    assert "did not end within 30 s" in told(ALONE, seen_of(RIGHT, 3, 30.5), EXIT)[0]
    stop, said = Fault("stopped", 1), "rank 1 on host f1 was stopped"
    assert told(ALONE, seen_of(said, 1, 30 + STALL_SHUTDOWN - 0.5), stop) == []
    assert "did not end" in told(ALONE, seen_of(said, 1, 30 + STALL_SHUTDOWN + 0.5), stop)[0]
    assert "did not end" in told(ALONE, seen_of("", None, 34), stop)[0]


def test_of_two_faults_the_first_in_time_counts() -> None:
    second = Fault("killed", 2, gap=0.5)
    later, alike = {0: 100.0, 1: 100.5}, {0: 100.0, 1: 100.05}
    its = seen_of("rank 2 on host f1 was killed by signal 9 (SIGKILL)", 137, struck=later)
    assert len(told(ALONE, its, EXIT, second)) == 2  # the code, and the rank
    assert told(ALONE, replace(its, struck=alike), EXIT, second) == []
    assert told(ALONE, seen_of(RIGHT, 3, struck=later), EXIT, second) == []
    assert first_faults(replace(ALONE, faults=(EXIT, second)), {1: 99.0, 0: 100.0}) == [second]


def test_a_silent_host_may_be_told_after_what_happens_next() -> None:
    """Its connections are open: for some seconds nobody can know, and the other fault is all there is."""
    second = Fault("killed", 0, gap=0.5)
    its = seen_of("rank 0 on host f1 was killed by signal 9 (SIGKILL)", 137, struck={0: 100.0, 1: 101.0})
    assert told(TWO_HOSTS, its, Fault("host_cut"), second) == []
    assert "does not name host f2" in told(TWO_HOSTS, its, Fault("host_killed"), second)[0]
    late = replace(its, struck={0: 100.0, 1: 106.0}, ended=107.0)
    assert "does not name host f2" in told(TWO_HOSTS, late, Fault("host_cut"), second)[0]


def test_what_is_left_is_found() -> None:
    assert told(ALONE, seen_of(RIGHT, 3, left=["f1: /dev/shm/x"]), EXIT) == ["it left f1: /dev/shm/x"]


def test_a_traceback_of_horovodruns_own_is_found() -> None:
    traceback = "Traceback (most recent call last):\n"
    seen = seen_of(RIGHT, 3)
    assert told(ALONE, replace(seen, err=f"[1]<stderr>:{traceback}{seen.err}"), EXIT) == []
    assert told(ALONE, replace(seen, err=f"{traceback}{seen.err}"), EXIT) == ["horovodrun showed a traceback"]


def test_a_fault_that_did_not_happen_is_no_success() -> None:
    assert "no fault happened" in told(ALONE, seen_of("", 0, struck={}), EXIT)[0]


def test_seeds_and_results_are_read(tmp_path) -> None:
    assert seeds_in("3,7,10-12") == [3, 7, 10, 11, 12]
    assert remembered(tmp_path / "none") == []
    file = tmp_path / "results"
    file.write_text('{"seed": 4}\n{"seed": 5, "faul')  # the run was ended while it wrote
    assert remembered(file) == [{"seed": 4}]
