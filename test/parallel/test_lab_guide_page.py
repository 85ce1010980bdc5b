"""The lab guide, in English and in Chinese: its commands run, its questions point at code that is there."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from example_runs import ROOT, real_mnist
from page_blocks import BLOCK, blocks, blocks_of, commands
from typed import run

pytestmark = pytest.mark.timeout(300)

ENGLISH, CHINESE, INDEX = "docs/lab_guide.md", "docs/zh/lab_guide.md", "docs/zh/index.md"
QUESTION = re.compile(r"^### (\d+)\. (.*)$", re.MULTILINE)
LOOK = re.compile(r"^\*\*(?:Look:|看代码：)\*\* (.*)$", re.MULTILINE)
PLACE = re.compile(r"`([^`]+\.\w+)`(?: \(([^)]+)\))?")
BY_OTHERS = {  # command -> the test that runs it
    "make mnist": "test/setup/test_fresh_machine.py",
    "source .venv/bin/activate": "test/setup/test_fresh_machine.py",
    "make lab": "test/parallel/test_lab.py",
    # For one epoch, and with what they must reach.
    "horovodrun -np 2 python examples/pytorch_mnist_horovod.py --epochs 3": (
        "test/parallel/test_examples_mnist.py"
    ),
    "horovodrun -np 2 python examples/pytorch_mnist_compress.py --bit8-allreduce --epochs 3": (
        "test/parallel/test_examples_mnist.py"
    ),
}
LAB = "python -m horovod.lab "
QUICK = {  # what the command begins with -> what makes it quick; later options count
    "python examples": " --epochs 1 --max-steps 2",
    "horovodrun -np 4 --topology": "",
    "horovodrun -np": " --epochs 1 --max-steps 2",
    LAB: " --list",  # what it would do; test_lab.py does it
}


def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """Where the commands are typed: a clone, and what the optional task tells to save in it."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    (own, *_) = blocks("docs/lab.md", "python")
    begin = own.index("parser = ")
    (added,) = blocks(ENGLISH, "python")
    (tmp_path / "my_train.py").write_text(f"{own[:begin]}{added}\n{own[begin:]}", encoding="utf-8")
    module = "\n".join(blocks("docs/own_compressor.md", "python")[:4])
    (tmp_path / "my_compressors.py").write_text(module, encoding="utf-8")
    return tmp_path


def shell(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    data = str(real_mnist() or "")
    return run(command, folder, limit=250, imports_from_it=True, MNIST_DATA_DIR=data)


@pytest.mark.parametrize("command", commands(ENGLISH))
def test_a_command_of_the_guide(command: str, clone: Path) -> None:
    if command in BY_OTHERS:
        assert (ROOT / BY_OTHERS[command]).exists(), f"{command}: run by {BY_OTHERS[command]}, which is gone"
        return
    if "mnist" in command and real_mnist() is None:
        pytest.skip("no real MNIST: neither $MNIST_DATA_DIR nor ../shared/data/mnist")
    quick = command + next((more for begin, more in QUICK.items() if command.startswith(begin)), "")
    done = shell(quick, clone)
    assert done.returncode == 0, f"{quick}\n{done.stdout}{done.stderr}"
    if command.startswith(LAB):
        runs = re.findall(r"^missing +(\S+): ", done.stdout, re.MULTILINE)
        assert len(runs) == expected_runs(command), done.stdout
    elif "examples/" in command:
        assert re.search(r"bit-identical on \d rank", done.stdout), done.stdout


def expected_runs(command: str) -> int:
    """Of each seed the serial run, and for the other numbers of ranks all compressions at all places."""

    def after(option: str, default: str) -> list[str]:
        found = re.search(rf"{option} ((?:[^-\s]\S* ?)+)", command)
        return (found[1] if found else default).split()

    ranks, seeds = after("--np", "1 2 4"), int(after("--seeds", "3")[0])
    compressions = after("--compression", "none bit16 bit8")
    places = 1 + len(after("--rates", "")) if "--made-hosts" in command else 1
    parallel = len([number for number in ranks if number != "1"])
    return (("1" in ranks) + parallel * len(compressions) * places) * seeds


def test_the_optional_training_runs(clone: Path) -> None:
    """my_train.py with what the guide adds to it, and the compressor's name."""
    done = shell("horovodrun -np 2 --compression signs python my_train.py --width 64", clone)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("page", [ENGLISH, CHINESE])
def test_questions_point_at_code_that_is_there(page: str) -> None:
    parts = QUESTION.split(text_of(page))[1:]
    numbers, bodies = parts[::3], parts[2::3]
    assert numbers == [str(number) for number in range(1, 21)]
    for number, body in zip(numbers, bodies, strict=True):
        (look,) = LOOK.findall(body)
        places = PLACE.findall(look)
        assert places, f"question {number} says nowhere to look"
        for path, names in places:
            assert (ROOT / path).is_file(), f"question {number}: there is no {path}"
            for name in re.findall(r"`([^`]+)`", names):
                assert name in text_of(path), f"question {number}: {path} has no {name}"


def test_the_chinese_guide_is_the_english_one() -> None:
    """The same commands and code, the same questions pointing at the same code, section for section."""
    english, chinese = text_of(ENGLISH), text_of(CHINESE)
    own, theirs = ([block[:2] for block in blocks_of(page)] for page in (CHINESE, ENGLISH))
    assert own == theirs
    assert LOOK.findall(chinese) == LOOK.findall(english)
    levels = [re.findall(r"^(#+) ", BLOCK.sub("", text), re.MULTILINE) for text in (english, chinese)]
    assert levels[0] == levels[1]
    assert [text.count("*Hints.*") + text.count("*提示。*") for text in (english, chinese)] == [20, 20]
    lists = [re.findall(r"^(\* |\d+\. )", text, re.MULTILINE) for text in (english, chinese)]
    assert lists[0] == lists[1], "as many points in every list"
    for number, title in QUESTION.findall(chinese):
        assert re.search(r"[\u4e00-\u9fff]", title), f"question {number} has not been translated"


def test_the_chinese_start_has_commands_of_other_pages() -> None:
    """Which tests of those run."""
    known = [block.body for page in ("README.md", ENGLISH) for block in blocks_of(page)]
    lines = {line for body in known for line in body.splitlines()}
    for kind, body, *_ in blocks_of(INDEX):
        assert body in known if kind == "python" else lines.issuperset(body.splitlines()), body


@pytest.mark.parametrize("page", [CHINESE, INDEX])
def test_links_lead_somewhere(page: str) -> None:
    for target in re.findall(r"\]\(([^)#]+)", text_of(page)):
        assert target.startswith("https://") or (ROOT / page).parent.joinpath(target).exists(), target
