"""What is wrong with what was seen of a fault program: nothing, if it ended in time, said why, left nothing.

Wording is not judged, but subjects are: of whom horovodrun's last sentence says something. "rank 1 on host f2
exited with code 3; the other ranks were ended" blames rank 1; a clause that says of ranks that they ended
when told to blames nobody.
"""

from __future__ import annotations

import re

from fault_hosts import HOSTS, OTHER
from fault_programs import (
    HOST_SILENCE,
    LOSES_A_HOST,
    OF_A_RANK,
    PATIENCE,
    SILENT,
    TO_ITS_OUTPUT,
    TO_THE_LAUNCHER,
    Fault,
    Program,
    limit_of,
)
from fault_runs import Observation

ALIKE = 0.1  # seconds: of faults this close to each other either is the first
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


def last_words(err: str) -> str:
    """horovodrun's last sentence: the end of a job is explained last of all."""
    own = [
        line for line in err.splitlines() if line.startswith(_OURS) and not line.startswith(f"{_OURS}warning")
    ]
    return own[-1].removeprefix(_OURS) if own else ""


def blamed(sentence: str) -> set[int]:
    """The ranks of which a clause of it says something that is no victim's fate."""
    found: set[int] = set()
    for clause in _CLAUSE.split(sentence):
        subject = _SUBJECT.match(clause.strip())
        if subject and not any(fate in subject[2] for fate in _VICTIMS):
            found |= {int(number) for number in re.findall(r"\d+", subject[1])}
    return found


def blamed_hosts(sentence: str) -> set[str]:
    """The hosts that it names outside of clauses about victims."""
    clauses = [clause for clause in _CLAUSE.split(sentence) if not any(fate in clause for fate in _VICTIMS)]
    words = {word for clause in clauses for word in re.findall(r"\w+", clause)}
    return words & set(HOSTS)


def first_faults(program: Program, struck: dict[int, float]) -> list[Fault]:
    """The first fault in time; both, where nobody can say which it was."""
    first = min(struck, key=lambda number: struck[number])
    until = struck[first] + (HOST_SILENCE if program.faults[first].kind in SILENT else ALIKE)
    return [program.faults[number] for number, when in struck.items() if when <= until]


def complaints(program: Program, seen: Observation) -> list[str]:
    """One line each; none: as it should be."""
    if not seen.struck:
        how = "had to be ended" if seen.code is None else f"ended with {seen.code}"
        after = f"{seen.trained} ranks trained, and horovodrun {how} after {seen.ended - seen.started:.0f} s"
        return [f"no fault happened: {after}; it has said: {last_words(seen.err)!r}"]
    first = first_faults(program, seen.struck)
    limit = max(limit_of(fault.kind) for fault in first) + PATIENCE
    took = seen.ended - min(seen.struck.values())
    if seen.code is None or took > limit:
        return [f"it did not end within {limit:g} s of the fault; it has said: {last_words(seen.err)!r}"]
    answers = [_of_one(program, fault, seen) for fault in first]
    found = min(answers, key=len)
    if any(line.startswith("Traceback") for line in seen.err.splitlines()):
        found.append("horovodrun showed a traceback")
    if seen.left:
        found.append(f"it left {'; '.join(seen.left)}")
    return found


def _of_one(program: Program, fault: Fault, seen: Observation) -> list[str]:
    """As if that fault was the only one."""
    said = last_words(seen.err)
    return [*_about_code(fault, seen.code or 0), *_about_words(program, fault, said)]


def _about_code(fault: Fault, code: int) -> list[str]:
    wanted = EXIT_CODES.get(fault.kind, fault.code)
    if wanted and code != wanted:
        return [f"its exit code is {code}, not {wanted}"]
    return [] if code else ["its exit code is 0"]


def _about_words(program: Program, fault: Fault, said: str) -> list[str]:
    """Whether it names who is to blame, and only them."""
    ranks, hosts = blamed(said), blamed_hosts(said)
    everybody = set(range(program.ranks))
    if fault.kind in ("launcher_killed", "reader_gone"):
        return [f"it blames ranks {sorted(ranks)}: {said!r}"] if ranks else []
    if not said:
        return ["it does not say why it ended"]
    if fault.kind in OF_A_RANK or fault.kind == "wrapper_killed":
        if ranks != {fault.rank}:
            return [f"it does not name rank {fault.rank}, or not only that one: {said!r}"]
        host = HOSTS[program.host_of(fault.rank)]
        return [] if hosts <= {host} else [f"rank {fault.rank} was on host {host}: {said!r}"]
    if fault.kind in LOSES_A_HOST:
        is_right = hosts == {OTHER} and ranks <= set(program.ranks_of_last_host())
        return [] if is_right else [f"it does not name host {OTHER}, or not only that one: {said!r}"]
    if fault.kind == "mpirun_killed":
        is_right = "mpirun" in said and ranks in (set(), everybody)
        return [] if is_right else [f"it does not name mpirun, or blames ranks: {said!r}"]
    return _about_launcher(fault, said, ranks)


def _about_launcher(fault: Fault, said: str, ranks: set[int]) -> list[str]:
    """A signal, or a full disk, of which no rank is the cause."""
    signals = {"launcher_term": "SIGTERM", "launcher_int": "SIGINT"}
    wanted = signals[fault.kind] if fault.kind in TO_THE_LAUNCHER else "No space left on device"
    assert fault.kind in (*TO_THE_LAUNCHER, *TO_ITS_OUTPUT)
    found = [] if wanted in said else [f"it does not say {wanted}: {said!r}"]
    return found + ([f"it blames ranks {sorted(ranks)}: {said!r}"] if ranks else [])
