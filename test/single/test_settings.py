"""Settings come from the environment, once, and what cannot be understood is refused by name."""

from __future__ import annotations

import os
import re

import pytest

from horovod import _native
from horovod.common.basics import HorovodBasics
from horovod.common.build_info import build_info
from horovod.common.readable import refuse_what_is_no_text


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable, *_ in _native.settings_table():
        monkeypatch.delenv(variable, raising=False)


def test_defaults_are_those_of_the_table() -> None:
    settings = _native.Settings.from_environment()
    for variable, kind, default, help_text in _native.settings_table():
        value = getattr(settings, variable.removeprefix("HOROVOD_").lower())
        shown = str(int(value)) if kind in ("int", "bool") else f"{value:g}" if kind == "float" else value
        assert shown == default, variable
        assert len(help_text) > 10


def test_values_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOROVOD_FUSION_THRESHOLD", "1024")
    monkeypatch.setenv("HOROVOD_CYCLE_TIME", "2.5")
    monkeypatch.setenv("HOROVOD_TIMELINE_MARK_CYCLES", "1")
    monkeypatch.setenv("HOROVOD_LOG_LEVEL", "INFO")
    settings = _native.Settings.from_environment()
    assert settings.fusion_threshold == 1024
    assert settings.cycle_time == 2.5
    assert settings.timeline_mark_cycles is True
    assert settings.log_level == "info"


def test_an_empty_variable_means_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOROVOD_CACHE_CAPACITY", "")
    assert _native.Settings.from_environment().cache_capacity == 1024


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("HOROVOD_FUSION_THRESHOLD", "-1"),
        ("HOROVOD_FUSION_THRESHOLD", "64MB"),
        ("HOROVOD_CYCLE_TIME", "nan"),
        ("HOROVOD_CYCLE_TIME", "fast"),
        ("HOROVOD_DISABLE_GROUP_FUSION", "maybe"),
        ("HOROVOD_LOG_LEVEL", "loud"),
        ("HOROVOD_TRANSPORT", "pigeon"),
        ("HOROVOD_ALLREDUCE_ALGORITHM", "ring"),
        ("HOROVOD_SIMD", "sse2"),
    ],
)
def test_what_cannot_be_understood_is_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(ValueError, match=f"{variable}='{value}' is not"):
        _native.Settings.from_environment()


def test_what_is_the_jobs_is_compared() -> None:
    ranks = [_native.Settings() for _ in range(3)]
    assert _native.disagreement_of_settings(ranks) == ""
    ranks[0].cycle_time, ranks[1].log_level, ranks[2].simd = 7.0, "debug", "baseline"
    assert _native.disagreement_of_settings(ranks) == "", "each rank's own"
    ranks[1].fusion_threshold, ranks[2].stall_check_time_seconds = 10**15, 60.0000001
    assert _native.disagreement_of_settings(ranks) == (
        "HOROVOD_FUSION_THRESHOLD (ranks 0, 2: 134217728; rank 1: 1000000000000000), "
        "HOROVOD_STALL_CHECK_TIME_SECONDS (ranks 0, 1: 60; rank 2: 60.0000001)"
    )


def test_cores_are_compared_by_host() -> None:
    texts = [
        f"core=0.29.0 ({digest})\nHOROVOD_CYCLE_TIME=1\nhost={host}\n"
        for digest, host in zip("aab", "xxy", strict=True)
    ]
    assert _native.disagreement_of_builds(texts[:2]) == ""
    assert _native.disagreement_of_builds(texts) == (
        "core (ranks 0, 1: 0.29.0 (a) on x; rank 2: 0.29.0 (b) on y)"
    )
    older = "HOROVOD_CYCLE_TIME=1\n"  # of before cores said what they are
    assert "rank 1: unknown there on unknown there" in _native.disagreement_of_builds([texts[0], older])


def test_the_core_says_what_it_was_built_from() -> None:
    assert re.fullmatch("[0-9a-f]{16}", _native.build_digest())
    assert build_info().digest == _native.build_digest()


def test_the_simd_level_can_be_forced(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _native.simd_level() == _native.simd_levels()[-1]
    monkeypatch.setenv("HOROVOD_SIMD", "baseline")
    assert _native.simd_level() == "baseline"
    assert _native.get_codec("bit8").level == "baseline"


@pytest.mark.parametrize("variable", ["HOROVOD_HIERARCHICAL_ALLREDUCE", "HOROVOD_TORUS_ALLREDUCE"])
def test_horovods_variables_for_a_hierarchy(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setenv(variable, "1")
    assert _native.Settings.from_environment().allreduce_algorithm == "hierarchical"
    monkeypatch.setenv("HOROVOD_ALLREDUCE_ALGORITHM", "gather")
    with pytest.raises(ValueError, match="HOROVOD_ALLREDUCE_ALGORITHM='gather' is not"):
        _native.Settings.from_environment()


NO_TEXT = (
    b"\xff",
    b"ok\xc3",
    b"\xc0\x80",
    b"\xed\xa0\x80",
    b"\xf4\x90\x80\x80",
    b"\x80",
    b"\xe0\x9f\xbf",
    b"\xf8\x88",
)


@pytest.mark.parametrize("value", NO_TEXT)
def test_what_is_no_text_is_refused_by_name(monkeypatch: pytest.MonkeyPatch, value: bytes) -> None:
    for name in ("HOROVOD_TIMELINE", "HOROVOD_LOG_LEVEL", "HOROVOD_CYCLE_TIME"):
        with monkeypatch.context() as patch:
            patch.setitem(os.environb, name.encode(), value)
            with pytest.raises(
                ValueError, match=f"^{name}='(ok)?(\\\\x[89a-f].)+' is not UTF-8 text; unset it"
            ):
                _native.Settings.from_environment()
    with monkeypatch.context() as patch:  # also what the core does not read
        patch.setenv("HOROVOD_COMPRESSION", os.fsdecode(value))
        with pytest.raises(ValueError, match=r"^HOROVOD_COMPRESSION=b'.*' is not UTF-8 text; unset it"):
            HorovodBasics().init()


def test_other_scripts_are_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOROVOD_TIMELINE", "/tmp/é-中-😀-\ud7ff-\U0010ffff")
    assert _native.Settings.from_environment().timeline == os.environ["HOROVOD_TIMELINE"]
    refuse_what_is_no_text(os.environ)


def test_a_switch_that_python_reads_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOROVOD_DYNAMIC_PROCESS_SETS", "abc")
    message = "^HOROVOD_DYNAMIC_PROCESS_SETS='abc' is not 0 or 1; unset it or give a valid value$"
    with pytest.raises(ValueError, match=message):
        HorovodBasics().init()
