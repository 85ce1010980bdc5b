"""docs/gpu.md: its script and commands with and without the emulated GPU, its routes and its messages."""

from __future__ import annotations

import re
import sys
from itertools import product
from pathlib import Path

import pytest
import typed
from page_blocks import ROOT, blocks, commands
from test_troubleshooting_page import said_by_the_sources

from horovod import _native as native

typed.needs_mpirun()
sys.path.append(str(Path(__file__).resolve().parents[1]))

from emulated_cuda import build as emulation  # noqa: E402

PAGE = "docs/gpu.md"
TEXT = (ROOT / PAGE).read_text()
COMMANDS = commands(PAGE)
BY_OTHERS = {"HOROVOD_WITH_CUDA=1 pip install .": "setup/test_cuda_library.py"}
CHECK = "horovodrun --check-build"
TRAINING = [command for command in COMMANDS if command not in (*BY_OTHERS, CHECK)]
SHARED = "horovodrun -np 4 python train_gpu.py"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    pieces = blocks(PAGE, "python")
    assert len(pieces) == 2, "count the page's blocks here too, so that none is lost"
    (tmp_path / "train_gpu.py").write_text("\n".join(pieces))
    return tmp_path


def test_no_command_is_left_out() -> None:
    assert set(BY_OTHERS) <= set(COMMANDS) and CHECK in COMMANDS and SHARED in TRAINING
    for test in BY_OTHERS.values():
        assert (ROOT / "test" / test).is_file()


# Without a GPU what is between differs from these by a setting that has no effect.
FIRST, *BETWEEN, LAST = TRAINING
WITHOUT = [FIRST, *(pytest.param(each, marks=pytest.mark.slow) for each in BETWEEN), LAST]


@pytest.mark.parametrize("command", WITHOUT)
def test_a_command_without_a_gpu(command: str, folder: Path) -> None:
    ranks = re.findall(r"-np (\d)", command)[0]
    assert f"with {ranks} ranks" in typed.output_of(command, folder)


@pytest.mark.timeout(200)
@pytest.mark.parametrize("command", TRAINING)
def test_a_command_on_emulated_gpus(command: str, folder: Path) -> None:
    runner = Path(__file__).parent / "emulated_run.py"
    settings = {"HOROVOD_TEST_EMULATED_GPU": str(emulation.library_path())}
    settings |= {"HOROVOD_NCCL_LIBRARY": str(emulation.nccl_path()), "EMULATED_CUDA_ANY_MEMORY": "1"}
    if command == SHARED:
        settings["HOROVOD_TEST_SHARED_GPU"] = "1"
    typed_here = command.replace("python train_gpu.py", f"python {runner} train_gpu.py")
    printed = typed.output_of(typed_here, folder, limit=180, **settings)
    ranks = re.findall(r"-np (\d)", command)[0]
    assert f"with {ranks} ranks" in printed
    if "--log-level debug" in command:
        assert "nccl " in printed


def test_check_build_has_the_line_that_is_named(tmp_path: Path) -> None:
    (line,) = re.findall(r"^ *(CUDA: .+)$", typed.output_of(CHECK, tmp_path), re.MULTILINE)
    assert line == "CUDA: none" or re.match(r"CUDA: \d+\.\d+; ", line)
    assert "`CUDA: none`" in TEXT


def test_the_routes_are_those_that_there_are() -> None:
    routes = set()
    for has_nccl, is_encoded, hosts, algorithm in product(
        (True, False), (True, False), (1, 2), ("auto", "gather", "scatter")
    ):
        facts = native.PlanFacts()
        facts.ranks, facts.hosts, facts.most_on_a_host = 4, hosts, 4 // hosts
        facts.on_gpu, facts.has_nccl, facts.is_encoded = True, has_nccl, is_encoded
        facts.bytes, facts.wire_bytes = 4_000_000, 1_000_000 if is_encoded else 4_000_000
        routes.add(native.plan_allreduce(facts, algorithm).route)
    table = TEXT.partition("| route | when | what |")[2].partition("\n\n")[0]
    assert set(re.findall(r"^\| `([a-z ]+)` \|", table, re.MULTILINE)) == routes


QUOTED = [
    "this horovod was built without CUDA",
    "CUDA does not work on this machine",
    "HOROVOD_GPU_TRANSPORT=nccl cannot be: ",
    " share a GPU",
    " has no NCCL: ",
    " has NCCL ",
    " has no peer access to ",
]


@pytest.mark.parametrize("message", QUOTED)
def test_a_message_that_is_named_exists(message: str) -> None:
    assert message in said_by_the_sources()
    assert message.strip(": ") in TEXT
