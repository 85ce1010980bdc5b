"""Checks docs/compatibility.md, which lists every name of Horovod, against the package, row by row."""

import ast
import contextlib
import importlib
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from refusals import refused

import horovod
import horovod.torch as hvd
from horovod.common.absent import ABSENT
from horovod.common.options import OPTIONS, UNSERVED
from horovod.runner import command_line, errors, settings
from horovod.runner.errors import LaunchError

sys.path.append(str(Path(__file__).parents[3]))  # last, as a sanitized build may be before this folder

from build_support.requirements import BuildError, check_requested_features

PAGE = Path(__file__).resolve().parents[3] / "docs" / "compatibility.md"
HERE, ABSENT_STATES = ("yes", "differs", "new"), ("no", "not yet")


class Row(NamedTuple):
    section: str
    name: str
    state: str
    remark: str


def rows() -> Iterator[Row]:
    section = ""
    for line in PAGE.read_text().splitlines():
        if line.startswith("## "):
            section = line[3:]
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| `"):
            for name in re.findall(r"`([^`]+)`", cells[0]):
                yield Row(section, name, cells[1], cells[2])


ROWS = list(rows())
TABLES = ("horovodrun", "Config file", "Variables", "Variables of the build", "horovod.run, the function")
HOROVODS = [option for option in OPTIONS if not option.is_new]
NAMES = [row for row in ROWS if row.section not in TABLES]


def of(section: str) -> dict[str, str]:
    """Name -> state."""
    assert section in TABLES
    found = {row.name: row.state for row in ROWS if row.section == section}
    assert found, f"the page has no table {section!r}"
    return found


@pytest.fixture(scope="module")
def optimizer() -> Iterator[Any]:
    hvd.init()
    model = torch.nn.Linear(2, 2)
    yield hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())
    hvd.shutdown()


def resolved(name: str, optimizer: Any) -> Any:
    """The object of a dotted name of the page: attributes, and modules that must be imported first."""
    root, *rest = name.split(".")
    here = {"hvd": hvd, "horovod": horovod, "optimizer": optimizer}[root]
    path = "horovod.torch" if root == "hvd" else root
    for part in rest:
        path = f"{path}.{part}"
        if inspect.ismodule(here) and not hasattr(here, part):
            with contextlib.suppress(ModuleNotFoundError):
                importlib.import_module(path)
        here = getattr(here, part)
    return here


def only_raises(member: Any) -> bool:
    """Whether a function or method does nothing but raise."""
    if not inspect.isroutine(member) or inspect.isbuiltin(member):
        return False
    definition = ast.parse(textwrap.dedent(inspect.getsource(member))).body[0]
    assert isinstance(definition, ast.FunctionDef)
    body = definition.body[1:] if ast.get_docstring(definition) is not None else definition.body
    return len(body) == 1 and isinstance(body[0], ast.Raise)


def test_each_name_has_one_row_and_one_state() -> None:
    assert {row.state for row in ROWS} == {*HERE, *ABSENT_STATES}
    keys = [(row.section if row.section in TABLES else "", row.name) for row in ROWS]
    assert sorted(keys) == sorted(set(keys))
    for row in ROWS:
        assert row.remark.endswith(".") or (row.state == "yes" and not row.remark), row


@pytest.mark.parametrize("row", [row for row in NAMES if row.state in HERE], ids=lambda row: row.name)
def test_what_is_said_to_be_here_is_here(row: Row, optimizer: Any) -> None:
    assert not only_raises(resolved(row.name, optimizer))


@pytest.mark.parametrize(
    "row", [row for row in NAMES if row.state in ABSENT_STATES], ids=lambda row: row.name
)
def test_what_is_said_to_be_absent_is_refused_in_a_sentence(row: Row, optimizer: Any) -> None:
    with pytest.raises(AttributeError) as raised:
        resolved(row.name, optimizer)
    if row.name.startswith("hvd."):  # hvd.elastic.run is refused with hvd.elastic
        full = ".".join(["horovod.torch", *row.name.split(".")[1:2]])
        assert str(raised.value) == f"{full} is not served: {ABSENT[full]}."
    else:
        assert row.name in ABSENT
        parent, _, child = row.name.rpartition(".")
        sentence = re.escape(f"{row.name} is not served: {ABSENT[row.name]}.")
        if parent != "horovod.common":  # has no __getattr__, as no script needs it
            assert re.fullmatch(sentence, str(raised.value))
        for statement in (
            f"import {row.name}", f"import {row.name}.below", f"from {parent} import {child}",
            f"from {row.name} import anything",
        ):  # fmt: skip
            with pytest.raises(ModuleNotFoundError, match=sentence):
                exec(statement)


def test_absent_modules_and_other_missing_ones() -> None:
    assert set(ABSENT) <= {row.name for row in ROWS if row.state in ABSENT_STATES}
    for reason in ABSENT.values():
        assert ":" in reason and not reason.endswith(".") and "\n" not in reason
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'horovod\.no_such_module'"):
        import horovod.no_such_module  # noqa: F401
    with pytest.raises(AttributeError, match="no attribute 'no_such_name'"):
        _ = hvd.no_such_name


def test_every_public_name_is_on_the_page() -> None:
    on_page = {row.name for row in ROWS}
    for module, prefix in ((hvd, "hvd"), (hvd.mpi_ops, "horovod.torch.mpi_ops")):
        for name in module.__all__:
            assert {f"{prefix}.{name}", f"hvd.{name}"} & on_page, name


def test_flags() -> None:
    """The page has exactly the flags that Horovod has too, with their states."""
    expected = {}
    for option in HOROVODS:
        expected |= dict.fromkeys(option.flags, option.part != UNSERVED)
        expected |= dict.fromkeys(option.off_flags, True)
    on_page = {name: state in HERE for name, state in of("horovodrun").items()}
    assert on_page | {"-n": True} == expected


@pytest.mark.parametrize("flag", [row.name for row in ROWS if row.section == "horovodrun"])
def test_flags_on_the_command_line(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    """An absent flag ends with the reason; the command line knows the other flags."""
    if of("horovodrun")[flag] in ABSENT_STATES:
        with pytest.raises(SystemExit) as end:
            command_line.parse(["-np", "2", flag, "1", "ls"])
        assert end.value.code == 2 and f"{flag} is not served: " in capsys.readouterr().err
    else:
        with contextlib.suppress(SystemExit):  # values of some flags are wrong
            command_line.parse(["-np", "2", flag, "1", "ls"])
        assert "unrecognized" not in (said := capsys.readouterr().err) and "not served" not in said


def test_config_file_keys(tmp_path: Path) -> None:
    expected = {option.key: option.part != UNSERVED for option in HOROVODS if option.key}
    assert {name: state in HERE for name, state in of("Config file").items()} == expected
    file = tmp_path / "config.yaml"
    for key, served in expected.items():
        section, _, inner = key.partition(".")
        file.write_text(f"{section}: {{{inner}: 1}}\n" if inner else f"{section}: mpi\n")
        if served:
            with contextlib.suppress(LaunchError):  # 1 is not a log level
                assert settings.load(str(file))[1] == []
        else:
            with refused(errors.config_unserved, key=key, value=1):
                settings.load(str(file))


def test_variables() -> None:
    expected = {option.variable: option.part != UNSERVED for option in HOROVODS if option.variable}
    on_page = of("Variables")
    assert {name: state in HERE for name, state in on_page.items()} == expected
    for name, state in on_page.items():
        warnings = settings.environment_warnings({name: "1"})
        assert bool(warnings) == (state in ABSENT_STATES)
        assert all(warning.startswith(f"{name}=1 is not served: ") for warning in warnings)


def test_no_and_not_yet_are_told_apart_as_in_the_table_of_options() -> None:
    """A reason that says "yet" belongs to "not yet"."""
    states = of("horovodrun") | of("Config file") | of("Variables")
    for option in OPTIONS:
        for name in filter(None, (*option.flags, option.key, option.variable)):
            if option.part == UNSERVED:
                assert (states[name] == "not yet") == bool(re.search(r"\byet\b", option.unserved)), name


@pytest.mark.parametrize("variable", [r.name for r in ROWS if r.section == "Variables of the build"])
def test_variables_of_the_build(variable: str) -> None:
    if of("Variables of the build")[variable] in ABSENT_STATES:
        with pytest.raises(BuildError, match=variable):
            check_requested_features({variable: "NCCL" if "GPU" in variable else "1"})
    else:
        of_operations = variable.startswith(("HOROVOD_GPU_", "HOROVOD_CPU_OPERATIONS"))
        value = "CUDA" if variable == "HOROVOD_GPU" else "mpi" if of_operations else "1"
        check_requested_features({variable: value})


def test_parameters_of_run() -> None:
    """All parameters exist, in Horovod's order; an absent one is refused by name."""
    on_page = of("horovod.run, the function")
    parameters = inspect.signature(horovod.run).parameters
    assert sorted(parameters) == sorted(on_page)
    for name, state in on_page.items():
        if state in ABSENT_STATES:
            with pytest.raises((ValueError, NotImplementedError), match=rf"{name} is not served"):
                horovod.run(print, **{name: 1})


def test_signature_of_run() -> None:
    names = (
        "func args kwargs num_proc min_num_proc max_num_proc slots reset_limit cooldown_range hosts hostfile "
        "host_discovery_script start_timeout ssh_port ssh_identity_file disable_cache output_filename "
        "verbose use_gloo use_mpi mpi_args network_interface network_interfaces executable "
        "np min_np max_np ddp compression compression_force launcher elastic_timeout"
    )
    parameters = inspect.signature(horovod.run).parameters
    assert " ".join(parameters) == names
    defaults = {"func": inspect.Parameter.empty, "args": (), "num_proc": 1}
    assert all(p.default == defaults.get(n) for n, p in parameters.items())
