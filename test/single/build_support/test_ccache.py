"""The build uses ccache if it is installed, unless the environment says otherwise."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[3]))  # last, as a sanitized build may be before it

from build_support import ccache


def test_it_is_used_where_it_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CMAKE_CXX_COMPILER_LAUNCHER", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert ccache.compiler_launcher() == ""
    (tmp_path / "ccache").touch(0o755)
    assert ccache.compiler_launcher() == str(tmp_path / "ccache")


@pytest.mark.parametrize("launcher", ["", "sccache"])
def test_another_launcher_or_none_can_be_asked_for(monkeypatch: pytest.MonkeyPatch, launcher: str) -> None:
    monkeypatch.setenv("CMAKE_CXX_COMPILER_LAUNCHER", launcher)
    assert ccache.compiler_launcher() == launcher


def test_a_persons_own_settings_of_ccache_stand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CCACHE_BASEDIR", raising=False)
    monkeypatch.setenv("CCACHE_SLOPPINESS", "none")
    settings = ccache.ccache_settings()
    assert settings["CCACHE_SLOPPINESS"] == "none"
    assert settings["CCACHE_BASEDIR"] == str(ccache.ROOT)
