"""python -m horovod.torch.ddp: its arguments, and the environment that the script sees."""

from __future__ import annotations

import json
import os
import runpy
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from horovod.common.compressors import COMPRESSION_FORCE, DDP_COMPRESSION
from horovod.torch.ddp import __main__ as program

SCRIPT = """
import json, os, sys
import beside  # a module next to it
print(json.dumps([__name__, sys.argv, os.environ["HOROVOD_DDP_COMPRESSION"],
                  os.environ.get("HOROVOD_COMPRESSION_FORCE"), beside.__file__]))
"""


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """The steps before the script ran. The fixture undoes a run's changes to the process."""
    done: list[str] = []
    monkeypatch.setattr(program, "register_backend", lambda: done.append("backend"))
    monkeypatch.setattr(
        program, "compress_every_ddp", lambda: done.append(f"compress {os.environ[DDP_COMPRESSION]}")
    )
    monkeypatch.setattr(program, "_why_others_are_not_compressed", lambda: "")
    for name in (DDP_COMPRESSION, COMPRESSION_FORCE):
        monkeypatch.setenv(name, "")  # restores it afterwards
        monkeypatch.delenv(name)
    monkeypatch.setattr(sys, "argv", ["-m", "words"])
    monkeypatch.setattr(sys, "path", ["where python was started", *sys.path])
    for name in ("beside", "trains"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "trains.py").write_text(SCRIPT)
    (tmp_path / "beside.py").write_text("")
    return done


def said(capsys: pytest.CaptureFixture[str]) -> list[Any]:
    found = json.loads(capsys.readouterr().out)
    assert isinstance(found, list)
    return found


def test_a_script_is_run_as_python_would(
    steps: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = str(tmp_path / "train.py")
    program.main([script, "--epochs", "3", "-m", "--compression", "int4"])
    name, argv, compression, force, beside = said(capsys)
    assert (name, compression, force) == ("__main__", "bit8", None)
    assert argv == [script, "--epochs", "3", "-m", "--compression", "int4"], "what follows is the script's"
    assert beside == str(tmp_path / "beside.py") and "where python was started" not in sys.path
    assert steps == ["backend", "compress bit8"], "before the script's first line"


def test_a_module_is_found_where_python_was_started(
    steps: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    program.main(["--compression", "int4", "--compression-force", "-m", "trains", "word"])
    name, argv, compression, force, _ = said(capsys)
    assert (name, compression, force) == ("__main__", "int4", "1")
    assert argv == [str(tmp_path / "trains.py"), "word"], "as for python -m"
    assert sys.path[0] == str(tmp_path)
    assert steps == ["backend", "compress int4"]


@pytest.mark.parametrize(
    ("variable", "words", "compression"),
    [
        (" int4 ", [], "int4"),
        ("  ", [], "bit8"),
        ("int4", ["--compression", "fp16"], "fp16"),
    ],
)
def test_what_is_said_counts_more_than_the_variable(
    steps: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    variable: str,
    words: list[str],
    compression: str,
) -> None:
    monkeypatch.setenv(DDP_COMPRESSION, variable)
    program.main([*words, str(tmp_path / "train.py")])
    assert steps[-1] == f"compress {compression}"


def test_python_that_leaves_its_path_alone_is_obeyed(
    steps: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """python -P, or -I."""

    flags = {name: getattr(sys.flags, name) for name in dir(sys.flags) if not name.startswith("_")}
    monkeypatch.setattr(sys, "flags", SimpleNamespace(**flags | {"safe_path": True}))
    with pytest.raises(ModuleNotFoundError, match="beside"):
        program.main([str(tmp_path / "train.py")])
    assert sys.path[0] == "where python was started"


def test_what_keeps_compression_from_other_processes_is_said_beside_the_script(
    steps: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program.main([str(tmp_path / "train.py")])
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(program, "_why_others_are_not_compressed", lambda: "no reason.")
    program.main([str(tmp_path / "train.py")])
    told = "horovod: processes that the script starts are not compressed: no reason.\n"
    assert capsys.readouterr().err == told


@pytest.mark.parametrize("words", [[], ["-m"], ["--compression"], ["--unknown", "train.py"]])
def test_without_a_script_nothing_is_done(
    steps: list[str], words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        program.main(words)
    assert ended.value.code == 2 and "usage: python -m horovod.torch.ddp" in capsys.readouterr().err
    assert steps == []


def test_help(steps: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        program.main(["--help"])
    assert ended.value.code == 0
    assert f"default: what {DDP_COMPRESSION} says, or bit8" in " ".join(capsys.readouterr().out.split())


def test_python_m_gives_it_the_words(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["python -m horovod.torch.ddp", "--help"])
    monkeypatch.delitem(sys.modules, program.__name__)
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("horovod.torch.ddp", run_name="__main__", alter_sys=True)
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("usage: python -m horovod.torch.ddp ")
