"""docs/topology.md: its commands, its Python, and the pictures and output it shows."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
import typed
from page_blocks import ROOT, blocks

from horovod import made_hosts

typed.needs_mpirun()

PAGE = "docs/topology.md"


def run(commands: str, folder: Path) -> str:
    settings = {"HOME": str(folder), "PYTHONIOENCODING": "utf-8"}
    return typed.output_of(f"set -eo pipefail; {commands}", folder, **settings)


def without_figures(output: str) -> str:
    """What does not depend on the machine: neither its parts, nor what was measured."""
    boxes = re.sub(r"^│.*?(?=│|├|$)", "|", re.sub(r"^│ (?!eth0).*\n", "", output, flags=re.MULTILINE))
    output = re.sub(r"^.*(estimate|  (none|bit8)  ).*\n", "", boxes, flags=re.MULTILINE)
    output = re.sub(r"[\d.]+ (GB/s|[GM]bit/s|us)", "N", output)
    return output.partition("Each is")[0]


def test_the_commands_for_this_machine(tmp_path: Path) -> None:
    shown = run(blocks(PAGE, "sh")[0], tmp_path)
    assert shown.count("Routes of allreduces of float32:") == 2 and " ranks 0-3 ─┐" in shown
    assert (tmp_path / "topology.svg").read_text().startswith("<svg ")


def test_the_commands_for_made_hosts(tmp_path: Path) -> None:
    if reason := made_hosts.why_not():
        pytest.skip(reason)
    _, commands = blocks(PAGE, "sh")
    # a cluster with a name of its own: there may be another of that which the page uses
    name = f"topology{os.getpid()}"
    try:
        shown = run(commands.replace("made_hosts ", f"made_hosts --name {name} "), tmp_path)
    finally:
        made_hosts.MadeHosts(1, name=name).down()
    (text,) = blocks(PAGE, "text")
    assert without_figures(text) in without_figures(shown)
    drawn, kept = (
        (folder / file).read_text()
        for folder, file in ((tmp_path, "topology.svg"), (ROOT / "docs", "topology_hosts.svg"))
    )
    style = re.compile(r"<style>.*?</style>", re.DOTALL)
    assert style.findall(drawn) == style.findall(kept), (
        "docs/topology_hosts.svg is of another version: draw it again"
    )


def test_the_python_and_its_picture(tmp_path: Path) -> None:
    (script,) = blocks(PAGE, "python")
    (tmp_path / "page.py").write_text(script)
    run("python page.py", tmp_path)
    drawn, kept = tmp_path / "topology_gpus.svg", ROOT / "docs" / "topology_gpus.svg"
    assert drawn.read_text() == kept.read_text(), f"the picture has changed: copy {drawn} to {kept}"
