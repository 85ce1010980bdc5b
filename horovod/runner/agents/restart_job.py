"""The decisions of elastic jobs whose processes start again after a loss (`--elastic-restart`).

`elastic.membership` decides as in other elastic jobs. Its workers are places here: a survivor's process is
ended, and a new process asks in the worker's name. The rules of processes are:

    * A *failure* of a member (its end, the loss of its host, an accusation that stands) ends all other
      processes of the generation at once. These, and processes that announced that they leave, are started
      again.
    * A process leaves by itself after an error that other ranks caused, and after a change of hosts. The rest
      of its generation gets a grace period to leave too, or to be found to blame. An accused process that
      leaves is as good as its accuser.
    * After MOST_FRUITLESS restarts in a row for errors, without a failure or a commit, the script is to
      blame, and the job ends.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

from horovod.common import time_limits
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
from horovod.runner.elastic.membership import MembershipMachine
from horovod.runner.elastic.reasons import counted, named
from horovod.runner.elastic.settings import Limits

MOST_FRUITLESS = 3  # in a row


@dataclass
class _Process:
    """A process of a worker."""

    number: int  # the driver's number of this process
    worker: int
    host: str
    slot: int
    generation: int = 0  # of its place; 0 before it has one
    is_leaving: bool = False  # it announced that it leaves, or was asked to end for a restart
    end_at: float | None = None  # when it is asked to end, if it still runs
    is_told: bool = False  # it was asked to end, and will not be started again
    has_raised: bool = False  # by the script's own exception: it ends the job


class RestartJob(Decisions):
    """As MembershipMachine, but the driver's workers are processes."""

    def __init__(
        self,
        limits: Limits,
        hosts: Mapping[str, int],
        clock: Callable[[], float],
        failed: Collection[str] = (),
    ) -> None:
        limits = replace(limits, accusation_grace=0.0, doubtful_grace=0.0)
        self._machine = MembershipMachine(limits, hosts, clock, failed)
        self._clock = clock
        self._processes: dict[int, _Process] = {}  # by number
        self._of_worker: dict[int, _Process] = {}
        self._next = 0
        self._generations: dict[int, int] = {}  # of workers
        self._end_others_at: float | None = None  # the other processes of the present generation
        self._accused: dict[int, tuple[int, str, float]] = {}  # process -> accusing worker, reason, time
        self._fruitless = 0
        self._failed = 0  # the last generation with a failure of a member
        self._judged = 0  # the last generation that a process has left for an error
        self._is_over = False

    def worker_started(self, worker: int) -> list[Action]:
        process = self._processes.get(worker)
        return [] if process is None else self._settled(self._machine.worker_started(process.worker))

    def worker_asks(self, worker: int, after: int) -> list[Action]:
        """Ask in the name of the worker: `after` is the process' generation, 0 for a new process."""
        process = self._processes.get(worker)
        if process is None or process.is_leaving:
            return []
        self._accused.pop(worker, None)
        known = self._generations.get(process.worker, 0)
        return self._settled(self._machine.worker_asks(process.worker, known))

    def worker_leaves(self, worker: int, why: str, commits: int, is_lost: bool) -> list[Action]:
        """The process is about to end, and to be started again. `is_lost`: after an error, else after a
        change of hosts. `commits`: the number that it made.
        """
        process = self._processes.get(worker)
        if process is None or process.is_leaving or self._is_over:
            return []
        process.is_leaving = True
        process.end_at = self._clock() + time_limits.LEAVE_AFTER_CHANGE
        if not self._is_member(process):
            return []
        self._end_others_in(time_limits.LEAVE_AFTER_ERROR if is_lost else time_limits.LEAVE_AFTER_CHANGE)
        if is_lost and self._judged < process.generation:
            self._judged = process.generation
            self._fruitless = 0 if commits else self._fruitless + 1
            if self._fruitless >= MOST_FRUITLESS:
                times = f"{MOST_FRUITLESS} times in a row, without a commit between and without a loss"
                return self._settled([EndJob(1, f"workers had to be started again {times}: {why}")])
        return self._settled([])

    def worker_accused(self, by: int, generation: int, rank: int, reason: str) -> list[Action]:
        """A process accuses a rank of the present generation. It counts unless the accused leaves soon."""
        accused, accuser = self._machine.worker(generation, rank), self._processes.get(by)
        process = self._of_worker.get(-1 if accused is None else accused)
        if process is not None and accuser is not None and not process.is_leaving:
            self._accused.setdefault(process.number, (accuser.worker, reason, self._clock()))
        return []

    def worker_raised(self, worker: int) -> list[Action]:
        """The script raised, unless a failure came first and caused that.

        Others may leave because of the exception before this process ends.
        """
        process = self._processes.get(worker)
        if process is not None and self._is_member(process) and self._failed < process.generation:
            process.has_raised, process.end_at = True, self._clock() + time_limits.LEAVE_AFTER_CHANGE
        return []

    def worker_ended(self, worker: int, end: End) -> list[Action]:
        process = self._processes.get(worker)
        if process is None or self._is_over:
            return []
        self._forget(process)
        is_again = process.is_leaving and not process.is_told and not process.has_raised
        if is_again and self._machine.is_kept(process.worker):
            place = self._machine.worker_restarts(process.worker)
            if place is None:  # its host or slot is gone
                return self._settled(self._machine.worker_left(process.worker))
            again = self._begun(process.worker, process.host, process.slot)
            return self._settled([Start(again.number, again.host, place, again.slot)], are_translated=True)
        if self._is_member(process) and not end.is_success():
            self._fail()
        return self._settled(self._machine.worker_ended(process.worker, end))

    def host_lost(self, host: str, reason: str) -> list[Action]:
        for process in [each for each in self._processes.values() if each.host == host]:
            self._forget(process)
            if self._is_member(process):
                self._fail()
        return self._settled(self._machine.host_lost(host, reason))

    def hosts_found(self, hosts: Mapping[str, int]) -> list[Action]:
        return self._settled(self._machine.hosts_found(hosts))

    def tick(self) -> list[Action]:
        return self._settled(self._machine.tick())

    # ---- processes ----

    def _begun(self, worker: int, host: str, slot: int) -> _Process:
        process = _Process(self._next, worker, host, slot)
        self._next += 1
        self._processes[process.number] = self._of_worker[worker] = process
        return process

    def _forget(self, process: _Process) -> None:
        del self._processes[process.number]
        del self._of_worker[process.worker]
        self._accused.pop(process.number, None)

    def _fail(self) -> None:
        self._fruitless = 0
        self._failed = self._machine.generation
        self._end_others_in(0.0)

    def _end_others_in(self, seconds: float) -> None:
        at = self._clock() + seconds
        self._end_others_at = at if self._end_others_at is None else min(at, self._end_others_at)

    # ---- actions ----

    def _settled(self, actions: list[Action], are_translated: bool = False) -> list[Action]:
        """Return the machine's actions, translated to processes, and their consequences."""
        if self._is_over:
            return []
        done = actions if are_translated else self._translated(actions)
        now = self._clock()
        for number, (by, reason, at) in list(self._accused.items()):
            if now - at >= time_limits.ACCUSATION_GRACE and not self._is_over:
                process = self._processes[number]
                del self._accused[number]
                if not process.is_leaving:
                    done += self._translated(self._machine.accuse(by, process.worker, reason))
        if self._end_others_at is not None and now >= self._end_others_at and not self._is_over:
            self._end_others_at = None
            done += self._end_for_restart(self._generation())
        overdue = [each for each in self._running() if each.end_at is not None and now >= each.end_at]
        return done + self._end_for_restart(overdue)

    def _running(self) -> list[_Process]:
        return [each for each in self._processes.values() if not each.is_told]

    def _generation(self) -> list[_Process]:
        """Return the members that have neither announced that they leave nor raised."""
        members = [each for each in self._running() if self._is_member(each)]
        return [each for each in members if not (each.is_leaving or each.has_raised)]

    def _is_member(self, process: _Process) -> bool:
        return process.generation == self._machine.generation > 0

    def _end_for_restart(self, ending: list[_Process]) -> list[Action]:
        if not ending:
            return []
        for process in ending:
            process.is_leaving, process.end_at = True, None
        hosts = named(dict.fromkeys(process.host for process in ending))
        again = "those that stay in the job are started again"
        said = Say(f"ends {counted(len(ending), 'worker')} on {hosts}: {again}")
        return [said, *(Stop(process.number) for process in ending)]

    def _translated(self, actions: list[Action]) -> list[Action]:
        return [found for action in actions if (found := self._of_processes(action)) is not None]

    def _of_processes(self, action: Action) -> Action | None:
        """Translate an action; None if its process has ended."""
        if isinstance(action, Start):
            return replace(action, worker=self._begun(action.worker, action.host, action.slot).number)
        if isinstance(action, Publish):
            return self._published(action)
        if isinstance(action, Notify):
            told = [self._of_worker[worker] for worker in action.workers if worker in self._of_worker]
            in_it = [each.number for each in told if each.generation and not each.is_leaving]
            return replace(action, workers=tuple(in_it)) if in_it else None
        if isinstance(action, Stop | Leave):
            process = self._of_worker.get(action.worker)
            if process is None:
                return Say(action.why) if isinstance(action, Stop) else None
            if isinstance(action, Stop):
                process.is_told = True
                if self._is_member(process):
                    self._fail()
            return replace(action, worker=process.number)
        self._is_over |= isinstance(action, EndJob)
        return action

    def _published(self, action: Publish) -> Publish:
        self._end_others_at = None
        self._accused.clear()
        places = {}
        for worker, place in action.places.items():
            self._generations[worker] = action.generation
            process = self._of_worker[worker]
            process.generation = action.generation
            places[process.number] = place
        out = {self._of_worker[worker].number: reason for worker, reason in action.out.items()}
        return replace(action, places=places, out=out)
