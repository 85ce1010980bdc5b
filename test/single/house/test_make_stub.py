"""scripts/make_stub.py writes the native module's signatures into the stub and keeps its docstrings."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "scripts"))
import make_stub  # noqa: E402

SIGNATURES = """
BOUND: tuple = (30.0, 1)

class Codec:
    def __init__(self, name: str = 'bit8') -> None: ...

    @property
    def block(self) -> int: ...

    @property
    def level(self) -> str: ...

    @level.setter
    def level(self, arg: str, /) -> None: ...

class Event:
    pass

def added(count: int) -> Codec: ...
"""
DOCUMENTED = '''"""Of the module."""

BOUND: tuple[float]
"""Of the constant."""

class Codec:
    """Of the class."""

    level: bytes
    """Of the attribute's

    second line, which isn't short.
    """

    @property
    def block(self) -> str:
        """Of the property."""

def removed() -> None:
    """Gone."""
'''
STUB = '''"""Of the module."""

BOUND: tuple[float, int]
"""Of the constant."""

class Codec:
    """Of the class."""

    def __init__(self, name: str = "bit8") -> None: ...
    @property
    def block(self) -> int:
        """Of the property."""
    level: str
    """Of the attribute's

    second line, which isn't short.
    """

class Event:
    pass

def added(count: int) -> Codec: ...
'''


def test_signatures_are_the_modules_and_docstrings_the_stubs() -> None:
    pytest.importorskip("ruff", reason="what formats the stub is not installed")
    assert make_stub.stub_of(SIGNATURES, DOCUMENTED) == STUB
    assert make_stub.stub_of(SIGNATURES, STUB) == STUB


def test_it_is_written_or_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("ruff", reason="what formats the stub is not installed")
    stub = tmp_path / "_native.pyi"
    stub.write_text(DOCUMENTED)
    monkeypatch.setattr(make_stub, "STUB", stub)
    monkeypatch.setattr(make_stub, "ROOT", tmp_path)
    monkeypatch.setattr(make_stub, "generated", lambda: SIGNATURES)
    assert make_stub.main(["--check"]) == 1
    assert (
        capsys.readouterr().out == "_native.pyi is not of these bindings; type: python scripts/make_stub.py\n"
    )
    assert stub.read_text() == DOCUMENTED
    assert make_stub.main([]) == 0
    assert make_stub.main(["--check"]) == 0
    assert stub.read_text() == STUB
