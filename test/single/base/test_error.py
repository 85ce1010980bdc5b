"""Errors of the core as Python has them: the same facts on every rank, and no text does harm."""

from __future__ import annotations

import os
import pickle

import numpy as np
import pytest
from ranks import on_ranks, stepped_engines, submit
from refusals import refused

from horovod import _native
from horovod.common.exceptions import Disagreement, HorovodInternalError, WrongArgument, WrongSetting


def disagreement(name: str) -> list[HorovodInternalError]:
    """What two ranks hear whose tensors have different shapes."""

    def program(rank: int, engine: _native.Engine) -> HorovodInternalError:
        with refused(Disagreement, "disagree", tensor=name) as caught:
            engine.wait(submit(engine, name, np.ones(3 + rank, np.float32)))
        return caught.value

    return on_ranks(2, program)


@pytest.mark.parametrize("name", ["grad", "{ranks}", "{values", "}{", "{tensor} {0}", "größe", "a\nb", "%s"])
def test_every_rank_has_the_same_facts(name: str) -> None:
    """Whatever the tensor's name: its braces are not those of a sentence."""
    first, second = disagreement(name)
    assert first.facts == second.facts and str(first) == str(second) and first.remedy == second.remedy
    assert first.facts.keys() == {"tensor", "ranks", "values", "property", "what_to_do"}
    assert first.facts["ranks"] == [0, 1] and first.facts["values"] == {0: "(3,)", 1: "(4,)"}
    assert f"of '{name}': rank 0: (3,); rank 1: (4,)" in str(first)
    assert str(first).endswith(first.remedy) and first.facts["what_to_do"] in first.remedy


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
