"""docs/troubleshooting.md: messages that it shows are made to appear; those it names are in the sources."""

import ast
import os
import re
from pathlib import Path

import pytest
import typed
from page_blocks import ROOT, blocks, commands

typed.needs_mpirun()
PAGE = "docs/troubleshooting.md"
TEXT = (ROOT / PAGE).read_text()
LAUNCH, PROGRAM, STALL, DISAGREE, ARGUMENTS, ENDED, OPTIMIZER = blocks(PAGE, "text")
RANK_0_SLEEPS = "test $OMPI_COMM_WORLD_RANK = 0 && sleep 60"
COMMANDS = commands(PAGE)


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What the page's script prints with two ranks, without the ranks' marks."""
    folder = tmp_path_factory.mktemp("page")
    pieces = blocks(PAGE, "python")
    assert len(pieces) == 4, "count the page's blocks here too, so that none is lost"
    (folder / "page.py").write_text("\n".join(pieces))
    done = typed.run("horovodrun -np 2 python -W error page.py", folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return re.sub(r"^\[0\]<std\w+>:", "", done.stdout + done.stderr, flags=re.MULTILINE)


@pytest.mark.parametrize("shown", [STALL, DISAGREE, ARGUMENTS, OPTIMIZER])
def test_the_script_says_what_is_shown(shown: str, printed: str) -> None:
    assert shown in printed


@pytest.mark.parametrize(
    ("command", "line"),
    [
        ("horovodrun -np 5 -H localhost:2 true", LAUNCH.splitlines()[0]),
        ("horovodrun -np 2 -H localhost,no-such-host.invalid true", LAUNCH.splitlines()[1]),
        ("touch h; horovodrun -np 2 -H localhost:2 --hostfile h true", LAUNCH.splitlines()[2]),
        ("horovodrun -np 2 no-such-program", PROGRAM.strip()),
        (f"horovodrun -np 2 sh -c '{RANK_0_SLEEPS}; exit 3'", ENDED.splitlines()[0]),
        (f"horovodrun -np 2 sh -c '{RANK_0_SLEEPS}; kill -9 $$'", ENDED.splitlines()[1]),
        ("horovodrun -np 2 echo 1 > /dev/full", ENDED.splitlines()[2]),
    ],
)
def test_a_failure_reads_as_shown(command: str, line: str, tmp_path: Path) -> None:
    done = typed.run(command, tmp_path, HOME=str(tmp_path))
    assert done.returncode != 0
    said = line.replace("HOST", os.uname().nodename)
    # Where all ranks fail alike, any of them may be the first.
    either = [said, said.replace("rank 0 ", "rank 1 ")] if line == PROGRAM.strip() else [said]
    assert any(each in done.stderr for each in either), done.stderr


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command(command: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(blocks("README.md", "python")[0])
    done = typed.run(command, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert {"info": "over shared_memory", "debug": "estimated: ", "--check-build": "[X] MPI"}[
        next(word for word in ("info", "debug", "--check-build") if word in command)
    ] in done.stdout


def said_by_the_sources() -> str:
    """All text in the Python sources, with ... for what is filled in, and the C++ sources."""
    said = [(ROOT / "scripts" / "check_prerequisites.sh").read_text()]
    for folder in ("horovod", "build_support"):
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.JoinedStr):
                    parts = (part.value if isinstance(part, ast.Constant) else "..." for part in node.values)
                    said.append("".join(map(str, parts)))
                elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                    said.append(re.sub(r"\{[^{}]*\}", "...", node.value))
    for path in (ROOT / "horovod" / "native").rglob("*.cc"):
        said.append(re.sub(r'"\s*\n\s*"', "", path.read_text()))
    return "\n".join(said)


QUOTED = [  # messages that are named in tables and lists; ... stands for what differs
    "and C++20 needs ... or later",
    "the headers of ... (Python.h) are missing",
    "no MPI compiler wrapper ... was found",
    " cannot be honoured",
    "these are its sources, not built, which hide the horovod installed in ...",
    "the ... failed; the reason is in CMake's output above",
    "missing: ",
    "its host key is not known here",
    "it has no ...",
    " did not start within ... s",
    "this process has loaded two MPI libraries",
    " mpirun that started it belongs to another MPI",
    "this horovod was built without MPI",
    " is too small: ",
    " ranks need ",
    "the ranks have different settings: ",
    "the ranks run different builds of horovod",
    "HOROVOD_DYNAMIC_PROCESS_SETS is on for ranks ... of ... only",
    "part with a factor of 1, which prescale_factor would change",
    "the memory of a tensor of shape ... was resized or replaced on ...",
    "its storage was resized to ... bytes",
    "a ... has no memory of its own",
    "a transform of torch.func has wrapped it",
    "does not reach",
    "cannot open",
    " the store of torch.distributed ",
    " contradict each other",
    "was told to listen in ",
    "has no address that ranks on other hosts could reach",
    "cannot listen for the others",
    "HOROVOD_SECRET is set on ... of ... only",
    " is another one on ",
]


@pytest.mark.parametrize("message", QUOTED)
def test_a_message_that_is_named_exists(message: str) -> None:
    assert message in said_by_the_sources()
    page = re.sub(r"\s+", " ", TEXT.replace("`", ""))
    assert all(part in page for part in message.split("...")), f"{PAGE} does not name it any more"
