"""Settings are read from the environment once; an invalid one raises an error with its name."""

from __future__ import annotations

import itertools
import os
import re
import sys
from pathlib import Path

import pytest
from refusals import refused

import horovod
from horovod import _native
from horovod.common import errors
from horovod.common.basics import HorovodBasics
from horovod.common.build_info import build_info
from horovod.common.exceptions import WrongSetting
from horovod.common.options import BY_VARIABLE, CORE, FIRST_RANK, JOB, OPTIONS, PYTHON, RANK, UNSERVED, Option
from horovod.common.variables import refuse_what_is_no_text

sys.path.append(str(Path(__file__).parents[4]))  # last, as a sanitized build may be before this folder

from build_support import generated_headers

ROOT = Path(__file__).resolve().parents[4]
ROWS = [option for option in OPTIONS if option.part == CORE]


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for option in ROWS:
        monkeypatch.delenv(option.variable, raising=False)


# docs/installing.md promises them. A release adds its new names and removes none.
PROMISED = """
    ALLREDUCE_ALGORITHM AUTOTUNE AUTOTUNE_BAYES_OPT_MAX_SAMPLES AUTOTUNE_CACHE AUTOTUNE_COMPRESSION
    AUTOTUNE_GAUSSIAN_PROCESS_NOISE AUTOTUNE_LOG AUTOTUNE_MAX_STEPS AUTOTUNE_MODE AUTOTUNE_REUSE
    AUTOTUNE_STEPS_PER_SAMPLE AUTOTUNE_WARMUP_SAMPLES BACKEND_MIN_ELEMENTS BIND CACHE_CAPACITY CARRIERS
    COMPRESSION COMPRESSION_FORCE CONTROLLER CPU_OPERATIONS CYCLE_TIME DDP_BUCKET_MB DDP_COMPRESSION
    DETERMINISTIC DISABLE_GROUP_FUSION DISABLE_NVTX_RANGES DYNAMIC_PROCESS_SETS ELASTIC ELASTIC_RESTART
    ELASTIC_TIMEOUT FUSION_THRESHOLD GPU_TRANSPORT HIERARCHICAL_ALLREDUCE LAUNCHER LOG_HIDE_TIME LOG_LEVEL
    MESSAGE_KB MPI_THREADS_DISABLE RENDEZVOUS_FOLDER SECRET SIMD STALL_CHECK_DISABLE
    STALL_CHECK_TIME_SECONDS STALL_SHUTDOWN_TIME_SECONDS START_TIMEOUT STEPS_UNDER_WAY TCP_CHECKSUMS
    TCP_CONNECTIONS TCP_INTERFACES TCP_PORTS TCP_TIMEOUT_SECONDS THREAD_AFFINITY TIMELINE
    TIMELINE_MARK_CYCLES TORUS_ALLREDUCE TRANSPORT
"""


def test_no_setting_has_lost_its_name() -> None:
    """The table has no older names, so a renamed setting would have no effect."""
    served = {option.variable for option in OPTIONS if option.part != UNSERVED}
    assert {f"HOROVOD_{name}" for name in PROMISED.split()} - served == set()


def test_the_header_is_that_of_the_table() -> None:
    assert generated_headers.SETTINGS.read_text() == generated_headers.settings_text(), (
        "write it again: make generated"
    )
    assert generated_headers.LIMITS.read_text() == generated_headers.limits_text(), (
        "write it again: make generated"
    )


def test_the_core_has_the_settings_of_the_table() -> None:
    """With their defaults. If this fails, the core in horovod/ is out of date: build it again."""
    settings = _native.Settings()
    members = {name for name in vars(_native.Settings) if name[0] != "_" and name != "from_environment"}
    asked = {"stall_shutdown_asked_by", "asks_for_mpi", "asks_for_connections", "do_without_mpi"}
    assert members == {option.member for option in ROWS} | asked
    for option in ROWS:
        value, default = getattr(settings, option.member), option.convert(option.default)
        assert (type(value), value) == (type(default), default), option.variable


@pytest.mark.parametrize("transport", BY_VARIABLE["HOROVOD_TRANSPORT"].choices)
def test_what_a_transport_asks_for(transport: str) -> None:
    settings = _native.Settings()
    settings.transport = transport
    asked = (settings.asks_for_mpi, settings.asks_for_connections)
    assert asked == (transport == "mpi", transport == "tcp")
    settings.do_without_mpi()
    assert settings.transport == ("tcp" if transport == "mpi" else transport)


def test_what_the_core_reads_something_uses() -> None:
    """Every parsed option must have an effect."""
    sources = [*(ROOT / "horovod" / "native").rglob("*.cc"), *(ROOT / "horovod" / "native").rglob("*.h")]
    text = "\n".join(path.read_text() for path in sources)
    assert not [o.variable for o in ROWS if not re.search(rf"settings_?(\.|->){o.member}\b", text)]


def test_what_python_reads_something_uses() -> None:
    folder = Path(horovod.__file__).parent  # the installed package, if a wheel is tested
    sources = [path for path in folder.rglob("*.py") if path.parent != folder / "common" / "options"]
    text = "\n".join(path.read_text() for path in sources)
    assert not [o.variable for o in OPTIONS if o.part == PYTHON and f'"{o.variable}"' not in text]


def test_each_setting_says_whose_it_is() -> None:
    assert {o.scope for o in OPTIONS if o.part in (CORE, PYTHON)} == {JOB, FIRST_RANK, RANK}


def test_what_the_core_cannot_read_is_no_row() -> None:
    option = Option("hosts", variable="HOROVOD_HOSTS", type="list", part=CORE)
    with pytest.raises(ValueError, match="HOROVOD_HOSTS: the core has no settings of type list"):
        generated_headers.settings_text([option])


def test_an_empty_variable_means_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOROVOD_CACHE_CAPACITY", "")
    assert _native.Settings.from_environment().cache_capacity == 1024


@pytest.mark.parametrize(
    "text",
    [
        "FUSION_THRESHOLD=-1", "FUSION_THRESHOLD=64MB", "CYCLE_TIME=nan", "CYCLE_TIME=fast",
        "CYCLE_TIME=1e10", "CYCLE_TIME=inf", "DISABLE_GROUP_FUSION=maybe", "LOG_LEVEL=loud",
        "TRANSPORT=pigeon", "ALLREDUCE_ALGORITHM=tree", "SIMD=sse2", "SIMD=auto, baseline",
        "GPU_TRANSPORT=nccl,", "CACHE_CAPACITY=9223372036854775808", "CACHE_CAPACITY=-9223372036854775809",
    ],
)  # fmt: skip
def test_what_cannot_be_understood_is_refused_by_name(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """The core and horovodrun use the same words."""
    variable, _, value = f"HOROVOD_{text}".partition("=")
    monkeypatch.setenv(variable, value)
    option = BY_VARIABLE[variable]
    with pytest.raises(WrongSetting) as before:
        option.convert(value)
    wanted = "0 or 1" if option.type == "bool" else before.value.facts["expected"]
    if (most := before.value.facts.get("most")) is not None:
        wanted = f"{wanted} <= {most}"
    with refused(WrongSetting, "wrong_setting", setting=variable, value=value, expected=wanted):
        _native.Settings.from_environment()


def values_of(option: Option) -> dict[str, object]:
    """Text in the environment -> value: the limits of numbers, and all words for yes and no."""
    if option.type == "bool":
        yes, no = ("1", "true", "yes", "on", "True"), ("0", "false", "no", "off", "NO")
        return {**dict.fromkeys(yes, True), **dict.fromkeys(no, False)}
    if option.type in ("int", "float"):
        inner = 2 if option.type == "int" else 2.5
        return {str(number): number for number in (option.minimum, option.highest(), inner)}
    return {choice.upper(): choice for choice in option.choices}


@pytest.mark.parametrize("option", ROWS, ids=lambda option: option.variable)
def test_values_are_those_of_the_table(monkeypatch: pytest.MonkeyPatch, option: Option) -> None:
    """In the core, and in Python, which parses switches too."""
    for text, value in values_of(option).items():
        monkeypatch.setenv(option.variable, text)
        assert getattr(_native.Settings.from_environment(), option.member) == value
        if option.type == "bool":
            assert option.read({option.variable: text}) is value


def test_what_is_the_jobs_is_compared() -> None:
    from native_testing import testing

    ranks = [_native.Settings() for _ in range(3)]
    assert testing.disagreement_of_settings(ranks) == ""
    ranks[0].cycle_time, ranks[1].log_level, ranks[2].simd = 7.0, "debug", "baseline"
    assert testing.disagreement_of_settings(ranks) == "", "each rank's own"
    compared = {o.variable for o in ROWS if o.scope == JOB}
    for option in ROWS:
        other = _native.Settings()
        value = getattr(other, option.member)
        setattr(other, option.member, value + "x" if isinstance(value, str) else type(value)(not value))
        said = testing.disagreement_of_settings([_native.Settings(), other])
        assert said.startswith(f"{option.variable} (") == (option.variable in compared), option.variable
    ranks[1].fusion_threshold, ranks[2].stall_check_time_seconds = 10**15, 60.0000001
    assert testing.disagreement_of_settings(ranks) == (
        "HOROVOD_FUSION_THRESHOLD (ranks 0, 2: 134217728; rank 1: 1000000000000000), "
        "HOROVOD_STALL_CHECK_TIME_SECONDS (ranks 0, 1: 60; rank 2: 60.0000001)"
    )


def test_cores_are_compared_by_host() -> None:
    from native_testing import testing

    texts = [
        f"core=0.29.0 ({digest})\nHOROVOD_CYCLE_TIME=1\nhost={host}\n"
        for digest, host in zip("aab", "xxy", strict=True)
    ]
    assert testing.disagreement_of_builds(texts[:2]) == ""
    assert testing.disagreement_of_builds(texts) == (
        "core (ranks 0, 1: 0.29.0 (a) on x; rank 2: 0.29.0 (b) on y)"
    )
    older = "HOROVOD_CYCLE_TIME=1\n"  # of before cores said what they are
    assert "rank 1: unknown there on unknown there" in testing.disagreement_of_builds([texts[0], older])


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
    with refused(WrongSetting, "wrong_setting", setting="HOROVOD_ALLREDUCE_ALGORITHM", value="gather"):
        _native.Settings.from_environment()


@pytest.mark.parametrize(
    "value",
    [
        b"\xff", b"ok\xc3", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\x80", b"\xe0\x9f\xbf",
        b"\xf8\x88",
    ],
)  # fmt: skip
def test_what_is_no_text_is_refused_by_name(monkeypatch: pytest.MonkeyPatch, value: bytes) -> None:
    for name in ("HOROVOD_TIMELINE", "HOROVOD_LOG_LEVEL", "HOROVOD_CYCLE_TIME"):
        with monkeypatch.context() as patch:
            patch.setitem(os.environb, name.encode(), value)
            shown = value.decode(errors="backslashreplace")
            with refused(WrongSetting, "wrong_setting", setting=name, value=shown, expected="UTF-8 text"):
                _native.Settings.from_environment()
    with monkeypatch.context() as patch:  # including variables that the core does not read
        patch.setenv("HOROVOD_COMPRESSION", os.fsdecode(value))
        with refused(errors.no_text, setting="HOROVOD_COMPRESSION", value=value):
            HorovodBasics().init()


def test_text_is_what_python_takes_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the edges of UTF-8: continuation bytes, overlong forms, surrogates, and the last code point."""
    leads = b"\x7f\x80\xbf\xc0\xc1\xc2\xdf\xe0\xe1\xec\xed\xee\xef\xf0\xf1\xf3\xf4\xf5\xf7\xf8\xfe\xff"
    seconds, others = b"\x41\x7f\x80\x8f\x90\x9f\xa0\xbf\xc0", b"\x80\xbf\xc0"
    for more in range(4):
        for each in itertools.product(leads, *[seconds, others, others][:more]):
            value = b"x" + bytes(each)
            monkeypatch.setitem(os.environb, b"HOROVOD_TIMELINE", value)
            try:
                text: str | None = value.decode()
            except UnicodeDecodeError:
                text = None
            try:
                read: str | None = _native.Settings.from_environment().timeline
            except ValueError:
                read = None
            assert read == text, value


def test_other_scripts_are_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOROVOD_TIMELINE", "/tmp/é-中-😀-\ud7ff-\U0010ffff")
    assert _native.Settings.from_environment().timeline == os.environ["HOROVOD_TIMELINE"]
    refuse_what_is_no_text(os.environ)


def test_a_switch_that_python_reads_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOROVOD_DYNAMIC_PROCESS_SETS", "abc")
    facts = {"setting": "HOROVOD_DYNAMIC_PROCESS_SETS", "value": "abc", "expected": "0 or 1"}
    with refused(errors.not_valid, **facts):
        HorovodBasics().init()
