"""The generator and the judge of failures: the programs drawn; the judge finds each fault, and no other."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import failure_programs
import pytest
from failure_judge import (
    GRADIENT,
    blamed,
    blamed_hosts,
    complaints,
    first_events,
    last_words,
    leaks,
    recoveries,
)
from failure_programs import (
    COMMIT_EVERY,
    DEATHS,
    KINDS,
    OF_A_RANK,
    POINTS,
    STALL_SHUTDOWN,
    WEIGHTS,
    WORKERS,
    Course,
    Event,
    Moment,
    Program,
    elastic_program,
    fixed_program,
    soak_program,
)
from failure_runner import Seen
from run_failures import remembered, seeds_in
from survival import notes
from survival.notes import Notes

MANY = 600
ALONE = Program("fixed", 0, (3,))
TWO_HOSTS = replace(ALONE, hosts=(1, 2))


@pytest.mark.parametrize("draw", [fixed_program, elastic_program])
def test_a_seed_is_one_program(draw: Any) -> None:
    assert [draw(seed) for seed in range(50)] == [draw(seed) for seed in range(50)]


def test_each_block_of_seeds_has_every_kind() -> None:
    for block in range(MANY // len(KINDS)):
        seeds = range(block * len(KINDS), (block + 1) * len(KINDS))
        assert sorted(fixed_program(seed).events[0].kind for seed in seeds) == sorted(KINDS)


def test_what_is_drawn_can_happen() -> None:
    programs = [fixed_program(seed) for seed in range(MANY)]
    assert {program.ranks for program in programs} == {2, 3, 4}
    assert {len(program.hosts) for program in programs} == {1, 2}
    assert {event.moment.phase for p in programs for event in p.events} == {
        "starting",
        "training",
        "step",
        "inside",
    }
    assert any(len(program.events) == 2 for program in programs)
    for program in programs:
        first, *second = program.events
        assert first.rank in range(program.ranks) if first.kind in OF_A_RANK else first.code == 0
        assert len(program.hosts) == 2 or first.kind not in failure_programs.LOSES_A_HOST
        assert max(program.sizes) >= failure_programs.LARGE // 2
        if first.moment.phase == "inside":
            assert program.sizes[first.moment.step % len(program.sizes)] == max(program.sizes)
        for event in second:
            lost = program.ranks_of_last_host() if first.kind in failure_programs.TO_A_HOST else (first.rank,)
            assert event.rank in set(range(program.ranks)) - set(lost)
            assert (
                event.kind in failure_programs.AT_ANY_INSTANT and event.gap >= failure_programs.SHORTEST_GAP
            )


@pytest.mark.parametrize(
    ("sentence", "ranks", "hosts"),
    [
        ("rank 1 on host t2 exited with code 3; the other ranks were ended", {1}, {"t2"}),
        (
            "ranks 0, 1, 2 on t1, t2 did not report how it ended; the job failed",
            {0, 1, 2},
            {"t1", "t2"},
        ),
        (
            "rank 2 on t1 did not report how it ended; ranks 0, 1 ended when told to. Likely causes: a",
            {2},
            {"t1"},
        ),
        ("rank 0 ended with code 0 before the others were done; rank 1 on t2 was killed", {0, 1}, {"t2"}),
        ("ranks 1 and 2 on host t2 were lost with it; ranks 0 on t1 were ended", {1, 2}, {"t2"}),
        ("stopped by SIGTERM, all ranks were ended", set(), set()),
        ("rank 12 was stopped, which rank 0 noticed after 4 s.", {12}, set()),
        ("host t2 was lost", set(), {"t2"}),
    ],
)
def test_whom_a_sentence_blames(sentence: str, ranks: set[int], hosts: set[str]) -> None:
    assert (blamed(sentence), blamed_hosts(sentence)) == (ranks, hosts)


def test_the_last_words_are_horovodruns_own() -> None:
    err = "horovodrun: warning: x\n[1]<stderr>:horovodrun: fake\nhorovodrun: rank 1\nmpirun: y\n"
    err += "horovodrun: warning: z\n"
    assert last_words(err) == "rank 1"
    assert last_words("[0]<stderr>:oh\n") == ""


def seen_of(said: str, code: int | None, after: float = 1.0, **more: object) -> Seen:
    """Observations: the first event struck at 100 s, and horovodrun ended `after` seconds later."""
    err = f"horovodrun: {said}\n" if said else ""
    return replace(Seen(code=code, err=err, struck={0: 100.0}, started=90.0, ended=100.0 + after), **more)


def told(program: Program, seen: Seen, *events: Event) -> list[str]:
    return complaints(replace(program, events=events), seen)


EXIT = Event("sys_exit", 1, 3)
RIGHT = "rank 1 on host t1 exited with code 3; the other ranks were ended"


def test_what_is_right_is_right() -> None:
    assert told(ALONE, seen_of(RIGHT, 3), EXIT) == []
    assert told(ALONE, seen_of("rank 0 on host t1 was stopped by a signal", 1, 33), Event("stopped", 0)) == []
    assert told(ALONE, seen_of("stopped by SIGTERM, all ranks were ended", 143), Event("launcher_term")) == []
    assert told(ALONE, seen_of("", 141), Event("reader_gone")) == []
    assert told(ALONE, seen_of("", -9), Event("launcher_killed")) == []
    assert told(ALONE, seen_of("cannot write: No space left on device", 1), Event("stdout_disk_full")) == []
    lost = "host t2 was lost with ranks 1, 2; rank 0 on t1 ended when told to"
    assert told(TWO_HOSTS, seen_of(lost, 1, 39), Event("host_cut")) == []
    everybody = "ranks 0, 1, 2 on host t1 were lost: that host, or the network to it, has failed"
    assert told(ALONE, seen_of(everybody, 1), Event("agent_killed")) == []


@pytest.mark.parametrize(
    ("program", "event", "said", "code", "wrong"),
    [
        (ALONE, EXIT, RIGHT, 1, "exit code is 1, not 3"),
        (ALONE, EXIT, RIGHT.replace("rank 1", "rank 2"), 3, "does not name rank 1"),
        (ALONE, EXIT, RIGHT.replace("rank 1", "ranks 1, 2"), 3, "does not name rank 1"),
        (ALONE, EXIT, "the job exited with code 3", 3, "does not name rank 1"),
        (ALONE, EXIT, "", 3, "does not say why"),
        (ALONE, Event("killed", 1), RIGHT, 1, "exit code is 1, not 137"),
        (ALONE, Event("os_exit_0", 1), RIGHT, 0, "exit code is 0"),
        (TWO_HOSTS, EXIT, RIGHT, 3, "was on host t2"),
        (ALONE, Event("launcher_int"), "stopped by SIGTERM", 130, "does not say SIGINT"),
        (ALONE, Event("launcher_term"), f"{RIGHT}. SIGTERM", 143, "blames ranks [1]"),
        (ALONE, Event("reader_gone"), RIGHT, 141, "blames ranks [1]"),
        (ALONE, Event("files_disk_full"), "all ranks were ended", 1, "does not say No space left"),
        (TWO_HOSTS, Event("agent_killed"), "ranks 1, 2 on host t2 were lost", 1, "does not name host t1"),
        (
            TWO_HOSTS,
            Event("host_killed"),
            "ranks 0, 1, 2 on t1, t2 did not report",
            1,
            "does not name host t2",
        ),
        (TWO_HOSTS, Event("ssh_killed"), "rank 0 on host t1 exited with code 1", 1, "does not name host t2"),
        (TWO_HOSTS, Event("host_cut"), "host t2 was lost. rank 0 failed", 1, "does not name host t2"),
    ],
)
def test_what_is_wrong_is_found(program: Program, event: Event, said: str, code: int, wrong: str) -> None:
    found = told(program, seen_of(said, code), event)
    assert len(found) == 1 and wrong in found[0]


def test_it_has_thirty_seconds_from_the_limit_on() -> None:
    assert "did not end within 30 s" in told(ALONE, seen_of(RIGHT, 3, 30.5), EXIT)[0]
    stop, said = Event("stopped", 1), "rank 1 on host t1 was stopped"
    assert told(ALONE, seen_of(said, 1, 30 + STALL_SHUTDOWN - 0.5), stop) == []
    assert "did not end" in told(ALONE, seen_of(said, 1, 30 + STALL_SHUTDOWN + 0.5), stop)[0]
    assert "did not end" in told(ALONE, seen_of("", None, 34), stop)[0]


def test_of_two_events_the_first_in_time_counts() -> None:
    second = Event("killed", 2, gap=0.5)
    later, alike = {0: 100.0, 1: 100.5}, {0: 100.0, 1: 100.05}
    its = seen_of("rank 2 on host t1 was killed by signal 9 (SIGKILL)", 137, struck=later)
    assert len(told(ALONE, its, EXIT, second)) == 2  # the code, and the rank
    assert told(ALONE, replace(its, struck=alike), EXIT, second) == []
    assert told(ALONE, seen_of(RIGHT, 3, struck=later), EXIT, second) == []
    assert first_events(replace(ALONE, events=(EXIT, second)), {1: 99.0, 0: 100.0}) == [second]


def test_a_silent_host_may_be_told_after_what_happens_next() -> None:
    """A host that is cut off goes unnoticed for some seconds; the other event may be reported first."""
    second = Event("killed", 0, gap=0.5)
    its = seen_of("rank 0 on host t1 was killed by signal 9 (SIGKILL)", 137, struck={0: 100.0, 1: 101.0})
    assert told(TWO_HOSTS, its, Event("host_cut"), second) == []
    assert "does not name host t2" in told(TWO_HOSTS, its, Event("host_killed"), second)[0]
    late = replace(its, struck={0: 100.0, 1: 111.0}, ended=112.0)
    assert "does not name host t2" in told(TWO_HOSTS, late, Event("host_cut"), second)[0]


def test_what_is_left_is_found() -> None:
    assert told(ALONE, seen_of(RIGHT, 3, left=["t1: /dev/shm/x"]), EXIT) == ["it left t1: /dev/shm/x"]


def test_a_traceback_of_horovodruns_own_is_found() -> None:
    traceback = "Traceback (most recent call last):\n"
    seen = seen_of(RIGHT, 3)
    assert told(ALONE, replace(seen, err=f"[1]<stderr>:{traceback}{seen.err}"), EXIT) == []
    assert told(ALONE, replace(seen, err=f"{traceback}{seen.err}"), EXIT) == ["horovodrun showed a traceback"]


def test_an_event_that_did_not_happen_is_no_success() -> None:
    assert "nothing happened to it" in told(ALONE, seen_of("", 0, struck={}), EXIT)[0]


def test_seeds_and_results_are_read(tmp_path) -> None:
    assert seeds_in("3,7,10-12") == [3, 7, 10, 11, 12]
    assert remembered(tmp_path / "none") == []
    file = tmp_path / "results"
    file.write_text('{"seed": 4}\n{"seed": 5, "even')  # the run was interrupted in a write
    assert remembered(file) == [{"seed": 4}]


# ---- elastic ----


@pytest.mark.parametrize("pair", range(50))
def test_two_seeds_have_each_death_and_each_rank(pair: int) -> None:
    both = [elastic_program(seed).events for seed in (2 * pair, 2 * pair + 1)]
    assert sorted(event.moment.phase for events in both for event in events) == sorted(POINTS)
    assert {event.rank for events in both for event in events} == set(range(WORKERS))
    for first, *others in both:
        assert first.moment.phase != "reset" and first.moment.step > 3
        assert len({event.rank for event in (first, *others)}) == DEATHS
        last = first.moment.step
        for moment in (event.moment for event in others):
            if moment.phase == "reset":  # that of the previous death, and no earlier one
                assert moment.step == last - COMMIT_EVERY
            else:
                assert moment.step > last + COMMIT_EVERY + 2  # a commit may be two steps late
                last = moment.step


def steps(world: float, step: int, size: int, samples: list[list[int]], **more: Any) -> list[dict[str, Any]]:
    """Return the ranks' notes of a step: each "tries", and the first has finished it."""
    place = {"world": world, "step": step, "size": size, "epoch": 0, "at": world + step, **more}
    tries = [{"what": "tries", "samples": own, **place} for own in samples]
    return [*tries, {"what": "step", **place}]


END = [{"what": "epoch", "epoch": 0, "world": 2.0, "digest": "a", "at": 9.0}]
DEATH = Program("elastic", 0, (1, 1), (Event("killed", 1, moment=Moment("step", step=2)),))
TRACED = replace(DEATH, is_traced=True)


def noted(**by_worker: list[dict[str, Any]]) -> Notes:
    found = Notes(Path("/nonexistent"))
    found.by_worker = {
        worker: [{"worker": worker, **note} for note in own] for worker, own in by_worker.items()
    }
    return found


def one_dies(digest: str = "d", **more: Any) -> Seen:
    """Rank 1 of 2 dies at 13 s, and the other has its own world from 14 s on."""
    ends = {"what": "ends", "at": 30.0, "digest": digest, "step": 3, "size": 1}
    begins = [{"what": "starts", "rank": rank, "at": 1.0} for rank in (0, 1)]
    dies = {"what": "strikes", "number": 0, "at": 13.0}
    first = [begins[0], *steps(11.0, 1, 2, [[0]]), *steps(14.0, 2, 1, [[1]]), ends]
    alone = Seen(code=0, notes=noted(again=[{**ends, "digest": "d"}]))
    seen = Seen(
        code=0, struck={0: 13.0}, undisturbed=alone, notes=noted(first=first, second=[begins[1], dies])
    )
    return replace(seen, **more)


def test_survivors_of_a_death() -> None:
    assert complaints(DEATH, one_dies()) == []
    assert recoveries(one_dies()) == {0: 3.0}
    other = replace(DEATH, events=(replace(DEATH.events[0], rank=0),))
    assert complaints(other, one_dies()) == ["ranks [1] died where [0] should have"]
    assert "undisturbed it ends with ['d'] (code 0), here with ['e']" in complaints(DEATH, one_dies("e"))
    [wrong] = complaints(DEATH, one_dies(code=1, err="it failed"))
    assert wrong == "exit code 1: it failed"
    assert complaints(DEATH, one_dies(undisturbed=None)) == ["there was no job beside it"]
    assert complaints(DEATH, one_dies(left=["process 7"])) == ["it left process 7"]
    late = one_dies(struck={0: 20.0})
    assert complaints(DEATH, late) == ["no step was finished after the last death"]
    assert "nothing went on: see the stacks" in complaints(DEATH, one_dies(processes=["process 7"]))


def traced(lost: list[int], why: str = "rank 0 lost rank 1 (process 7 has ended)", **told: Any) -> list[Any]:
    """Return a timeline: a gradient, the loss, and the gradient again."""
    loss = {"lost_ranks": lost, "why": why, "size_before": 2, "size": 1, "commit": 3, "generation": 2, **told}
    name = {"ph": "M", "name": "process_name", "pid": 5, "args": {"name": GRADIENT}}
    operations = [{"ph": phase, "name": "x", "pid": 5, "ts": at} for at in (1, 50) for phase in "BE"]
    return [name, *operations, {"ph": "X", "name": "LOSS", "pid": 0, "ts": 10, "dur": 20, "args": loss}]


def test_the_timeline_tells_of_deaths() -> None:
    assert complaints(TRACED, one_dies(trace=traced([1]))) == []
    wrong = [traced([0]), traced([1], "it left"), traced([1], size=2), traced([1], commit=0)]
    wrong += [traced([1], generation=1), traced([1])[:-1]]
    for trace in wrong:
        assert "the timeline tells of losses" in complaints(TRACED, one_dies(trace=trace))[0]
    never_ended, lost_early, begun_late = traced([1])[:4] + traced([1])[5:], traced([1]), traced([1])
    lost_early[-1]["ts"], begun_late[-1]["ts"] = 0, 40
    for trace in (never_ended, lost_early, begun_late):
        assert "operations before" in complaints(TRACED, one_dies(trace=trace))[0]
    over = one_dies(trace=traced([1]), err="horovod[0] E engine.cc: it is over\n")
    assert complaints(TRACED, over) == ["somebody says that all is over"]


def test_those_who_are_missing_differ_or_were_replaced_are_named() -> None:
    seen = one_dies()
    *most, ends = seen.notes.by_worker["first"]
    seen.notes.by_worker["first"] = most
    assert "first was struck by nobody, and did not reach the end" in complaints(DEATH, seen)
    seen.notes.by_worker["third"] = [{**ends, "worker": "third", "what": "starts", "rank": 1}]
    seen.notes.by_worker["first"] = [*most, ends, {**ends, "digest": "e"}]
    found = complaints(DEATH, seen)
    assert "survivors did not go on in their own processes" in found
    assert "those that reached the end differ" in found


# ---- soak ----


def test_a_soak_draws_each_kind_that_can_happen() -> None:
    course, again = (Course(soak_program(3, 200, 100.0)) for _ in range(2))
    targets = {kind: ["somebody"] for kind in WEIGHTS}
    drawn = [course.event(targets)[0] for _ in range(200)]
    assert set(drawn) == set(WEIGHTS) and drawn == [again.event(targets)[0] for _ in range(200)]
    assert course.event({kind: ["t2"] * (kind == "cut") for kind in WEIGHTS}) == ("cut", "t2")
    pauses = [course.pause() for _ in range(500)]
    assert 0.3 < sum(pauses) / 500 < 0.7 and max(pauses) <= 1.5
    assert 0.3 < sum(course.is_patient() for _ in range(500)) / 500 < 0.7


def test_a_soak_of_which_something_is_wrong() -> None:
    soak = soak_program(1, 2, 10.0)
    seen = Seen(code=0, happened=["1.0 kill first", "2.0 add t3"], victims={"second"}, notes=one_dies().notes)
    assert complaints(soak, seen) == []
    assert complaints(soak, replace(seen, happened=["1.0 kill first"])) == ["it ended 1 events too early"]
    held = [{"descriptors": number} for number in range(30)]
    assert complaints(soak, replace(seen, held={"horovodrun": held})) == [
        "horovodrun holds 11 more descriptors"
    ]
    ends = {"what": "epoch", "size": 2, "at": 9.0, "epoch": 9, "world": 1.0, "digest": "a"}
    before = list(seen.notes.by_worker["second"])
    seen.notes.by_worker["second"] = [*before, *({**ends, "transport": "tcp", "held": one} for one in held)]
    assert complaints(soak, seen) == ["second, in worlds of 2 by tcp, holds 11 more descriptors"]
    fewer, more = ({"transport": how, "held": {"descriptors": n}} for how, n in (("memory", 7), ("tcp", 15)))
    seen.notes.by_worker["second"] = [*before, *({**ends, **which} for which in [fewer] * 15 + [more] * 15)]
    assert complaints(soak, seen) == []


def test_what_was_rolled_back_does_not_count() -> None:
    again = steps(2.0, 2, 1, [[2, 3]]) + END
    whole = steps(1.0, 1, 2, [[0], [1]]) + steps(1.0, 2, 2, [[2], [3]]) + again
    assert notes.wrong_samples(whole, 4) == []
    lost = steps(1.0, 1, 2, [[0], [1]]) + steps(1.0, 2, 2, [[2], [3]]) + steps(2.0, 2, 1, [[2]]) + END
    assert notes.wrong_samples(lost, 4) == ["epoch 0 lost 1 samples"]
    (twice,) = notes.wrong_samples(whole + steps(2.0, 3, 1, [[0, 1]]), 4)
    assert twice.startswith("epoch 0 did 2 samples again")


def test_ranks_that_differ_and_processes_that_grow_are_named() -> None:
    assert notes.wrong_bits([*END, *END]) == []
    assert notes.wrong_bits([*END, {**END[0], "digest": "b"}]) == ["at the end of epoch 0 ranks differ"]
    steady = [
        {"memory": 100 << 20, "descriptors": 30 + number % 3, "threads": 5, "shared": 2}
        for number in range(30)
    ]
    assert leaks("it", steady) == []
    growing = [{**held, "descriptors": 30 + number} for number, held in enumerate(steady)]
    assert leaks("it", growing) == ["it holds 11 more descriptors"]
