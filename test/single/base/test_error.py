"""Errors of the core in Python: all ranks report the same facts, and any text is safe inside a message."""

from __future__ import annotations

import os
import pickle
from collections.abc import Sequence

import numpy as np
import pytest
from ranks import on_ranks, stepped_engines, submit
from refusals import refused

from horovod import _native
from horovod.common.exceptions import Disagreement, HorovodInternalError, WrongArgument, WrongSetting
from horovod.common.sentences import by_rank


def disagreement(name: str, lengths: Sequence[int] = (3, 4)) -> list[HorovodInternalError]:
    """The errors of ranks whose tensors have these lengths."""

    def program(rank: int, engine: _native.Engine) -> HorovodInternalError:
        with refused(Disagreement, "disagree", tensor=name) as caught:
            engine.wait(submit(engine, name, np.ones(lengths[rank], np.float32)))
        return caught.value

    return on_ranks(len(lengths), program)


@pytest.mark.parametrize("name", ["grad", "{ranks}", "{values", "}{", "{tensor} {0}", "größe", "a\nb", "%s"])
def test_every_rank_has_the_same_facts(name: str) -> None:
    """Braces in the tensor's name are not placeholders of the sentence."""
    first, second = disagreement(name)
    assert first.facts == second.facts and str(first) == str(second) and first.remedy == second.remedy
    assert first.facts.keys() == {"tensor", "ranks", "values", "property", "what_to_do"}
    assert first.facts["ranks"] == [0, 1] and first.facts["values"] == {0: "(3,)", 1: "(4,)"}
    assert f"of '{name}': rank 0: (3,); rank 1: (4,)" in str(first)
    assert str(first).endswith(first.remedy) and first.facts["what_to_do"] in first.remedy


@pytest.mark.parametrize("more", range(3))
@pytest.mark.parametrize("is_alike", [True, False])
def test_a_sentence_names_as_many_ranks_and_values_as_one_of_python(is_alike: bool, more: int) -> None:
    """The facts cover all ranks. `is_alike`: all ranks but the first have the same value; else all differ."""
    size = 16 + more + is_alike
    lengths = [1, *[2] * (size - 1)] if is_alike else [*range(1, size + 1)]
    error = disagreement("grad", lengths)[0]
    assert error.ranks == tuple(range(size))
    assert error.values == {rank: f"({length},)" for rank, length in enumerate(lengths)}
    assert f"of 'grad': {by_rank(error.values)}." in str(error)


def test_facts_stay_after_pickling() -> None:
    [error, _] = disagreement("grad")
    with stepped_engines(1) as [engine], refused(WrongArgument, "handle_unknown", handle=2**40) as caught:
        engine.poll(2**40)
    for one in (error, caught.value):
        again = pickle.loads(pickle.dumps(one))
        assert (type(again), str(again), again.code) == (type(one), str(one), one.code)
        assert (again.facts, again.remedy) == (one.facts, one.remedy)


def test_numbers_are_numbers() -> None:
    with refused(WrongArgument, "negative", parameter="count", value=-(2**63)) as caught:
        _native.get_codec("bit8").encoded_bytes(-(2**63))
    assert type(caught.value.facts["value"]) is int
    with refused(WrongArgument, "seed_unused", value=2**64 - 1):
        _native.get_codec("bit8", seed=2**64 - 1)
    with refused(WrongArgument, "codec_unknown", value="12") as caught:
        _native.get_codec("12")
    assert "'12'" in str(caught.value)


@pytest.mark.parametrize("value", [b"\xff{value}", b"5\xe2\x82", b"{expected}"])
def test_a_setting_that_is_no_text(value: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOROVOD_CYCLE_TIME", os.fsdecode(value))
    shown = value.decode(errors="backslashreplace")
    with refused(WrongSetting, "wrong_setting", setting="HOROVOD_CYCLE_TIME", value=shown) as caught:
        _native.Settings.from_environment()
    assert f"='{shown}' is not " in str(caught.value)
