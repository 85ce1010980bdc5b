"""Whether an error follows another rank's failure: by its class, or by its text if it has no such class."""

from __future__ import annotations

import pickle
from unittest import mock

import pytest
import torch

from horovod.common import errors, notes
from horovod.common.exceptions import (
    CannotStart,
    DeviceFailure,
    Disagreement,
    HorovodInternalError,
    LostRank,
    ShutDown,
    Stalled,
    WrongArgument,
    follows_others,
    lost_ranks,
)
from horovod.common.sentences import Explained, facts_of

LOSS = {"code": "silent", "facts": {"ranks": [3, 1, 3]}}
FOLLOWING = [LostRank("x", **LOSS), Stalled("x", code="stalled"), ShutDown("x", code="shut_down")]
OWN = [
    HorovodInternalError("of a script"),
    Disagreement("x", code="disagree"),
    WrongArgument("x", code="negative"),
    CannotStart("x", code="builds_differ"),
    DeviceFailure("out of memory", code="cuda_failed", facts={"ranks": [0]}),
    ValueError("rank 1 is wrong"),
]


def through_a_future(error: Exception) -> Exception:
    """The error as torch passes it on from a DDP hook: only the text is left."""
    future: torch.futures.Future[None] = torch.futures.Future()
    after = future.then(lambda done: done.value())
    future.set_exception(error)
    with pytest.raises(RuntimeError) as caught:
        after.wait()
    return caught.value


def at_the_start(error: Explained) -> Explained:
    return errors.forming_failed(**facts_of(error, forming="hvd.init()"))


def as_a_cause(error: Exception) -> Exception:
    """The description of an error of another kind, which has no facts."""
    another = ImportError("the script's own words")
    another.__cause__ = error
    return another


@pytest.mark.parametrize("way", [lambda error: error, through_a_future, at_the_start, as_a_cause])
@pytest.mark.parametrize("error", FOLLOWING, ids=lambda error: type(error).__name__)
def test_who_follows_others(error: HorovodInternalError, way: object) -> None:
    assert callable(way) and follows_others(way(error))


@pytest.mark.parametrize(
    "words", ["Connection reset by peer", "Broken pipe", "remote process exited or there was"]
)
def test_others_words_say_so_too(words: str) -> None:
    assert follows_others(RuntimeError(f"[gloo] {words}"))
    assert follows_others(DeviceFailure(f"ncclAllReduce failed: {words}", code="nccl_failed"))


@pytest.mark.parametrize("error", OWN, ids=lambda error: type(error).__name__)
def test_who_does_not(error: Exception) -> None:
    assert not follows_others(error) and lost_ranks(error) == ()


def test_lost_ranks_are_named_once_and_in_order() -> None:
    lost = FOLLOWING[0]
    assert lost_ranks(lost) == lost_ranks(at_the_start(lost)) == lost_ranks(as_a_cause(lost)) == (1, 3)
    again = at_the_start(errors.forming_failed(**facts_of(as_a_cause(lost))))
    assert (lost_ranks(again), again.facts["because"]) == ((1, 3), "forming_failed")
    assert lost_ranks(FOLLOWING[1]) == lost_ranks(None) == ()


def test_a_loss_is_noted_where_it_is_found_and_not_where_it_is_read() -> None:
    with mock.patch.object(notes, "tell_of_failure") as told:
        error = LostRank("rank 1 is lost", **LOSS)
        assert told.call_args_list == [mock.call("rank 1 is lost", (3, 1, 3))]
        read = pickle.loads(pickle.dumps(error))
        assert (read.ranks, len(told.call_args_list)) == ((3, 1, 3), 1)
