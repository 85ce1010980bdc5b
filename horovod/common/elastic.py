"""Elastic training for any framework: a function that continues if ranks are lost or come, and its state.

``run_fn`` calls the function. If the function fails because a rank was lost, the state goes back to a commit;
if it is interrupted because hosts have changed, the state stays. The process then joins the next world and
calls the function again. Survivors and newcomers first agree (commits.py) whose state counts.
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
from horovod.common.agent_messages import VARIABLE as AGENT
from horovod.common.commits import Agreement, Commits
from horovod.common.exceptions import HorovodInternalError, HostsUpdatedInterrupt, Stalled, lost_ranks
from horovod.common.options import BY_VARIABLE
from horovod.common.rejoining import HOST_CHANGE, LOSS, Patience, Recoveries, commits_of, is_scripts_own

P = ParamSpec("P")
T = TypeVar("T")

ADDED, REMOVED = 1, 2  # bits of a notification about hosts
_log = logging.getLogger("horovod")


def is_elastic() -> bool:
    """Whether the job is elastic, as HOROVOD_ELASTIC says."""
    return bool(BY_VARIABLE["HOROVOD_ELASTIC"].read(os.environ))


class WorkerNotificationManager:
    """Passes the launcher's news of hosts to states. Thread-safe."""

    def __init__(self) -> None:
        self._listeners: dict[int, State] = {}
        self.is_listening = False  # a launcher may send news

    def init(self) -> None:
        """Listen to the launcher, if there is one that sends news. Idempotent."""
        if self.is_listening or not os.environ.get(AGENT):
            return
        channel = agent_channel(os.environ)
        if channel is not None:
            channel.listen(self.handle_hosts_updated)
            self.is_listening = True

    def register_listener(self, listener: State) -> None:
        self._listeners[id(listener)] = listener

    def remove_listener(self, listener: State) -> None:
        self._listeners.pop(id(listener), None)

    def handle_hosts_updated(self, timestamp: float, update: int) -> None:
        """Pass on that hosts were added (1), removed (2) or both (3) at that time."""
        for listener in list(self._listeners.values()):
            listener.on_hosts_updated(timestamp, update)


notification_manager = WorkerNotificationManager()


class State:
    """The state from which training continues in another world. Subclasses define its parts.

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
        self._saves = 0  # calls of save() by the function: they show whether it makes progress

    def register_reset_callbacks(self, callbacks: Iterable[Callable[[], Any]]) -> None:
        """Have functions without arguments called after each reset, for example to adapt to another size().

        They must not run collectives: new workers do not call them.
        """
        self._reset_callbacks.extend(callbacks)

    def on_reset(self) -> None:
        """Adapt to another world, which this process has joined. Earlier news of hosts no longer counts."""
        self._host_messages = queue.Queue()
        self._adapt()

    def _adapt(self) -> None:
        self.reset()
        for callback in self._reset_callbacks:
            callback()

    def on_hosts_updated(self, timestamp: float, update: int) -> None:
        """Note that hosts were added (1), removed (2), or both (3). Thread-safe."""
        self._host_messages.put((timestamp, update))

    def commit(self) -> None:
        """Save the state, and check whether hosts have changed. All ranks commit together.

        A lost rank costs the work since the last commit; a commit costs a copy of the state. Raises
        HostsUpdatedInterrupt as ``check_host_updates`` does.
        """
        before = self._saves
        self.save()
        self._saves = before + 1  # whether or not a subclass' save() counts
        self.check_host_updates()

    def check_host_updates(self) -> None:
        """Raise HostsUpdatedInterrupt, on all ranks alike, if rank 0 has news of changed hosts.

        Collective. Free without HOROVOD_ELASTIC=1.
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
        """Copy the state, for ``restore``."""
        raise errors.how_saved(type=type(self).__name__)

    def restore(self) -> None:
        """Go back to the state that ``save`` copied last."""
        raise errors.how_restored(type=type(self).__name__)

    def sync(self) -> None:
        """Give all ranks the same state. Collective."""
        raise errors.how_synchronized(type=type(self).__name__)

    def reset(self) -> None:
        """Adapt to another world, before the callbacks are called. By default nothing."""


class ObjectState(State):
    """A state of attributes that can be copied and pickled: ``ObjectState(bcast, rank, epoch=0, batch=0)``.

    The attributes given here are saved, restored and synchronised; ``state.epoch`` is the present value.
    """

    def __init__(self, bcast_object: Callable[..., Any], get_rank: Callable[[], int], **kwargs: Any) -> None:
        super().__init__(bcast_object, get_rank)
        self._names = tuple(kwargs)
        self._commits = Commits()
        self._has_synced = False  # else it is a newcomer, whose commit no other rank has
        self._has_found = False  # commits of an earlier process, in its host's memory
        self._is_kept = True  # it is the present state of training, not a commit
        self._saves_before = 0  # before this process
        self._agreement: Agreement | None = None  # made, and not yet used by sync()
        for name, value in kwargs.items():
            setattr(self, name, value)
        self.save()

    @property
    def _saved_state(self) -> Mapping[str, Any]:
        """The attributes as saved last."""
        saved: Mapping[str, Any] = self._commits.get(self._commits.newest)["objects"]
        return saved

    # ---- commits ----

    def save(self) -> None:
        """Copy all attributes, as the next commit; before the first synchronisation for this process only.

        TypeError names an attribute that cannot be copied. HorovodInternalError: a rank was lost.
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
        return {"objects": {name: copied(name, getattr(self, name)) for name in self._names}}

    def _take(self, content: Mapping[str, Any]) -> None:
        """Set the attributes to copies of those in a commit."""
        for name, value in content["objects"].items():
            setattr(self, name, copied(name, value))

    # ---- another world ----

    def on_reset(self) -> None:
        """Agree with the other ranks of another world on the commit, then adapt to that world.

        Collective. Changes by callbacks, such as a learning rate, are made to the state that counts.
        """
        self._agreement = self._agree()
        super().on_reset()

    def sync(self) -> None:
        """Give all ranks the state of rank 0, or of another rank that has the newest commit. Collective.

        If processes were started again, and a rank has found commits, all adapt: the state may belong to a
        job of another size.
        """
        is_first = restarting.is_on() and not self._has_synced
        if is_first:
            self._find_commits()
        agreement = self._agreement or self._agree()
        self._agreement = None
        self._receive(agreement.root)
        if is_first and not agreement.is_kept:  # the rank that found commits has gone back to one
            self._adapt()
        content = self._content()
        _check_world()
        self._has_synced = self._is_kept = True
        self._commits.generation = _generation_after(agreement)
        self._commits.forget_after(agreement.number)  # of older generations
        self._commits.put(agreement.number + 1, content)

    def _find_commits(self) -> None:
        """Hold the commits kept for processes that are started again, if this rank has to read them."""
        _refuse_restarts(self)

    def needs_sync(self) -> bool:
        """Whether sync() must follow a reset, as a rank came or survivors go back; the same on all ranks."""
        agreement = self._agreement
        if agreement is None or agreement.has_newcomers or not agreement.is_kept:
            return True
        self._agreement = None
        return False

    def _receive(self, root: int) -> None:
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
        """The name of the first attribute that cannot be sent to other ranks, if subclasses find one."""
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
    """The generation of commits in a world that has agreed: newer than all before, the same on all its ranks.

    Generations of horovodrun also differ if ranks out of the job, unknown to this world, had one.
    """
    channel = agent_channel(os.environ)
    return max(agreement.generation + 1, channel.generation if channel is not None else 0)


def _check_world() -> None:
    """HorovodInternalError if this world has failed: the copy just made may be unusable.

    An operation on GPUs is complete when it is enqueued. If a rank is lost then, its communicator is aborted,
    and the GPU continues with undefined data. A caller that has copied from the GPU has waited for that.
    """
    member = jobs.current().member
    if member is not None and member.engine.has_failed:
        member.allgathered("elastic.commit", b"")


def copied(name: str, value: Any) -> Any:
    """A copy that shares nothing with the value. TypeError names an attribute that cannot be copied."""
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
    """Wrap ``func(state, ...)``, so that it continues if ranks are lost or hosts change.

    Other exceptions than HorovodInternalError and HostsUpdatedInterrupt, and repeated disagreement, end it.

    Args:
        func: the training function; its first argument is a State. It is called again after each reset.
        reset: leaves the world, and joins the next one.
        leave: leaves it by force, before the state goes back to a commit. Idempotent.
        loss_behind: (another exception) -> the failure of this world that caused it, as it may with an
            exception of another library; None: the exception is the script's own.
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
        except errors.InAnotherFunction:
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
        # Outside of the handlers: the exception's frames no longer hold objects of the old engine.
        leave()
        recoveries.note("left")
        if is_lost:
            state.restore()
            recoveries.note("restored")
        is_first = False


def _leave_for_change(state: Any) -> None:
    """End this process, to be restarted as hosts have changed: all ranks are here, so nothing is lost."""
    try:
        state.save()
    except HorovodInternalError as error:
        _leave_for_loss(state, error)
    restarting.leave("hosts have changed", commits_of(state), is_lost=False)


def _leave_for_loss(state: Any, error: HorovodInternalError) -> None:
    accuse(error)
    restarting.leave(str(error), commits_of(state), is_lost=True)


def _joined(state: Any, is_first: bool, has_synced: bool, skips_sync: bool) -> bool:
    """Agree with the ranks of a new world. Returns whether all have the same state, on all of them alike.

    An interrupt may say that they have. But the world is made later, with every newcomer until then.
    """
    agreement: Agreement | None = None
    if not isinstance(state, ObjectState):  # an ObjectState agrees in on_reset()
        agreement = rejoining.agree([0] if has_synced else [], skips_sync)
    if not is_first:
        state.on_reset()
    if not skips_sync:
        return False
    return not (state.needs_sync() if agreement is None else agreement.has_newcomers or not agreement.is_kept)


def _tell_of_disagreement(loss: HorovodInternalError, error: Exception) -> None:
    """Have the launcher end the job, as by an exception of the script, if ranks disagree repeatedly.

    Also if the function itself raises a HorovodInternalError. A failure of this rank alone may be its host's
    fault, and the others continue without it.
    """
    member, channel = jobs.current().member, agent_channel(os.environ)
    if channel is None or member is None:
        return
    engine = member.engine
    sets = [] if engine.has_ended else engine.process_sets()
    is_own = isinstance(error, HorovodInternalError) and is_scripts_own(error)
    if is_own or isinstance(loss, Stalled) or any(engine.counters(each)["refusals"] for each in sets):
        with contextlib.suppress(ValueError):  # the agent is gone, and this process ends anyway
            channel.raised()


def _refuse_restarts(state: Any) -> None:
    """ValueError for a state that outlives no process, if the user requires that."""
    why = f"{type(state).__name__} keeps no commits for processes that are started again"
    if restarting.is_asked_for():
        raise errors.keeps_no_commits(type=type(state).__name__)
    restarting.tell_of_none(f"{why}; hvd.elastic.TorchState does")
