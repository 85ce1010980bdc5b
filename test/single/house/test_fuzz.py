"""Runs the parsers of external input on generated inputs: see test/fuzz/README.md."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "fuzz"))

import campaign
import native_testing  # noqa: F401 -- first: without the module that it names, nothing here can run
from regressions import REGRESSIONS, Regression
from targets import TARGETS, count_of

INPUTS = int(os.environ.get("HOROVOD_FUZZ_INPUTS", "25000"))  # of all parsers together


@pytest.mark.parametrize("name", TARGETS)
def test_spoiled_inputs_are_taken_or_refused(name: str) -> None:
    target = TARGETS[name]
    campaign.run(target, count_of(target, INPUTS))


@pytest.mark.parametrize("regression", REGRESSIONS, ids=lambda each: f"{each.target}: {each.was}")
def test_what_once_broke_a_parser(regression: Regression) -> None:
    campaign.check(TARGETS[regression.target], regression.data, f"which once did: {regression.was}")


def test_an_input_is_the_same_again() -> None:
    """A seed and a number then suffice to report an input."""
    target = TARGETS["hosts"]
    assert [target.input(number) for number in range(50)] == [target.input(number) for number in range(50)]
    assert len({target.input(number) for number in range(50)}) > 40
    assert target.input(1, seed=2) != target.input(1, seed=3)


@pytest.mark.parametrize("error", [KeyError("x"), UnicodeDecodeError("utf-8", b"", 0, 1, "")], ids=repr)
def test_another_error_than_the_documented_one_is_found(error: Exception) -> None:
    def parse(data: bytes) -> None:
        raise error

    target = campaign.Target("hosts", (b"a",), parse, (ValueError,), 1)
    with pytest.raises(campaign.ContractBroken, match=r"(?s)replay.py 'hosts' 0 --seed 1.*in hex"):
        campaign.run(target, 1)


def test_a_hang_and_a_glut_of_memory_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def hang(data: bytes) -> None:
        while True:
            pass

    monkeypatch.setattr(campaign, "MOST_SECONDS", 0.1)
    with pytest.raises(campaign.ContractBroken, match="processor time"):
        campaign.run(campaign.Target("hosts", (b"a",), hang, (ValueError,), 1), 1)
    if not campaign.IS_SANITIZED:
        glut = campaign.Target(
            "hosts", (b"a",), lambda data: bytearray(4 * campaign.MOST_MEMORY), (ValueError,), 1
        )
        with pytest.raises(campaign.ContractBroken, match="MemoryError"):
            campaign.run(glut, 1)


def test_samples_are_taken() -> None:
    """Corrupted inputs reach deep into a parser only if the rest of them is valid."""
    for target in TARGETS.values():
        assert any([campaign.check(target, sample, "a sample") for sample in target.samples]), target.name
