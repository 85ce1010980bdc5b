"""The table of options, and its derivatives: command line, config file, environment, documentation."""

import os
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from refusals import refused

from horovod.common.options import (
    BY_VARIABLE,
    COMPLETION_FILE,
    CORE,
    GROUPS,
    LAUNCHER,
    OPTIONS,
    PYTHON,
    UNSERVED,
    Option,
)
from horovod.runner import command_line, configuration_page, errors, settings
from horovod.runner.errors import LaunchError

ROOT = Path(__file__).resolve().parents[4]


def core_environment(arguments: Sequence[str], file: dict | None = None) -> dict[str, str]:
    given, _ = command_line.parse(arguments)
    return settings.rank_environment(settings.merged(given, file or {}, {}))


def test_names_flags_variables_and_keys_are_unique() -> None:
    for words in (
        [option.name for option in OPTIONS],
        [flag for option in OPTIONS for flag in (*option.flags, *option.off_flags)],
        [option.variable for option in OPTIONS if option.variable],
        [option.key for option in OPTIONS if option.key],
    ):
        assert sorted(words) == sorted(set(words))


def test_every_row_explains_itself() -> None:
    for option in OPTIONS:
        assert option.unserved if option.part == UNSERVED else option.help
        assert option.flags or option.variable or option.key
        assert (
            option.help or "--" in option.unserved or "leave" in option.unserved or "use" in option.unserved
        )
        if option.default:
            option.convert(option.default)


def test_flags_become_variables() -> None:
    line = "-np 2 --fusion-threshold-mb 32 --cycle-time-ms 2.5 --cache-capacity 0 --timeline-filename t.json"
    line += " --timeline-mark-cycles --log-level INFO --log-without-timestamp python"
    assert core_environment(line.split()) == {
        "HOROVOD_FUSION_THRESHOLD": str(32 * 1024 * 1024),
        "HOROVOD_CYCLE_TIME": "2.5",
        "HOROVOD_CACHE_CAPACITY": "0",
        "HOROVOD_TIMELINE": "t.json",
        "HOROVOD_TIMELINE_MARK_CYCLES": "1",
        "HOROVOD_LOG_LEVEL": "info",
        "HOROVOD_LOG_HIDE_TIME": "1",
    }
    assert core_environment(["--no-timeline-mark-cycles", "--log-with-timestamp"]) == {
        "HOROVOD_TIMELINE_MARK_CYCLES": "0",
        "HOROVOD_LOG_HIDE_TIME": "0",
    }
    assert core_environment(["-np", "2", "python"]) == {}
    line = "--no-stall-check --stall-check-warning-time-seconds 5 --stall-check-shutdown-time-seconds 9.5"
    assert core_environment([*line.split(), "--thread-affinity", "3", "--mpi-threads-disable"]) == {
        "HOROVOD_STALL_CHECK_DISABLE": "1",
        "HOROVOD_STALL_CHECK_TIME_SECONDS": "5.0",
        "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "9.5",
        "HOROVOD_THREAD_AFFINITY": "3",
        "HOROVOD_MPI_THREADS_DISABLE": "1",
    }
    assert core_environment(["--stall-check", "--no-mpi-threads-disable", "--thread-affinity", "0,4"]) == {
        "HOROVOD_STALL_CHECK_DISABLE": "0",
        "HOROVOD_MPI_THREADS_DISABLE": "0",
        "HOROVOD_THREAD_AFFINITY": "0,4",
    }


def test_compression_is_passed_on(tmp_path: Path) -> None:
    assert core_environment(["--compression", "bit8"]) == {"HOROVOD_COMPRESSION": "bit8"}
    text = "int4:rotation=hadamard,levels=lloyd,error_feedback=1"
    assert core_environment(["--compression", text]) == {"HOROVOD_COMPRESSION": text}
    path = tmp_path / "config.yaml"
    path.write_text("params: {compression: 'topk:k=100'}\n")
    values, warnings = settings.load(str(path))
    assert warnings == [] and core_environment([], values) == {"HOROVOD_COMPRESSION": "topk:k=100"}
    assert core_environment(["--compression", "none"], values) == {"HOROVOD_COMPRESSION": "none"}
    forced = {"HOROVOD_COMPRESSION": "topk:k=100", "HOROVOD_COMPRESSION_FORCE": "1"}
    assert core_environment(["--compression-force"], values) == forced


def test_compression_force_needs_a_compression() -> None:
    given = {"compression_force": True}
    with refused(errors.alone, option="--compression-force", other="--compression"):
        settings.merged(given, {}, {})
    for environment in ({"HOROVOD_COMPRESSION": "bit8"}, {"HOROVOD_DDP_COMPRESSION": "bit8"}):
        assert settings.merged(given, {}, environment)["compression_force"] is True


def test_the_command_is_the_rest_of_the_line() -> None:
    given, command = command_line.parse(
        ["-np", "2", "-H", "a:2", "python", "train.py", "-np", "3", "--verbose"]
    )
    assert command == ["python", "train.py", "-np", "3", "--verbose"]
    assert given == {"np": 2, "hosts": "a:2"}
    assert command_line.parse(["-np", "2", "--", "ls", "-l"])[1] == ["ls", "-l"]


@pytest.mark.parametrize(
    "line, part",
    [
        ("-np -1 ls", "-1 is not a whole number >= 1"),
        ("-np 0 ls", "0 is not a whole number >= 1"),
        ("-np two ls", "'two' is not a whole number"),
        ("--cycle-time-ms -0.5 ls", "-0.5 is not a number >= 0"),
        ("--cycle-time-ms nan ls", "nan is not a number >= 0"),
        ("--stall-check-warning-time-seconds -1 ls", "-1 is not a number >= 0"),
        ("--thread-affinity -1 ls", "'-1' is not a core, or several as 0,4"),
        ("--thread-affinity 0,,1 ls", "'0,,1' is not a core"),
        ("--compression bit8,int4 ls", "'bit8,int4' is not a name, or name:option=value"),
        ("--compression bit8: ls", "'bit8:' is not a name"),
        ("--log-level loud ls", "'loud' is not one of trace"),
        (
            "--fusion-threshold ls",
            "unrecognized option --fusion-threshold; did you mean",
        ),  # no abbreviations: they change meaning later
    ],
)
def test_wrong_values_are_refused(line: str, part: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        command_line.parse(line.split())
    assert end.value.code == 2
    assert part in capsys.readouterr().err


@pytest.mark.parametrize("flag", [flag for o in OPTIONS if o.part == UNSERVED for flag in o.flags])
def test_options_that_are_not_served_are_refused(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    for words in ([flag, "1", "ls"], [f"{flag}=1", "ls"], [flag]):
        with pytest.raises(SystemExit):
            command_line.parse(["-np", "2", *words])
        assert f"{flag} is not served: " in capsys.readouterr().err


def test_what_a_variable_that_is_not_served_says_does_not_matter() -> None:
    told = {o.variable: "nonsense" for o in OPTIONS if o.part == UNSERVED and o.variable}
    assert settings.merged({}, {}, told) == settings.merged({}, {}, {})
    assert len(settings.environment_warnings(told)) == len(told)


def test_switching_off_what_is_not_served_is_fine() -> None:
    flags = [flag for option in OPTIONS if option.part == UNSERVED for flag in option.off_flags]
    assert "--no-hierarchical-allgather" in flags
    assert command_line.parse([*flags, "ls"])[1] == ["ls"]


def test_config_file_sets_what_the_command_line_does_not(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(
        "params: {fusion_threshold_mb: 32, cycle_time_ms: 5}\n"
        "timeline: {filename: trace.json, mark_cycles: true}\n"
        "logging: {level: debug, with_timestamp: false, hide_timestamp: true}\n"
        "autotune: {enabled: false, warmup_samples: 5}\n"
        "stall_check: {enabled: false, warning_time_seconds: 30}\n"
        "library_options: {thread_affinity: [0, 4], mpi_threads_disable: true}\n"
        "controller: mpi\nsurprise: 1\n"
    )
    values, warnings = settings.load(str(path))
    assert [warning.rpartition("key ")[2] for warning in warnings] == [
        "logging.hide_timestamp, which does nothing; did you mean logging.with_timestamp?",
        "surprise, which does nothing",
    ]
    for line in (
        ["--cycle-time-ms", "2", "--config-file", "x"],
        ["--config-file", "x", "--cycle-time-ms", "2"],
    ):
        assert core_environment(line, values) == {
            "HOROVOD_FUSION_THRESHOLD": str(32 * 1024 * 1024),
            "HOROVOD_CYCLE_TIME": "2.0",
            "HOROVOD_TIMELINE": "trace.json",
            "HOROVOD_TIMELINE_MARK_CYCLES": "1",
            "HOROVOD_LOG_LEVEL": "debug",
            "HOROVOD_LOG_HIDE_TIME": "1",
            "HOROVOD_AUTOTUNE": "0",
            "HOROVOD_AUTOTUNE_WARMUP_SAMPLES": "5",
            "HOROVOD_STALL_CHECK_DISABLE": "1",
            "HOROVOD_STALL_CHECK_TIME_SECONDS": "30.0",
            "HOROVOD_THREAD_AFFINITY": "0,4",
            "HOROVOD_MPI_THREADS_DISABLE": "1",
        }


@pytest.mark.parametrize(
    ("text", "key", "code", "part"),
    [
        ("params: {cache_capacity: -1}", "params.cache_capacity", "config_value", "-1"),
        ("params: {fusion_threshold_mb: true}", "params.fusion_threshold_mb", "config_value", "True"),
        ("timeline: {mark_cycles: perhaps}", "timeline.mark_cycles", "config_value", "'perhaps'"),
        ("autotune: {mode: fast}", "autotune.mode", "config_value", "time, filter, profile"),
        ("autotune: {max_steps: -1}", "autotune.max_steps", "config_value", "-1"),
        ("controller: gloo", "controller", "config_value", "mpi"),
        ("params: {cache_capacity: [1, {}]}", "params.cache_capacity", "config_value", "list"),
        ("- a list", None, "config_no_mapping", "list"),
        ("a: [unclosed", None, "config_no_yaml", "line 1"),
        (b"a: \xff", None, "config_no_yaml", "0xff"),
    ],
)
def test_wrong_config_files_are_refused(
    tmp_path: Path, text: str | bytes, key: str | None, code: str, part: str
) -> None:
    path = tmp_path / "config.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with refused(LaunchError, code, path=str(path), key=key) as error:
        settings.load(str(path))
    assert part in str(error.value)


@pytest.mark.timeout(10)
@pytest.mark.parametrize("kind", ["device", "link to a device", "pipe", "folder", "large"])
def test_config_files_that_are_none(kind: str, tmp_path: Path) -> None:
    """Reading waits neither for a pipe's writer nor for a device's end."""
    path = Path("/dev/zero") if kind == "device" else tmp_path / "config.yaml"
    if kind == "link to a device":
        path.symlink_to("/dev/zero")
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "large":
        path.write_bytes(b"#" * (settings.MOST_BYTES + 1))
    code = {"large": "config_too_long", "folder": "config_unreadable"}.get(kind, "config_no_file")
    with refused(LaunchError, code, path=str(path)) as caught:
        settings.load(str(path))
    assert "\n" not in str(caught.value)


def test_a_config_file_as_large_as_may_be_behind_a_link(tmp_path: Path) -> None:
    text = b"verbose: 1\n"
    (tmp_path / "file").write_bytes(text + b"#" * (settings.MOST_BYTES - len(text)))
    (tmp_path / "link").symlink_to(tmp_path / "file")
    values, warnings = settings.load(str(tmp_path / "link"))
    assert values == {} and len(warnings) == 1, "the key is unknown, and was read"


@pytest.mark.parametrize("word", ["off", "no", "false", "'off'"])
def test_off_is_a_choice_of_a_config_file(tmp_path: Path, word: str) -> None:
    """YAML parses it as false."""
    path = tmp_path / "config.yaml"
    path.write_text(f"autotune: {{reuse: {word}}}\n")
    assert settings.load(str(path)) == ({"autotune_reuse": "off"}, [])


def test_a_switch_is_no_choice_where_there_is_no_such_word() -> None:
    either = Option("either", choices=("on", "off"))
    assert (either.convert(True), either.convert(False)) == ("on", "off")
    with pytest.raises(ValueError, match="True is not one of reuse, update, off"):
        BY_VARIABLE["HOROVOD_AUTOTUNE_REUSE"].convert(True)


def test_an_empty_config_file_is_fine(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("# nothing\n")
    assert settings.load(str(path)) == ({}, [])
    with refused(errors.config_unreadable, path=str(tmp_path / "none.yaml")):
        settings.load(str(tmp_path / "none.yaml"))


def test_the_launchers_variables() -> None:
    assert settings.merged({}, {}, {})["start_timeout"] == 30
    assert settings.merged({}, {}, {"HOROVOD_START_TIMEOUT": "7"})["start_timeout"] == 7
    assert settings.merged({"start_timeout": 9}, {}, {"HOROVOD_START_TIMEOUT": "7"})["start_timeout"] == 9
    for name, text in (("HOROVOD_START_TIMEOUT", "soon"), ("HOROVOD_CONTROLLER", "gloo")):
        with refused(errors.wrong_variable, variable=name) as error:
            settings.merged({}, {}, {name: text})
        assert repr(text) in error.value.facts["why"]


def test_zero_is_a_number_where_there_can_be_none_of_a_thing() -> None:
    """Other options start at 1: a job has ranks, and a server does not listen at port 0."""
    from_one = {option.name for option in OPTIONS if option.minimum == 1}
    assert from_one >= {"np", "min_np", "max_np", "slots_per_host", "ssh_port", "master_port"}
    for option in OPTIONS:
        if option.type not in ("int", "float"):
            continue
        assert option.convert("1") == option.convert(1) == 1
        if option.name in from_one:
            with pytest.raises(ValueError, match=r"^0 is not a whole number >= 1$"):
                option.convert("0")
        else:
            assert option.convert("0") == 0
            with pytest.raises(ValueError, match=r"^-1 is not a (whole )?number >= 0$"):
                option.convert("-1")


def test_what_is_no_text_is_refused_by_name() -> None:
    bad = os.fsdecode(b"\xff")
    given = command_line.parse(["-np", "1", "--timeline-filename", bad, "true"])[0]
    for name, flags, environment in (
        ("HOROVOD_ANYTHING", {}, {"HOROVOD_ANYTHING": f"a{bad}"}),
        ("HOROVOD_TIMELINE", given, {}),
    ):
        with refused(errors.no_text, setting=name):
            settings.merged(flags, {}, environment)
    settings.merged({}, {}, {"HOROVOD_ANYTHING": "é", "OTHERS": bad})


def test_variables_that_are_not_served_are_warned_about() -> None:
    told = {"HOROVOD_NUM_NCCL_STREAMS": "4", "HOROVOD_HIERARCHICAL_ALLGATHER": "0"}
    warnings = settings.environment_warnings(told)
    assert len(warnings) == 1
    assert warnings[0].startswith("HOROVOD_NUM_NCCL_STREAMS=4 is not served: ")


def test_the_configuration_page_is_up_to_date() -> None:
    page = (ROOT / "docs" / "configuration.md").read_text()
    assert page == configuration_page.page(), "write it again: make generated"


def test_help_names_every_flag(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command_line.parse(["--help"])
    text = capsys.readouterr().out
    for option in OPTIONS:
        if option.part in (LAUNCHER, CORE, PYTHON):
            assert all(flag in text for flag in option.flags)


def test_help_is_in_groups_with_every_flag_in_one(capsys: pytest.CaptureFixture[str]) -> None:
    """The help begins with the examples, which test_help_examples.py runs."""
    with pytest.raises(SystemExit):
        command_line.parse(["--help"])
    said = capsys.readouterr().out
    assert said.index("examples:") < said.index("options:")
    for typed in command_line.EXAMPLES:
        assert f"  {typed} " in said
    titles = [line[:-1] for line in said.splitlines() if line.endswith(":") and line[:-1] in GROUPS]
    assert tuple(titles) == GROUPS
    for option in OPTIONS:
        assert option.group in (GROUPS if option.flags and option.part != UNSERVED else ("",)), option.name
        if option.group:
            (_, part) = said.split(f"\n{option.group}:\n")
            assert option.flags[0] in part.split("\n\n")[0], option.name


def test_the_completions_place_is_said_alike_everywhere() -> None:
    script, page = command_line.completion("bash"), (ROOT / "docs" / "running.md").read_text()
    (option,) = (each for each in OPTIONS if each.name == "print_completion")
    path = re.compile(r"[~/\w.-]*completions?/[/\w-]+")
    places = [set(path.findall(text)) for text in (script, page, option.help)]
    assert places == [{COMPLETION_FILE}] * 3
