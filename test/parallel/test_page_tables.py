"""Pages match the sources: tables those in the code, figures the measurements, messages the texts."""

from __future__ import annotations

import ast
import contextlib
import io
import json
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from example_runs import EXAMPLES
from page_blocks import BLOCK, ROOT, blocks_of, text_of
from page_runs import pages

import horovod.torch as hvd
from horovod import _native as native
from horovod.lab import logs
from horovod.lab.command_line import parse

sys.path.append(str(ROOT))  # last, because a sanitized build may precede this folder

from build_support.requirements import BuildError, check_requested_features

ASSETS = sorted((ROOT / "docs" / "assets").glob("*.svg"))
SVG = "{http://www.w3.org/2000/svg}"


def rows(page: str, pattern: str) -> list[Any]:
    return re.findall(pattern, text_of(page), re.MULTILINE)


# Tables of pages, compared with the code


def counters() -> tuple[Any, Any]:
    hvd.init()
    try:
        return rows("docs/observability.md", r"^\| `(\w+)` \| (?:bytes|us|) *\| "), list(hvd.metrics())
    finally:
        hvd.shutdown()


def gpu_routes() -> tuple[Any, Any]:
    routes = set()
    for has_nccl, is_encoded, hosts, algorithm in product(
        (True, False), (True, False), (1, 2), ("auto", "gather", "scatter")
    ):
        facts = native.PlanFacts()
        facts.ranks, facts.hosts, facts.most_on_a_host = 4, hosts, 4 // hosts
        facts.on_gpu, facts.has_nccl, facts.is_encoded = True, has_nccl, is_encoded
        facts.bytes, facts.wire_bytes = 4_000_000, 1_000_000 if is_encoded else 4_000_000
        routes.add(native.plan_allreduce(facts, algorithm).route)
    table = text_of("docs/gpu.md").partition("| route | when | what |")[2].partition("\n\n")[0]
    return set(re.findall(r"^\| `([a-z ]+)` \|", table, re.MULTILINE)), routes


def fields_of_the_lab() -> tuple[Any, Any]:
    told: dict[str, set[str]] = {}
    for event, fields in rows("docs/lab.md", r"^\| `(step|epoch|final)` \| (`.*?`) \|"):
        told.setdefault(event, set()).update(re.findall(r"`(\w+)`", fields))
    there = {event: set(fields) for event, fields in logs.FIELDS.items()}
    there["final"] |= set(logs.TRAFFIC)
    common = re.search(r"Every record has\n\n(.*?)\n\n", text_of("docs/lab.md"), re.DOTALL)
    assert common
    told[""] = set(re.findall(r"^\| (`.*?`) \|", common[1], re.MULTILINE))
    return told, {**there, "": {"`event`", "`dataset`", "`compression`", "`ranks`, `seed`", "`epoch`"}}


def options_of_the_lab() -> tuple[Any, Any]:
    flag = r"(?<![\w-])(--?[a-zA-Z][\w-]*)"
    table = re.search(r"^\| option \|.*?\n\n", text_of("docs/lab.md"), re.MULTILINE | re.DOTALL)
    assert table
    first = " ".join(row.split("|")[1] for row in table[0].strip().splitlines())
    with contextlib.redirect_stdout(io.StringIO()) as said, contextlib.suppress(SystemExit):
        parse(["--help"])
    told = said.getvalue().partition("examples:")[0]
    return set(re.findall(flag, first)), set(re.findall(flag, told)) - {"-h", "--help", "-m"}


def examples() -> tuple[Any, Any]:
    scripts = {path.name for path in EXAMPLES.glob("pytorch_*.py")}
    typed = set(rows("docs/examples.md", r"^(?:python|horovodrun) .*examples/(\w+\.py)"))
    return (typed, set(rows("docs/examples.md", r"^\| `(.*\.py)` \|"))), (scripts, scripts)


def steps_of_the_tutorial() -> tuple[Any, Any]:
    listed = re.findall(
        r"^(\d+)\. \*\*", text_of("docs/ddp.md").partition("## The tutorial's script\n")[2], re.M
    )
    numbered = re.findall(r'^ *(?:# |""")(\d+)\. ', (EXAMPLES / "pytorch_ddp.py").read_text(), re.MULTILINE)
    in_order = [str(number) for number in range(1, len(listed) + 1)]
    return (listed, sorted(numbered, key=int)), (in_order, in_order)


def settings_that_are_refused() -> tuple[Any, Any]:
    found = rows("docs/migration.md", r"^\| (`HOROVOD_.*?) \| (goes on.*?|is refused) \|$")
    assert len(found) == 4
    told = {setting: said for settings, said in found for setting in re.findall(r"`(.*?)`", settings)}
    return {setting: said == "is refused" for setting, said in told.items()}, {
        each: refused(each) for each in told
    }


def refused(setting: str) -> bool:
    name, _, value = setting.partition("=")
    try:
        check_requested_features({name: value or os.fspath(ROOT)})
    except BuildError as error:
        assert name in str(error)
        return True
    return False


SAME: list[Callable[[], tuple[Any, Any]]] = [
    *(counters, gpu_routes, fields_of_the_lab, options_of_the_lab, examples, steps_of_the_tutorial),
    settings_that_are_refused,
]


@pytest.mark.parametrize("both", SAME, ids=lambda both: both.__name__)
def test_a_page_says_what_there_is(both: Callable[[], tuple[Any, Any]]) -> None:
    said, there = both()
    assert said == there


@pytest.mark.quick
@pytest.mark.parametrize("page", [*pages(), "CHANGELOG.md"])
def test_links_lead_somewhere(page: str) -> None:
    for target in re.findall(r"\]\(([^)#]+)", BLOCK.sub("", text_of(page))):
        assert target.startswith("https://") or (ROOT / page).parent.joinpath(target).exists(), target


# Figures


def test_figures_of_pages_were_measured() -> None:
    sets = json.loads(text_of("docs/measured/cluster.json"))["training"]
    per_second, step = (
        [{row["contender"]: row[key] for row in rows} for rows in sets]
        for key in ("samples_per_second", "seconds")
    )
    ((bit8, none),) = rows("docs/index.md", r"on ([\d.]+) pictures per second instead of ([\d.]+)")
    assert [f"{per_second[0][name]:.3g}" for name in ("bit8", "none")] == [bit8, none]
    ups = [*map(float, rows("docs/tuning.md", r"([\d.]+) times faster"))]
    wanted = [(per_second[1], "bit8"), (per_second[0], "bit8"), (per_second[0], "int4")]
    assert ups == pytest.approx([run[name] / run["DDP"] for run, name in wanted], rel=5e-3)
    steps = rows("docs/tuning.md", r"^\| ([\d.]+) " + r"\| ([\d.]+) s " * 3 + r"\| (?:([\d.]+) s)? ?\|$")
    for run, took, said in zip(sets, step, steps, strict=True):
        shown = [f"{took[name]:.2f}" if name in took else "" for name in ("alone", "DDP", "bit8", "int4")]
        assert said == (f"{run[0]['wire'] / took['alone']:.1f}", *shown)


# The lab guide, in English and in Chinese

GUIDES = ["docs/lab_guide.md", "docs/zh/lab_guide.md"]
QUESTION = r"^### (\d+)\. (.*)$"
LOOK = r"^\*\*(?:Look:|看代码：)\*\* (.*)$"


@pytest.mark.parametrize("page", GUIDES)
def test_questions_point_at_code_that_is_there(page: str) -> None:
    looks = rows(page, LOOK)
    assert [number for number, _ in rows(page, QUESTION)] == [str(number) for number in range(1, 21)]
    assert len(looks) == 20
    for number, look in enumerate(looks, 1):
        places = re.findall(r"`([^`]+\.\w+)`(?: \(([^)]+)\))?", look)
        assert places, f"question {number} says nowhere to look"
        for path, names in places:
            text = (ROOT / path).read_text(encoding="utf-8")
            absent = [name for name in re.findall(r"`([^`]+)`", names) if name not in text]
            assert not absent, f"question {number}: {path} has no {absent}"


def test_the_chinese_guide_is_the_english_one() -> None:
    """The same commands and code, the same questions with links to the same code, section for section."""
    theirs, own = ([block[:2] for block in blocks_of(page)] for page in GUIDES)
    assert own == theirs
    bodies = [BLOCK.sub("", text_of(page)) for page in GUIDES]
    for pattern in (LOOK, r"^(#+) ", r"^(\* |\d+\. )"):
        english, chinese = (re.findall(pattern, body, re.MULTILINE) for body in bodies)
        assert english == chinese, pattern
    assert [body.count("*Hints.*") + body.count("*提示。*") for body in bodies] == [20, 20]
    for number, title in rows(GUIDES[1], QUESTION):
        assert re.search(r"[\u4e00-\u9fff]", title), f"question {number} has not been translated"


# Messages


@cache
def said_by_the_sources() -> str:
    """Return all text in the Python sources, with ... for inserted values, and the C++ sources."""
    said = [(ROOT / "scripts" / "check_prerequisites.sh").read_text()]
    for folder in ("horovod", "build_support"):
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.JoinedStr):
                    parts = (part.value if isinstance(part, ast.Constant) else "..." for part in node.values)
                    said.append("".join(map(str, parts)))
                elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                    said.append(node.value)
    said += [path.read_text() for path in (ROOT / "horovod" / "native").rglob("*.cc")]
    table = (ROOT / "horovod" / "native" / "base" / "sentences.h").read_text()
    said.append(re.sub(r'"\s*\n\s*"', "", table))
    return re.sub(r"\{\w+[^{}\n]*\}", "...", "\n".join(said))


QUOTED = {  # messages named in text, tables and lists; ... stands for parts that differ
    "docs/gpu.md": [
        "this horovod was built without CUDA",
        "CUDA does not work on this machine",
        "HOROVOD_GPU_TRANSPORT=nccl cannot be: ",
        " share a GPU",
        " has no NCCL: ",
        " has NCCL ",
        " has no peer access to ",
    ],
    "docs/troubleshooting.md": [
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
        "HOROVOD_DYNAMIC_PROCESS_SETS is on for ... of ... only",
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
    ],
}


@pytest.mark.parametrize(("page", "message"), [(page, each) for page in QUOTED for each in QUOTED[page]])
def test_a_message_that_is_named_exists(page: str, message: str) -> None:
    assert message in said_by_the_sources()
    text = re.sub(r"\s+", " ", text_of(page).replace("`", ""))
    assert all(part.strip(": ") in text for part in message.split("...")), f"{page} does not name it any more"


# Diagrams


def test_diagrams_are_there() -> None:
    assert len(ASSETS) >= 9


def test_the_picture_of_readme_is_drawn_from_the_data(tmp_path: Path) -> None:
    command = [sys.executable, ROOT / "benchmarks" / "cluster.py", "--plots", tmp_path]
    subprocess.run([*command, "--shown", ROOT / "docs" / "measured" / "cluster.json"], check=True)
    assert (tmp_path / "step_time.svg").read_bytes() == (ROOT / "docs" / "step_time.svg").read_bytes()
    assert "(docs/step_time.svg)" in text_of("README.md")


@pytest.mark.parametrize("diagram", ASSETS, ids=lambda path: path.name)
def test_a_page_shows_a_diagram(diagram: Path) -> None:
    link = rf"!\[([^\]]*)\]\((?:\.\./|docs/)?assets/{diagram.name}\)"
    shown = re.findall(link, "".join(map(text_of, pages())))
    assert shown and all(shown), "some page shows it, with words in its place"


@pytest.mark.parametrize("diagram", ASSETS, ids=lambda path: path.name)
def test_a_diagram_is_readable(diagram: Path) -> None:
    """It has a description, text that is legible at 400 pixels, and colours for both schemes."""
    root = ElementTree.parse(diagram).getroot()
    title, description = root.find(f"{SVG}title"), root.find(f"{SVG}desc")
    assert title is not None and title.text and description is not None
    assert len(description.text or "") > 80
    width, height = map(int, root.attrib["viewBox"].split()[2:])
    assert width == 400
    for text in root.iter(f"{SVG}text"):
        assert float(text.attrib["font-size"]) >= 11, text.text
        assert 0 <= float(text.attrib["x"]) <= width and 0 < float(text.attrib["y"]) < height, text.text
    style = root.findtext(f"{SVG}style") or ""
    used = set(re.findall(r"var\(--(\w+)\)", ElementTree.tostring(root, encoding="unicode")))
    light, dark = style.split("prefers-color-scheme:dark")
    for colour in used:
        assert f"--{colour}:" in light and f"--{colour}:" in dark, colour
