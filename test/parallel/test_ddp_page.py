"""docs/ddp.md: every command and every snippet is run, here or by the test that BY_OTHERS names."""

from __future__ import annotations

import re
import shlex
import socket
from pathlib import Path

import pytest
from example_runs import EXAMPLES, real_mnist, run, started
from page_blocks import ROOT, blocks, commands

PAGE = "docs/ddp.md"
TEXT = (ROOT / PAGE).read_text()
TUTORIAL = "The tutorial's script"
BY_OTHERS = {  # section -> the tests that run what is in it
    "In one line": ["parallel/test_ddp_hook_page.py"],
    "What is kept between steps": ["parallel/test_ddp_hook_page.py"],
    "When compression does not pay": ["parallel/test_ddp_hook_page.py"],
    "A process group": ["parallel/test_ddp_no_edit.py"],
    "Scripts nobody may edit": ["parallel/test_ddp_no_edit.py"],
    "horovodrun --ddp": ["parallel/test_ddp_launch_page.py", "cluster/test_ddp_on_hosts.py"],
    "Lightning, Accelerate, Trainer": ["parallel/test_friends.py"],
    "FSDP2": ["parallel/test_ddp_fsdp_page.py"],
}
HERE = [TUTORIAL]
LINE = r"mnist, 46,730 parameters, on mnist \(\S+\); 2 rank\(s\) over gloo, compression bit8"
FIGURES = r"loss [\d.]+  accuracy ([\d.]+) % \(\d+ of \d+\)"
IOU = r"(?:  mean IoU [\d.]+ %)?"
EPOCH = rf"epoch (\d)/\d  train {FIGURES}{IOU}  test {FIGURES}{IOU}  [\d.]+ s"
ENDS = rf"(?:{EPOCH}\n)+parameters bit-identical on 2 rank\(s\), SHA-256 \w+\n"
TIME_LIMIT = 250
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MNIST_DATA_DIR": str(real_mnist() or "")}

pytestmark = pytest.mark.timeout(TIME_LIMIT + 50)


def sections() -> list[str]:
    return re.findall(r"^## (.*)$", TEXT, re.MULTILINE)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where a reader types: a clone of the repository, as far as these commands go."""
    (tmp_path / "examples").symlink_to(EXAMPLES)
    return tmp_path


def test_each_section_with_something_to_run_has_a_test() -> None:
    for section in sections():
        if blocks(PAGE, "sh", section) or blocks(PAGE, "python", section):
            assert (section in HERE) != (section in BY_OTHERS), f"write a test of {section}, and name it here"
    assert {*HERE, *BY_OTHERS} <= {*sections()}, "a section is gone"
    for section, tests in BY_OTHERS.items():
        for test in tests:
            assert section in (ROOT / "test" / test).read_text(), f"{test} does not run {section}"


# The tutorial's script


def on_one_host(command: str) -> bool:
    return "--nnodes" not in command


@pytest.mark.parametrize("command", [*filter(on_one_host, commands(PAGE, TUTORIAL))])
def test_the_tutorials_script(command: str, folder: Path) -> None:
    if "--model" not in command and real_mnist() is None:
        pytest.skip("no real MNIST: neither $MNIST_DATA_DIR nor ../shared/data/mnist")
    few = ["--train-images", "6000", "--test-images", "1000"] if "--spawn" in command else []
    printed = run([*shlex.split(command), *few], folder, TIME_LIMIT, **ONE_THREAD).stdout
    ended = re.search(ENDS, printed)
    assert ended, printed
    if "--max-steps" not in command and "--model" not in command and not few:
        assert re.search(LINE, printed)
        assert float(ended[3]) > 97, "of the test images, after a whole epoch"


def test_what_the_tutorials_script_is_said_to_print() -> None:
    (shown,) = blocks(PAGE, "text", TUTORIAL)
    assert re.fullmatch(rf"{LINE}\n(?:epoch .* step .* on rank 0\n|\.\.\.\n)*{ENDS}", shown)


def test_the_tutorials_script_on_two_hosts(folder: Path) -> None:
    """Which are this one, twice: torchrun does not mind."""
    if real_mnist() is None:
        pytest.skip("no real MNIST: neither $MNIST_DATA_DIR nor ../shared/data/mnist")
    (command,) = (line for line in commands(PAGE, TUTORIAL) if not on_one_host(line))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = shlex.split(command.replace("node1:29400", f"127.0.0.1:{port}"))
    with started(words, folder, **ONE_THREAD) as other:
        mine = run(words, folder, TIME_LIMIT, **ONE_THREAD).stdout
        others, errors = other.communicate(timeout=60)
    assert other.returncode == 0, errors
    speaks = mine or others  # the host of rank 0
    assert re.search(ENDS, speaks), speaks


def test_the_numbers_of_the_page_are_those_of_the_script() -> None:
    script = (EXAMPLES / "pytorch_ddp.py").read_text()
    listed = re.findall(r"^(\d+)\. \*\*", TEXT.partition(f"## {TUTORIAL}\n")[2], re.MULTILINE)
    numbered = re.findall(r'^ *(?:# |""")(\d+)\. ', script, re.MULTILINE)
    assert listed == [str(number) for number in range(1, len(listed) + 1)]
    assert sorted(numbered, key=int) == listed
