"""The judge of a failure program: complaints about its job, or none if the job behaved as it should.

A fixed job has to end in time, with the right exit code and message. The judge ignores the wording of
horovodrun's last sentence, but checks its subjects. "rank 1 on host t2 exited with code 3; the other ranks
were ended" blames rank 1. A clause about ranks that were ended blames no rank.

In an elastic job and a soak the others train on: no sample of an epoch is lost, all ranks have the same bits,
and only struck workers end. No process of a soak grows. Nothing of any job is left.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from failure_places import HOSTS, LAUNCHER, OTHER
from failure_programs import (
    HOST_SILENCE,
    LOSES_A_HOST,
    OF_A_RANK,
    PATIENCE,
    SILENT,
    TO_ITS_OUTPUT,
    TO_THE_LAUNCHER,
    Event,
    Program,
    limit_of,
)
from failure_runner import Seen
from survival import notes as judged

ALIKE = 0.1  # seconds between two events for either to count as the first
_OURS = "horovodrun: "
_CLAUSE = re.compile(r"[;.] (?=[a-z])|\. |\.$|; ")
_SUBJECT = re.compile(r"^(?:and )?ranks? (\d+(?:, \d+)*(?:,? and \d+)?)\b(.*)")
_VICTIMS = ("when told to", "were ended", "was ended")
EXIT_CODES = {
    "killed": 137,
    "segfault": 139,
    "launcher_term": 143,
    "launcher_int": 130,
    "launcher_killed": -9,
    "reader_gone": 141,
}
GRADIENT = "allreduce.0.weight"  # its name in a timeline
SAMPLES = 480  # of an epoch, as in survival/worker.py
# The growth allowed from early to late in a process's life, in worlds of one size.
SLACK = {"memory": 24 << 20, "descriptors": 4, "threads": 2, "shared": 4}
FEWEST = 6  # measurements early, and as many late, that a judgement needs


def complaints(program: Program, seen: Seen) -> list[str]:
    """Return complaints, one line each; none if all is right."""
    about = {"fixed": _about_fixed, "elastic": _about_elastic, "soak": _about_soak}
    found = about[program.kind](program, seen)
    if any(line.startswith("Traceback") for line in seen.err.splitlines()):
        found.append("horovodrun showed a traceback")
    if seen.left:
        found.append(f"it left {'; '.join(seen.left)}")
    return found


# ---- fixed ----


def last_words(err: str) -> str:
    """Return horovodrun's last sentence: the explanation of a job's end comes last."""
    own = [
        line for line in err.splitlines() if line.startswith(_OURS) and not line.startswith(f"{_OURS}warning")
    ]
    return own[-1].removeprefix(_OURS) if own else ""


def blamed(sentence: str) -> set[int]:
    """Return the ranks that are the subject of a clause, except clauses about the fate of victims."""
    found: set[int] = set()
    for clause in _CLAUSE.split(sentence):
        subject = _SUBJECT.match(clause.strip())
        if subject and not any(fate in subject[2] for fate in _VICTIMS):
            found |= {int(number) for number in re.findall(r"\d+", subject[1])}
    return found


def blamed_hosts(sentence: str) -> set[str]:
    """Return the hosts that the sentence names outside of clauses about victims."""
    clauses = [clause for clause in _CLAUSE.split(sentence) if not any(fate in clause for fate in _VICTIMS)]
    words = {word for clause in clauses for word in re.findall(r"\w+", clause)}
    return words & set(HOSTS)


def first_events(program: Program, struck: dict[int, float]) -> list[Event]:
    """Return the first event in time, or both if their order cannot be observed."""
    first = min(struck, key=lambda number: struck[number])
    until = struck[first] + (HOST_SILENCE if program.events[first].kind in SILENT else ALIKE)
    return [program.events[number] for number, when in struck.items() if when <= until]


def _about_fixed(program: Program, seen: Seen) -> list[str]:
    if not seen.struck:
        how = "had to be ended" if seen.code is None else f"ended with {seen.code}"
        after = f"{seen.trained} ranks trained, and horovodrun {how} after {seen.ended - seen.started:.0f} s"
        return [f"nothing happened to it: {after}; it has said: {last_words(seen.err)!r}"]
    first = first_events(program, seen.struck)
    limit = max(limit_of(event.kind) for event in first) + PATIENCE
    took = seen.ended - min(seen.struck.values())
    if seen.code is None or took > limit:
        return [f"it did not end within {limit:g} s of the event; it has said: {last_words(seen.err)!r}"]
    return min((_of_one(program, event, seen) for event in first), key=len)


def _of_one(program: Program, event: Event, seen: Seen) -> list[str]:
    return [*_about_code(event, seen.code or 0), *_about_words(program, event, last_words(seen.err))]


def _about_code(event: Event, code: int) -> list[str]:
    wanted = EXIT_CODES.get(event.kind, event.code)
    if wanted and code != wanted:
        return [f"its exit code is {code}, not {wanted}"]
    return [] if code else ["its exit code is 0"]


def _about_words(program: Program, event: Event, said: str) -> list[str]:
    """Check that the sentence names who is to blame, and no other."""
    ranks, hosts = blamed(said), blamed_hosts(said)
    if event.kind in ("launcher_killed", "reader_gone"):
        return [f"it blames ranks {sorted(ranks)}: {said!r}"] if ranks else []
    if not said:
        return ["it does not say why it ended"]
    if event.kind in OF_A_RANK or event.kind == "wrapper_killed":
        if ranks != {event.rank}:
            return [f"it does not name rank {event.rank}, or not only that one: {said!r}"]
        host = HOSTS[program.host_of(event.rank)]
        return [] if hosts <= {host} else [f"rank {event.rank} was on host {host}: {said!r}"]
    if event.kind in LOSES_A_HOST or event.kind == "agent_killed":
        host = OTHER if event.kind in LOSES_A_HOST else LAUNCHER
        own = program.ranks_of_last_host() if host == OTHER else range(program.hosts[0])
        is_right = hosts == {host} and ranks <= set(own)
        return [] if is_right else [f"it does not name host {host}, or not only that one: {said!r}"]
    return _about_launcher(event, said, ranks)


def _about_launcher(event: Event, said: str, ranks: set[int]) -> list[str]:
    """Judge a signal or a full disk, which no rank caused."""
    signals = {"launcher_term": "SIGTERM", "launcher_int": "SIGINT"}
    wanted = signals[event.kind] if event.kind in TO_THE_LAUNCHER else "No space left on device"
    assert event.kind in (*TO_THE_LAUNCHER, *TO_ITS_OUTPUT)
    found = [] if wanted in said else [f"it does not say {wanted}: {said!r}"]
    return found + ([f"it blames ranks {sorted(ranks)}: {said!r}"] if ranks else [])


# ---- elastic ----


def _about_training(seen: Seen, victims: set[str]) -> list[str]:
    notes = seen.notes.all()
    found = [] if seen.code == 0 else [f"exit code {seen.code}: {seen.err[-2000:]}"]
    if seen.processes:
        found.append("nothing went on: see the stacks")
    trained, ended = ({note["worker"] for note in seen.told(what)} for what in ("step", "ends"))
    lost = sorted(trained - ended - victims)
    found += [f"{worker} was struck by nobody, and did not reach the end" for worker in lost]
    if len({(note["digest"], note["step"], note["size"]) for note in seen.told("ends")}) > 1:
        found.append("those that reached the end differ")
    return found + judged.wrong_samples(notes, SAMPLES) + judged.wrong_bits(notes)


def _about_elastic(program: Program, seen: Seen) -> list[str]:
    """Judge an elastic job, also against an undisturbed job with the survivors' number of ranks."""
    first_rank = {note["worker"]: note["rank"] for note in seen.told("starts")}
    victims = {note["worker"] for note in seen.told("strikes")}
    found = _about_training(seen, victims)
    died, dead = sorted(first_rank[name] for name in victims), sorted(event.rank for event in program.events)
    if died != dead:
        found.append(f"ranks {died} died where {dead} should have")
    if len(first_rank) != program.ranks:
        found.append("survivors did not go on in their own processes")
    if None in recoveries(seen).values():
        found.append("no step was finished after the last death")
    if seen.undisturbed is None:
        return found or ["there was no job beside it"]
    here, alone = ({note["digest"] for note in one.told("ends")} for one in (seen, seen.undisturbed))
    if here != alone or seen.undisturbed.code != 0:
        how = f"{sorted(alone)} (code {seen.undisturbed.code})"
        found.append(f"undisturbed it ends with {how}, here with {sorted(here)}")
    return found + (_about_timeline(program, seen) if program.is_traced else [])


def _about_timeline(program: Program, seen: Seen) -> list[str]:
    """Check that the timeline reports each death, and that no rank reports the end of the job."""
    losses = [event for event in seen.trace if event["name"] == "LOSS"]
    told, wanted, living = [event["args"] for event in losses], [], list(range(program.ranks))
    for event in program.events:
        wanted.append(([living.index(event.rank)], len(living)))
        living.remove(event.rank)
    right = [(loss["lost_ranks"], loss["size_before"]) for loss in told if _is_whole(loss)]
    if right != wanted or told[-1]["generation"] != len(wanted) + 1:
        return [f"the timeline tells of losses {told}, not {wanted}"]
    if " E engine.cc" in seen.err or "cannot go on" in seen.err:
        return ["somebody says that all is over"]
    if _is_around(seen.trace, losses[0]["ts"], losses[-1]["ts"] + losses[-1]["dur"]):
        return []
    return ["the timeline lacks ends, or operations before the first loss or after the last"]


def _is_around(trace: Sequence[dict[str, Any]], first: float, last: float) -> bool:
    """Check that everything that began ended, and that a gradient travelled before and after the losses."""
    phases = Counter(event["ph"] for event in trace)
    rows = [e["pid"] for e in trace if e["name"] == "process_name" and e["args"]["name"] == GRADIENT]
    done = [event["ts"] for event in trace if event["ph"] == "E" and event["pid"] in rows]
    return phases["B"] == phases["E"] and min(done, default=last) < first and max(done) > last


def _is_whole(loss: dict[str, Any]) -> bool:
    """Check that a loss names its ranks and reason, and the way on unless another loss came before it."""
    goes_on = loss.get("interrupted") or (loss["size"] == loss["size_before"] - 1 and loss["commit"] > 0)
    return bool(goes_on) and f"lost rank {loss['lost_ranks'][0]} (process" in loss["why"]


def recoveries(seen: Seen) -> dict[int, float | None]:
    """Return by event the seconds to the first step of a later world; None if there is none."""
    steps = [(note["world"], note["at"]) for note in seen.told("step")]
    found: dict[int, float | None] = {}
    for number, when in seen.struck.items():
        first = min((at for world, at in steps if world > when), default=None)
        found[number] = None if first is None else first - when
    return found


# ---- soak ----


def _about_soak(program: Program, seen: Seen) -> list[str]:
    found = _about_training(seen, seen.victims)
    if missing := program.length - len(seen.happened):
        found.append(f"it ended {missing} events too early")
    for who, held in seen.held.items():
        found += leaks(who, held)
    return found + leaks_of_workers(seen.notes)


def growth(measured: Sequence[Mapping[str, int]]) -> dict[str, int]:
    """Return by how much the least of the last third exceeds the most of the first; {} of too few values."""
    third = len(measured) // 3
    if third < FEWEST:
        return {}
    first, last = measured[:third], measured[-third:]
    return {what: min(m[what] for m in last) - max(m[what] for m in first) for what in measured[0]}


def leaks(who: str, measured: Sequence[Mapping[str, int]]) -> list[str]:
    """Return complaints about what a process holds more and more of."""
    grown = growth(measured)
    return [f"{who} holds {grown[what]} more {what}" for what in grown if grown[what] > SLACK[what]]


def leaks_of_workers(notes: judged.Notes) -> list[str]:
    """Compare in worlds of one size and transport, because others need other numbers of connections."""
    found = []
    for worker, own in notes.by_worker.items():
        measured: dict[tuple[int, str], list[Mapping[str, int]]] = {}
        for note in (note for note in own if note["what"] == "epoch"):
            measured.setdefault((note["size"], note["transport"]), []).append(note["held"])
        for (size, transport), held in sorted(measured.items()):
            found += leaks(f"{worker}, in worlds of {size} by {transport},", held)
    return found
