"""Elastic training, for any framework: a function that goes on where others are lost or come, and its state.

``run_fn`` calls the function; where it fails because a rank was lost, or is interrupted because hosts have
changed, the state goes back to a commit or stays, the process joins the next world, and the function is
called again. Survivors and newcomers agree first (commits.py) on whose state counts.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import logging
import os
import queue
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ParamSpec, TypeVar

from horovod.common import errors, jobs, rejoining, restarting
from horovod.common.agent_channel import accuse, agent_channel
from horovod.common.commits import Agreement, Commits
from horovod.common.exceptions import HorovodInternalError, HostsUpdatedInterrupt, Stalled, lost_ranks
from horovod.common.options import BY_VARIABLE
from horovod.common.recovery import HOST_CHANGE, LOSS, Patience, Recoveries, is_scripts_own

__all__ = ["ADDED", "REMOVED", "ObjectState", "State", "WorkerNotificationManager", "is_elastic",
           "notification_manager", "run_fn"]  # fmt: skip

P = ParamSpec("P")
T = TypeVar("T")

ADDED, REMOVED = 1, 2  # bits of what a notification says about hosts
_log = logging.getLogger("horovod")


def is_elastic() -> bool:
    """Whether the job is elastic, as HOROVOD_ELASTIC says."""
    return bool(BY_VARIABLE["HOROVOD_ELASTIC"].read(os.environ))


class WorkerNotificationManager:
    """Hands on to states what the launcher says of hosts. Thread-safe."""

    def __init__(self) -> None:
        self._listeners: dict[int, State] = {}
        self.is_listening = False  # a launcher may say something

    def init(self) -> None:
        """Listen to the launcher, if one is there that says something. Harmless when repeated."""
        if self.is_listening or not os.environ.get(rejoining.AGENT):
            return
        channel = agent_channel(os.environ)
        if channel is not None:
            channel.listen(self.handle_hosts_updated)
            self.is_listening = True

    def register_listener(self, listener: State) -> None:
        """Have a state told from now on."""
        self._listeners[id(listener)] = listener

    def remove_listener(self, listener: State) -> None:
        """No more. Harmless when repeated."""
        self._listeners.pop(id(listener), None)

    def handle_hosts_updated(self, timestamp: float, update: int) -> None:
        """Hosts were added (1), removed (2) or both (3), at that time."""
        for listener in list(self._listeners.values()):
            listener.on_hosts_updated(timestamp, update)


notification_manager = WorkerNotificationManager()


class State:
    """The state from which training goes on in another world. Subclasses say its parts.

    Args:
        bcast_object: (object) -> that of rank 0, on all ranks.
        get_rank: () -> this process' rank.
    """

    def __init__(self, bcast_object: Callable[..., Any], get_rank: Callable[[], int]) -> None:
        self._bcast_object = bcast_object
        self._rank = get_rank
        self._host_messages: queue.Queue[tuple[float, int]] = queue.Queue()
        self._last_updated_timestamp: float = 0
        self._reset_callbacks: list[Callable[[], Any]] = []
        self._saves = 0  # by the function, so that it is seen whether it comes any further

    def register_reset_callbacks(self, callbacks: Iterable[Callable[[], Any]]) -> None:
        """Have functions without arguments called after each reset: to adapt to another size(), for example.

        They must not run collectives: new workers do not call them.
        """
        self._reset_callbacks.extend(callbacks)

    def on_reset(self) -> None:
        """This process has joined another world. What was said about hosts before counts no more."""
        self._host_messages = queue.Queue()
        self._adapt()

    def _adapt(self) -> None:
        self.reset()
        for callback in self._reset_callbacks:
            callback()

    def on_hosts_updated(self, timestamp: float, update: int) -> None:
        """The launcher says that hosts were added (1), removed (2), or both (3). On any thread."""
        self._host_messages.put((timestamp, update))

    def commit(self) -> None:
        """Save the state, and look whether hosts have changed. All ranks commit together.

        A lost rank costs what was done since the last commit; a commit costs a copy of the state.
        HostsUpdatedInterrupt as in ``check_host_updates``.
        """
        before = self._saves
        self.save()
        self._saves = before + 1  # whether or not a subclass' save() counts
        self.check_host_updates()

    def check_host_updates(self) -> None:
        """Raise HostsUpdatedInterrupt, on all ranks alike, if rank 0 has heard that hosts have changed.

        Collective; without HOROVOD_ELASTIC=1 it costs nothing.
        """
        if not (is_elastic() or notification_manager.is_listening) and self._host_messages.empty():
            return
        before, update = self._last_updated_timestamp, 0
        while True:
            try:
                timestamp, what = self._host_messages.get_nowait()
            except queue.Empty:
                break
            if timestamp > self._last_updated_timestamp:
                self._last_updated_timestamp = timestamp
                update |= what
        news = (before, self._last_updated_timestamp, update)
        before, self._last_updated_timestamp, update = self._bcast_object(news)
        if self._last_updated_timestamp > before:
            raise HostsUpdatedInterrupt(skip_sync=update == REMOVED)

    def save(self) -> None:
        """Copy the state, so that ``restore`` finds it."""
        raise errors.how_saved(type=type(self).__name__)

    def restore(self) -> None:
        """Go back to what ``save`` has copied last."""
        raise errors.how_restored(type=type(self).__name__)

    def sync(self) -> None:
        """Have all ranks go on from the same state. Collective."""
        raise errors.how_synchronized(type=type(self).__name__)

    def reset(self) -> None:
        """Adapt to another world, before the callbacks are called. By default nothing."""


class ObjectState(State):
    """A state of attributes that can be copied and pickled: ``ObjectState(bcast, rank, epoch=0, batch=0)``.

    Those given here are saved, restored and synchronised; ``state.epoch`` is the present value.
    """

    def __init__(self, bcast_object: Callable[..., Any], get_rank: Callable[[], int], **kwargs: Any) -> None:
        super().__init__(bcast_object, get_rank)
        self._names = tuple(kwargs)
        self._commits = Commits()
        self._has_synced = False  # else it is a newcomer, whose commit is its own only
        self._has_found = False  # commits of a process before it, in its host's memory
        self._is_kept = True  # it is where training has come to, and has not gone back to a commit
        self._saves_before = 0  # those that were before it
        self._agreement: Agreement | None = None  # made, and sync() has not come to it so far
        for name, value in kwargs.items():
            setattr(self, name, value)
        self.save()

    @property
    def _saved_state(self) -> Mapping[str, Any]:
        """Attributes as they were saved last."""
        saved: Mapping[str, Any] = self._commits.get(self._commits.newest)["objects"]
        return saved

    # ---- commits ----

    def save(self) -> None:
        """Copy all attributes, as the next commit.

        TypeError names one that cannot be copied. HorovodInternalError: a rank was lost. Before the first
        synchronisation it does not matter: nobody but this process goes on from what it has then.
        """
        content = self._content()
        if self._has_synced:
            _check_world()
        self._commits.put(self._commits.newest + 1, content)
        self._saves += 1

    def restore(self) -> None:
        """Go back to the last commit."""
        self._is_kept = False
        self._go_back(self._commits.newest)

    def _go_back(self, number: int) -> None:
        self._commits.forget_after(number)
        self._take(self._commits.get(number))

    def _content(self) -> dict[str, Any]:
        """A copy of the state, which nobody changes."""
        return {"objects": {name: copied(name, getattr(self, name)) for name in self._names}}

    def _take(self, content: Mapping[str, Any]) -> None:
        """Be as a copy of the state says."""
        for name, value in content["objects"].items():
            setattr(self, name, copied(name, value))

    # ---- another world ----

    def on_reset(self) -> None:
        """This process has joined another world: agree with the others on the commit, then adapt to it.

        Collective. What callbacks change, such as a learning rate, is done to the state that counts.
        """
        self._agreement = self._agree()
        super().on_reset()

    def sync(self) -> None:
        """Have all ranks go on from the state of rank 0, or of who else has the newest commit. Collective.

        Where processes were started again, and somebody has found commits, all adapt: the state may be that
        of a job of another size.
        """
        is_first = restarting.is_on() and not self._has_synced
        if is_first:
            self._find_commits()
        agreement = self._agreement or self._agree()
        self._agreement = None
        self._receive(agreement.root)
        if is_first and not agreement.is_kept:  # who has found commits has gone back to one
            self._adapt()
        content = self._content()
        _check_world()
        self._has_synced = self._is_kept = True
        self._commits.generation = _generation_after(agreement)
        self._commits.forget_after(agreement.number)  # of older generations
        self._commits.put(agreement.number + 1, content)

    def _find_commits(self) -> None:
        """Hold those that are kept for processes that are started again, if this rank has to read them."""
        _refuse_restarts(self)

    def needs_sync(self) -> bool:
        """Whether sync() has to follow a reset after which all could have gone on as they are.

        So it is where somebody came or went meanwhile. The same on all ranks.
        """
        agreement = self._agreement
        if agreement is None or agreement.has_newcomers or not agreement.is_kept:
            return True
        self._agreement = None
        return False

    def _receive(self, root: int) -> None:
        """Take over the state of that rank."""
        own = {name: getattr(self, name) for name in self._names}
        try:
            theirs = self._bcast_object(own) if root == 0 else self._bcast_object(own, root_rank=root)
        except HorovodInternalError:
            raise
        except Exception as error:  # whatever the class of a value raises
            if self._rank() == root and (name := self._unpicklable(own)):
                raise _refusal(name, own[name], "pickled", error) from error
            raise
        if self._rank() != root:
            for name, value in theirs.items():
                setattr(self, name, value)

    def _unpicklable(self, values: Mapping[str, Any]) -> str | None:
        """The first that cannot travel to other ranks: subclasses know how they do."""
        return None

    def _agree(self) -> Agreement:
        generation, held = self._commits.newest_generation()
        held = held if self._has_synced or self._has_found else []
        conclusion = rejoining.agree(held, self._is_kept, generation)
        if held and not conclusion.is_kept:
            has_it = generation == conclusion.generation and conclusion.number in held
            self._go_back_with_others(conclusion, has_it)
        return conclusion

    def _go_back_with_others(self, conclusion: Agreement, has_it: bool) -> None:
        if not has_it:
            _log.warning(
                "horovod: rank %d has no commit %d, of which all shall go on: it gets that of rank %d.",
                *(self._rank(), conclusion.number, conclusion.root),
            )
        elif self._is_kept or self._commits.newest != conclusion.number:
            self._is_kept = False
            self._go_back(conclusion.number)


def _generation_after(agreement: Agreement) -> int:
    """Of the commits of a world that has agreed: newer than all before it, and the same on all its ranks.

    Generations of horovodrun differ also from those of ranks that are out, of which nobody here knows.
    """
    channel = agent_channel(os.environ)
    return max(agreement.generation + 1, channel.generation if channel is not None else 0)


def _check_world() -> None:
    """HorovodInternalError where this world has failed: what was copied just now may be of no use.

    An operation on GPUs is complete when it is enqueued. If a rank is lost then, its communicator is aborted,
    and the GPU goes on with whatever is there. Who has copied from the GPU has waited for that.
    """
    member = jobs.current().member
    if member is not None and member.engine.has_failed:
        member.allgathered("elastic.commit", b"")


def copied(name: str, value: Any) -> Any:
    """A copy that shares nothing with the value. TypeError names what cannot be copied."""
    try:
        return copy.deepcopy(value)
    except Exception as error:  # whatever the class of the value raises
        raise _refusal(name, value, "copied", error) from error


def _refusal(name: str, value: Any, done: str, error: Exception) -> TypeError:
    why = " ".join(str(error).split()) or type(error).__name__
    return errors.unusable_attribute(attribute=name, done=done, why=why, type=type(value).__name__)


def run_fn(
    func: Callable[P, T],
    reset: Callable[[], Any],
    leave: Callable[[], Any] = lambda: None,
    loss_behind: Callable[[Exception], HorovodInternalError | None] = lambda error: None,
) -> Callable[P, T]:
    """``func(state, ...)`` that goes on where ranks are lost and hosts change.

    Args:
        func: what trains; its first argument is a State. It is called again after each reset.
        reset: leaves the world, and joins the next one.
        leave: leaves it by force, before the state goes back to a commit. Harmless when repeated.
        loss_behind: (an exception of another kind) -> how this world is broken, where the exception came of
            that, as those of other libraries may; None: it is the script's own.

    Exceptions other than HorovodInternalError and HostsUpdatedInterrupt end it, and so does a disagreement of
    ranks that comes again and again.
    """

    @functools.wraps(func)
    def elastic(*args: P.args, **kwargs: P.kwargs) -> T:
        state: Any = args[0] if args else kwargs["state"]
        if restarting.is_on() and not isinstance(state, ObjectState):
            _refuse_restarts(state)
        jobs.current().in_function = getattr(func, "__qualname__", "")
        notification_manager.init()
        notification_manager.register_listener(state)
        try:
            return _keep_on(state, lambda: func(*args, **kwargs), reset, leave, loss_behind)
        finally:
            notification_manager.remove_listener(state)

    return elastic


def _keep_on(
    state: Any,
    func: Callable[[], T],
    reset: Callable[[], Any],
    leave: Callable[[], Any],
    loss_behind: Callable[[Exception], HorovodInternalError | None],
) -> T:
    patience = Patience()
    is_first, has_synced, skips_sync = True, False, False
    recoveries = Recoveries()
    while True:
        is_lost = False
        patience.begin(state)
        try:
            if not is_first:
                reset()
                recoveries.note("met")
            if not _joined(state, is_first, has_synced, skips_sync):
                state.sync()
            has_synced = True
            if not is_first:
                recoveries.end(state._commits.newest if isinstance(state, ObjectState) else None)
            return func()
        except HostsUpdatedInterrupt as interrupt:
            if restarting.is_on():
                _leave_for_change(state)
                raise
            recoveries.begin(HOST_CHANGE, "hosts have changed")
            skips_sync = interrupt.skip_sync
        except rejoining.InAnotherFunction:
            raise
        except Exception as error:
            loss = error if isinstance(error, HorovodInternalError) else loss_behind(error)
            if loss is None:
                raise
            if restarting.is_on():
                _leave_for_loss(state, loss)
                raise
            recoveries.begin(LOSS, str(loss), lost_ranks(loss))
            if patience.is_over(loss, state):
                _tell_of_disagreement(loss, error)
                raise
            accuse(loss)
            is_lost, skips_sync = True, False
            del loss  # its frames, as those of error
        # Outside of the handlers: what the exception's frames hold of the old engine has gone.
        leave()
        recoveries.note("left")
        if is_lost:
            state.restore()
            recoveries.note("restored")
        is_first = False


def _leave_for_change(state: Any) -> None:
    """This process is started again, as hosts have changed: all are at this point, so nothing is lost."""
    try:
        state.save()
    except HorovodInternalError as error:
        _leave_for_loss(state, error)
    restarting.leave("hosts have changed", _commits_of(state), is_lost=False)


def _leave_for_loss(state: Any, error: HorovodInternalError) -> None:
    accuse(error)
    restarting.leave(str(error), _commits_of(state), is_lost=True)


def _joined(state: Any, is_first: bool, has_synced: bool, skips_sync: bool) -> bool:
    """This process is in a world. Whether all its ranks have the same state as it is; on all of them alike.

    An interrupt may say so. But the world is made later, with every newcomer that has come until then.
    """
    agreement: Agreement | None = None
    if not isinstance(state, ObjectState):  # which does so itself
        agreement = rejoining.agree([0] if has_synced else [], skips_sync)
    if not is_first:
        state.on_reset()
    if not skips_sync:
        return False
    return not (state.needs_sync() if agreement is None else agreement.has_newcomers or not agreement.is_kept)


def _tell_of_disagreement(loss: HorovodInternalError, error: Exception) -> None:
    """The launcher shall end the job, as by an exception of the script, where ranks disagree again and again,
    or the function raises a HorovodInternalError itself.

    What this rank alone has run into may be its host's fault, and the others go on without it.
    """
    member, channel = jobs.current().member, agent_channel(os.environ)
    if channel is None or member is None:
        return
    engine = member.engine
    sets = [] if engine.has_ended else engine.process_sets()
    is_own = isinstance(error, HorovodInternalError) and is_scripts_own(error)
    if is_own or isinstance(loss, Stalled) or any(engine.counters(each)["refusals"] for each in sets):
        with contextlib.suppress(ValueError):  # the agent is gone, and ends us anyway
            channel.raised()


def _refuse_restarts(state: Any) -> None:
    """ValueError for a state that outlives no process, where somebody wants that."""
    why = f"{type(state).__name__} keeps no commits for processes that are started again"
    if restarting.is_asked_for():
        raise errors.keeps_no_commits(type=type(state).__name__)
    restarting.tell_of_none(f"{why}; hvd.elastic.TorchState does")


def _commits_of(state: Any) -> int:
    """How many the function has made in this process."""
    return state._saves - state._saves_before if isinstance(state, ObjectState) else 0
